"""The pages that the book writes about itself: claims, questions, status, and the index's lists.

Each is a directive in a page of plain prose, so that the words around it stay with the text:

    ```{book-claims}
    ```

All of it is read from the pages, the lists under ``book/_data`` and the run's records at the time
of the build; nothing is typed twice. The data come from :mod:`ci.sphinx_ext.facts` and a directive
looks at nothing else: that is how a later build knows whether the list is still true.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ci.pages import VERDICTS
from ci.sphinx_ext.boxes import verdict_class
from ci.sphinx_ext.facts import Facts
from ci.sphinx_ext.incremental import data_of
from ci.sphinx_ext.links import to_site_links

Cell = Sequence[nodes.Node] | str


class BookDirective(SphinxDirective):
    """What the generated lists share: their data, inline Markdown, links and tables."""

    def data(self) -> Any:
        """Return the data of this list; the page is read again when they change."""
        return data_of(self.env, self.name, " ".join(self.arguments))

    def inline(self, text: str) -> list[nodes.Node]:
        """Return a line of Markdown as inline nodes."""
        holder = nodes.Element()
        self.state.nested_parse(StringList([to_site_links(text)]), 0, holder)
        first = holder.next_node(nodes.paragraph)
        return list(first.children) if first is not None else [nodes.Text(text)]

    def link(self, page: str, anchor: str, text: str) -> nodes.reference:
        """Return a link to an address on a page of the book; the pages lie side by side."""
        target = f"{page}.html" + (f"#{anchor}" if anchor else "")
        return nodes.reference("", text, internal=True, refuri=target)

    def table(self, head: Sequence[str], rows: Iterable[tuple[Sequence[str], Sequence[Cell]]],
              classes: Sequence[str]) -> nodes.container:
        """Return a table in a box that scrolls by itself. A row is (its classes, its cells)."""
        group = nodes.tgroup(cols=len(head))
        group += [nodes.colspec(colwidth=1) for _ in head]
        group += nodes.thead("", self._row((), head))
        group += nodes.tbody("", *[self._row(names, cells) for names, cells in rows])
        box = nodes.container(classes=["wide-table"])
        box += nodes.table("", group, classes=[*classes, "colwidths-auto"])
        return box

    def _row(self, classes: Sequence[str], cells: Sequence[Cell]) -> nodes.row:
        row = nodes.row(classes=list(classes))
        for cell in cells:
            content = [nodes.Text(cell)] if isinstance(cell, str) else list(cell)
            row += nodes.entry("", nodes.paragraph("", "", *content))
        return row

    def verdict(self, word: str) -> nodes.inline:
        """Return a verdict's word, coloured by its class."""
        return nodes.inline("", word, classes=["verdict-word", verdict_class(word)])

    def test_link(self, page: str, cell: int) -> list[nodes.Node]:
        """Return a link to the cell that decides a claim; there is none with the number 0."""
        if not cell:
            return [nodes.Text("no cell")]
        return [self.link(page, f"cell-{cell}", f"cell {cell}")]


def slug_class(text: str) -> str:
    """Return a word as a style class's part."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class BookClaims(BookDirective):
    """All claims that the pages deal with: filters, counts by verdict, one table."""

    def run(self) -> list[nodes.Node]:
        data = self.data()
        counts = Counter(verdict for _, _, _, _, verdict, _, _ in data["rows"])
        summary = nodes.paragraph("", f"{len(data['rows'])} claims have been run: ")
        for number, verdict in enumerate(v for v in VERDICTS if counts[v]):
            summary += [nodes.Text(", " if number else ""), nodes.strong("", str(counts[verdict])),
                        nodes.Text(" "), self.verdict(verdict)]
        waiting = data["waiting"]
        summary += nodes.Text("." + (f" {waiting} more wait for their pages." if waiting else ""))
        rows = []
        for page, name, framework, says, verdict, shows, cell in data["rows"]:
            rows.append((
                ["claim-row", verdict_class(verdict), f"topic-{page}",
                 f"framework-{slug_class(framework or 'both')}"],
                [[self.link(page, f"claim-{name}", name)], self.inline(says),
                 [self.verdict(verdict)], self.inline(shows), self.test_link(page, cell)],
            ))
        table = self.table(("Claim", "Says", "Verdict", "What the run shows", "Test"), rows,
                           ["claims-table"])
        return [summary, self.filters(data["rows"]), table]

    def filters(self, rows: list[list[Any]]) -> nodes.raw:
        """Return three selections and the style rules that make them work without a script."""
        frameworks = sorted({row[2] for row in rows} - {""})
        pages = list(dict.fromkeys(row[0] for row in rows))
        verdicts = [v for v in VERDICTS if any(row[4] == v for row in rows)]
        # A claim of both frameworks shows whichever framework is asked for.
        choices = {
            "framework": [(f, f".framework-{slug_class(f)}, .framework-both")
                          for f in frameworks if f != "both"],
            "topic": [(p, f".topic-{p}") for p in pages],
            "verdict": [(v, f".{verdict_class(v)}") for v in verdicts],
        }
        fields, rules = [], []
        for name, options in choices.items():
            shown = "".join(f'<option value="{html.escape(o)}">{html.escape(o)}</option>'
                            for o, _ in options)
            fields.append(f'<label>{name.capitalize()} <select id="filter-{name}">'
                          f'<option value="">all</option>{shown}</select></label>')
            # Asked of the form: a browser asks `body:has(...)` of the whole page for each row.
            rules += [f'.claim-filters:has(#filter-{name} option[value="{o}"]:checked) ~ * '
                      f".claim-row:not({match}) {{ display: none }}" for o, match in options]
        return nodes.raw(
            "", f'<form class="claim-filters" aria-label="Filter the claims">{"".join(fields)}'
                f'<output for="filter-framework filter-topic filter-verdict"></output></form>'
                f"<style>{' '.join(rules)}</style>", format="html")


class BookQuestions(BookDirective):
    """Each original question, in English and Chinese, with its page and the cells that answer."""

    def run(self) -> list[nodes.Node]:
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        for en, zh, framework, page, title, numbers in self.data():
            question = [nodes.Text(en + " "), nodes.inline("", zh, classes=["language-zh"])]
            if page:
                where: Cell = [self.link(page, "short-answer", title)]
                cells: Cell = self.cells(page, numbers)
            else:
                where, cells = "not written yet", ""
            rows.append(((), (question, framework, where, cells)))
        return [self.table(("Question", "Framework", "Page", "Cells that answer it"), rows,
                           ["questions-table"])]

    def cells(self, page: str, numbers: list[int]) -> list[nodes.Node]:
        """Return links to cells of a page, with commas between."""
        found: list[nodes.Node] = []
        for number in numbers:
            found += [nodes.Text(", " if found else ""),
                      self.link(page, f"cell-{number}", str(number))]
        return found


NO_GPU = "No run on a GPU is on record."


class BookStatus(BookDirective):
    """The records of the run that this site shows."""

    def run(self) -> list[nodes.Node]:
        data = self.data()
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        for slug, *record in data["rows"]:
            link: Cell = [self.link(slug, "", slug)]
            if record:
                rows.append(((f"status-{record[0]}",), (link, *record)))
            else:
                rows.append(((), (link, "no record: executed by the site build", "", "", "", "",
                                  "", "")))
        table = self.table(("Page", "Status", "Run at", "Device", "Seconds", "In cells",
                            "Peak MiB", "Commit"), rows, ["status-table"])
        return [*self.versions(data["versions"]), *self.marked(data["marked"]), table,
                *(node for run in data["beside"] for node in self.beside(run)),
                *([] if data["gpu"] else [nodes.paragraph("", NO_GPU)])]

    def marked(self, marked: list[list[str]]) -> list[nodes.Node]:
        """Return the pages that fail with the other versions of the weekly runs."""
        if not marked:
            return []
        items = [nodes.list_item("", nodes.paragraph(
            "", "", self.link(slug, "", slug), nodes.Text(f": {line}"))) for slug, line in marked]
        return [nodes.rubric("", "With other versions"), nodes.bullet_list("", *items)]

    def beside(self, run: Facts) -> list[nodes.Node]:
        """Return what another run says, its seconds beside those of the site's own."""
        if not run["rows"]:
            return []
        rows = [((), ([self.link(slug, "", slug)], *cells)) for slug, *cells in run["rows"]]
        return [
            nodes.rubric("", f"Beside it: {run['name']}, on {run['device']}"),
            *self.versions(run["versions"]),
            self.table(("Page", "Status", "Run at", f"In cells, {run['name']}",
                        "In cells, this site"), rows, ["status-beside"])]

    def versions(self, sets: list[list[Any]]) -> list[nodes.Node]:
        """Return a sentence for each set of versions that the records name."""
        return [
            nodes.paragraph("", f"{count} page{'s' if count > 1 else ''} ran on {platform} with "
                            f"Python {python}, "
                            + ", ".join(f"{name} {version}" for name, version in found) + ".")
            for python, platform, found, count in sets
        ]


class BookPages(BookDirective):
    """The pages by part, each with its short answer."""

    def run(self) -> list[nodes.Node]:
        out: list[nodes.Node] = []
        current = None
        items = nodes.definition_list()
        for part, slug, title, answer in self.data():
            if part != current:
                current, items = part, nodes.definition_list(classes=["page-list"])
                out += [nodes.rubric("", part), items]
            term = nodes.term("", "", self.link(slug, "", title))
            told = nodes.definition("", nodes.paragraph("", "", *self.inline(answer)))
            items += nodes.definition_list_item("", term, told)
        return out


class BookClaim(BookDirective):
    """One claim of a page with its verdict and a link to its cell: ``{book-claim} <id>``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        wanted = self.arguments[0]
        if not (data := self.data()):
            raise self.error(f"no page deals with claim {wanted!r}")
        page, title, text, word, shows = data
        claim = nodes.block_quote(classes=["claim"])
        claim += nodes.paragraph("", "", nodes.strong("", "Claim."), nodes.Text(" "),
                                 *self.inline(text))
        verdict = nodes.block_quote(classes=["verdict", verdict_class(word)])
        verdict += nodes.paragraph(
            "", "", nodes.strong("", f"Verdict: {word}."), nodes.Text(" "),
            *self.inline(shows), nodes.Text(" See it run: "),
            self.link(page, f"claim-{wanted}", title))
        return [claim, verdict]


class BookPlan(BookDirective):
    """What each page takes of a reader and of a machine, and of all pages together."""

    def run(self) -> list[nodes.Node]:
        data = data_of(self.env, "book-plans", "")
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        for one in data:
            ran = ["not run", ""] if one["seconds"] is None else \
                [f"{one['seconds']:.0f}", f"{one['mib']:.0f}"]
            rows.append(((), [
                [self.link(one["page"], "", one["title"])], str(one["minutes"]), *ran,
                self.needs(one), str(one["exercises"])]))
        table = self.table(("Page", "Minutes to read", "Seconds to run", "MiB of memory",
                            "Needs", "Exercises"), rows, ["plan-table"])
        return [nodes.paragraph("", plan_summary(data)), table] if data else [table]

    def needs(self, one: dict[str, Any]) -> list[nodes.Node]:
        """Return the frameworks that a page uses, the pages before it, and whether a GPU counts."""
        found: list[nodes.Node] = [nodes.Text(" and ".join(one["frameworks"]) or "Python")]
        for number, name in enumerate(one["first"]):
            found += [nodes.Text(", " if number else "; after "), self.link(name, "", name)]
        if one["gpu"]:
            found.append(nodes.Text("; a GPU adds numbers"))
        return found


def plan_summary(data: list[dict[str, Any]]) -> str:
    """Return the plan of all pages in a sentence."""
    ran = [one for one in data if one["seconds"] is not None]
    text = (f"{len(data)} page{'s' * (len(data) > 1)}, "
            f"{sum(one['minutes'] for one in data)} minutes of reading, "
            f"{sum(one['exercises'] for one in data)} exercises.")
    if ran:
        devices = " and ".join(sorted({one["device"] for one in ran}))
        text += (f" One after the other they ran in {sum(one['seconds'] for one in ran):.0f} "
                 f"seconds on {devices.replace('cpu', 'a CPU')}; the largest took "
                 f"{max(one['mib'] for one in ran):.0f} MiB.")
    return text


class BookCitation(BookDirective):
    """How to cite the book, as a sentence and for BibTeX, from ``CITATION.cff``."""

    def run(self) -> list[nodes.Node]:
        data = self.data()
        authors = " and ".join(data["authors"])
        said = nodes.paragraph(
            "", "", nodes.Text(f"{authors} ({data['year']}). "), nodes.emphasis("", data["title"]),
            nodes.Text(f", version {data['version']}. "),
            nodes.reference("", data["url"], refuri=data["url"]))
        # Doubled braces keep a group's name, and the title's capitals, as they are.
        lines = [("author", " and ".join(f"{{{one}}}" for one in data["authors"])),
                 ("title", f"{{{data['title']}}}"), ("year", data["year"]),
                 ("version", data["version"]), ("url", data["url"])]
        bibtex = f"@misc{{{slug_class(data['title'].partition(':')[0])},\n" + "".join(
            f"  {name} = {{{value}}},\n" for name, value in lines if value) + "}"
        block = nodes.literal_block(bibtex, bibtex, language="text")
        return [said, block]


def setup(app: Sphinx) -> None:
    app.add_directive("book-claims", BookClaims)
    app.add_directive("book-questions", BookQuestions)
    app.add_directive("book-status", BookStatus)
    app.add_directive("book-pages", BookPages)
    app.add_directive("book-claim", BookClaim)
    app.add_directive("book-plan", BookPlan)
    app.add_directive("book-citation", BookCitation)
