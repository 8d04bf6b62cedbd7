"""Execute one page in this process: ``python -m ci.worker JOB.json``, started by :mod:`ci.run`.

A process per page, because papermill's working folder and IPython's state belong to the whole
process. The worker writes two small files that the runner reads: which cell runs now, and how it
ended. It trusts neither papermill's own metadata (they say "completed" after a timeout) nor the
exit status of the kernel: a page has run when every code cell has an execution count, in order.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook
from traitlets import default

from ci.project import write_atomic, write_json


@dataclass(frozen=True)
class Job:
    """What one worker has to do; every path is absolute."""

    notebook: str
    output: str  # where the executed notebook goes
    folder: str  # the page's own empty working folder
    progress: str  # the cell that runs now
    outcome: str  # how it ended
    cell_seconds: float


@dataclass(frozen=True)
class Outcome:
    """How a page ended: ``error`` is '' when every cell ran. ``cell`` is a code cell's number."""

    error: str
    cell: int
    cells: int
    cell_seconds: float


class IpcKernelManager(AsyncKernelManager):
    """A kernel over Unix sockets: two kernels that start at once cannot take the same port.

    This is also the place where a faster way to start a kernel goes (a provisioner).
    """

    @default("transport")
    def _transport(self) -> str:
        return "ipc"

    @default("connection_file")
    def _connection(self) -> str:
        return str(Path(jupyter_runtime_dir()) / f"{uuid.uuid4().hex[:8]}.json")


def end_with_parent() -> None:
    """Have this process killed when its parent dies, where the system offers it (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def code_numbers(notebook: nbformat.NotebookNode) -> dict[int, int]:
    """Return, for each code cell's position in the notebook, its number among code cells."""
    positions = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    return {position: number for number, position in enumerate(positions, start=1)}


def execute(job: Job) -> Outcome:
    """Run the page and write its executed notebook, cleaned of what changes from run to run.

    Returns:
        The outcome; a failing page is an outcome, not an exception.
    """
    source = nbformat.read(job.notebook, as_version=4)
    numbers = code_numbers(source)
    current = 0

    def on_cell_start(cell: Any, cell_index: int) -> None:
        nonlocal current
        if cell_index in numbers:
            current = numbers[cell_index]
            write_atomic(Path(job.progress), str(current))

    error = ""
    raw = f"{job.output}.raw"
    os.chdir(job.folder)
    try:
        execute_notebook(
            job.notebook, raw, kernel_name="python3", progress_bar=False, log_output=False,
            execution_timeout=int(job.cell_seconds), start_timeout=120, autosave_cell_every=1,
            kernel_manager_class=IpcKernelManager, shutdown_kernel="immediate",
            on_cell_start=on_cell_start, store_history=True,
        )
    except PapermillExecutionError as failure:
        error = first_line(f"{failure.ename}: {failure.evalue}")
    except Exception as failure:  # any other end is the page's end too, and must be told
        error = f"{type(failure).__name__}: {first_line(str(failure))}"
    ran = nbformat.read(raw, as_version=4) if Path(raw).exists() else source
    executed, seconds = clean(source, ran)
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    done = 0
    for number, cell in enumerate(code, start=1):
        if cell.execution_count != number:
            break
        done = number
    if not error and done < len(code):
        error = f"the kernel stopped after cell {done} of {len(code)} (sys.exit in a cell?)"
        current = max(done, 1)
    if not code:
        error = "the page has no code cell"
    write_atomic(Path(job.output), nbformat.writes(executed) + "\n")
    return Outcome(error, current if error else len(code), done, round(seconds, 3))


def clean(source: nbformat.NotebookNode, ran: nbformat.NotebookNode
          ) -> tuple[nbformat.NotebookNode, float]:
    """Return the source notebook with the outputs of the run, and the seconds spent in cells.

    Papermill's metadata (times, a cell with the error above the failing one) stay out, so that
    the executed notebook is the page and its outputs and nothing else.
    """
    by_id = {cell.get("id"): cell for cell in ran.cells}
    seconds = 0.0
    for cell in source.cells:
        if cell.cell_type != "code" or cell["id"] not in by_id:
            continue
        twin = by_id[cell["id"]]
        if twin.source != cell.source:
            continue
        cell.outputs = twin.outputs
        cell.execution_count = twin.execution_count
        seconds += twin.metadata.get("papermill", {}).get("duration") or 0.0
    return source, seconds


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def main() -> None:
    end_with_parent()
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    write_json(Path(job.outcome), asdict(execute(job)))


if __name__ == "__main__":
    main()
