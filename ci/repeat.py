"""Run pages several times, warm and cold, and compare what they print.

The runs go into folders of their own, which are thrown away: what is published stays as it is. A
cell whose numbers vary by nature (times, memory) carries the tag ``varies``: of it only the number
and the types of its outputs are compared, as of figures everywhere. All other text must be equal.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat

from ci import run as runs
from ci.pages import Cell, Page, read_page
from ci.project import BookError, Project
from ci.record import Failure, Record
from ci.warm import supported

TAG = "varies"
WIDTH = 88  # columns of a line that is shown
SHOWN = 4  # variants of a line that are shown
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Printed:
    """What a cell gave: the types of its outputs, and their text, line by line.

    ``drawn`` says that all the text there is stands for a figure.
    """

    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    drawn: bool


@dataclass(frozen=True)
class Take:
    """One run of one page: its cells up to the last that ran, and how it failed, if it did."""

    number: int
    warm: bool
    cells: tuple[Printed, ...]
    failure: Failure | None = None

    @property
    def name(self) -> str:
        return f"{'warm' if self.warm else 'cold'} {self.number}"


@dataclass(frozen=True)
class Difference:
    """A cell that did not give the same in all runs: why, and each variant with its runs."""

    cell: int
    line: int
    why: str
    variants: tuple[tuple[str, str], ...]  # names of runs, the first line that differs


@dataclass(frozen=True)
class Repeated:
    """What came of a page's runs. ``unvaried`` are cells tagged ``varies`` that never did."""

    page: str
    takes: tuple[Take, ...]
    differences: tuple[Difference, ...]
    unvaried: tuple[int, ...]

    @property
    def status(self) -> str:
        if any(take.failure for take in self.takes):
            return "fails"
        return "differs" if self.differences else "ok"


def repeat(
    project: Project,
    only: list[str] | None = None,
    times: int = 5,
    warm: bool | None = None,
    say: Callable[[str], None] = print,
    run: Callable[..., runs.Report] = runs.run,
) -> list[Repeated]:
    """Run pages several times and compare their outputs.

    Args:
        project: the checkout; its notebooks must be in step with the text.
        only: names of pages (default: all of the table of contents that have code).
        times: how many runs in all, at least two.
        warm: start the pages warm or cold only (default: in turn, warm first, where the system
            can start them warm).
        say: takes the progress lines.
        run: makes one run; :func:`ci.run.run` or what takes its place.

    Raises:
        BookError: what :func:`ci.run.run` raises, or warm starts where there are none.
    """
    if warm and not supported():
        raise BookError("repeat", "pages start warm on Linux only", "Use --cold")
    takes: dict[str, list[Take]] = {}
    with tempfile.TemporaryDirectory(prefix="repeat-") as name:
        folder = Path(name)
        fonts = folder / "fonts"
        if (known := project.build / ".matplotlib").is_dir():
            shutil.copytree(known, fonts)
        fonts.mkdir(exist_ok=True)
        for number in range(1, times + 1):
            kind = supported() and number % 2 == 1 if warm is None else warm
            say(f"run {number} of {times}, {'warm' if kind else 'cold'}")
            own = replace(project, out=folder / str(number))
            own.build.mkdir()
            # Finding all fonts takes seconds, and a page may print that it does so.
            (own.build / ".matplotlib").symlink_to(fonts)
            for record in run(own, only, force=True, say=say, warm=kind).records:
                takes.setdefault(record.page, []).append(_take(own, record, number))
            shutil.rmtree(own.build)
    return [compare(read_page(project.text(slug)), each) for slug, each in takes.items()]


def _take(project: Project, record: Record, number: int) -> Take:
    """Read what one run gave. It counts as what it was: some pages are never started warm."""
    return Take(number, record.warm,
                tuple(printed(cell.outputs) for cell in cells_run(project, record)),
                record.failure)


def cells_run(project: Project, record: Record) -> list[Any]:
    """Return the code cells of a run, up to the one that failed; none if it left no notebook."""
    path = notebook_of(project, record)
    if not path.is_file():
        return []
    cells = [one for one in nbformat.read(path, as_version=4).cells if one.cell_type == "code"]
    return cells[:record.failure.cell] if record.failure else cells


def notebook_of(project: Project, record: Record) -> Path:
    """Return where a run left the page's notebook."""
    return project.executed_notebook(record.page) if record.ok else \
        project.failed / f"{record.page}.ipynb"


# ------------------------------------------------------------------ what a cell printed

def printed(outputs: list[Any]) -> Printed:
    """Return what a cell's outputs come down to.

    A stream counts as one output, before the others: in how many pieces it came, and which of two
    streams was first, depends on the moment.
    """
    kinds: list[str] = []
    lines: list[str] = []
    drawn = False
    for name in ("stdout", "stderr"):
        text = "".join(one.text for one in outputs
                       if one.output_type == "stream" and one.name == name)
        if text:
            kinds.append(name)
            lines += _lines(text)
    own_text = bool(lines)
    for one in outputs:
        if one.output_type == "error":
            kinds.append("error")
            lines += _lines("\n".join(one.traceback) or f"{one.ename}: {one.evalue}")
            own_text = True
        elif one.output_type != "stream":
            kinds.append("+".join(sorted(one.data)))
            shown = [line for mime in sorted(one.data)
                     for line in _data_lines(mime, one.data[mime])]
            lines += shown
            figure = any(mime.startswith("image/") for mime in one.data)
            drawn |= figure
            own_text |= bool(shown) and not figure
    return Printed(tuple(kinds), tuple(lines), drawn and not own_text)


def _data_lines(mime: str, data: Any) -> list[str]:
    if mime == "text/html":
        return _lines(html_text(data))
    if mime.startswith("text/"):
        return _lines(data)
    if mime == "application/json" or mime.endswith("+json"):
        return [json.dumps(data, sort_keys=True)]
    return []  # a figure: its type is compared, its pixels are not


def _lines(text: str) -> list[str]:
    return ANSI.sub("", text).rstrip("\n").split("\n")


class _Text(HTMLParser):
    """Collects the text of a piece of HTML, a line for each stretch between two tags."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.unseen = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unseen = tag if tag in ("style", "script") else ""

    def handle_endtag(self, tag: str) -> None:
        self.unseen = ""

    def handle_data(self, data: str) -> None:
        if not self.unseen and data.strip():
            self.lines.append(" ".join(data.split()))


def html_text(html: str) -> str:
    """Return the text of a piece of HTML."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    return "\n".join(parser.lines)


# ------------------------------------------------------------------ comparing

def compare(page: Page, takes: list[Take]) -> Repeated:
    """Return what differs between the runs of a page."""
    differences, unvaried = [], []
    for cell in page.code:
        gave = {take: take.cells[cell.number - 1] for take in takes
                if len(take.cells) >= cell.number}
        if TAG in cell.tags:
            if len(gave) > 1 and len(set(gave.values())) == 1 and not next(
                    iter(gave.values())).drawn:
                unvaried.append(cell.number)
            gave = {take: replace(one, lines=()) for take, one in gave.items()}
        if len(set(gave.values())) > 1:
            differences.append(_difference(cell, gave))
    return Repeated(page.slug, tuple(takes), tuple(differences), tuple(unvaried))


def _difference(cell: Cell, gave: dict[Take, Printed]) -> Difference:
    if len({one.kinds for one in gave.values()}) > 1:
        common = set.intersection(*(set(one.lines) for one in gave.values()))
        said = {}
        for take, one in gave.items():
            own = next((f": {line}" for line in one.lines if line not in common), "")
            said[take] = f"outputs {', '.join(one.kinds) or 'none'}{own}"
    else:
        longest = max(len(one.lines) for one in gave.values())
        padded = {take: [*one.lines, *[""] * (longest - len(one.lines))]
                  for take, one in gave.items()}
        first = next(n for n in range(longest)
                     if len({lines[n] for lines in padded.values()}) > 1)
        said = {take: lines[first] for take, lines in padded.items()}
    names: dict[str, list[str]] = {}
    for take, line in said.items():
        names.setdefault(line, []).append(take.name)
    columns = enumerate(zip(*names, strict=False))
    at = next((n for n, column in columns if len(set(column)) > 1), min(map(len, names)))
    variants = tuple((", ".join(each), shorten(line, at)) for line, each in names.items())
    return Difference(cell.number, cell.line, reason(gave), variants)


def reason(gave: dict[Take, Printed]) -> str:
    """Say whether it is the way of starting that makes the difference, or the page itself."""
    by_kind = {kind: [one for take, one in gave.items() if take.warm == warm]
               for kind, warm in (("warm", True), ("cold", False))}
    restless = [kind for kind, each in by_kind.items() if len(set(each)) > 1]
    if restless:
        return f"{' and '.join(restless)} runs differ among themselves: the page varies"
    if all(len(each) > 1 for each in by_kind.values()):
        return "warm and cold differ, and each agrees with itself: the way of starting shows"
    return "warm and cold differ; more --times would tell whether the page varies by itself"


def shorten(line: str, at: int) -> str:
    """Return the part of a line around the column ``at``, as wide as is shown."""
    line = line.replace("\t", " ")
    start = max(0, at - WIDTH // 2) if len(line) > WIDTH else 0
    part = line[start:start + WIDTH]
    return ("… " if start else "") + part + (" …" if start + WIDTH < len(line) else "")


def report_lines(repeated: list[Repeated]) -> Iterator[str]:
    """Yield the report: each page, and below it what differs and what failed."""
    yield ""
    for one in repeated:
        yield f"{one.page:<28} {one.status:<8} {', '.join(take.name for take in one.takes)}"
        for take in one.takes:
            if take.failure:
                yield f"  {take.name} failed in cell {take.failure.cell}: {take.failure.error}"
        for found in one.differences:
            yield f"  cell {found.cell} (book/{one.page}.md:{found.line}): {found.why}"
            for names, line in found.variants[:SHOWN]:
                yield f"    {names}: {line or '(nothing)'}"
            if len(found.variants) > SHOWN:
                yield f"    and {len(found.variants) - SHOWN} more"
        for cell in one.unvaried:
            yield f"  hint: cell {cell} is tagged {TAG} and gave the same in all runs"
    counts = {status: sum(one.status == status for one in repeated)
              for status in ("ok", "differs", "fails")}
    yield f"{len(repeated)} pages: " + ", ".join(f"{n} {status}" for status, n in counts.items())
