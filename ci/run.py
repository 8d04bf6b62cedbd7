"""``notebooks/<page>.ipynb`` to ``_build/executed/<page>.ipynb`` and one record per page.

Pages run in worker processes (:mod:`ci.worker`), ``jobs`` at a time, longest first by the last
record, forked warm from a common parent (:mod:`ci.warm`) or started cold. Each has a fresh empty
folder, limits on time, memory and output, and a mark by which every process that it leaves behind
is found and ended (:mod:`ci.procs`).
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from ci import procs
from ci import warm as warm_starts
from ci.nursery import Birth
from ci.pages import Page, count_verdicts, notebook_slugs, read_page
from ci.project import (
    BookError,
    Project,
    digest,
    git_commit,
    locked,
    remove_partial,
    write_atomic,
    write_json,
)
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
from ci.shard import expected_seconds
from ci.worker import Job, Outcome, death

POLL = 0.25  # seconds between two looks at the pages, where none of them ends
WEIGH = 2.0  # seconds between two exact measurements of a page's memory: 0.1 s of a core each


@dataclass(frozen=True)
class Limits:
    """What one page may take."""

    cell_seconds: float = 120
    page_seconds: float = 300
    memory_mib: float = 4096
    output_mib: float = 20


@dataclass(frozen=True)
class Report:
    """What a run did: the records of all asked pages, and the names of those that really ran.

    ``seconds`` is wall time; ``cpu_seconds`` is what all processes of the pages took together.
    """

    records: tuple[Record, ...]
    executed: tuple[str, ...]
    seconds: float
    cpu_seconds: float = 0.0
    warm_up: float = 0.0  # seconds that all waited for the parent of warm kernels

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
    warm: bool | None = None,
    keep: warm_starts.KeptNursery | None = None,
) -> Report:
    """Execute the pages that need it and write their executed notebooks and records.

    Args:
        project: the checkout; its notebooks must be in step with the text.
        only: names of pages (default: all of the table of contents that have code).
        jobs: how many pages at once (default: one per core, at most two; one with a GPU).
        limits: time, memory and output per page.
        force: run unchanged pages too.
        say: takes the progress lines.
        warm: fork the pages from a parent that has imported the frameworks (default: where the
            system can, and more than one page is to run).
        keep: keeps that parent from run to run, for a process that runs pages again and again.

    Returns:
        The report. A page that fails is in it; it does not raise.

    Raises:
        BookError: an unknown page, a notebook that is missing or stale, no room to write.
    """
    limits = limits or Limits()
    with locked(project, say):
        began, cpu = time.monotonic(), _cpu_seconds()
        remove_partial(project.build)
        machine = Machine.here(project)
        pages = _pages(project, only)
        if not force:
            _adopt(project, pages, machine)
        todo = [p for p in pages if force or not is_current(project, p, machine)]
        for page in pages:
            if page not in todo:
                say(f"{page.slug:<28} unchanged")
                _refresh_claims(project, page)
        warm_up = 0.0
        if todo:
            todo.sort(key=_longest_first(project, todo))
            jobs = jobs or _usual_jobs(machine)
            if warm is None:
                warm = warm_starts.supported() and (len(todo) > 1 or keep is not None)
            this = _Run(project, machine, limits, jobs, say, keep)
            # A kept parent is one for all pages, whichever of them run this time.
            this.execute(todo, warm_starts.plan(project, pages if keep else todo) if warm else None)
            warm_up = this.warm_up
        records = tuple(r for p in pages if (r := read_record(project, p.slug)))
        return Report(records, tuple(p.slug for p in todo), time.monotonic() - began,
                      _cpu_seconds() - cpu, warm_up)


def _adopt(project: Project, pages: list[Page], machine: Machine) -> None:
    """Take a page's outputs from a run beside this one that are what this machine would make.

    On a machine that builds from a GPU's outputs, the CPU's are kept beside them.
    """
    for page in pages:
        for run in project.beside:
            if not is_current(project, page, machine) and is_current(run, page, machine):
                write_atomic(project.executed_notebook(page.slug),
                             run.executed_notebook(page.slug).read_bytes())
                write_atomic(project.record(page.slug), run.record(page.slug).read_bytes())


def prepare(project: Project, keep: warm_starts.KeptNursery) -> None:
    """Start the parent that the next run will fork from, without waiting for its imports.

    Raises:
        BookError: a page cannot be read.
    """
    pages = [read_page(project.text(slug)) for slug in notebook_slugs(project)]
    plan = warm_starts.plan(project, pages)
    shared = _shared_env(project, _usual_jobs(Machine.here(project)))
    keep.take(plan.modules, {**os.environ, **shared, **plan.env})


def _usual_jobs(machine: Machine) -> int:
    return 1 if machine.device != "cpu" else min(2, os.cpu_count() or 1)


def _shared_env(project: Project, jobs: int) -> dict[str, str]:
    """Return what is set for all pages and for the parent of warm kernels alike."""
    fonts = project.build / ".matplotlib"
    fonts.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
              "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return {
        "MPLCONFIGDIR": str(fonts),  # kept between pages: finding all fonts takes seconds
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        **dict.fromkeys(limits, threads),
    }


def _cpu_seconds() -> float:
    """Return the processor seconds of all ended children of this process and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _longest_first(project: Project, pages: list[Page]) -> Callable[[Page], float]:
    """Return the key that sorts pages by the time they took last, here or as recorded in the book.

    The longest come first: a long page that starts last would keep one core busy alone.
    """
    usual = expected_seconds(project)
    here = {p.slug: read_record(project, p.slug) for p in pages}
    return lambda page: -(record.cell_seconds if (record := here[page.slug]) else usual[page.slug])


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
    busy = ""
    if ran:
        cores = os.cpu_count() or 1
        share = report.cpu_seconds / report.seconds / cores
        busy = f", the {cores} cores {share:.0%} busy with them"
    yield (f"{len(report.records)} pages: {len(report.records) - len(report.failed)} ok, "
           f"{len(report.failed)} failed; {ran} executed in {report.seconds:.1f} s{busy}")
    yield from failure_lines(report)


def failure_lines(report: Report) -> Iterator[str]:
    """Yield what failed, its cell and how to run it again."""
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


# ------------------------------------------------------------------ running pages

class Process(Protocol):
    """What a run needs of a worker, however it was started."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


@dataclass
class _Running:
    page: Page
    process: Process
    job: Job
    mark: str
    warm: bool
    held: bool  # its kernel is up, or will be, and waits for a core
    started: datetime
    began: float
    seconds: float = 0.0
    peak_mib: float = 0.0
    weighed: float = 0.0

    def look(self, limits: Limits) -> str | None:
        """Return None while the page runs, '' when it ended itself, or the limit it passed."""
        if self.process.poll() is not None:
            return ""
        if self.held:
            return None
        now = time.monotonic()
        most = procs.memory_mib(self.process.pid, exact=False)
        due = now - self.weighed > WEIGH and most > self.peak_mib
        if due or most > limits.memory_mib:
            self.peak_mib = max(self.peak_mib, procs.memory_mib(self.process.pid, exact=True))
            self.weighed = now
        if self.peak_mib > limits.memory_mib:
            return f"more than {limits.memory_mib:.0f} MiB of memory"
        if now - self.began > limits.page_seconds:
            return f"more than {limits.page_seconds:.0f} s for the page"
        return None

    def go(self) -> None:
        """Let a held page run."""
        self.held, self.started, self.began = False, datetime.now(UTC), time.monotonic()
        Path(self.job.go).touch()


class _Run:
    """One run: its pages, its folder, and the parent of its warm kernels."""

    def __init__(self, project: Project, machine: Machine, limits: Limits, jobs: int,
                 say: Callable[[str], None], keep: warm_starts.KeptNursery | None) -> None:
        self.project, self.machine, self.limits = project, machine, limits
        self.jobs, self.say, self.keep = jobs, say, keep
        self.shared_env = _shared_env(project, jobs)
        self.commit = git_commit(project.root)
        self.running: list[_Running] = []
        self.stopped = False  # by a signal
        self.doubtful: list[tuple[Page, str]] = []  # failed, perhaps not by their own doing
        self.nursery: warm_starts.Nursery | None = None
        self.guardian: procs.Guardian | None = None
        self.began, self.warm_up = time.monotonic(), 0.0
        self.cold: frozenset[str] = frozenset()  # the pages that must start cold

    def execute(self, pages: list[Page], plan: warm_starts.Plan | None) -> None:
        """Run the pages, all cold without a plan, and clean up however that ends."""
        with _scratch() as self.scratch, self._ended_cleanly():
            self.guardian = procs.Guardian(os.getpid(), self.scratch, self.project.build)
            if plan:
                self.cold = plan.cold
                env = {**os.environ, **self.shared_env, **plan.env}
                self.nursery = self.keep.take(plan.modules, env) if self.keep else \
                    warm_starts.Nursery(plan.modules, env, self.scratch / "nursery.log")
            self._all(pages, self.jobs)
            for page, why in self.doubtful:
                self.say(f"{page.slug:<28} again, alone: {why}")
                self._all([page], 1, alone=True)

    def _all(self, pages: list[Page], jobs: int, alone: bool = False) -> None:
        waiting = list(pages)
        ended: list[tuple[_Running, str]] = []
        while waiting or self.running or ended:
            self._fill(waiting, jobs)
            # Only now, with the next ones under way.
            while ended:
                one, limit = ended.pop()
                outcome = self._ended(one, limit)
                if (why := self._doubt(one, outcome)) and not alone:
                    self.doubtful.append((one.page, why))
                    shutil.rmtree(Path(one.job.output).parent, ignore_errors=True)
                else:
                    self.say(progress_line(self._settle(one, outcome)))
            if self.stopped:
                raise KeyboardInterrupt
            if self.running or waiting:
                self._wait()
            for one in list(self.running):
                if (passed := one.look(self.limits)) is not None:
                    self.running.remove(one)
                    one.seconds = time.monotonic() - one.began
                    ended.append((one, passed))

    def _fill(self, waiting: list[Page], jobs: int) -> None:
        """Start pages while there is a core for them, and get one more ready."""
        while sum(not one.held for one in self.running) < jobs:
            if held := next((one for one in self.running if one.held), None):
                held.go()
            elif page := self._next(waiting):
                waiting.remove(page)
                self.running.append(self._start(page))
            else:
                break
        # The next page's kernel gets ready while others wait for something.
        if self.nursery and self.nursery.ready and len(self.running) == jobs and \
                (page := self._next(waiting)) and page.slug not in self.cold:
            waiting.remove(page)
            self.running.append(self._start(page, held=True))

    def _doubt(self, one: _Running, outcome: Outcome) -> str:
        """Return why a failure may not be the page's own, '' when it is; alone, it shows."""
        if outcome.suspect:  # another page, or an editor, may have changed the checkout
            return "the checkout changed while it ran"
        if outcome.error and one.warm and self.nursery and self.nursery.dead:
            return "the parent of warm kernels ended while it ran"
        return ""

    def _next(self, waiting: list[Page]) -> Page | None:
        """Return the page to start now: the longest, but no warm one before its parent is ready."""
        ready = self.nursery is None or self.nursery.ready
        return next((p for p in waiting if ready or p.slug in self.cold), None)

    def _wait(self) -> None:
        """Sleep until a page ends, the parent of warm kernels is ready, or a look is due."""
        if self.nursery and not self.nursery.ready:
            time.sleep(0.02)
            if not self.running:
                self.warm_up = time.monotonic() - self.began
            return
        if not hasattr(os, "pidfd_open"):
            time.sleep(POLL)
            return
        ends = []
        for one in self.running:
            with suppress(OSError):  # it has ended already
                ends.append(os.pidfd_open(one.process.pid))
        try:
            if len(ends) == len(self.running):
                select.select(ends, [], [], POLL)
        finally:
            for end in ends:
                os.close(end)

    def _start(self, page: Page, held: bool = False) -> _Running:
        # Short names: the kernel's sockets lie in here and a socket's path has room for 107 bytes.
        place = Path(tempfile.mkdtemp(dir=self.scratch, prefix=""))
        for name in ("work", "run", "ipy", "tmp"):
            (place / name).mkdir()
        job = Job(
            notebook=str(self.project.notebook(page.slug)), output=str(place / "out.ipynb"),
            folder=str(place / "work"), progress=str(place / "cell"),
            outcome=str(place / "outcome.json"), checkout=str(self.project.root),
            go=str(place / "go") if held else "",
            cell_seconds=self.limits.cell_seconds, output_mib=self.limits.output_mib,
        )
        mark = procs.new_mark()
        env = {**os.environ, **self.shared_env, procs.MARK: mark,
               "JUPYTER_RUNTIME_DIR": str(place / "run"), "IPYTHONDIR": str(place / "ipy")}
        if len(str(place)) < 60:  # what uses it makes sockets there, too
            env["TMPDIR"] = str(place / "tmp")
        process: Process | None = None
        if self.nursery and page.slug not in self.cold:
            try:
                process = self.nursery.fork(Birth(
                    asdict(job), env, job.folder, str(place / "log"), mark))
            except warm_starts.NurseryError as error:
                self.say(f"the parent of warm kernels ended ({error}): cold from here")
                self.nursery.close()
                self.nursery = None
        warm = process is not None
        return _Running(page, process or self._cold(place, job, env), job, mark, warm, held,
                        datetime.now(UTC), time.monotonic())

    @staticmethod
    def _cold(place: Path, job: Job, env: dict[str, str]) -> Process:
        write_json(place / "job.json", asdict(job))
        # The worker imports this package from the checkout; the page must not be able to.
        package = Path(__file__).resolve().parent.parent
        start = (f"import sys; sys.path.insert(0, {str(package)!r}); "
                 "from ci.worker import cold; cold()")
        with (place / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", start, str(place / "job.json")], cwd=place / "work",
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _ended(self, one: _Running, limit: str) -> Outcome:
        """End what the page left behind, and return how it went."""
        procs.end_page(one.mark, one.process.pid)
        one.process.wait()
        return _outcome(one, limit)

    def _settle(self, one: _Running, outcome: Outcome) -> Record:
        """Write the page's notebook, then its record; nothing of it may stay behind half-written.

        Raises:
            BookError: there is no room for them.
        """
        try:
            return self._write(one, outcome)
        except OSError as error:
            raise BookError(self.project.relative(self.project.build),
                            f"cannot write what {one.page.slug} gave ({error.strerror})",
                            "Make room there and run again") from None

    def _write(self, one: _Running, outcome: Outcome) -> Record:
        project, page, machine = self.project, one.page, self.machine
        place = Path(one.job.output).parent
        failure, notebook = None, ""
        if outcome.error:
            source = page.code[outcome.cell - 1].source if 0 < outcome.cell <= len(page.code) \
                else ""
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
            started=one.started.isoformat(timespec="seconds"), seconds=round(one.seconds, 2),
            cell_seconds=round(outcome.cell_seconds, 2),
            peak_mib=round(max(one.peak_mib, outcome.peak_mib), 1),
            cells=outcome.cells, device=machine.device, python=machine.python,
            platform=machine.platform, versions=versions(), requirements=machine.requirements,
            commit=self.commit, claims=count_verdicts(page), notebook=notebook, warm=one.warm,
            failure=failure,
        )
        write_record(project, record)
        shutil.rmtree(place, ignore_errors=True)
        return record

    @contextmanager
    def _ended_cleanly(self) -> Iterator[None]:
        """End all running pages whatever ends the run; SIGTERM counts as an interrupt."""

        def stop(signum: int, frame: FrameType | None) -> None:
            # Python drops an exception that falls into a destructor; the next look raises it anew.
            self.stopped = True
            raise KeyboardInterrupt

        before = {number: signal.signal(number, stop)
                  for number in (signal.SIGINT, signal.SIGTERM)}
        whole = False
        try:
            yield
            whole = True
        finally:
            # A second signal must not break off the cleaning up.
            for number in before:
                signal.signal(number, signal.SIG_IGN)
            for one in self.running:
                procs.end_page(one.mark, one.process.pid)
                one.process.wait()
            if self.keep and not whole:
                self.keep.drop()  # it may have been told half of something
            elif self.nursery and not self.keep:
                self.nursery.close()
            spare = self.keep.pids if self.keep else ()
            # One that was just being started.
            procs.sweep(f"{os.getpid():08d}", self.scratch, spare)
            if self.guardian:
                self.guardian.dismiss()
            for number, handler in before.items():
                signal.signal(number, handler)


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
        error = f"the worker {death(one.process.returncode)}"
        if (one.process.returncode or 0) > 0:  # it may have said why; killed, it could not
            log = Path(one.job.output).with_name("log").read_text(encoding="utf-8",
                                                                  errors="replace")
            error += ": " + (log.strip().splitlines() or ["nothing was logged"])[-1]
        return Outcome(error, cell, max(0, cell - 1), 0.0)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A short-named folder for this run; what killed runs left is removed first."""
    base = Path(tempfile.gettempdir())
    procs.sweep_killed(base)
    folder = Path(tempfile.mkdtemp(dir=base, prefix=f"pbr-{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
