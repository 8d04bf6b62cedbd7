"""Exercises: solutions folded under their own names, and ticks that stay with the reader.

A page's text only has headings (``### Exercise 2: ...``), cells that begin with ``# @title`` and
``<details>``. Here they get one look, and ``using.js`` what it needs to keep ticks: the section's
number, and a script that says how many exercises each page has, which is loaded only where
somebody has ticked one.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

from ci.project import write_atomic
from ci.sphinx_ext.boxes import code_cells
from ci.sphinx_ext.facts import EXERCISE
from ci.sphinx_ext.incremental import snapshot
from ci.sphinx_ext.links import Repository

TITLE = "# @title "


class NameFolds(SphinxTransform):
    """Name each folded cell by its title, and mark exercises by their number."""

    default_priority = 885  # after the cells stand in the tree

    def apply(self, **kwargs: Any) -> None:
        for cell in code_cells(self.document):
            first = cell.next_node(nodes.literal_block)
            title = first.astext().partition("\n")[0] if first is not None else ""
            if cell.get("hide_mode") and title.startswith(TITLE):
                name = title.removeprefix(TITLE).strip()
                cell["prompt_show"] = cell["prompt_hide"] = name
        for section in self.document.findall(nodes.section):
            title_node = section.next_node(nodes.title)
            if title_node is not None and title_node.parent is section and (
                    found := EXERCISE.match(title_node.astext())):
                section["classes"] += ["exercise", f"number-{found[1]}"]


def visit_fold(self: HTML5Translator, node: nodes.Element) -> None:
    """Open a folded part of a cell.

    MyST-NB's own has one name for the eye and another, the same for all, for a screen reader.
    """
    show, hide = node["prompt_show"], node["prompt_hide"]
    name = escape(show) if show == hide else (
        f'<span class="collapsed">{escape(show)}</span>'
        f'<span class="expanded">{escape(hide)}</span>')
    self.body.append(f'<details class="{" ".join(["hide", *node["classes"]])}">\n'
                     f"<summary>{name}</summary>\n")


def depart_fold(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append("</details>\n")


def count(app: Sphinx, exception: Exception | None) -> None:
    """Write which exercises each page has, as a script: a page opened from a file reads no JSON."""
    if exception is not None or app.builder.format != "html":
        return
    book = snapshot(app)
    found = {slug: numbers for slug in book.notebooks
             if (numbers := book.facts(slug)["exercises"])}
    told = json.dumps({"book": book_name(app), "pages": found}, indent=0)
    write_atomic(Path(app.outdir) / "_static" / "exercises.js", f"bookExercises = {told};\n")


def book_name(app: Sphinx) -> str:
    """Return the name under which ticks are kept: several books may share a browser's store."""
    repository = Repository.of(app)
    return repository.name if repository else str(app.config.project)


def setup(app: Sphinx) -> None:
    app.add_transform(NameFolds)
    app.add_node(HideCodeCellNode, override=True, html=(visit_fold, depart_fold))
    app.connect("build-finished", count)
