"""One machine's share of the pages: the same split on each machine, even in recorded seconds.

The split is made from committed files alone: the table of contents, the texts and
``book/_data/seconds.json``. What a machine has measured itself (its records under ``_build``)
must not count, or two machines would split differently and a page would be run twice or never.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click

from ci.claims import load_topics
from ci.pages import notebook_slugs
from ci.project import BookError, Project, git_commit, write_json
from ci.record import Machine, Record

FORMAT = 1  # raised when a field of a part changes its meaning
MOST = 9999  # shards, as many as four digits can say
UNKNOWN = 20.0  # seconds of a page when none has been recorded
CHURN_SECONDS, CHURN_SHARE = 2.0, 0.2  # a recorded number stays until both are passed


@dataclass(frozen=True)
class Part:
    """What a shard says of itself in ``_build/shard.json``, beside its records and notebooks."""

    i: int  # from 1
    n: int
    commit: str
    requirements: str  # digest of requirements.txt
    python: str
    pages: tuple[str, ...]  # its share, also those that failed
    format: int = FORMAT


class Share(click.ParamType[tuple[int, int]]):
    """The value of ``--shard``: ``i/n``, with i from 1 to n."""

    name = "i/n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None
                ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", str(value))
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            self.fail(f"{value!r} is not a share. Write i/n with i from 1 to n, as in 2/3", param,
                      ctx)
        return int(match[1]), int(match[2])


# ------------------------------------------------------------------ recorded seconds

def seconds_file(project: Project) -> Path:
    """Return the committed list of seconds per page."""
    return project.book / "_data" / "seconds.json"


def load_seconds(project: Project) -> dict[str, int]:
    """Return the recorded seconds in cells by page; empty when there is no list.

    Raises:
        BookError: the list is not an object of whole numbers.
    """
    path = seconds_file(project)
    way_out = "Mend that line, or remove the file: `python -m ci run --keep-seconds` writes it anew"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise BookError(f"{project.relative(path)}:{error.lineno}", error.msg, way_out) from None
    except (OSError, ValueError) as error:
        raise BookError(project.relative(path), str(error), way_out) from None
    if not isinstance(data, dict):
        raise BookError(project.relative(path), "not a JSON object", way_out)
    for slug, seconds in data.items():
        if type(seconds) is not int or seconds < 0:
            raise BookError(f"{project.relative(path)}:{line_of(project, slug)}",
                            f"{slug} has {seconds!r}, not whole seconds", way_out)
    return data


def line_of(project: Project, slug: str) -> int:
    """Return the line of a page's entry in the list, from 1; 1 when it cannot be found."""
    lines = seconds_file(project).read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, 1) if json.dumps(slug) in line), 1)


def expected_seconds(project: Project) -> dict[str, float]:
    """Return how long each page with code is expected to take, in the order of the contents.

    A page without an entry counts as the median of those that have one, or as ``UNKNOWN``.

    Raises:
        BookError: the list of seconds, the table of contents or a page cannot be read.
    """
    known = load_seconds(project)
    slugs = notebook_slugs(project)
    here = [known[slug] for slug in slugs if slug in known]
    usual = float(median(here)) if here else UNKNOWN
    # At least one second, since starting a page costs something too.
    return {slug: max(1.0, float(known.get(slug, usual))) for slug in slugs}


def keep_seconds(project: Project, records: Iterable[Record]) -> list[str]:
    """Bring the list of seconds in step with records of good runs; return the pages that changed.

    A number is replaced only where it is well off, so that the file does not change with each
    run. Entries of pages that are gone are removed.

    Raises:
        BookError: the list, the table of contents or a page cannot be read.
    """
    old = load_seconds(project)
    slugs = set(notebook_slugs(project))
    new = {slug: seconds for slug, seconds in old.items() if slug in slugs}
    for record in records:
        if not record.ok or record.page not in slugs:
            continue
        kept = new.get(record.page)
        off = abs(record.cell_seconds - kept) if kept is not None else 0.0
        if kept is None or (off > CHURN_SECONDS and off > CHURN_SHARE * kept):
            new[record.page] = max(1, round(record.cell_seconds))
    changed = sorted(slug for slug in old.keys() | new.keys() if old.get(slug) != new.get(slug))
    if changed:
        write_json(seconds_file(project), new)
    return changed


# ------------------------------------------------------------------ the split

def split(project: Project, n: int) -> list[list[str]]:
    """Return the pages of the ``n`` shares, each in the order of the table of contents.

    The longest page goes first, each to the share that has least so far (Graham's rule: the
    largest share is at most 4/3 of the best possible). Equal pages go in the order of the
    contents, equal shares get theirs from the first on, so each machine finds the same split.

    Raises:
        BookError: the list of seconds, the table of contents or a page cannot be read.
    """
    seconds = expected_seconds(project)
    order = {slug: place for place, slug in enumerate(seconds)}
    loads = [0.0] * n
    shares: list[list[str]] = [[] for _ in range(n)]
    for slug in sorted(seconds, key=lambda s: (-seconds[s], order[s])):
        least = loads.index(min(loads))
        loads[least] += seconds[slug]
        shares[least].append(slug)
    return [sorted(share, key=order.__getitem__) for share in shares]


def by_framework(project: Project) -> list[list[str]]:
    """Return two shares: the pages about TensorFlow last, all others first.

    On a GPU the two frameworks need environments of their own.

    Raises:
        BookError: the list of questions, the table of contents or a page cannot be read.
    """
    topics = load_topics(project)
    slugs = notebook_slugs(project)
    last = {slug for slug in slugs if slug in topics and topics[slug].framework == "TensorFlow"}
    return [[slug for slug in slugs if slug not in last], [slug for slug in slugs if slug in last]]


def announce(project: Project, i: int, n: int, pages: list[str]) -> str:
    """Return the line that says what a shard is about to run."""
    seconds = expected_seconds(project)
    if not pages:
        return f"shard {i}/{n}: no page: the {len(seconds)} pages with code are in the other shards"
    line = (f"shard {i}/{n}: {len(pages)} of {len(seconds)} pages, about "
            f"{sum(seconds[slug] for slug in pages):.0f} s in cells: {', '.join(pages)}")
    if git_commit(project.root).endswith("+"):
        line += "\nshard: there are uncommitted changes, so `merge` will refuse this part"
    return line


def write_part(project: Project, i: int, n: int, pages: Iterable[str]) -> Part:
    """Write ``_build/shard.json``: what ``merge`` must know beside the records; return it.

    Args:
        project: the checkout.
        i: the number of the shard, from 1.
        n: how many there are.
        pages: its share, also pages that failed.
    """
    machine = Machine.here(project)
    part = Part(i, n, git_commit(project.root), machine.requirements, machine.python, tuple(pages))
    write_json(part_file(project.build), asdict(part))
    return part


def part_file(build: Path) -> Path:
    """Return the file in which a shard's ``_build`` says what it is."""
    return build / "shard.json"
