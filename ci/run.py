"""``notebooks/<page>.ipynb`` to ``_build/executed/<page>.ipynb`` and one record per page.

Pages run in worker processes (:mod:`ci.worker`), ``jobs`` at a time, longest first by the last
record. Each has a fresh empty folder, a limit on time and on memory, and a name in its environment
by which every process that it leaves behind is found and ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import psutil

from ci.pages import Page, count_verdicts, notebook_slugs, read_page
from ci.project import BookError, Project, digest, git_commit, write_atomic, write_json
from ci.record import (
    Failure,
    Machine,
    Record,
    is_current,
    page_key,
    read_record,
    versions,
    write_record,
)
from ci.worker import Job, Outcome

MARK = "PROOF_BY_RUNNING_PAGE"
POLL = 0.2  # seconds between two looks at a page
WEIGH = 2.0  # seconds between two exact measurements of its memory, which cost it 0.1 s of a core


@dataclass(frozen=True)
class Limits:
    """What one page may take."""

    cell_seconds: float = 120
    page_seconds: float = 300
    memory_mib: float = 4096


@dataclass(frozen=True)
class Report:
    """What a run did: the records of all asked pages, and the names of those that really ran."""

    records: tuple[Record, ...]
    executed: tuple[str, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if not record.ok)


def run(
    project: Project,
    only: list[str] | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
    force: bool = False,
    say: Callable[[str], None] = print,
) -> Report:
    """Execute the pages that need it and write their executed notebooks and records.

    Args:
        project: the checkout; its notebooks must be in step with the text.
        only: names of pages (default: all of the table of contents that have code).
        jobs: how many pages at once (default: one per core, at most two; one with a GPU).
        limits: time and memory per page.
        force: run unchanged pages too.
        say: takes the progress lines.

    Returns:
        The report. A page that fails is in it; it does not raise.

    Raises:
        BookError: an unknown page, or a notebook that is missing or stale.
    """
    began = time.monotonic()
    limits = limits or Limits()
    machine = Machine.here(project)
    pages = _pages(project, only)
    if jobs is None:
        jobs = 1 if machine.device != "cpu" else min(2, os.cpu_count() or 1)
    todo = [p for p in pages if force or not is_current(project, p, machine)]
    known = {p.slug: read_record(project, p.slug) for p in todo}
    todo.sort(key=lambda p: -(r.seconds if (r := known[p.slug]) else float("inf")))
    for page in pages:
        if page not in todo:
            say(f"{page.slug:<28} unchanged")
            _refresh_claims(project, page)

    waiting, running = list(todo), list[_Running]()
    with _scratch() as scratch, _ended_cleanly(running):
        while waiting or running:
            while waiting and len(running) < jobs:
                page = waiting.pop(0)
                running.append(_start(project, page, scratch, limits, jobs))
            time.sleep(POLL)
            for one in list(running):
                if (verdict := one.look(limits)) is None:
                    continue
                running.remove(one)
                record = _finish(project, one, verdict, machine)
                say(progress_line(record))
    records = tuple(r for p in pages if (r := read_record(project, p.slug)))
    return Report(records, tuple(p.slug for p in todo), time.monotonic() - began)


def progress_line(record: Record) -> str:
    """Return one line: the page, how it ended, its seconds and its peak memory."""
    return (f"{record.page:<28} {record.status:<7} {record.seconds:6.1f} s"
            f"  {record.peak_mib:6.0f} MiB")


def report_lines(report: Report) -> Iterator[str]:
    """Yield the report at the end of a run: a table, then what failed and how to run it again."""
    ran = len(report.executed)
    yield ""
    yield f"{'page':<28} {'status':<7} {'total s':>8} {'cells s':>8} {'MiB':>6}  claims"
    for record in report.records:
        claims = ", ".join(f"{count} {verdict}" for verdict, count in record.claims.items())
        yield (f"{record.page:<28} {record.status:<7} {record.seconds:>8.1f} "
               f"{record.cell_seconds:>8.1f} {record.peak_mib:>6.0f}  {claims}")
    yield (f"{len(report.records)} pages: {len(report.records) - len(report.failed)} ok, "
           f"{len(report.failed)} failed; {ran} executed in {report.seconds:.1f} s")
    for record in report.failed:
        failure = record.failure
        assert failure
        yield ""
        yield f"FAILED {record.page}, code cell {failure.cell}: {failure.error}"
        source = failure.source.splitlines()
        for line in source[:12]:
            yield f"    {line}"
        if len(source) > 12:
            yield f"    ... ({len(source) - 12} more lines)"
        yield f"run it again alone: {failure.rerun}"


def _pages(project: Project, only: list[str] | None) -> list[Page]:
    slugs = notebook_slugs(project)
    for slug in only or []:
        if slug not in slugs:
            raise BookError(f"book/{slug}.md", "not a page with code in _toc.yml",
                            f"One of: {', '.join(slugs)}")
    pages = [read_page(project.text(slug)) for slug in (only or slugs)]
    for page in pages:
        _require_pair(project, page)
    return pages


def _require_pair(project: Project, page: Page) -> None:
    """Refuse a notebook whose code is not the text's: its outputs would be somebody else's."""
    path = project.notebook(page.slug)
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    except FileNotFoundError:
        raise BookError(project.relative(path), "there is no such notebook",
                        "Run `python -m ci pair`") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BookError(project.relative(path), f"not a notebook ({error})",
                        "Run `python -m ci pair`") from None
    if code != [cell.source for cell in page.code]:
        raise BookError(project.relative(path), "not in step with its text",
                        "Run `python -m ci pair`")


def _refresh_claims(project: Project, page: Page) -> None:
    """Keep the count of verdicts in the record of an unchanged page in step with its prose."""
    record = read_record(project, page.slug)
    if record and record.claims != (counts := count_verdicts(page)):
        write_record(project, Record(**{**record.__dict__, "claims": counts}))


# ------------------------------------------------------------------ one running page

@dataclass
class _Running:
    page: Page
    process: subprocess.Popen[bytes]
    job: Job
    mark: str
    started: datetime
    began: float
    peak_mib: float = 0.0
    weighed: float = 0.0

    def look(self, limits: Limits) -> str | None:
        """Return None while the page runs, '' when it ended itself, or the limit it passed."""
        if self.process.poll() is not None:
            return ""
        now = time.monotonic()
        most = memory_mib(self.process.pid, exact=False)
        due = now - self.weighed > WEIGH and most > self.peak_mib
        if due or most > limits.memory_mib:
            self.peak_mib = max(self.peak_mib, memory_mib(self.process.pid, exact=True))
            self.weighed = now
        if self.peak_mib > limits.memory_mib:
            return f"more than {limits.memory_mib:.0f} MiB of memory"
        if now - self.began > limits.page_seconds:
            return f"more than {limits.page_seconds:.0f} s for the page"
        return None


def memory_mib(pid: int, exact: bool) -> float:
    """Return the memory of a process and all below it, in MiB.

    Args:
        pid: the process.
        exact: count pages that several processes share once, where the system can tell (the
            proportional set size of Linux; it walks all pages). Else the sum of the resident
            sets: cheap, and never less.
    """
    total = 0
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in [top, *top.children(recursive=True)]:
            with suppress(psutil.Error):
                full = process.memory_full_info() if exact else process.memory_info()
                total += getattr(full, "pss", 0) or full.rss
    return total / 2**20


def _start(project: Project, page: Page, scratch: Path, limits: Limits, jobs: int) -> _Running:
    # Short names: the kernel's sockets lie in here and a socket's path has room for 107 bytes.
    place = Path(tempfile.mkdtemp(dir=scratch, prefix=""))
    for name in ("work", "run", "ipy"):
        (place / name).mkdir()
    job = Job(
        notebook=str(project.notebook(page.slug)), output=str(place / "out.ipynb"),
        folder=str(place / "work"), progress=str(place / "cell"),
        outcome=str(place / "outcome.json"), cell_seconds=limits.cell_seconds,
    )
    write_json(place / "job.json", asdict(job))
    fonts = project.build / ".matplotlib"
    fonts.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    mark = uuid.uuid4().hex
    env = dict(
        os.environ, **{MARK: mark},
        JUPYTER_RUNTIME_DIR=str(place / "run"), IPYTHONDIR=str(place / "ipy"),
        MPLCONFIGDIR=str(fonts),  # kept between pages: finding all fonts anew costs seconds
        OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads,
        TF_NUM_INTRAOP_THREADS=threads, TF_NUM_INTEROP_THREADS=threads,
        TF_FORCE_GPU_ALLOW_GROWTH="true",
    )
    # The worker imports this package from the checkout; the page must not be able to.
    package = Path(__file__).resolve().parent.parent
    start = f"import sys; sys.path.insert(0, {str(package)!r}); from ci.worker import main; main()"
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, str(place / "job.json")], cwd=place / "work",
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
    return _Running(page, process, job, mark, datetime.now(UTC), time.monotonic())


def _finish(project: Project, one: _Running, limit: str, machine: Machine) -> Record:
    """Read how the page ended, end what it left behind, write its notebook, then its record."""
    seconds = time.monotonic() - one.began
    end_marked(one.mark)
    one.process.wait()
    outcome = _outcome(one, limit)
    place = Path(one.job.output).parent
    page = one.page
    failure = None
    notebook = ""
    if outcome.error:
        source = page.code[outcome.cell - 1].source if 0 < outcome.cell <= len(page.code) else ""
        failure = Failure(page.slug, outcome.cell, source, outcome.error,
                          f"python -m ci run {page.slug}")
        for made in (place / "out.ipynb", place / "out.ipynb.raw"):
            if made.is_file():
                write_atomic(project.failed / f"{page.slug}.ipynb", made.read_bytes())
                break
    else:
        executed = (place / "out.ipynb").read_bytes()
        notebook = digest(executed)
        write_atomic(project.executed_notebook(page.slug), executed)
        (project.failed / f"{page.slug}.ipynb").unlink(missing_ok=True)
    record = Record(
        page=page.slug, status="failed" if failure else "ok", key=page_key(page, machine),
        started=one.started.isoformat(timespec="seconds"), seconds=round(seconds, 2),
        cell_seconds=round(outcome.cell_seconds, 2), peak_mib=round(one.peak_mib, 1),
        cells=outcome.cells, device=machine.device, python=machine.python,
        platform=machine.platform, versions=versions(), requirements=machine.requirements,
        commit=git_commit(project.root), claims=count_verdicts(page), notebook=notebook,
        failure=failure,
    )
    write_record(project, record)
    shutil.rmtree(place, ignore_errors=True)
    return record


def _outcome(one: _Running, limit: str) -> Outcome:
    try:
        cell = int(Path(one.job.progress).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        cell = 0
    if limit:
        return Outcome(limit, cell, max(0, cell - 1), 0.0)
    try:
        return Outcome(**json.loads(Path(one.job.outcome).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        log = Path(one.job.output).with_name("log").read_text(encoding="utf-8", errors="replace")
        last = (log.strip().splitlines() or ["nothing was logged"])[-1]
        return Outcome(f"the worker ended with status {one.process.returncode}: {last}", cell,
                       max(0, cell - 1), 0.0)


def end_marked(mark: str) -> None:
    """Kill every process whose environment carries the mark, until none is left.

    A page's children may have left its process group, and may have lost their parent; what they
    inherit is the environment.
    """
    while True:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == mark and process.status() != "zombie":
                    found.append(process)
        if not found:
            return
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=2)


# ------------------------------------------------------------------ clean ends

@contextmanager
def _scratch() -> Iterator[Path]:
    """A short-named folder for this run; folders of runs that were killed are removed first."""
    base = Path(tempfile.gettempdir())
    for old in base.glob("pbr-*-*"):
        owner = old.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=base, prefix=f"pbr-{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_cleanly(running: list[_Running]) -> Iterator[None]:
    """End all running pages whatever ends the run; SIGTERM counts as an interrupt."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for one in running:
            end_marked(one.mark)
            with suppress(OSError):
                one.process.kill()
            one.process.wait()
