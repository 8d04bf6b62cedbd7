"""Processes: marks by which all that a page started is found again, and ways to end it for certain.

A page may start processes that leave its group, lose their parent or ignore signals. Three things
hold them: a mark in the environment, which children inherit; the worker of the page as the one
that takes in processes that lost their parent (a "child subreaper", Linux); and a guardian beside
the run, which ends everything when the run itself is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from ci.project import remove_partial

MARK = "PROOF_BY_RUNNING_PAGE"
LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def new_mark(owner: int | None = None) -> str:
    """Return a name for one page's processes: the run's process, then something unique.

    All marks are 32 characters long, so that one can be written over another in place.
    """
    return f"{owner or os.getpid():08d}{uuid.uuid4().hex[:24]}"


def end_with_parent() -> None:
    """Have this process killed when its parent dies, where the system offers it (Linux)."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def take_in_orphans() -> None:
    """Make this process the parent of all below it that lose theirs (Linux)."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def remark(mark: str) -> None:
    """Write this process's mark over the one that it was started with (Linux).

    Others read a process's environment as it was at its start; a forked process would go by its
    parent's mark for ever. The text lies in the process's own memory, and the new one is as long.
    """
    if not LINUX:
        return
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, proc(5) 50 and 51
    at = Path("/proc/self/environ").read_bytes().find(f"{MARK}=".encode())
    if start and at >= 0 and start + at + len(MARK) + 1 + len(mark) <= end:
        ctypes.memmove(start + at + len(MARK) + 1, mark.encode(), len(mark))
    os.environ[MARK] = mark


def marked(start: str) -> list[psutil.Process]:
    """Return the living processes whose mark starts so."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            mark = process.environ().get(MARK, "")
            if mark and mark.startswith(start) and alive(process):
                found.append(process)
    return found


def below(pid: int) -> list[psutil.Process]:
    """Return the living processes below one, not itself."""
    with suppress(psutil.Error):
        return [p for p in psutil.Process(pid).children(recursive=True) if alive(p)]
    return []


def end_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what ``find`` returns, again and again, until it returns nothing."""
    while found := list(find()):
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        until = time.monotonic() + 2
        while any(map(alive, found)) and time.monotonic() < until:
            time.sleep(0.005)


def alive(process: psutil.Process) -> bool:
    """Return whether a process still runs; one that its parent has not read out does not."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def end_page(mark: str, worker: int) -> None:
    """Kill every process of a page: those below its worker, then all that carry its mark.

    The worker goes last: while it lives, what loses its parent falls to it and is found.
    """
    end_all(lambda: [*below(worker), *(p for p in marked(mark) if p.pid != worker)])
    end_all(lambda: marked(mark))


def memory_mib(pid: int, exact: bool) -> float:
    """Return the memory of a process and all below it, in MiB.

    Args:
        pid: the process.
        exact: count memory that several of them share once (it walks all pages of memory). What
            they share with processes outside counts in full: alone, they would need it. Else
            the sum of the resident sets: cheap, and never less.
    """
    own, shared = 0, 0
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in [top, *top.children(recursive=True)]:
            with suppress(psutil.Error):
                if not exact:
                    own += process.memory_info().rss
                    continue
                full = process.memory_full_info()
                own += full.uss
                shared = max(shared, full.rss - full.uss)
    return (own + shared) / 2**20


# ------------------------------------------------------------------ what a killed run leaves

class Guardian:
    """A process beside a run that ends the run's pages if the run dies before it says so.

    Args:
        owner: the process that runs the pages; its marks start with its number.
        folder: the run's own folder, removed with it.
        build: where its outputs go, if it writes any; half-written files there are removed.
    """

    def __init__(self, owner: int, folder: Path, build: Path | None = None) -> None:
        package = Path(__file__).resolve().parent.parent
        start = (f"import sys; sys.path.insert(0, {str(package)!r}); "
                 "from ci.procs import guard; guard(*sys.argv[1:])")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, f"{owner:08d}", str(folder),
             *([str(build)] if build else [])],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/")

    def dismiss(self) -> None:
        """Tell it that the run ended well."""
        with suppress(OSError):
            self.process.communicate(b"done", timeout=10)


def guard(start: str, folder: str, build: str = "") -> None:
    """Wait for the run's word; when it breaks off without one, end all that it started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the run's to handle
    if sys.stdin.buffer.read() != b"done":
        sweep(start, Path(folder))
        if build:
            remove_partial(Path(build))


def sweep(start: str, folder: Path, spare: Iterable[int] = ()) -> None:
    """Kill all whose mark starts so, and what is below them, and remove the folder.

    Those in ``spare`` live on; what is below them does not.
    """
    spared = set(spare)

    def leaves() -> list[psutil.Process]:
        # From the leaves up: while its worker lives, an orphan falls to it and is found.
        heads = marked(start)
        every = {p.pid: p for head in heads for p in (head, *below(head.pid))
                 if p.pid not in spared}
        return [p for p in every.values() if not below(p.pid)]

    end_all(leaves)
    shutil.rmtree(folder, ignore_errors=True)


def sweep_killed(base: Path) -> None:
    """End what runs that are dead have left under ``base``, where the guardian died with them."""
    for old in base.glob("pbr-*-*"):
        owner = old.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            sweep(f"{int(owner):08d}", old)
