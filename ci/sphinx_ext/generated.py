"""The pages that the book writes about itself: claims, questions, status, and the index's lists.

Each is a directive in a page of plain prose, so that the words around it stay with the text:

    ```{book-claims}
    ```

All of it is read from the pages, the lists under ``book/_data`` and the run's records at the time
of the build; nothing is typed twice.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ci.claims import Dealt, Topic, dealt_with, load_claims, load_topics
from ci.pages import VERDICTS, Page, asserting_functions, asserts, read_page, toc_parts
from ci.project import Project
from ci.record import Record, read_record
from ci.sphinx_ext.boxes import verdict_class
from ci.sphinx_ext.links import to_site_links

Cell = Sequence[nodes.Node] | str


class BookDirective(SphinxDirective):
    """What the generated lists share: the project, inline Markdown, links and tables."""

    @property
    def project(self) -> Project:
        return Project.find(Path(self.env.srcdir))

    def depend(self) -> None:
        """Have this page read again in every build: its sources are all other pages."""
        self.env.note_reread()

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

    def test_link(self, dealt: Dealt, helpers: set[str]) -> list[nodes.Node]:
        """Return a link to the cell that decides a claim; for helpers see `Claim.deciding`."""
        cell = dealt.claim.deciding(helpers)
        if cell is None:
            return [nodes.Text("no cell")]
        return [self.link(dealt.page.slug, f"cell-{cell.number}", f"cell {cell.number}")]


def slug_class(text: str) -> str:
    """Return a word as a style class's part."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class BookClaims(BookDirective):
    """All claims that the pages deal with: filters, counts by verdict, one table."""

    def run(self) -> list[nodes.Node]:
        self.depend()
        listed, topics = load_claims(self.project), load_topics(self.project)
        dealt = dealt_with(self.project)
        counts = Counter(one.claim.verdict for one in dealt)
        waiting = len(listed.keys() - {one.claim.id for one in dealt})
        summary = nodes.paragraph("", f"{len(dealt)} claims have been run: ")
        for number, verdict in enumerate(v for v in VERDICTS if counts[v]):
            summary += [nodes.Text(", " if number else ""), nodes.strong("", str(counts[verdict])),
                        nodes.Text(" "), self.verdict(verdict)]
        summary += nodes.Text("." + (f" {waiting} more wait for their pages." if waiting else ""))
        pages = {one.page.slug: one.page for one in dealt}
        asserting = {slug: asserting_functions(page) for slug, page in pages.items()}
        rows = []
        for one in dealt:
            topic = topics.get(one.page.slug)
            framework = topic.framework if topic else "both"
            says = listed[one.claim.id].says if one.claim.id in listed else one.claim.text
            rows.append((
                ["claim-row", verdict_class(one.claim.verdict), f"topic-{one.page.slug}",
                 f"framework-{slug_class(framework)}"],
                [[self.link(one.page.slug, f"claim-{one.claim.id}", one.claim.id)],
                 self.inline(says), [self.verdict(one.claim.verdict)],
                 self.inline(one.claim.shows), self.test_link(one, asserting[one.page.slug])],
            ))
        table = self.table(("Claim", "Says", "Verdict", "What the run shows", "Test"), rows,
                           ["claims-table"])
        return [summary, self.filters(dealt, topics), table]

    def filters(self, dealt: list[Dealt], topics: dict[str, Topic]) -> nodes.raw:
        """Return three selections and the style rules that make them work without a script."""
        frameworks = sorted({topics[d.page.slug].framework for d in dealt
                             if d.page.slug in topics})
        pages = list(dict.fromkeys(d.page.slug for d in dealt))
        verdicts = [v for v in VERDICTS if any(d.claim.verdict == v for d in dealt)]
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
            rules += [f'body:has(#filter-{name} option[value="{o}"]:checked) '
                      f".claim-row:not({match}) {{ display: none }}" for o, match in options]
        return nodes.raw(
            "", f'<form class="claim-filters" aria-label="Filter the claims">{"".join(fields)}'
                f'<output for="filter-framework filter-topic filter-verdict"></output></form>'
                f"<style>{' '.join(rules)}</style>", format="html")


class BookQuestions(BookDirective):
    """Each original question, in English and Chinese, with its page and the cells that answer."""

    def run(self) -> list[nodes.Node]:
        self.depend()
        pages = {slug for _, slug in toc_parts(self.project)}
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        for topic in load_topics(self.project).values():
            question = [nodes.Text(topic.en + " "),
                        nodes.inline("", topic.zh, classes=["language-zh"])]
            if topic.slug in pages:
                page = read_page(self.project.text(topic.slug))
                where: Cell = [self.link(topic.slug, "short-answer", page.title)]
                cells: Cell = self.cells(page)
            else:
                where, cells = "not written yet", ""
            rows.append(((), (question, topic.framework, where, cells)))
        return [self.table(("Question", "Framework", "Page", "Cells that answer it"), rows,
                           ["questions-table"])]

    def cells(self, page: Page) -> list[nodes.Node]:
        """Return links to the cells of the page that assert something outside its exercises."""
        helpers = asserting_functions(page)
        numbers = [cell.number for cell in page.code if asserts(cell, helpers)
                   and not cell.source.startswith("# @title")]
        found: list[nodes.Node] = []
        for number in numbers:
            found += [nodes.Text(", " if found else ""),
                      self.link(page.slug, f"cell-{number}", str(number))]
        return found


class BookStatus(BookDirective):
    """The records of the run that this site shows."""

    def run(self) -> list[nodes.Node]:
        self.depend()
        rows: list[tuple[Sequence[str], Sequence[Cell]]] = []
        records: list[Record] = []
        for _, slug in toc_parts(self.project):
            page = read_page(self.project.text(slug))
            if not page.is_notebook:
                continue
            link: Cell = [self.link(slug, "", slug)]
            if (record := read_record(self.project, slug)) is None:
                rows.append(((), (link, "no record: executed by the site build", "", "", "", "",
                                  "", "")))
                continue
            records.append(record)
            rows.append(((f"status-{record.status}",), (
                link, record.status, record.started[:16].replace("T", " ") + " UTC",
                record.device, f"{record.seconds:.1f}", f"{record.cell_seconds:.1f}",
                f"{record.peak_mib:.0f}", record.commit)))
        table = self.table(("Page", "Status", "Run at", "Device", "Seconds", "In cells",
                            "Peak MiB", "Commit"), rows, ["status-table"])
        return [*self.versions(records), table]

    def versions(self, records: list[Record]) -> list[nodes.Node]:
        """Return a sentence for each set of versions that the records name."""
        sets = Counter((record.python, record.platform, tuple(record.versions.items()))
                       for record in records)
        return [
            nodes.paragraph("", f"{count} page{'s' if count > 1 else ''} ran on {platform} with "
                            f"Python {python}, "
                            + ", ".join(f"{name} {version}" for name, version in found) + ".")
            for (python, platform, found), count in sets.items()
        ]


class BookPages(BookDirective):
    """The pages by part, each with its short answer."""

    def run(self) -> list[nodes.Node]:
        self.depend()
        out: list[nodes.Node] = []
        current = None
        items = nodes.definition_list()
        for part, slug in toc_parts(self.project):
            page = read_page(self.project.text(slug))
            if not part or not page.is_notebook:
                continue
            if part != current:
                current, items = part, nodes.definition_list(classes=["page-list"])
                out += [nodes.rubric("", part), items]
            term = nodes.term("", "", self.link(slug, "", page.title))
            answer = nodes.definition("", nodes.paragraph("", "", *self.inline(page.short_answer)))
            items += nodes.definition_list_item("", term, answer)
        return out


class BookClaim(BookDirective):
    """One claim of a page with its verdict and a link to its cell: ``{book-claim} <id>``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.depend()
        wanted = self.arguments[0]
        for one in dealt_with(self.project):
            if one.claim.id == wanted:
                break
        else:
            raise self.error(f"no page deals with claim {wanted!r}")
        claim = nodes.block_quote(classes=["claim"])
        claim += nodes.paragraph("", "", nodes.strong("", "Claim."), nodes.Text(" "),
                                 *self.inline(one.claim.text))
        verdict = nodes.block_quote(classes=["verdict", verdict_class(one.claim.verdict)])
        verdict += nodes.paragraph(
            "", "", nodes.strong("", f"Verdict: {one.claim.verdict}."), nodes.Text(" "),
            *self.inline(one.claim.shows), nodes.Text(" See it run: "),
            self.link(one.page.slug, f"claim-{wanted}", one.page.title))
        return [claim, verdict]


def setup(app: Sphinx) -> None:
    app.add_directive("book-claims", BookClaims)
    app.add_directive("book-questions", BookQuestions)
    app.add_directive("book-status", BookStatus)
    app.add_directive("book-pages", BookPages)
    app.add_directive("book-claim", BookClaim)
