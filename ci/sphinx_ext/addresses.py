"""Addresses that last: a link to itself on every claim and cell, and a page for each old name.

Headings and figures get such links from Sphinx. A page that was renamed stands in
``book/_data/renamed.yml`` (``old-name: new-name``); at its old address lies a small page that
leads on, and keeps the part of the address that names a claim or a cell.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from ci.project import write_atomic
from ci.renamed import load_renamed
from ci.sphinx_ext.boxes import code_cells
from ci.sphinx_ext.incremental import project_of

# The refresh works without a script; the script, which comes first, keeps the `#...`.
OLD_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<meta name="robots" content="noindex">
<link rel="canonical" href="{canonical}">
<script>location.replace("{target}" + location.search + location.hash)</script>
<meta http-equiv="refresh" content="0; url={target}">
</head>
<body><main><h1>{title}</h1><p>This page has a new address:
<a href="{target}">{target}</a></p></main></body>
</html>
"""


def redirect(app: Sphinx, exception: Exception | None) -> None:
    """Write the pages at the old addresses; those of earlier builds are gone by now."""
    if exception is not None or app.builder.format != "html":
        return
    for old, new in load_renamed(project_of(app)).items():
        if new not in app.env.found_docs or old in app.env.found_docs:
            continue  # `ci check` says so
        target = f"{new}.html"
        text = OLD_PAGE.format(
            title=escape(app.env.titles[new].astext()), target=escape(target),
            canonical=escape((app.config.html_baseurl or "") + target))
        write_atomic(Path(app.outdir) / f"{old}.html", text)


def self_link(address: str, label: str, shown: str) -> nodes.raw:
    """Return a link to an address of its own page, in the looks of a heading's."""
    return nodes.raw("", f'<a class="headerlink self-link" href="#{escape(address)}" '
                         f'aria-label="{escape(label)}" title="{escape(label)}">'
                         f"{escape(shown)}</a>", format="html")


def add_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the links into the tree that is about to be written."""
    if app.builder.format != "html":
        return
    for node in list(doctree.findall(lambda one: isinstance(
            one, (nodes.block_quote, nodes.row)))):
        name = next((name for name in node["ids"] if name.startswith("claim-")), "")
        first = node.next_node(nodes.paragraph)
        if name and first is not None:
            first += self_link(name, f"Link to claim {name.removeprefix('claim-')}", "#")
    for cell in list(code_cells(doctree)):
        name = next((name for name in cell["ids"] if name.startswith("cell-")), "")
        if name:
            number = name.removeprefix("cell-")
            cell.insert(0, self_link(name, f"Link to cell {number}", f"cell {number} #"))


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", add_links, priority=900)
    app.connect("build-finished", redirect)
