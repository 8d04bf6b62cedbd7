"""What pages measured on a GPU, kept with device, versions and date, and shown by them anywhere.

A page that speaks of a GPU runs without one. Its cells for a GPU display what is worth keeping as
data of the type ``MIME``: a dictionary of names to numbers or texts. ``python -m ci gpu RUN``
reads those from a run on a GPU, keeps them in ``book/_data/gpu/<page>.json``, and writes them into
the page's folded cell that begins with ``TITLE``, so the page shows them beside the reader's own
without needing the file. ``check`` finds a cell that says something else than the file, and a
record whose measuring cell has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ci.pages import Cell, Page, Problem, notebook_slugs, read_page
from ci.project import BookError, Project, digest, locked, write_atomic
from ci.record import Record, read_record, run_folder
from ci.recorded import fill, json_source
from ci.repeat import cells_run

FOLDER = "book/_data/gpu"
MIME = "application/vnd.proof-by-running.gpu+json"
TITLE = "# @title Recorded on a GPU by python -m ci gpu"
NAME = "gpu_record"
EMPTY = f"{TITLE}\n{NAME} = None"
ONE = f"Give it one, folded: `{TITLE}`, then `{NAME} = None`"
SHOWN = ("torch", "tensorflow", "keras", "numpy")  # the versions that a page shows


def keep(project: Project, run: Path, say: Callable[[str], None] = print) -> list[str]:
    """Keep what the pages of a run on a GPU have measured, and show it on them.

    Args:
        project: the checkout whose pages have run.
        run: the ``_build`` of the machine with the GPU, or the folder around it.
        say: is told of each page.

    Returns:
        The pages that have a record now.

    Raises:
        BookError: no page of that run measured anything on a GPU, or one of them is not of the
            page as it stands; nothing has changed.
    """
    made = replace(project, out=run_folder(run))
    found = {}
    for slug in notebook_slugs(project):
        page, record = read_page(project.text(slug)), read_record(made, slug)
        if record is None or not record.ok or record.device == "cpu":
            continue
        if values := _measured(made, page, record):
            place(project, page)  # told before anything is written
            found[slug] = _entry(page, record, values)
    if not found:
        raise BookError(made.build, "no page of this run has measured anything on a GPU",
                        "Give the `_build` of a machine with one, on which the pages ran")
    sources = {slug: cell_source(slug, entry) for slug, entry in found.items()}
    with locked(project, say):
        for slug, entry in found.items():
            write_atomic(project.root / FOLDER / f"{slug}.json",  # in the order of the page
                         json.dumps(entry, indent=1, ensure_ascii=False) + "\n")
            _fill(project, slug, sources[slug])
            say(f"{slug}: {len(entry['values'])} values on {entry['device']}, kept")
    return list(found)


def forget(project: Project, slug: str, say: Callable[[str], None] = print) -> None:
    """Remove a page's record, when the cell that measured it has changed and no GPU is at hand.

    Raises:
        BookError: there is none.
    """
    path = project.root / FOLDER / f"{slug}.json"
    if not path.is_file():
        raise BookError(project.relative(path), "there is no such record", "Mend the page's name")
    with locked(project, say):
        _fill(project, slug, EMPTY)
        path.unlink()
    say(f"{slug}: the record is gone, and the page says that there is none")


def _entry(page: Page, record: Record, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "device": values.pop("device", None) or record.device,
        "versions": {"python": record.python,
                     **{name: record.versions[name] for name in SHOWN if name in record.versions}},
        "date": record.started[:10],
        "commit": record.commit,
        "code": measuring(page),
        "values": values,
    }


def _measured(run: Project, page: Page, record: Record) -> dict[str, Any]:
    """Return what a page's run displayed to be kept; {} if it displayed nothing of the kind.

    Raises:
        BookError: the run is not of the page as it stands, or what it displayed is not names with
            numbers or texts.
    """
    cells = cells_run(run, record)
    values: dict[str, Any] = {}
    for one in cells:
        for output in one.outputs:
            values |= output.get("data", {}).get(MIME, {})
    if not values:
        return {}
    ran, stand = [one.source for one in cells], [cell.source for cell in page.code]
    if [one for one in ran if not one.startswith(TITLE)] != [
            one for one in stand if not one.startswith(TITLE)]:
        raise BookError(run.executed_notebook(page.slug),
                        f"not a run of book/{page.slug}.md as it stands here",
                        "Check out the commit that was run, or run it again")
    for name, value in values.items():
        if not isinstance(value, (int, float, str)):
            raise BookError(run.executed_notebook(page.slug),
                            f"the value of {name!r} is {shown(value)}, not a number or a text",
                            "Mend the page's cell for a GPU")
    return values


def shown(value: Any) -> str:
    """Return a value as a short text for a message."""
    return text if len(text := repr(value)) <= 40 else f"{text[:37]}..."


def measuring(page: Page) -> str:
    """Return the first digits of the digest of the cells that display what is to be kept."""
    return digest(*(cell.source for cell in page.code if MIME in cell.source))[:12]


def place(project: Project, page: Page) -> Cell:
    """Return the page's cell that shows the record.

    Raises:
        BookError: it has none, or more than one.
    """
    if len(found := showing(page)) != 1:
        raise BookError(project.relative(page.path), wrong_number(found), ONE)
    return found[0]


def showing(page: Page) -> list[Cell]:
    """Return the page's cells that show a record: one, as they should be."""
    return [cell for cell in page.code if cell.source.startswith(TITLE)]


def wrong_number(found: list[Cell]) -> str:
    return f"{len(found) or 'no'} cells show what was measured on a GPU"


def cell_source(slug: str, entry: Mapping[str, Any]) -> str:
    """Return the source of the cell that shows a record."""
    shows = {name: entry[name] for name in ("device", "versions", "date", "values")}
    return json_source(TITLE, NAME, shows, f"{FOLDER}/{slug}.json")


def _fill(project: Project, slug: str, source: str) -> None:
    page = read_page(project.text(slug))
    fill(project, page, place(project, page), source)


def check_gpu(project: Project) -> Iterator[tuple[str, Problem]]:
    """Yield the file and what is wrong with it: records and pages that do not belong together."""
    left = {path.stem: path for path in sorted((project.root / FOLDER).glob("*.json"))}
    for slug in notebook_slugs(project):
        page = read_page(project.text(slug))
        path = left.pop(slug, None)
        if not any(MIME in cell.source or cell.source.startswith(TITLE) for cell in page.code):
            if path:
                yield project.relative(path), Problem(
                    1, f"book/{slug}.md measures nothing on a GPU", "Remove the file")
            continue
        if problem := _against(project, page, path):
            yield project.relative(page.path), problem
    for path in left.values():
        yield project.relative(path), Problem(1, "there is no such page", "Remove the file")


def _against(project: Project, page: Page, path: Path | None) -> Problem | None:
    """Return what is wrong between a page and its record, if there is one."""
    if len(found := showing(page)) != 1:
        return Problem(found[1].line if found else 1, wrong_number(found), ONE)
    cell = found[0]
    measures = next((one for one in page.code if MIME in one.source), None)
    if measures is None:
        return Problem(cell.line, "shows a record of a GPU, and no cell measures one",
                       f"Display it as `{MIME}`, or remove the cell")
    if path is None:
        return None if cell.source == EMPTY else Problem(
            cell.line, f"shows a record that {FOLDER}/{page.slug}.json does not hold",
            f"Its two lines without a record: `{TITLE}`, `{NAME} = None`")
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        source = cell_source(page.slug, entry)
        code = entry["code"]
    except (ValueError, KeyError, TypeError):
        return Problem(cell.line, f"{project.relative(path)} is not a record",
                       f"Run `python -m ci gpu --forget {page.slug}`")
    if source != cell.source:
        return Problem(cell.line, f"says something else than {project.relative(path)}",
                       "Copy neither by hand; run `python -m ci gpu` again")
    if code != measuring(page):
        return Problem(measures.line, "has changed since its record on a GPU was made",
                       f"Run it on one and `python -m ci gpu` again, or "
                       f"`python -m ci gpu --forget {page.slug}`")
    return None
