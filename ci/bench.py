"""How fast the line is, beside what others offer and beside the machine's own limit.

All are measured in one go, on the same pages, in turns, so that whatever else the machine does
falls on all alike. What is compared is a ratio; its spread over the rounds is shown.

- *cold*, *warm*: our run of all pages.
- *jupyter-book build*: the plain build from nothing, which executes the pages one by one and
  makes the site; ``warm + site`` is what answers it.
- *papermill*: the command in a loop. *nbmake*: ``pytest --nbmake -n CORES``.
- *limit*: the seconds that the warm run spent inside cells, over the cores. Nothing that runs these
  cells on these cores can be faster.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median

from ci.pages import notebook_slugs, read_page
from ci.pair import pair
from ci.project import Project
from ci.run import Report, run
from ci.site import site
from ci.synthetic import make_book, pretend_run, slug_of

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
CHECKOUT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "_build", "__pycache__", ".*_cache")


@dataclass
class Timing:
    """The wall seconds of one way to do it, one number per round."""

    name: str
    seconds: list[float] = field(default_factory=list)


def quiet(line: str) -> None:
    """Take the place of print."""


def bench(project: Project, rounds: int, sizes: list[int], copies: int, others: bool = True,
          say: Callable[[str], None] = print) -> None:
    """Measure everything and say the tables.

    Args:
        project: the checkout; it is copied, and nothing in it is changed.
        rounds: how often each way is measured.
        sizes: the numbers of pages of the synthetic books.
        copies: how many times the book's pages are taken, to see a longer book.
        others: measure the other tools too; else only our own ways.
        say: takes the lines.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if rounds:
            copy = _copy(project, Path(folder) / "book", copies)
            for line in _compared(copy, rounds, others):
                say(line)
            say("")
            for line in _edits(copy, rounds):
                say(line)
        if sizes:
            say("")
            for line in _growth(Path(folder), sizes):
                say(line)


def _copy(project: Project, folder: Path, copies: int) -> Project:
    """Copy the checkout without its outputs; each page ``copies`` times, under other names."""
    shutil.copytree(project.root, folder, symlinks=True, ignore=LEFT_OUT)
    copy = Project(folder)
    toc = (folder / "_toc.yml").read_text(encoding="utf-8")
    for slug in notebook_slugs(copy):
        for number in range(2, copies + 1):
            # Names of figures are addresses: no two pages may have the same.
            text = copy.text(slug).read_text(encoding="utf-8")
            copy.text(f"{slug}-{number}").write_text(
                text.replace(f"fig-{slug}", f"fig-{slug}-{number}"), encoding="utf-8")
        more = "".join(f"      - file: {slug}-{n}\n" for n in range(2, copies + 1))
        toc = toc.replace(f"- file: {slug}\n", f"- file: {slug}\n{more}")
    (folder / "_toc.yml").write_text(toc, encoding="utf-8")
    pair(copy)
    return copy


# ------------------------------------------------------------------ beside the others

def _compared(project: Project, rounds: int, others: bool) -> Iterator[str]:
    cores = os.cpu_count() or 1
    warm_runs: list[Report] = []
    pages = notebook_slugs(project)

    def ours(warm: bool) -> None:
        report = run(project, force=True, warm=warm, say=quiet)
        if report.failed:
            raise SystemExit(f"{report.failed[0].page} failed: nothing to measure")
        if warm:
            warm_runs.append(report)

    def our_site() -> None:
        shutil.rmtree(project.html, ignore_errors=True)
        shutil.rmtree(project.build / ".stage", ignore_errors=True)
        site(project, quiet)

    def jupyter_book() -> None:
        # Its outputs go where ours are not, and it finds no cache there.
        _command(project.root, [sys.executable, "-c", JUPYTER_BOOK, "build", "book", "--all",
                           "--path-output", str(project.root.parent / "plain")])

    def papermill() -> None:
        for slug in pages:
            _command(project.root, [sys.executable, "-m", "papermill", "--no-progress-bar",
                               str(project.notebook(slug)), "out.ipynb"])

    def nbmake() -> None:
        _command(project.root, [sys.executable, "-m", "pytest", "--nbmake", "-n", str(cores), "-q",
                           "-p", "no:cacheprovider", "-c", os.devnull, "--nbmake-timeout=300",
                           *(str(project.notebook(slug)) for slug in pages)])

    ways: dict[str, Callable[[], None]] = {
        "warm": lambda: ours(True), "site": our_site, "cold": lambda: ours(False),
        "jupyter-book build": jupyter_book, "papermill": papermill, "nbmake": nbmake}
    if not others:
        ways = {name: ways[name] for name in ("warm", "site", "cold")}
    elif not find_spec("nbmake"):
        del ways["nbmake"]
        yield "nbmake is not installed and is left out: pip install nbmake"
    timings = {name: Timing(name) for name in ways}
    ours(True)  # once for nothing: caches of files and fonts
    warm_runs.clear()
    for _ in range(rounds):
        for name, way in ways.items():
            shutil.rmtree(project.root.parent / "plain", ignore_errors=True)
            began = time.monotonic()
            way()
            timings[name].seconds.append(time.monotonic() - began)
    limits = [sum(r.cell_seconds for r in report.records) / cores for report in warm_runs]
    longest = [max(r.cell_seconds for r in report.records) for report in warm_runs]
    warm = timings["warm"].seconds
    both = [a + b for a, b in zip(warm, timings["site"].seconds, strict=True)]
    yield f"{len(pages)} pages, {rounds} rounds in turns, {cores} cores; median, least to most"
    yield f"{'':<34}{'seconds':>9}  spread"
    rows = [*timings.values(), Timing("warm + site", both),
            Timing("limit (cells / cores)", limits), Timing("longest page's cells", longest)]
    for row in rows:
        yield f"{row.name:<34}{median(row.seconds):>9.1f}  {_spread(row.seconds, 1)}"
    yield ""
    yield f"{'ratio':<34}{'median':>9}  spread"
    seconds = {name: timing.seconds for name, timing in timings.items()}
    seconds.update({"limit": limits, "warm + site": both})
    for name in ("warm / limit", "warm / cold", "warm / jupyter-book build",
                 "warm + site / jupyter-book build", "warm / papermill", "warm / nbmake"):
        above, below = name.split(" / ")
        if below in seconds:
            ratios = [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
            yield f"{name:<34}{median(ratios):>9.2f}  {_spread(ratios, 2)}"
    yield ""
    yield "where the warm run's time above the limit goes, in seconds of its wall time (medians)"
    outside = [sum(r.seconds - r.cell_seconds for r in report.records) / cores
               for report in warm_runs]
    started = [report.warm_up for report in warm_runs]
    rest = [report.seconds - limit - out - start for report, limit, out, start
            in zip(warm_runs, limits, outside, started, strict=True)]
    for name, values in (("imports of the parent, all wait", started),
                         ("pages outside cells, / cores", outside),
                         ("one core idle at the end, rest", rest)):
        yield f"{name:<34}{median(values):>9.1f}  {_spread(values, 1)}"


def _command(folder: Path, command: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-at-") as runtime:
        environment = {**os.environ, "JUPYTER_RUNTIME_DIR": runtime}
        done = subprocess.run(command, cwd=folder, env=environment, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stdout[-2000:]}")


def _spread(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


# ------------------------------------------------------------------ one edit

def _edits(project: Project, rounds: int) -> Iterator[str]:
    """Time the whole command after one edit of the shortest page."""
    _ci(project, "book")
    records = {slug: json.loads(project.record(slug).read_text(encoding="utf-8"))
               for slug in notebook_slugs(project)}
    slug = min(records, key=lambda one: float(records[one]["cell_seconds"]))
    text = project.text(slug).read_text(encoding="utf-8")
    first = read_page(project.text(slug)).code[0].source.splitlines()[0]
    yield f"one edit of {slug}, then `python -m ci book`, {rounds} times each"
    for name, old, new in (("nothing", "", ""), ("prose", "\n## Short answer\n",
                                                 "\n## Short answer\n\nEdited, {}.\n"),
                           ("code", f"\n{first}\n", f"\n{first}  # edited {{}}\n")):
        totals, cells = [], []
        for number in range(rounds):
            edited = text.replace(old, new.format(number), 1) if old else text
            project.text(slug).write_text(edited, encoding="utf-8")
            pair(project)
            totals.append(_ci(project, "book"))
            record = json.loads(project.record(slug).read_text(encoding="utf-8"))
            cells.append(float(record["cell_seconds"]) if name == "code" else 0.0)
        beside = [total - cell for total, cell in zip(totals, cells, strict=True)]
        yield (f"{name:<34}{median(totals):>9.1f}  {_spread(totals, 1)}; without the cells "
               f"{median(beside):.1f}")


# ------------------------------------------------------------------ growth

def _growth(folder: Path, sizes: list[int]) -> Iterator[str]:
    names = ("pair", "run, unchanged", "site, from nothing", "site, one page edited")
    start = min(_ci(None, "--help") for _ in range(3))
    taken: dict[str, list[float]] = {name: [] for name in names}
    for size in sizes:
        for name, seconds in zip(names, _grown(folder / f"of-{size}", size), strict=True):
            # What every command takes to start says nothing of growth, and would hide it.
            taken[name].append(max(seconds - start, 0.001))
    yield "synthetic books of one-cell pages without frameworks: milliseconds per page,"
    yield f"each verb in a process of its own, less the {start:.2f} s that any verb takes to start"
    yield f"{'pages':<24}" + "".join(f"{size:>9}" for size in sizes) + f"{'exponent':>10}"
    for name in names:
        each = "".join(f"{1000 * t / n:>9.1f}" for t, n in zip(taken[name], sizes, strict=True))
        yield f"{name:<24}{each}{exponent(sizes, taken[name]):>10.2f}"


def _grown(folder: Path, size: int) -> Iterator[float]:
    """Yield the seconds of the verbs on one synthetic book."""
    project = make_book(folder, size)
    shutil.rmtree(project.notebooks)
    yield _ci(project, "pair")
    pretend_run(project)
    yield _ci(project, "run")
    yield _ci(project, "site")
    text = project.text(slug_of(1))
    text.write_text(text.read_text(encoding="utf-8").replace("Nothing since", "Little since"),
                    encoding="utf-8")
    pair(project)
    yield _ci(project, "site")
    shutil.rmtree(folder)


def _ci(project: Project | None, verb: str) -> float:
    """Return the wall seconds of one verb in a process of its own."""
    root = ["--root", str(project.root)] if project else []
    began = time.monotonic()
    _command(CHECKOUT, [sys.executable, "-m", "ci", *root, verb])
    return time.monotonic() - began


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of log(seconds) over log(pages), by least squares: 1 is proportional."""
    if len(sizes) < 2:
        return math.nan
    x, y = [math.log(n) for n in sizes], [math.log(s) for s in seconds]
    mean_x, mean_y = fmean(x), fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / \
        sum((a - mean_x) ** 2 for a in x)
