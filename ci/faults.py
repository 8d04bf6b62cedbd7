"""Faults, injected for real: what the line says, what it records, and what it leaves behind.

Each fault is a tiny project in a temporary folder, run by the command line as a person would run
it, and disturbed by a page's own code, by a signal, by a full disk and so on. What must follow is
checked after each: the exit status, a record that names page, cell and cause, nothing published,
no process and no half-written file left, and a clean run once the fault is mended. What was seen
becomes a row of the table in ``ci/README.md``, which a test compares with a new run.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import nbformat
import psutil
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook

from ci.pages import read_page
from ci.pair import pair
from ci.project import BookError, Project, digest, write_atomic
from ci.record import Record, doubts, read_record

CODE = Path(__file__).resolve().parent.parent  # where `python -m ci` is found
README = CODE / "ci" / "README.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEAD = ("fault", "injected by", "what the run says", "the record", "exit status",
        "the other page", "the next run")
TAG = "PROOF_BY_RUNNING_FAULT"  # in the environment of all that an injection starts
PATIENCE = 20.0  # seconds within which everything must have ended; looked at often
ENDLESS = 240.0  # seconds after which a command counts as hanging
SEED = 3
LANES = 2  # injections at once


@dataclass(frozen=True)
class Row:
    """What was seen of one fault, a field per column; ``troubles`` is what must not have been."""

    fault: str
    how: str
    says: str = "-"
    record: str = "-"
    status: str = "-"
    other: str = "-"
    after: str = "-"
    troubles: tuple[str, ...] = ()
    skipped: str = ""  # why this machine cannot try it

    @property
    def line(self) -> str:
        """The row as Markdown."""
        cells = (self.fault, self.how, self.says, self.record, self.status, self.other, self.after)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    status: int
    out: str
    err: str

    def line(self, pattern: str) -> str:
        """Return the first line that has the pattern, else ''."""
        lines = (self.out + "\n" + self.err).splitlines()
        return next((line for line in lines if re.search(pattern, line)), "")

    @property
    def why(self) -> str:
        """The line that tells why it failed, or the last one, for a message."""
        lines = [line for line in (self.out + "\n" + self.err).splitlines() if line.strip()]
        return self.line("^(FAILED|Error)") or (lines or ["(nothing)"])[-1]


# ------------------------------------------------------------------ a tiny project, and its traces

CONFIG = f"""\
title: Tiny
author: Nobody
only_build_toc_files: true
repository: {{url: https://github.com/nobody/tiny, branch: main, path_to_book: book}}
execute: {{execute_notebooks: cache, run_in_temp: true, timeout: 60, stderr_output: remove-warn}}
sphinx:
  local_extensions: {{ci.sphinx_ext: {json.dumps(str(CODE))}}}
  config: {{html_math_renderer: mathml, nb_merge_streams: true}}
"""
HEADER = """\
---
jupytext:
  formats: book//md:myst,notebooks//ipynb
  text_representation: {{extension: .md, format_name: myst, format_version: 0.13}}
kernelspec: {{display_name: Python 3, language: python, name: {kernel}}}
---

# A page
"""
Texts = dict[str, str]


def text(*cells: str, kernel: str = "python3") -> str:
    """Return a page's text with these code cells, a sentence before each."""
    parts = [f"Then {n}.\n\n```{{code-cell}}\n{textwrap.dedent(cell).strip()}\n```\n"
             for n, cell in enumerate(cells, start=1)]
    return "\n".join([HEADER.format(kernel=kernel), *parts])


def well(slug: str) -> str:
    """Return a page that is well, and says so in a way that no other page does."""
    return text("before = 1", f"print('{slug} is', 'well')")


# Every injection begins with a copy of this book, run and published.
BASE: Texts = {slug: well(slug) for slug in ("steady", "one", "two", "three")}


class Place:
    """A tiny project, the commands that work on it, and a look at what they leave behind.

    Args:
        folder: an empty folder of its own. The project, the commands' temporary files and what
            pages write for the injection to read lie in it, side by side.
        base: a project to begin with a copy of.
    """

    def __init__(self, folder: Path, base: Project | None = None) -> None:
        self.folder = folder.resolve()
        self.project = Project(self.folder / "tiny")
        self.temporary = self.folder / "t"  # short: paths of sockets have little room
        self.tag = f"fault{uuid.uuid4().hex}"
        self.temporary.mkdir()
        if base:
            shutil.copytree(base.root, self.project.root, symlinks=True)

    def put(self, name: str) -> Path:
        """Return where pages may write for the injection to read, outside the checkout."""
        return self.folder / name

    def write(self, more: Texts) -> None:
        """Make the project hold the base's pages and these, with their notebooks."""
        project = self.project
        project.book.mkdir(parents=True, exist_ok=True)
        texts = {**BASE, **more}
        for slug, content in {"index": "# Tiny\n\nA book.\n", **texts}.items():
            write_atomic(project.text(slug), content)
        toc = "format: jb-book\nroot: index\nchapters:\n"
        write_atomic(project.root / "_toc.yml", toc + "".join(f"  - file: {s}\n" for s in texts))
        write_atomic(project.root / "_config.yml", CONFIG)
        write_atomic(project.requirements, "click==8\n")
        if not (project.book / "_toc.yml").is_symlink():
            (project.book / "_toc.yml").symlink_to("../_toc.yml")
        pair(project)

    def start(self, *arguments: str, before: Iterable[str] = (), env: dict[str, str] | None = None
              ) -> subprocess.Popen[str]:
        """Start ``python -m ci`` on the project; ``before`` stands before the command."""
        return subprocess.Popen(
            [*before, sys.executable, "-m", "ci", "--root", str(self.project.root), *arguments],
            cwd=CODE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, TAG: self.tag, "TMPDIR": str(self.temporary),
                            "PYTHONUNBUFFERED": "1", **(env or {})})

    def wait(self, process: subprocess.Popen[str]) -> Said:
        """Return how a started command ended; one that hangs is killed."""
        try:
            out, err = process.communicate(timeout=ENDLESS)
        except subprocess.TimeoutExpired:
            process.kill()
            self.end()
            out, err = process.communicate()
            err += f"\nstill running after {ENDLESS:.0f} s"
        return Said(process.returncode, out, err)

    def ci(self, *arguments: str, before: Iterable[str] = (), env: dict[str, str] | None = None
           ) -> Said:
        """Run a command to its end."""
        return self.wait(self.start(*arguments, before=before, env=env))

    def says(self, line: str) -> str:
        """Return a line for the table, without what differs from run to run and by machine."""
        line = line.replace(str(self.folder), "...")
        line = re.sub(r"\bprocess \d+", "process N", line)
        line = re.sub(r"\d+\.\d+|\d+(?=%)", "N", line)
        line = re.sub(r"\bthe \d+ cores?\b", "the N cores", line)
        line = re.sub(r"(the worker died [^:]*): .*", r"\1: ...", line)  # its log's last line
        line = re.sub(r"\b\d+ MiB$", "N MiB", " ".join(line.split()))
        if not line:
            return "(nothing)"
        return f"`` {line} ``" if "`" in line else f"`{line}`"

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that the commands, or their pages, have started."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and (
                        process.environ().get(TAG) == self.tag or self.tag in process.cmdline()):
                    found.append(process)
        return found

    def litter(self) -> list[str]:
        """Return what no ended command may leave: processes, temporary folders, parts of files."""
        found = [f"process {p.pid} lives: {_command(p)[:90]}" for p in self.processes()]
        found += [f"{p.name} is left in the temporary folder" for p in
                  self.temporary.glob("pbr-*")]
        for path in self.project.root.rglob("*"):
            name = path.name
            part = name.startswith(".") and re.search(r"\.(json|ipynb|md|yml|key)\.", name)
            if part or name.endswith(".raw"):
                found.append(f"half-written file: {path.relative_to(self.project.root)}")
        for path in [*self.project.records.glob("*.json"), *self.project.executed.glob("*.ipynb")]:
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                found.append(f"half a file: {path.relative_to(self.project.root)}")
        return found

    def left(self) -> list[str]:
        """Wait for the ends to come, then return what is left all the same."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.litter()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def end(self) -> None:
        """End everything, however it was left."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def published(self) -> str:
        """Return a digest of the site as it stands, '' if there is none."""
        html = self.project.html
        files = sorted(p for p in html.rglob("*") if p.is_file()) if html.is_dir() else []
        return digest(*[part for p in files for part in (str(p), p.read_bytes())]) if files else ""

    def doubt(self, slug: str) -> str:
        """Return why a page's outputs may not be shown, '' when they may."""
        page = read_page(self.project.text(slug))
        return doubts(self.project, page, read_record(self.project, slug))

    def output(self, slug: str) -> str:
        """Return the text that the page printed, '' if it has no executed notebook."""
        path = self.project.executed_notebook(slug)
        if not path.is_file():
            return ""
        cells = nbformat.read(path, as_version=4).cells
        return "".join(o.get("text", "") for c in cells for o in c.get("outputs", []))

    # -- what must hold

    def mended(self, slugs: Iterable[str] = (), site: bool = False) -> list[str]:
        """Make these pages well, run them, and return what went wrong.

        Args:
            slugs: pages that the base does not have.
            site: build the site as well.
        """
        texts = {slug: well(slug) for slug in slugs}
        self.write(texts)
        done = self.ci("run")
        wrong = [f"the run ends with {done.status}: {done.why}"] if done.status else []
        for slug in {**BASE, **texts}:
            if (doubt := self.doubt(slug)) or f"{slug} is well" not in self.output(slug):
                wrong.append(f"{slug} {doubt or 'has other outputs'}")
        wrong += self.site_is_right(texts) if site else []
        return [f"once mended, {one}" for one in wrong + self.left()]

    def site_is_right(self, slugs: Iterable[str] = ()) -> list[str]:
        """Build the site; return what went wrong, wrong outputs on it included."""
        done = self.ci("site")
        if done.status:
            return [f"the site build ends with {done.status}: {done.why}"]
        return [f"the site shows other outputs for {slug}" for slug in [*BASE, *slugs] if
                f"{slug} is well" not in self.html(slug)]

    def html(self, slug: str) -> str:
        return (self.project.html / f"{slug}.html").read_text(encoding="utf-8")

    def refused(self, before: str) -> list[str]:
        """Ask for the site; return what went wrong if it is built, or if the old one changed."""
        done = self.ci("site")
        wrong = [] if done.status == 1 else [f"`site` ends with {done.status}, not 1"]
        if self.published() != before:
            wrong.append("the published site has changed")
        return wrong

    def unharmed(self, slug: str) -> str:
        """Return the table's word for a page beside the fault."""
        well = not self.doubt(slug) and f"{slug} is well" in self.output(slug)
        return "unharmed" if well else f"HARMED: {self.doubt(slug) or 'other outputs'}"


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(" ".join(process.cmdline()).split())
    return "(it has just ended)"


def named(record: Record | None, slug: str, cell: int, says: str, source: str) -> list[str]:
    """Return what is wrong with a record that must name page, cell and cause."""
    if record is None:
        return [f"{slug} has no record"]
    if record.failure is None:
        return [f"the record of {slug} says {record.status}"]
    failure = record.failure
    wrong = []
    if (record.status, record.page, failure.page) != ("failed", slug, slug):
        wrong.append(f"the record says {record.status}, {record.page}, {failure.page}")
    if failure.cell != cell:
        wrong.append(f"the record names cell {failure.cell}, not {cell}")
    if failure.source.strip() != textwrap.dedent(source).strip():
        wrong.append(f"the record shows another source: {failure.source[:60]!r}")
    if not re.search(says, failure.error):
        wrong.append(f"the cause is {failure.error!r}, not /{says}/")
    if failure.rerun != f"python -m ci run {slug}":
        wrong.append(f"the command to run it again is {failure.rerun!r}")
    return wrong


def in_record(record: Record | None) -> str:
    """Return the table's word for a record."""
    if record is None:
        return "none"
    return f"page, cell {record.failure.cell}, cause" if record.failure else record.status


def judged(row: Row, troubles: Iterable[str], after: Iterable[str] | None = None) -> Row:
    """Return the row with more troubles, and with its last column filled when ``after`` tells."""
    row = replace(row, troubles=(*row.troubles, *troubles, *(after or ())))
    return row if after is None else replace(row, after="NOT CLEAN" if list(after) else "clean")


def by_mode(mode: str, found: Iterable[str]) -> list[str]:
    """Return what was found with the way of starting before it."""
    return [f"{mode.strip('-')}: {one}" for one in found]


# ------------------------------------------------------------------ pages that do harm

@dataclass(frozen=True)
class Harm:
    """A page that fails: its cells, the one where it must fail, and what must be said (a pattern).

    ``{tag}`` in a cell becomes a name by which a process that it starts is found.
    """

    slug: str
    fault: str
    how: str
    says: str
    bad: str
    first: bool = False  # the bad cell is the page's first one
    kernel: str = "python3"

    @property
    def cell(self) -> int:
        return 0 if self.kernel != "python3" or not self.bad else 1 if self.first else 2

    def cells(self, tag: str) -> list[str]:
        bad = self.bad.replace("{tag}", tag)
        if not bad:
            return []
        return [bad, "print('never')"] if self.first else ["before = 1", bad, "print('never')"]


WARM_AND_COLD = ("--cold", "--warm")
LIMITS = ("--cell-seconds", "8", "--page-seconds", "60", "--memory", "1500")
TOO_MUCH = r"more than \d+ MiB of output"
HARMS = (
    Harm("raises", "a cell raises", "`1 / 0`", "ZeroDivisionError: division by zero", "1 / 0"),
    Harm("hangs", "hangs in Python", "a loop without end", r"(?i)time|more than \d+ s",
         "import time\n\nwhile True:\n    time.sleep(0.01)"),
    Harm("hangs-in-c", "hangs in C", "`sleep` of the C library, all signals blocked, the "
         "interpreter's lock held", r"(?i)time|more than \d+ s", """
         import ctypes
         import signal

         signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
         ctypes.PyDLL(None).sleep(600)
         """),
    Harm("waits", "hangs waiting for a child", "a child process that ignores SIGTERM",
         r"(?i)time|more than \d+ s", """
         import subprocess
         import sys

         code = '''
         import signal, time
         for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
             signal.signal(number, signal.SIG_IGN)
         time.sleep(600)
         '''
         subprocess.Popen([sys.executable, "-c", code, "{tag}"]).wait()
         """),
    Harm("endless", "endless output", "`print` in a loop without end", TOO_MUCH,
         "while True:\n    print('again and again ' * 60)"),
    Harm("much-text", "one output of 200 MB", "one `print` of 200 MB", TOO_MUCH,
         "print('x' * 200_000_000)"),
    Harm("much-data", "one picture of 200 MB", "one `display` of 200 MB", TOO_MUCH, """
         from IPython.display import display

         display({"image/png": "A" * 200_000_000}, raw=True)
         """),
    Harm("leaves", "`sys.exit(0)`", "`sys.exit(0)`", r"(?i)sys\.exit|SystemExit|stopped|ended",
         "import sys\n\nsys.exit(0)"),
    Harm("dies", "`os._exit(0)`", "`os._exit(0)`", r"(?i)kernel (ended|died)|DeadKernel",
         "import os\n\nos._exit(0)"),
    Harm("segfaults", "segmentation fault", "`ctypes.string_at(0)`", r"SIGSEGV|signal 11",
         "import ctypes\n\nctypes.string_at(0)"),
    Harm("hogs", "memory hog", "2200 MiB where 1500 are allowed", r"more than 1500 MiB of memory",
         "import time\n\nhog = bytearray(2200 * 2**20)\ntime.sleep(60)"),
    Harm("patricide", "kills its own parent", "`os.kill(os.getppid(), SIGKILL)`",
         r"(?i)worker|signal 9|SIGKILL|status -9", """
         import os
         import signal
         import time

         os.kill(os.getppid(), signal.SIGKILL)
         time.sleep(60)
         """),
    Harm("no-kernel", "unknown kernel", "a kernelspec that names `nowhere`", r"(?i)nowhere",
         "print('never')", kernel="nowhere"),
    Harm("at-once", "no cell executed: the kernel ends at once", "`os._exit(0)` in the first cell",
         r"(?i)kernel (ended|died)|DeadKernel", "import os\n\nos._exit(0)", first=True),
    Harm("only-prose", "no cell executed: only prose", "a page with a kernelspec and no code",
         r"no code cell", ""),
)


def harms(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run the pages that do harm, all beside one that is well and one after them, cold and warm."""
    chosen = [harm for harm in HARMS if harm.fault in asked]
    seen: dict[str, list[Row]] = {harm.fault: [] for harm in chosen}
    beside = text(*["import time\n\ntime.sleep(2)"] * 6, "print('beside is', 'well')")
    for mode in WARM_AND_COLD:
        before = place.published()
        pages = {harm.slug: text(*harm.cells(place.tag), kernel=harm.kernel) for harm in chosen}
        place.write({"beside": beside, **pages, "last": well("last")})
        done = place.ci("run", mode, "--jobs", "3", *LIMITS)
        common = place.refused(before) + place.left()
        others = {place.unharmed(slug) for slug in ("steady", "beside", "last")}
        for harm in chosen:
            line = done.line(rf"FAILED {harm.slug},")
            record = read_record(place.project, harm.slug)
            source = "" if not harm.cell else harm.cells(place.tag)[harm.cell - 1]
            troubles = common + named(record, harm.slug, harm.cell, harm.says, source)
            if not re.search(harm.says, line):
                troubles.append(f"the run says {line!r}, not /{harm.says}/")
            if not place.doubt(harm.slug):
                troubles.append("its outputs would be shown")
            row = Row(harm.fault, harm.how, place.says(line), in_record(record),
                      str(done.status), ", ".join(sorted(others, reverse=True)))
            if done.status != 1:
                troubles.append(f"the run ends with {done.status}, not 1")
            seen[harm.fault].append(judged(row, by_mode(mode, troubles)))
        after = place.mended(("beside", *pages, "last"), site=mode == WARM_AND_COLD[-1])
        for rows in seen.values():
            rows[-1] = judged(rows[-1], (), by_mode(mode, after))
    return [both(*rows) for rows in seen.values()]


def both(cold: Row, warm: Row) -> Row:
    """Return one row for a cold and a warm run; where they differ it says which said what."""
    def told(a: str, b: str) -> str:
        return a if a == b else f"cold: {a}; warm: {b}"

    return Row(cold.fault, cold.how, told(cold.says, warm.says), told(cold.record, warm.record),
               told(cold.status, warm.status), told(cold.other, warm.other),
               told(cold.after, warm.after), cold.troubles + warm.troubles)


# ------------------------------------------------------------------ what a page leaves behind

FORKED = """
import os
import time
import warnings

warnings.simplefilter("ignore")


def leave_a_child_behind():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    with open({pids!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(600)
    os._exit(0)


leave_a_child_behind()
while not os.path.exists({pids!r}):
    time.sleep(0.05)
print('{slug} is', 'well')
"""
# No environment, no session, no parent: nothing of the page is left on it.
SCRUBBED = """
import os
import subprocess
import sys
import time

code = '''
import os, sys, time
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
with open(sys.argv[2], "a") as file:
    file.write(str(os.getpid()) + chr(10))
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", code, {tag!r}, {pids!r}], env={{}},
                 start_new_session=True).wait()
while not os.path.exists({pids!r}):
    time.sleep(0.05)
print('{slug} is', 'well')
"""
LITTERS = {
    "forked children left behind": ("forks", "`fork`, `setsid`, `fork`, then 600 s of sleep",
                                    FORKED),
    "children with a scrubbed environment": (
        "scrubs", "the same from `subprocess` with `env={}` and a session of its own", SCRUBBED),
}


def litters(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run pages that leave processes behind; none may be there once the page has ended."""
    rows = []
    for fault in LITTERS:
        if fault not in asked:
            continue
        slug, how, code = LITTERS[fault]
        seen = []
        for mode in WARM_AND_COLD:
            pids = place.put(f"pids{mode}-{slug}")
            # The other page is still running when the one with the children has ended.
            wait = ("import pathlib\nimport time\n\n"
                    f"while not pathlib.Path({str(place.put(slug + mode))!r}).exists():\n"
                    "    time.sleep(0.05)\nprint('beside is', 'well')")
            place.write({slug: text(code.format(pids=str(pids), tag=place.tag, slug=slug)),
                         "beside": text(wait)})
            process = place.start("run", mode, "--jobs", "2", *LIMITS[2:])
            troubles = []
            line = ""
            assert process.stdout
            for line in process.stdout:
                if line.startswith(f"{slug} "):
                    break
            children = [int(n) for n in pids.read_text().split()] if pids.exists() else []
            if len(children) != 1:
                troubles.append(f"the page left {len(children)} children behind")
            troubles += [f"child {child} lives on" for child in children if _lives(child)]
            place.put(slug + mode).write_text("")
            done = place.wait(process)
            record = read_record(place.project, slug)
            row = Row(fault, how, place.says(line), in_record(record), str(done.status),
                      place.unharmed("beside"))
            if done.status or place.unharmed(slug) != "unharmed":
                troubles.append(f"the run ends with {done.status}: {done.why}")
            seen.append(judged(row, by_mode(mode, troubles + place.left())))
        rows.append(judged(both(*seen), (), place.mended((slug, "beside"))))
    return rows


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


WRITES = "a write outside its folder"


def writes(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run a page that changes another page's text while that one runs."""
    before = place.published()
    target = place.project.text("one")
    bad = f"with open({str(target)!r}, 'a') as file:\n    file.write('\\nMore.\\n')"
    one = text("before = 2", "import time\n\ntime.sleep(2)", "print('one is', 'well')")
    place.write({"one": one, "writer": text("before = 1", bad, "after = 1")})
    done = place.ci("run", "--jobs", "2", *LIMITS)
    line = done.line("FAILED writer,")
    record = read_record(place.project, "writer")
    says = r"wrote outside its folder: book/one\.md"
    troubles = named(record, "writer", 2, says, bad)
    if not re.search(says, line):
        troubles.append(f"the run says {line!r}")
    if done.status != 1:
        troubles.append(f"the run ends with {done.status}, not 1")
    troubles += place.refused(before) + place.left()
    row = Row(WRITES, "`open` of another page's text, to append", place.says(line),
              in_record(record), str(done.status), place.unharmed("one"))
    return [judged(row, troubles, place.mended(["writer"]))]


# ------------------------------------------------------------------ the run is disturbed

SIGNALS = {
    "SIGINT at any moment": (signal.SIGINT, 7),
    "SIGTERM at any moment": (signal.SIGTERM, 7),
    "SIGKILL at any moment": (signal.SIGKILL, 6),
}
LONG = """
import pathlib
import subprocess
import sys
import time

child = [sys.executable, "-c", "import time; time.sleep(600)", {tag!r}]
subprocess.Popen(child, env={{}}, start_new_session=True)
pathlib.Path({started!r}).write_text("")
time.sleep(600)
"""


def signals(place: Place, asked: frozenset[str], fault: str) -> list[Row]:
    """Send a signal to the run's process: once while a cell runs, then at random moments."""
    number, times = SIGNALS[fault]
    troubles: list[str] = []
    before = place.published()
    moment = random.Random(f"{SEED} {fault}")
    span, said, status, other = 0.0, "", "", ""
    for turn in range(times):
        started = place.put(f"started-{turn}")
        long = text(f"turn = {turn}", LONG.format(tag=place.tag, started=str(started)))
        quick = {f"quick-{n}": text(f"print({turn}, {n})") for n in range(3)}
        place.write({"long": long, **quick})
        process = place.start("run", WARM_AND_COLD[turn % len(WARM_AND_COLD)], "--jobs", "2")
        began = time.monotonic()
        if turn == 0:
            while not started.exists() and process.poll() is None:
                time.sleep(0.02)
            span = time.monotonic() - began
        else:
            # Machines differ in speed: the moments spread over what the first turn took.
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=moment.uniform(0, 1.4 * span))
        process.send_signal(number)
        done = place.wait(process)
        at = "while a cell runs" if turn == 0 else f"in turn {turn}"
        if not done.status:
            troubles.append(f"{at}: the run ends with 0")
        if turn == 0:
            said, status = place.says(done.line("Aborted|nterrupt|Error")), str(done.status)
            other = place.unharmed("steady")
            if number != signal.SIGKILL and done.status != 1:
                troubles.append(f"{at}: the run ends with {done.status}, not 1")
            troubles += place.refused(before)
        troubles += [f"{at}: {left}" for left in place.left()]
        if "Traceback" in done.err and turn == 0:
            troubles.append(f"{at}: a traceback, not a line")
        if place.project.record("long").exists() or place.published() != before:
            troubles.append(f"{at}: a record of a page that did not end, or another site")
        if place.unharmed("steady") != "unharmed":
            troubles.append(f"{at}: the page that was done is {place.unharmed('steady')}")
    row = Row(fault, f"{number.name} to the run, {times} times, once while a cell runs",
              said, "none: the page did not end",
              f"{status} (killed)" if number == signal.SIGKILL else status, other)
    return [judged(row, troubles, place.mended(["long", *quick]))]


TWO_RUNS = "two runs at once"


def two_runs(place: Place, asked: frozenset[str]) -> list[Row]:
    """Start a second run in the same checkout while the first one's pages run."""
    count = place.put("count")
    note = f"with open({str(count)!r}, 'a') as file:\n    file.write('ran\\n')\n"
    place.write({"slow": text(note + "import time\n\ntime.sleep(4)", "print('slow is', 'well')"),
                 "quick": text(note + "print('quick is', 'well')")})
    first = place.start("run")
    while not count.exists() and first.poll() is None:
        time.sleep(0.02)
    second = place.start("run")
    dones = [place.wait(first), place.wait(second)]
    line = dones[1].line("(?i)another run|waiting")
    troubles = [f"run {n} ends with {done.status}: {done.why}"
                for n, done in enumerate(dones, start=1) if done.status]
    if not re.search(r"another run works in this checkout \(process \d+\): waiting", line):
        troubles.append(f"the second run says {line!r}")
    ran = len(count.read_text().splitlines())
    if ran != 2:
        troubles.append(f"2 pages ran {ran} times")
    record = in_record(read_record(place.project, "slow"))
    row = Row(TWO_RUNS, "a second `run` in the same checkout", place.says(line),
              record, " and ".join(str(done.status) for done in dones), place.unharmed("quick"))
    troubles += place.left()
    return [judged(row, troubles, place.mended(["slow", "quick"]))]


# ------------------------------------------------------------------ files that are not as they were

BROKEN = "broken notebook JSON"


def broken(place: Place, asked: frozenset[str]) -> list[Row]:
    """Cut the notebook of a page that has changed."""
    troubles = []
    before = place.published()
    place.write({"two": text("before = 3", "print('two is', 'well')")})
    notebook = place.project.notebook("two")
    notebook.write_text(notebook.read_text(encoding="utf-8")[:200], encoding="utf-8")
    done = place.ci("run")
    line = done.line("Error")
    if done.status != 1 or not re.search(r"notebooks/two\.ipynb: not a notebook", line):
        troubles.append(f"the run ends with {done.status} and says {line!r}")
    if "Traceback" in done.err:
        troubles.append("a traceback, not a line")
    troubles += place.refused(before) + place.left()
    row = Row(BROKEN, "a notebook cut after 200 bytes", place.says(line),
              "none: nothing was run", str(done.status), place.unharmed("one"))
    return [judged(row, troubles, place.mended())]


CORRUPT, FOREIGN = "corrupt cache", "foreign cache"


def caches(place: Place, asked: frozenset[str]) -> list[Row]:
    """Spoil the cache between run and site: the site must be right all the same."""
    rows = []
    for fault, how, spoil in ((CORRUPT, "garbage in the cache's `global.db`", _corrupt),
                              (FOREIGN, "the same page with other outputs in the cache", _forge)):
        if fault not in asked:
            continue
        place.write({"one": BASE["one"] + f"\nMore prose: {fault}.\n"})
        spoil(place)
        done = place.ci("run")
        built = place.ci("site")
        troubles = [f"`{verb}` ends with {one.status}: {one.why}"
                    for verb, one in (("run", done), ("site", built)) if one.status]
        if fault not in place.html("one") or "forged" in place.html("one"):
            troubles.append("the site shows what the cache said")
        record = in_record(read_record(place.project, "one"))
        row = Row(fault, how, place.says(built.line("first page|Error")), record,
                  str(built.status), place.unharmed("two"))
        troubles += place.site_is_right() + place.left()
        rows.append(judged(row, troubles, place.mended()))
    return rows


def _corrupt(place: Place) -> None:
    (place.project.cache / "global.db").write_bytes(b"garbage" * 1000)


def _forge(place: Place) -> None:
    """Put the page into the cache with an output that its code never made."""
    page = read_page(place.project.text("one"))
    notebook = read_myst_markdown_notebook(page.text)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count = number
        cell.outputs = [nbformat.v4.new_output("stream", text="forged\n")]
    get_cache(str(place.project.cache)).cache_notebook_bundle(
        CacheBundleIn(notebook, str(page.path)), check_validity=False, overwrite=True)


OTHER_FORMAT = "a record from another version"


def other_format(place: Place, asked: frozenset[str]) -> list[Row]:
    """Make one record older and one newer than this version; both count as none."""
    troubles = []
    before = place.published()
    for slug, change in (("one", {"format": 0}), ("two", {"format": 99, "mood": "good"})):
        path = place.project.record(slug)
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**data, **change}), encoding="utf-8")
    site = place.ci("site")
    line = site.line("Error")
    if site.status != 1 or "another version" not in line or place.published() != before:
        troubles.append(f"the site ends with {site.status} and says {line!r}")
    done = place.ci("run")
    if done.status or not re.search(r"\b2 executed", done.out):
        troubles.append(f"the run ends with {done.status}: {done.line('executed') or done.why}")
    if not re.search(r"^three +unchanged", done.out, re.M):
        troubles.append("the page with its own record ran again")
    row = Row(OTHER_FORMAT, "format 0 in one record, 99 and a new field in another",
              place.says(line), "counts as none", f"{site.status} (`site`)",
              place.unharmed("three"))
    return [judged(row, troubles + place.left(), place.mended())]


# ------------------------------------------------------------------ the machine is not as it was

DISK = "disk full"


def disk_full(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run on a small disk (a tmpfs over ``_build``) that has no room for a page's outputs."""
    how = "a tmpfs over `_build`, full but for 256 KiB; a page prints 4 MB"
    build, aside = place.project.build, place.put("aside")
    shutil.copytree(build, aside, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(build)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return [Row(DISK, how, skipped="mounting a tmpfs needs root")]
    try:
        shutil.copytree(aside, build, symlinks=True, dirs_exist_ok=True)
        troubles = []
        before = place.published()
        filler = build / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 2**16):
                pass
        os.truncate(filler, filler.stat().st_size - 2**18)
        place.write({"big": text("before = 1", "print('x' * 4_000_000)")})
        done = place.ci("run", *LIMITS)
        line = done.line("(?i)no space|disk")
        record = read_record(place.project, "big")
        if done.status != 1 or not re.search(r"(?i)no space left|disk is full", line):
            troubles.append(f"the run ends with {done.status} and says {line!r}")
        if "Traceback" in done.err:
            troubles.append("a traceback, not a line")
        if not re.search(r"\bbig\b", line):
            troubles.append(f"the page is not named: {line!r}")
        troubles += place.refused(before) + place.left()
        row = Row(DISK, how, place.says(line), in_record(record), str(done.status),
                  place.unharmed("steady"))
        filler.unlink()
        return [judged(row, troubles, place.mended(["big"], site=True))]
    finally:
        subprocess.run(["umount", "-l", str(build)], check=False)


CLOCK = "the clock going backwards"
BACKWARDS = '''\
"""Give this Python a clock that runs backwards, ten times as fast as the true one forwards."""
import datetime
import time

real, zero = time.time, time.time()


def backwards():
    return zero - 10 * (real() - zero)


class Kind(type):
    def __instancecheck__(cls, one):
        return isinstance(one, true)


true = datetime.datetime


class Backwards(true, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return true.fromtimestamp(backwards(), tz)

    @classmethod
    def utcnow(cls):
        return true.fromtimestamp(backwards(), datetime.timezone.utc).replace(tzinfo=None)

    @classmethod
    def today(cls):
        return cls.now()


time.time = backwards
time.time_ns = lambda: int(backwards() * 1e9)
datetime.datetime = Backwards
'''
PAGE_CLOCK = """
import datetime
import time

before, moment = time.time(), datetime.datetime.now()
time.sleep(0.3)
assert time.time() < before and datetime.datetime.now() < moment
print('one is', 'well')
"""


def clock(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run with a clock that goes backwards in the run, the workers and the kernels."""
    place.write({"one": text(PAGE_CLOCK)})
    sites = place.put("clock")
    sites.mkdir()
    (sites / "sitecustomize.py").write_text(BACKWARDS, encoding="utf-8")
    seen = []
    for mode in WARM_AND_COLD:
        env = {"PYTHONPATH": str(sites)}
        done = place.ci("run", mode, "--force", "one", "two", env=env)
        record = read_record(place.project, "one")
        troubles = [f"the run ends with {done.status}: {done.why}"] if done.status else []
        for slug in ("one", "two"):
            one = read_record(place.project, slug)
            for name in ("seconds", "cell_seconds"):
                if one is None or getattr(one, name) < 0:
                    troubles.append(f"{slug}: {name} {getattr(one, name, 'unknown')}")
        if negative := done.line(r"(?<![\w-])-\d"):
            troubles.append(f"a negative number: {negative!r}")
        line = done.line(r"\d+ pages?:")
        row = Row(CLOCK, "`time.time` and `datetime.now` run backwards in all processes",
                  place.says(line), in_record(record), str(done.status),
                  place.unharmed("two"))
        seen.append(judged(row, by_mode(mode, troubles + place.left())))
    site = place.ci("site", env=env)
    wrong = [f"`site` ends with {site.status}: {site.why}"] if site.status else []
    return [judged(both(*seen), wrong + place.site_is_right(), place.mended())]


NETWORK = "no network"
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:  # as `ip link set lo up`
    fcntl.ioctl(link, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))
os.execvp(sys.argv[1], sys.argv[1:])
"""
PAGE_NETWORK = """
import socket

assert [name for _, name in socket.if_nameindex()] == ["lo"]
print('one is', 'well')
"""


def network(place: Place, asked: frozenset[str]) -> list[Row]:
    """Run and build where there is no network but the machine's own."""
    how = "`unshare -n`, only `lo` is up"
    for unshare in (["unshare", "-n"], ["unshare", "-rn"]):
        before = [*unshare, sys.executable, "-c", LOOPBACK]
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*before, "true"], check=True, capture_output=True)
            break
    else:
        return [Row(NETWORK, how, skipped="this system does not allow `unshare -n`")]
    place.write({"one": text(PAGE_NETWORK)})
    seen = []
    for mode in WARM_AND_COLD:
        done = place.ci("run", mode, "--force", "one", "two", before=before)
        troubles = [f"the run ends with {done.status}: {done.why}"] if done.status else []
        line = done.line(r"\d+ pages?:")
        row = Row(NETWORK, how, place.says(line),
                  in_record(read_record(place.project, "one")), f"{done.status}",
                  place.unharmed("two"))
        seen.append(judged(row, by_mode(mode, troubles + place.left())))
    site = place.ci("site", before=before)
    wrong = [f"`site` ends with {site.status}: {site.why}"] if site.status else []
    return [judged(both(*seen), wrong + place.site_is_right(), place.mended())]


USAGE = "wrong usage"


def usage(place: Place, asked: frozenset[str]) -> list[Row]:
    """Ask for what there is not."""
    before = place.published()
    dones = [place.ci(*words) for words in (("run", "--jobs", "0"), ("dance",), ("run", "--fast"))]
    troubles = [f"ends with {done.status}, not 2" for done in dones if done.status != 2]
    if place.published() != before:
        troubles.append("the published site has changed")
    row = Row(USAGE, "`run --jobs 0`, `dance`, `run --fast`", place.says(dones[0].line("Error")),
              "none: nothing was run", ", ".join(sorted({str(done.status) for done in dones})),
              place.unharmed("one"))
    return [judged(row, troubles + place.left(), place.mended())]


# ------------------------------------------------------------------ all of them

@dataclass(frozen=True)
class Injection:
    """Faults that one project tries, and the function that does it."""

    faults: tuple[str, ...]
    inject: Callable[[Place, frozenset[str]], list[Row]] = field(repr=False)


# Longest first: two go on at once.
INJECTIONS = (
    Injection(tuple(harm.fault for harm in HARMS), harms),
    *[Injection((fault,), partial(signals, fault=fault)) for fault in SIGNALS],
    Injection(tuple(LITTERS), litters),
    Injection((WRITES,), writes),
    Injection((CORRUPT, FOREIGN), caches),
    Injection((CLOCK,), clock),
    Injection((NETWORK,), network),
    Injection((DISK,), disk_full),
    Injection((TWO_RUNS,), two_runs),
    Injection((BROKEN,), broken),
    Injection((OTHER_FORMAT,), other_format),
    Injection((USAGE,), usage),
)
FAULTS = tuple(fault for injection in INJECTIONS for fault in injection.faults)


def faults(only: Iterable[str] = (), say: Callable[[str], None] = print) -> list[Row]:
    """Inject the faults and return what was seen, a row for each, in the order of the table.

    Args:
        only: names of faults (default: all).
        say: takes a line for each fault that is done.

    Raises:
        BookError: there is no fault of that name, or the book fails before any fault.
    """
    asked = frozenset(only) or frozenset(FAULTS)
    if unknown := asked - set(FAULTS):
        raise BookError("faults", f"no fault is named {', '.join(sorted(unknown))}",
                        f"One of: {', '.join(FAULTS)}")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Started in a shell's background: the runs would inherit that, and never be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: dict[str, Row] = {}

    def one(injection: Injection, base: Project) -> list[Row]:
        with _place(base) as place:
            found = injection.inject(place, asked)
        return [judged(row, [f"the other page is {row.other}"] if "HARMED" in row.other else [])
                for row in found]

    with _place() as book, ThreadPoolExecutor(LANES) as lanes:
        if wrong := book.mended(site=True):
            raise BookError("faults", f"a book without a fault fails: {'; '.join(wrong)}")
        waiting = [lanes.submit(one, i, book.project) for i in INJECTIONS if asked & set(i.faults)]
        for done in waiting:
            for row in done.result():
                rows[row.fault] = row
                say(f"{row.fault:<42} " + (f"skipped: {row.skipped}" if row.skipped else
                                           "NOT as it must be" if row.troubles else "as it must"))
    return [rows[fault] for fault in FAULTS if fault in rows]


@contextmanager
def _place(base: Project | None = None) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    place = Place(folder, base)
    try:
        yield place
    finally:
        place.end()
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------ the table

def table(rows: Iterable[str]) -> str:
    """Return the table of these rows, as Markdown."""
    head = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    return "\n".join([*head, *rows])


def committed(path: Path = README) -> dict[str, str]:
    """Return the rows that the documentation shows, by the fault's name.

    Raises:
        BookError: the file has no place for the table.
    """
    inside = _split(path)[1].strip().splitlines()[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in inside}


def write_table(rows: Iterable[Row], path: Path = README) -> None:
    """Put the rows into the documentation; rows of faults that were not tried stay.

    Raises:
        BookError: the file has no place for the table.
    """
    before, _, after = _split(path)
    known = committed(path)
    for row in rows:
        if not row.skipped:
            known[row.fault] = row.line
    lines = [known[fault] for fault in FAULTS if fault in known]
    write_atomic(path, f"{before}{BEGIN}\n{table(lines)}\n{END}{after}")


def _split(path: Path) -> tuple[str, str, str]:
    content = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begin, rest = content.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        raise BookError(path, f"no lines `{BEGIN}` and `{END}`", "Restore them")
    return before, inside, after
