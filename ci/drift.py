"""Two runs of the book with other versions, compared: which cells now say something else.

Each run is the ``_build`` of a machine or an environment (its records, executed and failed
notebooks). Both must be of the same code. A cell tagged ``varies`` counts by the number and types
of its outputs only, figures by being there; the versions that a page's first cell prints are what
differs by design.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ci.pages import Cell, Page, notebook_slugs, read_page
from ci.project import BookError, Project
from ci.record import Record, read_record, run_folder
from ci.repeat import TAG, Printed, cells_run, notebook_of, printed, shorten

VERSION = re.compile(r"\b\d+(\.\d+)+[\w.+]*")
DEPRECATED = re.compile(r"deprecat|FutureWarning|PendingRemoval|will be removed", re.I)
SHOWN = 4  # lines of a cell that are shown


@dataclass(frozen=True)
class Side:
    """What one run gave for a page: its record and what each cell printed, up to the last."""

    record: Record
    cells: tuple[Printed, ...]


@dataclass(frozen=True)
class Changed:
    """A cell that says something else: the lines that only one of the two runs has."""

    cell: int
    line: int
    why: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drift:
    """What differs for one page. ``only`` names the one run that has it, '' if both do."""

    page: str
    fails: str = ""  # the cell and the error of the second run, where the first was fine
    mended: str = ""  # the other way round
    still: str = ""  # it fails in both
    only: str = ""
    changed: tuple[Changed, ...] = ()
    deprecated: tuple[str, ...] = ()  # what is said to go, in the second run only

    @property
    def any(self) -> bool:
        return bool(self.fails or self.mended or self.still or self.only or self.changed
                    or self.deprecated)


@dataclass(frozen=True)
class Drifted:
    """The whole comparison: versions of either run, and each page that one of them has."""

    first: dict[str, str]
    second: dict[str, str]
    pages: tuple[Drift, ...]

    @property
    def any(self) -> bool:
        return any(page.any for page in self.pages)


def drift(project: Project, first: Path, second: Path) -> Drifted:
    """Compare two runs of the book.

    Args:
        project: the checkout whose texts both have run.
        first: the ``_build`` of the run that is taken as right.
        second: the ``_build`` of the run with other versions.

    Raises:
        BookError: one of them holds no record, or a notebook of other code than the page's.
    """
    runs = [replace(project, out=run_folder(folder)) for folder in (first, second)]
    found, versions = [], []
    for run in runs:
        records = [record for slug in notebook_slugs(project) if (record := read_record(run, slug))]
        if not records:
            raise BookError(run.build, "holds no record of a page of this book",
                            "Give the `_build` of a checkout on which `python -m ci run` ended")
        versions.append(_versions(records))
    for slug in notebook_slugs(project):
        page = read_page(project.text(slug))
        sides = [_side(run, page) for run in runs]
        if any(sides):
            found.append(compare(page, *sides))
    return Drifted(versions[0], versions[1], tuple(found))


def _versions(records: list[Record]) -> dict[str, str]:
    """Return what a run says of its versions; where pages disagree, all that they say."""
    said: dict[str, set[str]] = {}
    for record in records:
        for name, version in {"python": record.python, **record.versions,
                              "device": record.device}.items():
            said.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(each)) for name, each in said.items()}


def _side(run: Project, page: Page) -> Side | None:
    """Return what a run gave for a page, None if it has no record of it.

    Raises:
        BookError: its notebook is missing or of other code than the page's.
    """
    record = read_record(run, page.slug)
    if record is None:
        return None
    path, cells = notebook_of(run, record), cells_run(run, record)
    if record.ok and not path.is_file():
        raise BookError(path, "there is a record and no notebook", "Copy the whole `_build`")
    if [one.source for one in cells] != [cell.source for cell in page.code[:len(cells)]]:
        raise BookError(path, f"not a run of book/{page.slug}.md as it stands here",
                        "Check out the commit that was run, or run it again")
    return Side(record, tuple(printed(one.outputs) for one in cells))


# ------------------------------------------------------------------ comparing

def compare(page: Page, first: Side | None, second: Side | None) -> Drift:
    """Return what differs between two runs of a page."""
    if first is None or second is None:
        return Drift(page.slug, only="first" if first else "second")
    broken = [_failure(side) for side in (first, second)]
    changed, deprecated = [], list[str]()
    for cell in page.code[:min(len(first.cells), len(second.cells))]:
        before, after = first.cells[cell.number - 1], second.cells[cell.number - 1]
        deprecated += [f"cell {cell.number}: {line.strip()}" for line in after.lines
                       if DEPRECATED.search(line) and line not in before.lines]
        if any(broken) and cell.number == min(len(first.cells), len(second.cells)):
            continue  # the cell that failed: its error is told by itself
        if one := _changed(page, cell, before, after):
            changed.append(one)
    return Drift(
        page.slug,
        fails=broken[1] if not broken[0] else "",
        mended=broken[0] if not broken[1] else "",
        still=broken[1] if broken[0] and broken[1] else "",
        changed=tuple(changed), deprecated=tuple(deprecated))


def _failure(side: Side) -> str:
    failure = side.record.failure
    return f"cell {failure.cell}: {' '.join(failure.error.split())}" if failure else ""


def _changed(page: Page, cell: Cell, before: Printed, after: Printed) -> Changed | None:
    if TAG in cell.tags:
        before, after = replace(before, lines=()), replace(after, lines=())
    elif cell.number == page.code[0].number:
        before, after = (replace(one, lines=tuple(VERSION.sub("N", line) for line in one.lines))
                         for one in (before, after))
    if before == after:
        return None
    if before.kinds != after.kinds:
        said = [", ".join(one.kinds) or "nothing" for one in (before, after)]
        why = f"gave {said[0]}, now {said[1]}"
    else:
        why = "prints something else"
    own = [tuple(line for line in one.lines if line not in other.lines)
           for one, other in ((before, after), (after, before))]
    return Changed(cell.number, cell.line, why, own[0], own[1])


# ------------------------------------------------------------------ the report

def report(drifted: Drifted) -> Iterator[str]:
    """Yield the report, line by line, in Markdown that reads as plain text too."""
    names = [name for name in {**drifted.first, **drifted.second}
             if drifted.first.get(name) != drifted.second.get(name)]
    yield "Versions: " + ("; ".join(
        f"{name} {drifted.first.get(name, 'none')} to {drifted.second.get(name, 'none')}"
        for name in names) or "the same in both runs")
    for page in drifted.pages:
        if page.any:
            yield from _page_lines(page)
    same = sum(not page.any for page in drifted.pages)
    fails = sum(bool(page.fails) for page in drifted.pages)
    changed = sum(len(page.changed) for page in drifted.pages)
    yield ""
    yield (f"{len(drifted.pages)} pages: {same} say the same, {fails} fail now, "
           f"{changed} cells say something else")


def _page_lines(page: Drift) -> Iterator[str]:
    yield ""
    yield f"## {page.page}"
    yield ""
    if page.only:
        yield f"- is in the {page.only} run only"
    for says, what in ((page.fails, "fails now"), (page.mended, "failed, and runs now"),
                       (page.still, "fails in both")):
        if says:
            yield f"- **{what}**, {says}"
    for one in page.changed:
        yield f"- cell {one.cell} (book/{page.page}.md:{one.line}) {one.why}"
        for sign, lines in (("-", one.before), ("+", one.after)):
            for line in lines[:SHOWN]:
                yield f"      {sign} {shorten(line, 0)}"
            if len(lines) > SHOWN:
                yield f"      {sign} and {len(lines) - SHOWN} lines more"
    for line in page.deprecated:
        yield f"- will go, {line}"
