"""The record of a page's run: one JSON file per page, the only proof that outputs belong to it."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ci.pages import Page
from ci.project import Project, digest, write_json

FORMAT = 2  # raised when a field changes its meaning; an older record then counts as none
SHOWN_VERSIONS = ("torch", "tensorflow", "keras", "numpy", "matplotlib", "ipykernel")


@dataclass(frozen=True)
class Failure:
    """Where and why a page failed, and the command that runs it again alone."""

    page: str
    cell: int  # the code cell's number, from 1; 0 when no cell had started
    source: str
    error: str  # the last line of the traceback, or the limit that was passed
    rerun: str


@dataclass(frozen=True)
class Record:
    """What is known of one run of one page. Seconds are wall seconds, memory is in MiB."""

    page: str
    status: str  # 'ok' or 'failed'
    key: str
    started: str  # UTC, ISO 8601
    seconds: float
    cell_seconds: float
    peak_mib: float
    cells: int  # code cells that ran
    device: str
    python: str
    platform: str
    versions: dict[str, str]
    requirements: str  # digest of requirements.txt
    commit: str
    claims: dict[str, int]
    notebook: str = ""  # digest of the executed notebook
    warm: bool = False  # forked from a parent that had imported the frameworks
    failure: Failure | None = None
    format: int = FORMAT

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class Machine:
    """What a page's outputs depend on beside its code."""

    device: str
    requirements: str
    python: str = field(default_factory=platform.python_version)
    platform: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")

    @classmethod
    def here(cls, project: Project) -> Machine:
        return cls(device=detect_device(), requirements=requirements_digest(project))


def requirements_digest(project: Project) -> str:
    """Return the digest of ``requirements.txt``, the one list of versions."""
    text = project.requirements.read_bytes() if project.requirements.is_file() else b""
    return digest(text)


def detect_device() -> str:
    """Return the first GPU's name as the driver tells it, else ``cpu``.

    No framework is imported for it: that would cost seconds and could start CUDA.
    """
    if not shutil.which("nvidia-smi"):
        return "cpu"
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "cpu"
    return answer.splitlines()[0].strip() if answer else "cpu"


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that a reader asks about."""
    found = {}
    for name in SHOWN_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def page_key(page: Page, machine: Machine) -> str:
    """Return the key of a page's outputs.

    It covers what the outputs depend on (the code cells with their options, the kernel, the
    requirements, Python, the device) and nothing else: prose may change freely.
    """
    code = [{"source": cell.source, "metadata": cell.metadata} for cell in page.code]
    return digest(
        json.dumps(code, sort_keys=True, default=str),
        json.dumps(page.metadata.get("kernelspec", {}), sort_keys=True, default=str),
        machine.requirements, machine.python, machine.platform, machine.device,
    )


def write_record(project: Project, record: Record) -> None:
    write_json(project.record(record.page), asdict(record))


def read_record(project: Project, slug: str) -> Record | None:
    """Return the record of a page; None if there is none or it cannot be trusted."""
    try:
        data: dict[str, Any] = json.loads(project.record(slug).read_text(encoding="utf-8"))
        failure = data.pop("failure", None)
        record = Record(**data, failure=Failure(**failure) if failure else None)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return record if record.format == FORMAT and record.page == slug else None


def run_folder(folder: Path) -> Path:
    """Return the folder of a run's outputs: the one given, or the ``_build`` inside it."""
    inside = folder / "_build"
    return (inside if inside.is_dir() else folder).resolve()


def is_current(project: Project, page: Page, machine: Machine) -> bool:
    """Return whether the page's outputs are there, whole, and what this machine would make."""
    record = read_record(project, page.slug)
    return (record is not None and record.key == page_key(page, machine)
            and not doubts(project, page, record))


def doubts(project: Project, page: Page, record: Record | None) -> str:
    """Return why the page's outputs may not be shown, '' when its record vouches for them.

    The outputs may come from another machine (a GPU runner, a shard). What must hold is that
    the record says which commit, requirements, Python and device made them, that page and
    requirements are still those, and that the outputs are the ones it speaks of.
    """
    if record is None:
        return "has not been run, or its record is of another version"
    if not record.ok:
        cell = record.failure.cell if record.failure else 0
        return f"failed in its last run, in code cell {cell}"
    if record.cells != len(page.code) or not record.cells:
        return f"has a record of {record.cells} cells that ran, and {len(page.code)} code cells"
    unsaid = [name for name in ("commit", "requirements", "python", "platform", "device")
              if not getattr(record, name)]
    if unsaid:
        return f"has a record that does not say its {', '.join(unsaid)}"
    if record.requirements != requirements_digest(project):
        return "was run with other versions than requirements.txt says"
    made_on = Machine(record.device, record.requirements, record.python, record.platform)
    if record.key != page_key(page, made_on):
        return "has changed since its last run"
    try:
        whole = digest(project.executed_notebook(page.slug).read_bytes()) == record.notebook
    except OSError:
        return "has lost its executed notebook"
    return "" if whole else "has an executed notebook that its record does not know"
