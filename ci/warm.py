"""Warm starts: a parent process imports what the pages import, and forks each page from there.

Starting a kernel and importing both frameworks takes seconds, forking one takes none. The parent
("nursery") imports and initialises nothing: no device, no operation, no event loop, no socket. For
each page it forks a worker (:mod:`ci.worker`), and that at once forks the page's kernel, which
waits for its connection. This is the run's side; the parent's own is :mod:`ci.nursery`.
"""

from __future__ import annotations

import ast
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ci import procs
from ci.nursery import Birth
from ci.pages import Page, parse
from ci.project import Project, digest, load_toml
from ci.record import requirements_digest

# Set on pages, but read when a device is first used, which in a warm kernel is still to come.
READ_LATER = {"CUDA_VISIBLE_DEVICES"}
# PyTorch's compiler library, loaded after TensorFlow, ends the process (CUDA builds).
FIRST = ("triton", "torch")


@dataclass(frozen=True)
class Plan:
    """How pages start: what the parent imports, with which settings, and who cannot come of it."""

    modules: tuple[str, ...]
    env: dict[str, str]
    cold: frozenset[str]


def plan(project: Project, pages: Sequence[Page]) -> Plan:
    """Return how to start these pages warm.

    A variable of the environment that a page sets before it imports a library may be read by that
    import, which in a warm kernel lies in the past. So the parent imports with the settings that
    most pages make, and a page that makes others starts cold.
    """
    modules = wanted(project, pages)
    made = {page.slug: settings(page, modules) for page in pages}
    usual = Counter(tuple(sorted(one.items())) for one in made.values()
                    if one is not None and None not in one.values()).most_common(1)
    env = {name: value for name, value in usual[0][0] if value is not None} if usual else {}
    cold = frozenset(slug for slug, one in made.items() if one is not None and one != env)
    return Plan(tuple(modules), env, cold)


def supported() -> bool:
    """Return whether this system can start pages warm: Linux, where forking is safe."""
    return procs.LINUX


def wanted(project: Project, pages: Iterable[Page]) -> list[str]:
    """Return the modules worth importing once for these pages, in the order to import them.

    These are the modules that the cells import at their own level, first those that most pages
    import first, and then the ``preload`` list of ``[tool.proof-by-running]`` in pyproject.toml:
    what the frameworks load by themselves, late. A module that is not installed is left out.
    """
    order: dict[str, None] = {}
    for page in pages:
        for cell in page.code:
            order.update(dict.fromkeys(top_imports(cell.source)))
    settings = load_toml(project.root / "pyproject.toml").get("tool", {})
    extra = settings.get("proof-by-running", {}).get("preload", [])
    names = [name for name in order if _installed(name)]
    first = [name for name in FIRST if _installed(name) and "torch" in names]
    return list(dict.fromkeys([*first, *names, *(n for n in extra if _installed(n))]))


def top_imports(source: str) -> list[str]:
    """Return the modules that a cell imports at its own level."""
    found = []
    tree = parse(source)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return found


def _installed(name: str) -> bool:
    """Return whether the module's top package is installed and is not a part of Python."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return False
    try:
        return find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def settings(page: Page, modules: Iterable[str]) -> dict[str, str | None] | None:
    """Return the environment variables that a page sets while it has not imported all it wants.

    None when it imports nothing that the parent has imported.

    Args:
        page: the page.
        modules: what the parent imports; once the page has imported all of it, nothing counts.

    Returns:
        The values by name; None where the value is not plain text.
    """
    tops = {name.partition(".")[0] for name in modules}
    tops &= {name.partition(".")[0] for cell in page.code for name in top_imports(cell.source)}
    if not tops:
        return None
    found: dict[str, str | None] = {}
    for cell in page.code:
        tree = parse(cell.source)
        for node in tree.body if tree else ():
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) \
                    else [node.module or ""]
                tops -= {name.partition(".")[0] for name in names}
            if tops:
                for inner in ast.walk(node):
                    found.update(_variable_set(inner))
    return {name: value for name, value in found.items() if name not in READ_LATER}


def _variable_set(node: ast.AST) -> dict[str, str | None]:
    """Return the environment variable that a piece of code sets, with its value."""
    key: ast.expr | None = None
    value: ast.expr | None = None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) \
            and ast.unparse(node.targets[0].value).endswith("environ"):
        key, value = node.targets[0].slice, node.value
    elif isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func).endswith(
            ("environ.setdefault", "putenv")):
        key, value = node.args
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("environ.update"):
        return {ast.unparse(node): None}
    if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
        return {}
    plain = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return {key.value: value.value if plain else None}  # type: ignore[union-attr]


# ------------------------------------------------------------------ the run's side

class Worker:
    """A forked worker, with the part of :class:`subprocess.Popen` that a run uses."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how the process ended, None while it runs."""
        self.returncode = self.nursery.ended(self.pid)
        return self.returncode

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(0.01)
        return status


class Nursery:
    """The parent process, as the run sees it.

    Args:
        modules: what it imports.
        env: its environment; what libraries read at their import must be set in it.
        log: takes what it and the imports print.
    """

    def __init__(self, modules: Iterable[str], env: dict[str, str], log: Path) -> None:
        package = Path(__file__).resolve().parent.parent
        # Not "-P", which a kernel would inherit: its page's own folder belongs on the path.
        start = (f"import sys; sys.path[0] = {str(package)!r}; "
                 "from ci.nursery import serve; serve()")
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", start],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, cwd=log.parent,
                env={**env, "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                     procs.MARK: procs.new_mark()}, start_new_session=True)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._ends: dict[int, int] = {}
        self._ready = False
        threading.Thread(target=self._listen, daemon=True).start()
        self._tell({"modules": list(modules)})

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            said = json.loads(line)
            if "ended" in said:
                self._ends[said["ended"]] = said["status"]
            else:
                self._ends.pop(said.get("pid", 0), None)  # an earlier process had the number
                self._said.put(said)
        self._said.put({"closed": True})

    def _tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def _hear(self, what: str) -> Any:
        """Return what the parent says next under that name.

        Raises:
            NurseryError: it has ended.
        """
        said = self._said.get()
        if what not in said:
            self._said.put(said)
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise NurseryError((lines or ["nothing was logged"])[-1])
        return said[what]

    @property
    def ready(self) -> bool:
        """Whether it has imported everything; a fork would wait for it."""
        return self._ready or not self._said.empty()

    @property
    def dead(self) -> bool:
        """Whether it has ended, by its own doing or another's."""
        return self.process.poll() is not None

    def fork(self, birth: Birth) -> Worker:
        """Fork a worker, waiting for the imports if need be.

        Raises:
            NurseryError: the parent has ended, for example in an import.
        """
        if not self._ready:
            self._hear("imported")
            self._ready = True
        try:
            self._tell(asdict(birth))
        except OSError:
            self._hear("pid")
            raise
        return Worker(self, self._hear("pid"))

    def ended(self, pid: int) -> int | None:
        if pid not in self._ends and self.dead:
            return -signal.SIGKILL  # its parent is gone, and it with it
        return self._ends.get(pid)

    def close(self) -> None:
        """End the parent; its workers have ended before."""
        with suppress(OSError):
            assert self.process.stdin
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        self.process.kill()
        self.process.wait()


class NurseryError(Exception):
    """The parent of the warm kernels has ended; the message is its last line."""


# ------------------------------------------------------------------ a parent for many runs

@dataclass(frozen=True)
class _Made:
    """A parent, and what it was made of: its modules, and the digest of all else."""

    nursery: Nursery
    modules: tuple[str, ...]
    rest: str


class KeptNursery:
    """A parent that outlives a run, so that the next one need not wait for its imports.

    The system ends it with the process that keeps it, however that ends, and a guardian ends what
    is left of its pages.

    Args:
        project: the checkout.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = Path(tempfile.mkdtemp(prefix=f"pbr-{os.getpid()}-"))
        self.guardian = procs.Guardian(os.getpid(), self.folder)
        self._now: _Made | None = None
        self._next: _Made | None = None
        self._count = 0

    @property
    def pids(self) -> list[int]:
        """The processes that a run must not end."""
        return [one.nursery.process.pid for one in (self._now, self._next) if one]

    def take(self, modules: tuple[str, ...], env: Mapping[str, str]) -> Nursery:
        """Return the parent to fork from: the last one, while it is what a new one would be.

        With other settings or versions it is made anew. With other modules a new one gets ready in
        the background: until then the last one serves, where a page imports by itself what that
        lacks, as a cold one would.

        Args:
            modules: what it is to import.
            env: its environment.
        """
        rest = digest(json.dumps(sorted(env.items())), requirements_digest(self.project),
                      sys.version, *_installed_packages())
        for one in (self._now, self._next):
            if one and (one.nursery.dead or one.rest != rest):
                self._end(one)
        if self._next and (self._next.nursery.ready or not self._now):
            self._end(self._now)
            self._now, self._next = self._next, None
        if self._now and self._now.modules != modules and (
                not self._now.nursery.ready
                or (set(FIRST) & set(modules)) - set(self._now.modules)):
            self._end(self._now)
        if self._next and self._next.modules != modules:
            self._end(self._next)
        if not self._now:
            self._now, self._next = self._next or self._make(modules, env, rest), None
        elif self._now.modules != modules and not self._next:
            self._next = self._make(modules, env, rest)
        return self._now.nursery

    def _make(self, modules: tuple[str, ...], env: Mapping[str, str], rest: str) -> _Made:
        self._count += 1
        log = self.folder / f"nursery-{self._count}.log"
        return _Made(Nursery(modules, dict(env), log), modules, rest)

    def _end(self, one: _Made | None) -> None:
        if one is None:
            return
        one.nursery.process.kill()  # while it imports it would not hear that it should end
        one.nursery.close()
        if self._now is one:
            self._now = None
        if self._next is one:
            self._next = None

    def drop(self) -> None:
        """End the parent; the next run gets a new one."""
        self._end(self._now)
        self._end(self._next)

    def close(self) -> None:
        """End the parent for good, and remove what it left."""
        self.drop()
        self.guardian.dismiss()
        shutil.rmtree(self.folder, ignore_errors=True)


def _installed_packages() -> list[str]:
    """Return the names, with versions, of the folders that describe the installed packages."""
    found: list[str] = []
    for folder in dict.fromkeys(sys.path):
        with suppress(OSError):
            found += sorted(name for name in os.listdir(folder or ".")  # noqa: PTH208
                            if name.endswith(".dist-info"))
    return found
