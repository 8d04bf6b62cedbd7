"""The index of API names to pages: ``{book-api} torch`` and so on, one list per framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from ci.sphinx_ext.facts import DATA, Snapshot
from ci.sphinx_ext.generated import BookDirective, Cell


def api_data(book: Snapshot, argument: str) -> list[list[Any]]:
    """The names that start with a framework's: name, places (page, cell, claim or '').

    A name that some claim's deciding cell uses comes before those that none uses; so does, among
    a name's places, the page of that claim.
    """
    names: dict[str, list[list[Any]]] = {}
    for slug in book.notebooks:
        for name, first, deciding, claim in book.facts(slug)["api"]:
            if name.split(".")[0] == argument:
                names.setdefault(name, []).append([slug, deciding or first, claim])
    rows = [[name, sorted(places, key=lambda place: not place[2])]
            for name, places in names.items()]
    return sorted(rows, key=lambda row: (not row[1][0][2], row[0].lower(), row[0]))


class BookApi(BookDirective):
    """The table of a framework's names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        for name, places in self.data():
            where: list[nodes.Node] = []
            for page, cell, claim in places:
                first = (f"claim-{claim}", claim) if claim else ("", page)
                where += [nodes.Text("; " if where else ""), self.link(page, *first),
                          nodes.Text(", "), self.link(page, f"cell-{cell}", f"cell {cell}")]
            rows.append(((), ([nodes.literal("", name)], where)))
        if not rows:
            return [nodes.paragraph("", "No page uses one yet.")]
        return [self.table(("Name", "Decides a claim, or runs on a page"), rows, ["api-table"])]


DATA["book-api"] = api_data


def setup(app: Sphinx) -> None:
    app.add_directive("book-api", BookApi)
