"""Links between pages, and the buttons that leave the site: Colab, the executed notebook."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# A page links to another by its notebook, which works on GitHub, in JupyterLab and in Colab.
# Code spans match first, and stay as they are.
PAGE_LINK = re.compile(r"(`+)[^`]+\1|\]\(\.\./notebooks/([a-z0-9-]+)\.ipynb(#[^)\s]*)?\)")
FENCE = re.compile(r"^(`{3,}|~{3,})", re.M)


def to_site_links(text: str) -> str:
    """Return the text with links to notebooks turned into links to pages, code left alone."""
    parts: list[str] = []
    inside = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and not inside:
            inside = mark[1]
        elif mark and line.startswith(inside) and not line[len(inside):].strip():
            inside = ""
        elif not inside:
            line = PAGE_LINK.sub(
                lambda m: f"]({m[2]}.md{m[3] or ''})" if m[2] else m[0], line)
        parts.append(line)
    return "".join(parts)


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = to_site_links(source[0])


def colab_address(url: str, branch: str, slug: str) -> str:
    """Return where Colab opens a page: it reads ``.ipynb`` files of a GitHub repository only."""
    path = url.rstrip("/").removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{path}/blob/{branch}/notebooks/{slug}.ipynb"


def buttons(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
            doctree: nodes.document | None) -> None:
    """Point the Colab button at the paired notebook; the theme would point it at the text."""
    if "source_map" not in app.env.metadata.get(pagename, {}):  # not a notebook
        return
    options = app.config.html_theme_options
    target = colab_address(options["repository_url"], options["repository_branch"], pagename)

    def walk(items: list[dict[str, Any]]) -> None:
        for item in items:
            if "colab" in str(item.get("url", "")):
                item["url"] = target
            walk(item.get("buttons", []) or [])

    walk(context.get("header_buttons", []))


def setup(app: Sphinx) -> None:
    app.connect("source-read", rewrite)
    app.connect("html-page-context", buttons, priority=900)
