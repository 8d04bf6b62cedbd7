"""Where things are, how files are written, and the one kind of error a person sees."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from filelock import FileLock, Timeout
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

PARTIAL = ".partial"  # ends the name of a file that is being written


class BookError(click.ClickException):
    """A mistake of input: one line that names the file, the place and the way out.

    Args:
        where: the file (and cell or line) it is about.
        what: what is wrong.
        way_out: what to do about it.
    """

    exit_code = 1

    def __init__(self, where: str | Path, what: str, way_out: str = "") -> None:
        message = f"{where}: {what}" + (f". {way_out}" if way_out else "")
        super().__init__(message)


@dataclass(frozen=True)
class Project:
    """The paths of one checkout; everything else asks here.

    Args:
        root: the folder that holds ``_config.yml`` and ``_toc.yml``.
        out: where outputs go (default: ``_build`` below the root), for runs that must not touch
            what is published.
    """

    root: Path
    out: Path | None = None

    @classmethod
    def find(cls, start: Path | None = None) -> Project:
        """Return the project around ``start`` (default: the working folder).

        Raises:
            BookError: no folder from ``start`` upwards holds both settings files.
        """
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / "_config.yml").is_file() and (folder / "_toc.yml").is_file():
                return cls(folder)
        raise BookError(here, "no _config.yml and _toc.yml here or above", "Go into the checkout")

    @property
    def book(self) -> Path:
        return self.root / "book"

    @property
    def notebooks(self) -> Path:
        return self.root / "notebooks"

    @property
    def build(self) -> Path:
        return self.out or self.root / "_build"

    @property
    def executed(self) -> Path:
        return self.build / "executed"

    @property
    def failed(self) -> Path:
        return self.build / "failed"

    @property
    def records(self) -> Path:
        return self.build / "records"

    @property
    def cache(self) -> Path:
        return self.build / ".jupyter_cache"

    @property
    def html(self) -> Path:
        return self.build / "html"

    @property
    def beside(self) -> list[Project]:
        """Runs of the same pages on other devices, of which only the records are shown."""
        folders = sorted((self.build / "beside").glob("*/"))
        return [replace(self, out=folder) for folder in folders if folder.is_dir()]

    @property
    def drift(self) -> Path:
        """What the weekly runs with other versions found."""
        return self.build / "drift"

    @property
    def requirements(self) -> Path:
        return self.root / "requirements.txt"

    @property
    def claims_file(self) -> Path:
        return self.book / "_data" / "claims.yml"

    @property
    def topics_file(self) -> Path:
        return self.book / "_data" / "topics.yml"

    def text(self, slug: str) -> Path:
        return self.book / f"{slug}.md"

    def notebook(self, slug: str) -> Path:
        return self.notebooks / f"{slug}.ipynb"

    def executed_notebook(self, slug: str) -> Path:
        return self.executed / f"{slug}.ipynb"

    def record(self, slug: str) -> Path:
        return self.records / f"{slug}.json"

    def relative(self, path: Path) -> str:
        """Return ``path`` as a person would type it from the root."""
        try:
            return str(path.resolve().relative_to(self.root))
        except ValueError:
            return str(path)


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write ``data`` under a temporary name beside ``path``, then rename it there.

    A reader sees the old file or the new one, never a part of one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_partial(folder: Path) -> None:
    """Remove what writers that were killed have left half-written below a folder's own folders."""
    for path in [*folder.glob(f".*{PARTIAL}"), *folder.glob(f"*/.*{PARTIAL}")]:
        path.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as readable JSON, atomically."""
    write_atomic(path, json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts, in hexadecimal; their borders count."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8") if isinstance(part, str) else part
        total.update(f"{len(raw)}:".encode())
        total.update(raw)
    return total.hexdigest()


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        BookError: the file is missing, is not YAML, or holds a key twice.
    """
    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BookError(path, "this file is missing", "Restore it from git") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = " ".join(str(error.problem).split())
        raise BookError(f"{path}:{line}", problem, "Mend that line") from None


def load_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, empty if there is none.

    Raises:
        BookError: it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise BookError(path, str(error), "Mend that line") from None


@contextmanager
def locked(project: Project, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the checkout's outputs: nobody else writes to them meanwhile.

    The system frees the lock when its holder ends, however it ends. Within one process it may be
    taken again.

    Args:
        project: the checkout.
        say: takes the line that says whom this waits for.
    """
    project.build.mkdir(parents=True, exist_ok=True)
    owner = project.build / ".lock-owner"
    lock = FileLock(project.build / ".lock", is_singleton=True)
    if lock.is_locked:
        yield
        return
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            number = owner.read_text(encoding="utf-8")
        except OSError:
            number = "unknown"
        say(f"another run works in this checkout (process {number}): waiting")
        lock.acquire()
    try:
        project.build.mkdir(parents=True, exist_ok=True)
        owner.write_text(str(os.getpid()), encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def git_commit(root: Path) -> str:
    """Return the commit of the checkout, with ``+`` when files differ from it.

    Outside git (an unpacked archive) it is ``none``: said, not left out.
    """
    try:
        head = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return head + ("+" if changed else "")
