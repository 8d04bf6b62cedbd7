"""Search: an index of all pages as a script, made at the build and read when someone searches.

Why not what is there already: Sphinx's search cuts ``tf.data.Dataset`` at the dots, knows no
Chinese without a large dictionary, and reads its excerpts from the pages, which a browser refuses
to a site in a folder; Pagefind reads its index in the same way. So the index is a plain script
(``search-index.js``) that works by ``file://``, and it holds the texts that the excerpts show.
``static/finder.js`` searches it with MiniSearch (``static/minisearch.js``, MIT licence).

What an entry is: a page (its question in both languages, its short answer), a section, a claim
with its verdict, a code cell, a figure. A page's entries are collected when it is read and kept in
Sphinx's environment, so a build that reads one page still writes the index of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

from ci.project import load_yaml, write_atomic
from ci.sphinx_ext.incremental import snapshot

INDEX = "search-index.js"
# What a kind of entry is called in the index; finder.js knows the same letters.
SECTION, CLAIM, CELL, FIGURE = "s", "c", "x", "f"
ERROR = re.compile(r"^\s*[\w.]*(?:Error|Exception|Warning)\b.*", re.M)
ERROR_LENGTH = 200
DASH = "\N{EN DASH}"  # between the cells of a row

Entry = list[str]  # kind, address on the page, title, text


# ------------------------------------------------------------------ what a page has to be found

class Collect(SphinxTransform):
    """Note the entries of the page that is being read; the tree stays as it is."""

    default_priority = 950  # the cells, their numbers and all boxes stand by now

    def apply(self, **kwargs: Any) -> None:
        _entries(self.env)[self.env.docname] = list(entries_of(self.document))


def entries_of(document: nodes.document) -> list[Entry]:
    """Return what a page holds, in reading order."""
    found: list[Entry] = []
    _walk(document, found, ["", "", ""])
    return [entry for entry in found if entry[1] or entry[3]]


def _walk(parent: nodes.Element, found: list[Entry], section: list[str]) -> None:
    """Add the entries below a node; text that is no entry itself belongs to its section."""
    for node in parent.children:
        if isinstance(node, nodes.section):
            title = node.next_node(nodes.title)
            one = [SECTION, _address(node), _plain(title) if title else "", ""]
            found.append(one)
            _walk(node, found, one)
        elif not isinstance(node, nodes.Element) or isinstance(node, (nodes.title, nodes.raw)):
            continue
        elif "claim" in node["classes"]:
            if node["ids"]:  # elsewhere it is shown from its page
                found.append([CLAIM, _address(node, "claim-"), "", _said(node)])
        elif "verdict" in node["classes"]:
            _verdict(node, found)
        elif isinstance(node, nodes.container) and node.get("nb_element") == "cell_code":
            _cell(node, found)
        elif "wide-table" in node["classes"] or "page-list" in node["classes"]:
            continue  # a generated list: its lines are found on their own pages
        elif isinstance(node, nodes.row) and (name := _address(node, "claim-")):
            cells = [_plain(cell) for cell in node.children if isinstance(cell, nodes.Element)]
            found.append([CLAIM, name, cells[2], f"{cells[1]} {DASH} {cells[3]}"])
        elif isinstance(node, nodes.row):
            _add(section, f" {DASH} ".join(_plain(cell) for cell in node.children
                                   if isinstance(cell, nodes.Element)))
        elif isinstance(node, nodes.TextElement):
            _add(section, _plain(node))
        else:
            _walk(node, found, section)


def _add(section: list[str], text: str) -> None:
    if len(section) > 3:
        section[3] = f"{section[3]} {text}".strip()


def _verdict(node: nodes.Element, found: list[Entry]) -> None:
    claim = next((entry for entry in reversed(found) if entry[0] == CLAIM), None)
    strong = node.next_node(nodes.strong)
    if claim and strong and not claim[2]:
        claim[2] = strong.astext().removeprefix("Verdict: ").rstrip(".")
        claim[3] = f"{claim[3]} {_said(node)}"


def _said(quote: nodes.Element) -> str:
    """Return a quote's text without its first words, `Claim ...` or `Verdict: ...`."""
    strong = quote.next_node(nodes.strong)
    head = _plain(strong) if strong else ""
    return _plain(quote).removeprefix(head).strip()


def _cell(cell: nodes.Element, found: list[Entry]) -> None:
    """Add a code cell: its code, and the errors that it shows, for who searches by one."""
    code, shown = "", []
    for block in cell.findall(nodes.literal_block):
        if any("cell_input" in up["classes"] for up in _above(block, cell)):
            code = code or block.astext()
        else:
            shown += [line.strip()[:ERROR_LENGTH] for line in ERROR.findall(block.astext())]
    found.append([CELL, _address(cell, "cell-"), "", "\n".join([code, *dict.fromkeys(shown)])])
    for figure in cell.findall(nodes.figure):
        caption, image = figure.next_node(nodes.caption), figure.next_node(nodes.image)
        alt = str(image.get("alt", "")) if image else ""
        if figure["ids"] and caption:
            found.append([FIGURE, _address(figure), _plain(caption), alt])


def _above(node: nodes.Element, top: nodes.Element) -> Iterator[nodes.Element]:
    up = node.parent
    while up is not None and up is not top:
        yield up
        up = up.parent


def _address(node: nodes.Element, start: str = "") -> str:
    """Return the first address of a node that starts in this way."""
    return next((name for name in node["ids"] if name.startswith(start)), "")


def _plain(node: nodes.Node) -> str:
    """Return the text of a node in one line, without the labels that only phones show."""
    if isinstance(node, nodes.Element):
        words = [text.astext() for text in node.findall(nodes.Text)
                 if "cell-label" not in text.parent["classes"]]
        between = " " if len(list(node.findall(nodes.paragraph))) > 1 else ""
        return " ".join(between.join(words).split())
    return " ".join(node.astext().split())


# ------------------------------------------------------------------ all pages

def _entries(env: BuildEnvironment) -> dict[str, list[Entry]]:
    if not hasattr(env, "book_entries"):
        env.book_entries = {}  # type: ignore[attr-defined]
    found: dict[str, list[Entry]] = env.book_entries  # type: ignore[attr-defined]
    return found


def purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _entries(env).pop(docname, None)


def merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str],
          other: BuildEnvironment) -> None:
    _entries(env).update({name: _entries(other)[name] for name in docnames
                          if name in _entries(other)})


def index(app: Sphinx) -> dict[str, Any]:
    """Return the index: the pages in reading order, and the Chinese words with their English."""
    book, env = snapshot(app), app.env
    places = {slug: (number, part) for number, (part, slug) in enumerate(book.parts)}
    pages = []
    for name in sorted(env.found_docs, key=lambda name: (places.get(name, (len(places),))[0],
                                                         name)):
        facts = book.facts(name) if name in places else {}
        topic = book.topics.get(name)
        title = env.titles[name].astext()
        entries = [[*entry] for entry in _entries(env).get(name, [])]
        # The page's own section is the page; the short answer is what it says.
        own = entries.pop(0) if entries and entries[0][0] == SECTION else ["", "", "", ""]
        entries = [entry for entry in entries if entry[1] != "short-answer"]
        answer = facts.get("answer") or own[3]
        pages.append({
            "page": name, "title": title, "part": places.get(name, (0, ""))[1],
            "asked": f"{topic.en} {topic.zh}" if topic else "",
            "text": re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", answer),
            "code": bool(facts.get("notebook")),
            "names": [[one[0], *sorted({one[1], one[2]} - {0})] for one in facts.get("api", [])],
            "entries": entries,
        })
    there = {page["page"] for page in pages}
    waiting = [f"{topic.en} {topic.zh}" for topic in book.topics.values()
               if topic.slug not in there]
    words = book.project.claims_file.with_name("words.yml")
    return {"pages": pages, "waiting": waiting if "questions" in there else [],
            "words": load_yaml(words) or {} if words.is_file() else {}}


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the index of all pages, read and written in this build or not."""
    if exception is None and app.builder.format == "html":
        data = json.dumps(index(app), ensure_ascii=False, separators=(",", ":"))
        write_atomic(Path(app.outdir) / INDEX, f"window.bookSearchIndex={data};\n")


# ------------------------------------------------------------------ its page

FORM = """\
<form class="book-search-form" role="search" action="search.html" method="get">
<input type="search" name="q" aria-label="Search the book" autocomplete="off" autocapitalize="off"
 spellcheck="false" placeholder="An API name, a claim, a question">
</form>
<div class="book-search-results"></div>
<noscript><p>Searching needs JavaScript. Without it: {instead}</p></noscript>
"""
INSTEAD = {"questions": "the questions", "claims": "the claims", "api": "the API names"}
LOST = """\
<p>There is no page at this address. It may have been renamed, or the link has a slip.
Search for it here, or start at <a href="index.html">the first page</a>.</p>
"""


def search_box(app: Sphinx) -> str:
    """Return the form of a page that searches; the script fills what is below it."""
    links = [f'<a href="{page}.html">{name}</a>' for page, name in INSTEAD.items()
             if page in app.env.found_docs] or ['<a href="index.html">the first page</a>']
    return FORM.format(instead=", ".join(links) + ".")


def search_page(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
                doctree: nodes.document | None) -> str | None:
    """Put our search into the page that Sphinx makes for its own."""
    if pagename != "search":
        return None
    context.update(title="Search", body=f'<section id="search"><h1>Search</h1>\n'
                   f"{search_box(app)}</section>")
    return "page.html"


def lost_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make the page for addresses that do not exist."""
    yield "404", {"title": "No such page", "body": (
        f'<section id="no-such-page"><h1>No such page</h1>\n{LOST}{search_box(app)}</section>'
    )}, "page.html"


def setup(app: Sphinx) -> None:
    app.add_transform(Collect)
    app.add_css_file("search.css")
    app.add_js_file("search.js", loading_method="defer")
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", lost_page)
    app.connect("html-page-context", search_page, priority=950)
    app.connect("build-finished", write)
