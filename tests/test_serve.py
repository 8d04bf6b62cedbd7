"""The local server: one parent of warm kernels from save to save, and nothing left at the end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
import pytest

from ci.procs import alive
from ci.project import Project
from ci.record import read_record
from ci.run import prepare, run
from ci.warm import KeptNursery, supported
from tests.conftest import ROOT, Make, cell, make_tiny, page, quiet

pytestmark = pytest.mark.skipif(not supported(), reason="forking is safe on Linux only")

# A kernel's parent is its worker, and the worker's is the one that is kept.
BORN = "import psutil\n\nprint('first', 'born of', psutil.Process().parent().ppid())"
TEXT = page("# One", "Before.", cell(BORN))
PATIENCE = 60


@dataclass
class Served:
    """A server on a tiny book, as a writer meets it."""

    project: Project
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    temporary: Path
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def html(self) -> str:
        with contextlib.suppress(OSError):
            address = f"http://127.0.0.1:{self.port}/one.html"
            with urllib.request.urlopen(address, timeout=60) as answer:
                return str(answer.read().decode())
        return ""

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait(self, what: Callable[[], object], name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.below()
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"{name} did not come; the server said:\n{self.said()}")
            time.sleep(0.1)

    def save(self, text: str, wanted: str) -> str:
        """Save the page, wait until it is served, return what it says."""
        self.project.text("one").write_text(text, encoding="utf-8")
        self.wait(lambda: wanted in self.html(), wanted)
        return self.html()

    def below(self) -> list[psutil.Process]:
        """Return the processes below the server, and remember them."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.process.pid).children(recursive=True)
            self.seen.update({one.pid: one for one in found})
            return found
        return []

    def parents(self) -> set[int]:
        """Return the parents of warm kernels that run now."""
        found = set()
        for one in self.below():
            with contextlib.suppress(psutil.Error):
                if one.ppid() == self.process.pid and "ci.nursery" in " ".join(one.cmdline()):
                    found.add(one.pid)
        return found

    def scratch(self) -> list[Path]:
        return list(self.temporary.glob(f"pbr-{self.process.pid}-*"))

    def left(self) -> list[object]:
        """Return what is left of it: processes and folders."""
        return [*(one for one in self.seen.values() if alive(one)), *self.scratch()]


def start(folder: Path, temporary: Path) -> Served:
    project = make_tiny(folder, {"one": TEXT})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "said"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "ci", "--root", str(project.root), "serve",
             "--port", str(port)], cwd=ROOT, stdout=file, stderr=file,
            env={**os.environ, "TMPDIR": str(temporary)})
    return Served(project, port, process, log, temporary)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    # A folder of its own, or any other run on this machine would clean up after it.
    with tempfile.TemporaryDirectory(prefix="s") as temporary:
        one = start(tmp_path, Path(temporary))
        yield one
        one.process.kill()
        one.process.wait()


def born_of(html: str) -> int:
    match = re.search(r"born of (\d+)", html)
    assert match, html
    return int(match[1])


def test_saves_share_a_parent_until_its_imports_change(served: Served) -> None:
    served.wait(lambda: "first" in served.html(), "the first page")
    parents = served.parents()
    assert {born_of(served.html())} == parents and len(parents) == 1
    first = parents.pop()

    # Code: the same parent.
    assert born_of(served.save(TEXT.replace("'first'", "'second'"), "second born")) == first
    record = read_record(served.project, "one")
    assert record and record.warm

    # Prose: nothing runs, one page is read again.
    outputs = served.project.executed_notebook("one").stat().st_mtime_ns
    served.save(TEXT.replace("'first'", "'second'").replace("Before.", "After."), "After.")
    assert served.project.executed_notebook("one").stat().st_mtime_ns == outputs
    served.wait(lambda: "site: 2 pages, 1 read" in served.said(), "the word of one page")

    # A failing page leaves the last site, and the terminal says so.
    served.project.text("one").write_text(TEXT.replace("print('first'", "1 / 0\nprint('first'"))
    served.wait(lambda: "the site stays as it was" in served.said(), "the word of the failure")
    assert "FAILED one, code cell 1: ZeroDivisionError" in served.said()
    assert "After." in served.html() and "second born" in served.html()

    # Another import: the old parent serves at once, a new one gets ready and takes its place.
    more = TEXT.replace("import psutil", "import filelock\nimport psutil")
    assert born_of(served.save(more.replace("'first'", "'third'"), "third born")) == first
    served.wait(lambda: len(served.parents()) == 2, "a second parent")
    second = (served.parents() - {first}).pop()
    for turn in range(60):
        if born_of(served.save(more.replace("first", f"turn {turn}."), f"turn {turn}.")) == second:
            break
    assert served.parents() == {second}

    # The end: all of it goes.
    served.process.terminate()
    assert served.process.wait(timeout=PATIENCE) == 0
    assert len(served.seen) >= 4 and served.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_server_though_a_page_runs(served: Served, number: int) -> None:
    served.wait(lambda: "first" in served.html(), "the first page")
    slow = "import pathlib\nimport time\n\npathlib.Path('begun').touch()\ntime.sleep(600)"
    served.project.text("one").write_text(TEXT.replace(BORN, slow))

    def runs() -> bool:
        with contextlib.suppress(OSError):  # a folder that goes while one looks into it
            return any(list(folder.glob("*/work/begun")) for folder in served.scratch())
        return False

    served.wait(runs, "the slow cell")
    served.below()
    os.kill(served.process.pid, number)
    served.process.wait(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while served.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(served.seen) >= 4
    assert served.left() == []


def told(project: Project) -> int:
    notebook = nbformat.read(project.executed_notebook("one"), as_version=4)
    return born_of(notebook.cells[-1].outputs[0].text)


def test_a_kept_parent_is_made_anew_for_what_it_depends_on(
        tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tiny({"one": TEXT})
    keep = KeptNursery(project)
    try:
        prepare(project, keep)  # before there is anything to run
        seen = keep.pids
        assert len(seen) == 1

        def again() -> int:
            assert not run(project, force=True, say=quiet, keep=keep).failed
            assert alive(psutil.Process(keep.pids[0]))
            return told(project)

        assert again() == again() == seen[0]

        project.requirements.write_text("click==8\nfilelock==3\n", encoding="utf-8")
        seen.append(again())
        assert not psutil.pid_exists(seen[0]) or not alive(psutil.Process(seen[0]))
        monkeypatch.setenv("SOME_SETTING", "another")
        seen.append(again())
        killed = psutil.Process(seen[-1])
        killed.kill()  # by whatever
        while alive(killed):
            time.sleep(0.01)
        seen.append(again())
        assert len(set(seen)) == 4 and keep.pids == seen[-1:]

        # A run that breaks off may have left it in the middle of a word.
        def full(line: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(project, force=True, say=full, keep=keep)
        assert keep.pids == []
        assert again() not in seen
    finally:
        keep.close()
    assert keep.pids == [] and not keep.folder.exists()


def test_a_run_on_its_own_keeps_nothing(tiny: Make) -> None:
    project = tiny({"one": TEXT})
    assert not run(project, warm=True, say=quiet).failed
    assert not psutil.pid_exists(told(project)) or not alive(psutil.Process(told(project)))
