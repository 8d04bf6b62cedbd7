"""Quotes become boxes: GitHub's alerts, and the book's claims and verdicts.

Colab, GitHub and JupyterLab show the quotes as they are; the site gives them a frame, an address
(``#claim-<id>``) and, for a verdict, a class by its word. The word itself always stays: colour
only repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from ci.pages import VERDICTS

ALERTS: dict[str, type[nodes.Admonition]] = {
    "NOTE": nodes.note,
    "TIP": nodes.tip,
    "IMPORTANT": nodes.important,
    "WARNING": nodes.warning,
    "CAUTION": nodes.caution,
}
ALERT = re.compile(r"\[!([A-Z]+)\]\s*")
WIDE = 4  # columns
ROW_ID = re.compile(r"[a-z0-9-]+-\d{2,3}")


def verdict_class(verdict: str) -> str:
    """Return the style class of a verdict's word: ``verdict-holds-with-limits`` and so on."""
    return "verdict-" + verdict.replace(" ", "-")


class QuotesToBoxes(SphinxTransform):
    """Turn block quotes that follow the house forms into boxes."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        for quote in list(self.document.findall(nodes.block_quote)):
            first = quote.next_node(nodes.paragraph)
            if first is None or first.parent is not quote:
                continue
            if alert := ALERT.match(first.astext()):
                self.alert(quote, first, alert[1])
            else:
                self.claim_or_verdict(quote, first)
        for row in self.document.findall(nodes.row):
            self.claim_row(row)

    def alert(self, quote: nodes.block_quote, first: nodes.paragraph, kind: str) -> None:
        if kind not in ALERTS:
            return
        text = first.next_node(nodes.Text)
        assert text is not None
        rest = ALERT.sub("", str(text), count=1)
        text.parent.replace(text, nodes.Text(rest))
        if not first.astext().strip():
            quote.remove(first)
        box = ALERTS[kind]("", *quote.children)
        box.source, box.line = quote.source, quote.line
        quote.parent.replace(quote, box)

    def claim_or_verdict(self, quote: nodes.block_quote, first: nodes.paragraph) -> None:
        # The parser may leave an empty text before the first word.
        strong = next((child for child in first.children if child.astext().strip()), None)
        if not isinstance(strong, nodes.strong):
            return
        words = strong.astext()
        if words.startswith("Claim "):
            quote["classes"] += ["claim"]
            code = strong.next_node(nodes.literal)
            if code is not None:
                self.address(quote, f"claim-{code.astext()}")
        elif words.startswith("Verdict: "):
            verdict = words.removeprefix("Verdict: ").rstrip(".")
            if verdict in VERDICTS:
                quote["classes"] += ["verdict", verdict_class(verdict)]

    def claim_row(self, row: nodes.row) -> None:
        cells = [child for child in row.children if isinstance(child, nodes.entry)]
        if len(cells) == 4 and ROW_ID.fullmatch(cells[0].astext()):
            verdict = cells[2].astext()
            if verdict in VERDICTS:
                self.address(row, f"claim-{cells[0].astext()}")
                cells[2]["classes"] += ["verdict-word", verdict_class(verdict)]

    def address(self, node: nodes.Element, name: str) -> None:
        node["ids"].append(name)
        node["names"].append(name)


class LabelCells(SphinxTransform):
    """Write each column's head into the cells of wide tables, for phones only.

    On a phone such a table becomes a list of cards (``book.css``), where the heads would be lost.
    """

    default_priority = 410  # after the rows of claims have been read

    def apply(self, **kwargs: Any) -> None:
        for table in self.document.findall(nodes.table):
            head = table.next_node(nodes.thead)
            body = table.next_node(nodes.tbody)
            if head is None or body is None or len(head.children[0].children) < WIDE:
                continue
            table["classes"].append("cards")
            names = [entry.astext() for entry in head.children[0].children]
            for row in body.children:
                for name, entry in list(zip(names, row.children, strict=False))[1:]:
                    first = entry.next_node(nodes.paragraph)
                    if first is not None and first.astext():
                        first.insert(0, nodes.inline("", f"{name}: ", classes=["cell-label"]))


class NumberCells(SphinxTransform):
    """Give each code cell the address ``#cell-<number>``, counted as the run's records do."""

    default_priority = 880  # after the cells stand in the tree

    def apply(self, **kwargs: Any) -> None:
        for number, cell in enumerate(code_cells(self.document), start=1):
            cell["ids"].append(f"cell-{number}")


def code_cells(document: nodes.document) -> Iterator[nodes.container]:
    """Yield the containers of the notebook's code cells."""
    for node in document.findall(nodes.container):
        if node.get("nb_element") == "cell_code":
            yield node


def setup(app: Sphinx) -> None:
    app.add_transform(QuotesToBoxes)
    app.add_transform(LabelCells)
    app.add_transform(NumberCells)
