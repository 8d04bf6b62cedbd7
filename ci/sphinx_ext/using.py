"""What a reader does with a page: its plan, its buttons, and the first page's evidence and counts.

Plan and buttons stand under the title and are added to the finished page, so that they are no part
of what is searched. Two directives belong to the first page; what stands inside them is for
those who read the text elsewhere, and the site puts its own in its place:

    ```{book-evidence} keras-callbacks-02
    On the site: the claim, the cell that decides it, what it printed, the verdict.
    ```
    ```{book-counts}
    On the site: how many claims got which verdict.
    ```
"""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import datetime
from html import escape
from typing import Any
from urllib.parse import urlencode

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from ci.pages import VERDICTS
from ci.sphinx_ext.boxes import verdict_class
from ci.sphinx_ext.exercises import book_name
from ci.sphinx_ext.facts import DATA, Facts, Snapshot
from ci.sphinx_ext.generated import BookDirective
from ci.sphinx_ext.incremental import data_of, snapshot
from ci.sphinx_ext.links import Repository

# Drawn for this book, on a grid of 24.
ICONS = {
    "run": "M7 4v16l13-8z",
    "download": "M12 4v11M7 10l5 5 5-5M4 20h16",
    "text": "M6 3h9l4 4v14H6zM9 11h7M9 15h7",
    "edit": "M4 20l1-5L16 4l4 4L9 19z",
    "report": "M5 21V4h14l-4 4 4 5H5",
    "repository": "M4 6h6l2 3h8v10H4z",
}
OWN_MENUS = {"launch-buttons", "source-buttons", "download-buttons", "source-repository-button"}
ASKED_VERSIONS = ("torch", "tensorflow", "keras")
# The prompts of Python, of a shell and of IPython; where a block has some, the other lines are
# what was printed, and are left out.
CODE = "div.highlight > pre:not(.cell_output pre)"
PROMPTS = r">>> |\.\.\. |\$ |In \[\d*\]: | {2,5}\.\.\.: "
# Where the browser refuses its stores, the first script to ask for one would end with an error, and
# the rest of it would not be run. A stand-in for this page lets all of them go on.
STORE = """<script>
for (const name of ["localStorage", "sessionStorage"]) {
  try { window[name].getItem(""); } catch {
    window.storeRefused = true;
    const kept = {};
    const hidden = (value) => ({ value });
    Object.defineProperties(kept, {
      getItem: hidden((key) => Object.hasOwn(kept, key) ? kept[key] : null),
      setItem: hidden((key, value) => { kept[key] = String(value); }),
      removeItem: hidden((key) => { delete kept[key]; }),
    });
    try { Object.defineProperty(window, name, { value: kept }); } catch { /* as it is */ }
  }
}
</script>
"""


# ------------------------------------------------------------------ data

def plan_data(book: Snapshot, argument: str) -> Facts:
    """What the record of one page says to its reader; nothing if there is no record."""
    if (record := book.record(argument)) is None:
        return {}
    return {
        "seconds": max(1, round(record.seconds)) if record.seconds >= 1 else 0,
        # A few MiB more or less from run to run are no news.
        "gib": max(1, math.ceil(record.peak_mib / 1024)),
        "device": record.device,
        "platform": record.platform,
        "python": record.python,
        "versions": {name: record.versions[name] for name in ASKED_VERSIONS
                     if name in record.versions},
        "date": record.started[:10],
        "commit": record.commit,
    }


def evidence_data(book: Snapshot, argument: str) -> Facts:
    """A claim with the cell that decides it; nothing if no page deals with it."""
    if argument not in book.claim:
        return {}
    slug, _, text, verdict, shows, number = book.claim[argument]
    cell = next((one for one in book.page(slug).code if one.number == number), None)
    return {"page": slug, "title": book.facts(slug)["title"], "text": text, "verdict": verdict,
            "shows": shows, "cell": number, "code": cell.source if cell else "",
            "printed": printed(book, slug, number) if cell else ""}


def printed(book: Snapshot, slug: str, number: int) -> str:
    """Return what a code cell printed in the run, '' where there was none."""
    try:
        notebook = json.loads(book.project.executed_notebook(slug).read_text(encoding="utf-8"))
        code = [one for one in notebook["cells"] if one["cell_type"] == "code"]
        outputs = code[number - 1]["outputs"]
    except (OSError, ValueError, KeyError, IndexError):
        return ""
    return "".join("".join(one["text"]) for one in outputs if one.get("name") == "stdout")


def counts_data(book: Snapshot, argument: str) -> Facts:
    """How many claims got which verdict, on how many pages, decided by how many cells."""
    counts = Counter(verdict for _, _, _, verdict, _, _ in book.claims)
    return {"counts": {word: counts[word] for word in VERDICTS if counts[word]},
            "pages": len({slug for slug, *_ in book.claims}),
            "cells": len({(slug, cell) for slug, *_, cell in book.claims if cell})}


DATA.update({"book-plan": plan_data, "book-evidence": evidence_data, "book-counts": counts_data})


# ------------------------------------------------------------------ the first page

class BookEvidence(BookDirective):
    """A claim, the cell that decides it, what the cell printed in the run, and the verdict."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        wanted = self.arguments[0]
        if not (data := self.data()):
            raise self.error(f"no page deals with claim {wanted!r}")
        claim = nodes.block_quote(classes=["claim"])
        claim += nodes.paragraph("", "", nodes.strong("", "Claim."), nodes.Text(" "),
                                 *self.inline(data["text"]))
        verdict = nodes.block_quote(classes=["verdict", verdict_class(data["verdict"])])
        verdict += nodes.paragraph(
            "", "", nodes.strong("", f"Verdict: {data['verdict']}."), nodes.Text(" "),
            *self.inline(data["shows"]), nodes.Text(" Its page: "),
            self.link(data["page"], f"claim-{wanted}", data["title"]))
        cell = nodes.container(classes=["cell", "evidence"])
        if data["code"]:
            cell += self.block("cell_input", data["code"], "python")
        if data["printed"]:
            cell += self.block("cell_output", data["printed"].rstrip("\n"), "none")
        return [claim, cell, verdict]

    def block(self, name: str, text: str, language: str) -> nodes.container:
        return nodes.container("", nodes.literal_block(text, text, language=language),
                               classes=[name])


class BookCounts(BookDirective):
    """The verdicts with their numbers, each a link to the claims that got it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        data = self.data()
        items = "".join(
            f'<li><a href="{claims_address(verdict=word)}" class="{verdict_class(word)}">'
            f'<b>{number}</b> <span class="verdict-word">{word}</span></a></li>'
            for word, number in data["counts"].items())
        total = sum(data["counts"].values())
        told = (f"{total} {plural('claim', total)} on {data['pages']} "
                f"{plural('page', data['pages'])}, decided by {data['cells']} "
                f"{plural('cell', data['cells'])} that ran.")
        return [nodes.paragraph("", told),
                nodes.raw("", f'<ul class="counts" aria-label="Claims by verdict">{items}</ul>',
                          format="html")]


def claims_address(**filters: str) -> str:
    """Return the address of the claims page with some filters set (``book.js`` reads them)."""
    return f"claims.html?{escape(urlencode(filters))}"


def plural(word: str, number: int) -> str:
    return word if number == 1 else word + "s"


# ------------------------------------------------------------------ under the title

def plan(app: Sphinx, page: str) -> str:
    """Return the lines under a page's title: how it ran, its claims, on which versions, when."""
    book = snapshot(app)
    facts, ran = book.facts(page), plan_data(book, page)
    lines = []
    if ran:
        seconds = f"{ran['seconds']} s" if ran["seconds"] else "under 1 s"
        device = "a CPU" if ran["device"] == "cpu" else escape(ran["device"])
        lines.append(f"Ran in {seconds} on {device}")
        lines.append(f"Needs {ran['gib']} GiB of memory")
    lines.append("No GPU needed; one is used if there" if facts["gpu"] else "No GPU needed")
    lines.append(f"{facts['cells']} code {plural('cell', facts['cells'])}")
    if facts["claims"]:
        lines.append(verdicts(app, page, [claim[2] for claim in facts["claims"]]))
    if ran:
        lines.append(escape(", ".join([*(f"{name} {version}" for name, version
                                         in ran["versions"].items()), f"Python {ran['python']}"])))
        day = datetime.fromisoformat(ran["date"])
        lines.append(f'<time datetime="{ran["date"]}">{day.day} {day:%B %Y}</time>'
                     + commit(app, ran["commit"]))
    return ('<ul class="plan" aria-label="This page and its run">'
            + "".join(f"<li>{line}</li>" for line in lines) + "</ul>")


def verdicts(app: Sphinx, page: str, words: list[str]) -> str:
    """Return how many claims of a page got which verdict, with links to them."""
    counts = Counter(words)
    told = []
    for word in (one for one in VERDICTS if counts[one]):
        text = f"{counts[word]} {word}"
        if "claims" in app.env.found_docs:
            text = f'<a href="{claims_address(topic=page, verdict=word)}">{text}</a>'
        told.append(f'<span class="verdict-word {verdict_class(word)}">{text}</span>')
    return f"{len(words)} {plural('claim', len(words))}: {', '.join(told)}"


def commit(app: Sphinx, name: str) -> str:
    """Return the words about the commit of a run; a plus at its end means changes beside it."""
    if not name:
        return ""
    repository, bare = Repository.of(app), escape(name.rstrip("+"))
    shown = f'<a href="{escape(repository.commit(name))}">{bare}</a>' if repository else bare
    return f", commit {shown}" + (" with uncommitted changes" if name.endswith("+") else "")


def report_body(app: Sphinx, page: str, notebook: bool) -> str:
    """Return the text of a new issue; ``using.js`` writes the reader's section into it."""
    book, repository = snapshot(app), Repository.of(app)
    assert repository
    title = app.env.titles[page].astext()
    lines = [f"Page: {title} ({repository.text_path(page)})", "Section: the whole page"]
    if notebook and (ran := plan_data(book, page)):
        made = [*(f"{name} {version}" for name, version in ran["versions"].items()),
                f"Python {ran['python']}"]
        lines += [f"Run with: {', '.join(made)}, on {ran['device']}, {ran['platform']}",
                  f"Commit of the run: {ran['commit']}"]
    return "\n".join([*lines, "", "What is wrong, and what did you expect instead?", "", ""])


def buttons(app: Sphinx, page: str, notebook: bool, download: str) -> str:
    """Return a page's buttons: links with an icon and their own words.

    Args:
        app: the build.
        page: the page's name.
        notebook: it has code.
        download: the address of its executed notebook, from the page.
    """
    repository = Repository.of(app)
    links = []
    if notebook and repository:
        links += [("run", "Open in Colab", repository.colab(page), ""),
                  ("run", "Open in Kaggle", repository.kaggle(page), "")]
    if notebook:
        links.append(("download", "Notebook", download,
                      ' download title="The executed notebook, with its outputs"'))
    if repository:
        if page == app.config.root_doc:
            links.append(("repository", "Repository", repository.url, ""))
        links += [("text", "Text", repository.source(page), ""),
                  ("edit", "Edit", repository.edit(page), ""),
                  ("report", "Report a problem", repository.report(
                      f"Problem on {page}", report_body(app, page, notebook)),
                   ' class="report"')]
    items = "".join(
        f'<li><a href="{escape(address)}"{more}><svg viewBox="0 0 24 24" width="16" height="16" '
        f'aria-hidden="true"><path d="{ICONS[icon]}"/></svg>{words}</a></li>'
        for icon, words, address, more in links)
    return (f'<nav class="use-page d-print-none" aria-label="Use this page" '
            f'data-page="{escape(page)}" data-book="{escape(book_name(app))}" '
            f"data-pagefind-ignore><ul>{items}</ul></nav>")


def note(app: Sphinx, doctree: nodes.document) -> None:
    """Have a page read again when what its plan shows of its record has changed."""
    if app.env.docname in snapshot(app).notebooks:
        data_of(app.env, "book-plan", app.env.docname)


def add(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
        doctree: nodes.document | None) -> None:
    """Put plan and buttons into a page, in the place of the theme's own menus."""
    context["metatags"] = STORE + context.get("metatags", "")  # the first thing in the head
    context["header_buttons"] = [one for one in context.get("header_buttons", [])
                                 if one.get("label") not in OWN_MENUS]
    body = context.get("body")
    if doctree is None or not body or pagename not in app.env.found_docs:
        return
    notebook = pagename in snapshot(app).notebooks
    download = context["pathto"](f"_sources/{pagename}.ipynb", 1)
    made = buttons(app, pagename, notebook, download)
    if notebook:
        head, mark, rest = body.partition("</h1>")
        if mark:
            context["body"] = "\n".join((head + mark, plan(app, pagename), made, rest))
            return
    context["body"] = body + made  # pages without code: out of the way


def copy_code_only(app: Sphinx, config: Config) -> None:
    """Set what the copy buttons copy: code, without prompts; outputs have no button."""
    config.copybutton_selector = CODE
    config.copybutton_prompt_text = PROMPTS
    config.copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    app.add_directive("book-evidence", BookEvidence)
    app.add_directive("book-counts", BookCounts)
    app.add_css_file("using.css")
    app.add_js_file("using.js", loading_method="defer")
    app.connect("config-inited", copy_code_only, priority=100)
    app.connect("doctree-read", note)
    app.connect("html-page-context", add, priority=900)  # after the theme's menus


