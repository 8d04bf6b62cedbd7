"""The parts that other machines ran (``run --shard i/n``), put together in this ``_build``.

A part is a copy of another machine's ``_build``. It is data, not to be trusted: page names count
only when they are in the table of contents, links inside it are not followed, and nothing is
taken from it but the notebooks and records of its share. All of it is checked in a folder beside
its destination first; the files take their places only when every part is whole, so an error
leaves everything as it was.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ci import record as records
from ci.pages import Page, notebook_slugs, read_page
from ci.project import BookError, Project, git_commit, locked, write_atomic
from ci.record import (
    Failure,
    Machine,
    Record,
    doubts,
    page_key,
    requirements_digest,
    write_record,
)
from ci.run import Report
from ci.shard import FORMAT, MOST, Part, part_file

STAGE = ".merge"
LARGEST = 1e12  # of any number in a record or part
COPY = "Copy that machine's `_build` again"


@dataclass(frozen=True)
class _Given:
    """A part, and the folder in which its files lie."""

    folder: Path
    part: Part

    def __str__(self) -> str:
        return f"{self.folder} (shard {self.part.i}/{self.part.n})"

    def error(self, what: str, way_out: str) -> BookError:
        """Return the error that names this part."""
        return BookError(str(self), what, way_out)

    @property
    def command(self) -> str:
        return f"python -m ci run --shard {self.part.i}/{self.part.n}"


def merge(project: Project, folders: Sequence[Path], say: Callable[[str], None] = print,
          beside: str = "") -> Report:
    """Check all parts, then take over their executed notebooks and records.

    Args:
        project: the checkout; its commit and requirements must be those of the parts.
        folders: for each part the ``_build`` of its machine, or the folder around it.
        say: takes the line that sums it up.
        beside: a name for this run, if it is not the one whose outputs the site shows: it is kept
            under it, and the status page shows its records beside the others.

    Returns:
        The report over all pages, as a run of them here would give it; pages that failed in a
        part are in it.

    Raises:
        BookError: a part is missing, double, not whole, or not made from this checkout's files.
    """
    began = time.monotonic()
    pages = {slug: read_page(project.text(slug)) for slug in notebook_slugs(project)}
    given = [_read_part(folder, pages) for folder in folders]
    for one in given:
        _check_origin(project, one)
    _check_together(given, pages)
    stage = replace(project, out=project.build / STAGE)
    place = replace(project, out=project.build / "beside" / beside) if beside else project
    with locked(project, say):
        shutil.rmtree(stage.build, ignore_errors=True)  # of a merge that was killed
        try:
            found = {slug: _stage(stage, one, pages[slug])
                     for one in given for slug in one.part.pages}
            _take_over(stage, place, found.values())
        except OSError as error:
            raise BookError(project.relative(project.build), f"cannot be written ({error})",
                            "Nothing was merged; make room and merge again") from None
        finally:
            shutil.rmtree(stage.build, ignore_errors=True)
    ordered = tuple(found[slug] for slug in pages)
    say(summary(ordered, len(given)))
    return Report(ordered, (), time.monotonic() - began)


def parts_by_machine(folder: Path) -> dict[str, list[Path]]:
    """Return the folders ``part-<machine>-<i>`` in a folder, by machine."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("part-*-*")):
        found.setdefault(path.name.removeprefix("part-").rpartition("-")[0], []).append(path)
    return found


def gather(project: Project, folder: Path, say: Callable[[str], None] = print) -> Report:
    """Merge what the machines of a workflow have left: the folders ``part-<machine>-<i>``.

    With parts of a machine named ``gpu`` the site shows those, and the others beside them; else
    it shows the parts of ``cpu``.

    Args:
        project: the checkout.
        folder: the folder of the parts.
        say: takes a line for each machine.

    Returns:
        The report of the pages that the site shows, with those that failed on any machine.

    Raises:
        BookError: there is no part that a site could be made from, or :func:`merge` refused one.
    """
    found = parts_by_machine(folder)
    first = next((name for name in ("gpu", "cpu") if name in found), None)
    if first is None:
        raise BookError(folder, "holds no part of a machine named gpu or cpu",
                        "Name their folders part-gpu-1, part-cpu-1, part-cpu-2, ...")
    others = {name: merge(project, parts, say, beside=name)
              for name, parts in found.items() if name != first}
    report = merge(project, found[first], say)
    failed = tuple(record for one in others.values() for record in one.records if not record.ok)
    return replace(report, records=(*report.records, *failed))


def summary(merged: Sequence[Record], parts: int) -> str:
    """Return one line: how many pages of how many parts, on which devices and Pythons they ran."""

    def counted(values: Iterable[str]) -> str:
        counts = Counter(values)
        return ", ".join(f"{value} ({counts[value]})" if len(counts) > 1 else value
                         for value in sorted(counts))

    devices = counted(record.device for record in merged)
    pythons = counted(record.python for record in merged)
    return f"merged {len(merged)} pages of {parts} parts, run on {devices} with Python {pythons}"


# ------------------------------------------------------------------ reading a part

def _read(folder: Path, name: str) -> bytes | None:
    """Return the bytes of a file in a part, None when there is none.

    Raises:
        BookError: it cannot be read, or is reached through a link, which may lead anywhere.
    """
    path = folder
    for step in Path(name).parts:
        path = path / step
        if path.is_symlink():
            raise BookError(path, "is a link, and links in a part are not followed",
                            "Copy the files themselves")
    if not path.exists():
        return None
    try:
        if not path.is_file():
            raise OSError("not a file")
        return path.read_bytes()
    except OSError as error:
        raise BookError(path, f"cannot be read ({error.strerror or error})", COPY) from None


def _read_part(given: Path, pages: dict[str, Page]) -> _Given:
    """Return the part in a folder, or in the ``_build`` inside it.

    Raises:
        BookError: there is none, or it is not what ``run --shard`` writes.
    """
    way_out = "Give the `_build` of a machine on which `python -m ci run --shard i/n` ended"
    for folder in (given, given / "_build"):
        name = part_file(folder).relative_to(given)
        if (raw := _read(given, str(name))) is not None:
            break
    else:
        raise BookError(given, "no shard.json, so this is no part", way_out)
    try:
        data = json.loads(raw)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')!r}, not {FORMAT}")
        part = Part(**{**data, "pages": tuple(data["pages"])})
        if not fits(part, Part) or not 1 <= part.i <= part.n <= MOST:
            raise ValueError("a value of a wrong kind")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BookError(part_file(folder), f"not readable as a part ({error})", way_out) from None
    one = _Given(folder, part)
    for slug, count in Counter(part.pages).items():
        if slug not in pages:
            raise one.error(f"holds {slug!r}, which is not a page with code in _toc.yml",
                            f"Run `{one.command}` from this checkout's commit")
        if count > 1:
            raise one.error(f"holds page {slug} twice", f"Run `{one.command}` again")
    return one


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value read from a file is of the type that a field asks for.

    Texts must be printable and numbers finite, since both are shown to people; the source and
    the message of a failed cell may hold anything, as in a run here.
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if origin is dict:
        key, item = get_args(hint)
        return isinstance(value, dict) and all(fits(k, key) and fits(v, item)
                                               for k, v in value.items())
    if origin in (tuple, list):
        return isinstance(value, (tuple, list)) and all(fits(v, get_args(hint)[0]) for v in value)
    if isinstance(hint, type) and is_dataclass(hint):
        return isinstance(value, hint) and all(
            (hint is Failure and type(getattr(value, name)) is str)
            or fits(getattr(value, name), one) for name, one in get_type_hints(hint).items())
    if hint in (int, float):  # JSON writes a whole float as an int; NaN is in no range
        return type(value) in (int, hint) and 0 <= value < LARGEST
    if hint is str:
        return isinstance(value, str) and value.isprintable()
    return isinstance(value, hint)


# ------------------------------------------------------------------ do they belong here, together

def _check_origin(project: Project, one: _Given) -> None:
    """Refuse a part that was not made from this checkout's commit and requirements."""
    here = git_commit(project.root).removesuffix("+")
    if here == "none":
        raise BookError(project.root, "not a git checkout, so nothing says that the parts are its",
                        "Merge in a clone of the repository")
    _check_commit(one, "", one.part.commit)
    if one.part.commit != here:
        raise one.error(f"was run from commit {one.part.commit}, and this is {here}",
                        f"Check out {one.part.commit} here, or run `{one.command}` from {here}")
    if one.part.requirements != requirements_digest(project):
        raise one.error("was run with another requirements.txt than this checkout's",
                        f"Run `{one.command}` again with this one")


def _check_commit(one: _Given, what: str, commit: str) -> None:
    if commit == "none":
        raise one.error(f"{what}was run outside git, so nothing says from which files",
                        f"Run `{one.command} --force` in a clone, one that git trusts")
    if commit.endswith("+"):
        raise one.error(f"{what}was run from uncommitted changes ({commit})",
                        f"Commit them there, and run `{one.command} --force`")


def _check_together(given: list[_Given], slugs: Iterable[str]) -> None:
    """Refuse parts that are not, together, each shard once and each page once."""
    first = given[0]
    places: dict[int, _Given] = {}
    holders: dict[str, _Given] = {}
    for one in given:
        if one.part.n != first.part.n:
            raise one.error(f"is of {one.part.n} shards, and {first} is of {first.part.n}",
                            "Give the parts of one split")
        if one.part.i in places:
            raise one.error(f"is the same shard as {places[one.part.i].folder}",
                            "Give each shard once")
        places[one.part.i] = one
        for slug in one.part.pages:
            if slug in holders:
                raise one.error(f"holds page {slug}, and so does {holders[slug]}",
                                "Run both shards again from committed files")
            holders[slug] = one
    lost = ", ".join(slug for slug in slugs if slug not in holders)
    n = first.part.n
    if missing := [f"{i}/{n}" for i in range(1, n + 1) if i not in places]:
        raise BookError("merge", f"no part is shard {', '.join(missing)}, which has to hold "
                        f"{lost or 'no page'}",
                        f"Run `python -m ci run --shard {missing[0]}` and give its `_build` too")
    if lost:
        raise BookError("merge", f"no part holds {lost}",
                        "Run all shards again from committed files")


# ------------------------------------------------------------------ one page

def _stage(stage: Project, one: _Given, page: Page) -> Record:
    """Copy a page's record and notebook beside their destination, check them, return the record.

    Raises:
        BookError: one of them is missing, broken, or not of this page as it stands here.
    """
    slug = page.slug
    record = _read_record(one, slug)
    again = f"Run `{one.command}` again from this checkout's commit"
    _check_commit(one, f"page {slug} ", record.commit)
    if record.requirements != one.part.requirements:
        raise one.error(f"page {slug} was run with another requirements.txt", again)
    made_on = Machine(record.device, record.requirements, record.python, record.platform)
    if record.key != page_key(page, made_on):
        raise one.error(f"page {slug} was run from other code than this checkout's", again)
    write_record(stage, record)
    if not record.ok:
        partial = _read(one.folder, f"failed/{slug}.ipynb")
        if partial is not None:
            write_atomic(stage.failed / f"{slug}.ipynb", partial)
        return record
    raw = _read(one.folder, f"executed/{slug}.ipynb")
    if raw is None:
        raise one.error(f"page {slug} has a record and no executed notebook", COPY)
    write_atomic(stage.executed_notebook(slug), raw)
    if why := doubts(stage, page, record):
        raise one.error(f"page {slug} {why}", COPY)
    if _code(raw) != [cell.source for cell in page.code]:
        raise one.error(f"page {slug} has an executed notebook of other code", again)
    return record


def _read_record(one: _Given, slug: str) -> Record:
    raw = _read(one.folder, f"records/{slug}.json")
    if raw is None:
        raise one.error(f"page {slug} has no record", f"{COPY}, or run `{one.command}` there")
    try:
        data = json.loads(raw)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        if data.get("format") != records.FORMAT:
            raise one.error(f"page {slug} has a record of format {data.get('format')!r}, not "
                            f"{records.FORMAT}", f"Run `{one.command}` again")
        failure = data.pop("failure", None)
        record = Record(**data, failure=Failure(**failure) if failure else None)
        if not fits(record, Record):
            raise ValueError("a value of a wrong kind")
        if record.page != slug or record.status not in ("ok", "failed"):
            raise ValueError(f"it speaks of {record.page!r}, {record.status!r}")
        if record.ok == bool(record.failure):
            raise ValueError(f"{record.status} {'with' if record.ok else 'without'} a failure")
    except (ValueError, TypeError, RecursionError) as error:
        raise one.error(f"page {slug} has a record that cannot be read ({error})",
                        COPY) from None
    return record


def _code(raw: bytes) -> list[str] | None:
    """Return the sources of a notebook's code cells, None when it is no notebook."""
    try:
        cells = json.loads(raw)["cells"]
        return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _take_over(stage: Project, project: Project, merged: Iterable[Record]) -> None:
    """Rename the checked files to their places, a page's record last; undo it all on an error.

    Between two renames a page has a notebook that its record does not know, and such a page is
    never shown.
    """
    moves: list[tuple[Path | None, Path]] = []
    for record in merged:
        partial = stage.failed / f"{record.page}.ipynb"
        if record.ok:
            executed = stage.executed_notebook(record.page)
            moves += [(executed, project.executed_notebook(record.page))]
        moves += [(partial if partial.exists() else None, project.failed / partial.name),
                  (stage.record(record.page), project.record(record.page))]
    undo: list[tuple[Path | None, Path]] = []
    try:
        for number, (new, place) in enumerate(moves):
            place.parent.mkdir(parents=True, exist_ok=True)
            old = stage.build / f"old-{number}"
            if place.exists():
                undo.append((old, place))  # noted first: an interrupt may come in between
                place.replace(old)
            else:
                undo.append((None, place))
            if new:
                new.replace(place)
    except BaseException:
        for kept, place in undo:
            if kept is None:
                place.unlink(missing_ok=True)
            elif kept.exists():
                kept.replace(place)
        raise
