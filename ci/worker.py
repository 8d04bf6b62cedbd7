"""Execute one page in this process, which :mod:`ci.run` starts or :mod:`ci.nursery` forks.

A process per page, because papermill's working folder and IPython's state belong to the whole
process. The worker writes two small files that the runner reads: which cell runs now, and how it
ended. It trusts neither papermill's own metadata (they say "completed" after a timeout) nor the
exit status of the kernel: a page has run when every code cell has an execution count, in order.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty
from signal import Signals
from typing import Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook
from papermill.log import logger
from traitlets import default

from ci import procs
from ci.project import write_atomic, write_json

# What may change in a checkout while pages run.
OURS = {".git", "_build", ".venv", "__pycache__", "node_modules", ".pytest_cache", ".mypy_cache",
        ".ruff_cache", ".ipynb_checkpoints"}
MIB = 2**20
SAVE = 2.0  # seconds between two copies of what has run, for a page that the run has to kill


@dataclass(frozen=True)
class Job:
    """What one worker has to do; every path is absolute."""

    notebook: str
    output: str  # where the executed notebook goes
    folder: str  # the page's own empty working folder
    progress: str  # the cell that runs now
    outcome: str  # how it ended
    checkout: str  # where the page must not write
    go: str  # the first cell waits until this file is there; '' to start at once
    cell_seconds: float
    output_mib: float


@dataclass(frozen=True)
class Outcome:
    """How a page ended: ``error`` is '' when every cell ran. ``cell`` is a code cell's number.

    ``suspect`` says that the checkout changed while the page ran, perhaps by another's hand.
    ``peak_mib`` is the most that one process of the page took.
    """

    error: str
    cell: int
    cells: int
    cell_seconds: float
    suspect: bool = False
    peak_mib: float = 0.0


class QuickClient(AsyncKernelClient):
    """A client that is ready as soon as the kernel answers on both channels.

    The base class then waits another 0.2 s for messages that nobody would read: nbclient takes
    only those that answer its own requests.
    """

    async def _async_wait_for_ready(self, timeout: float | None = None) -> None:
        until = time.monotonic() + (timeout or float("inf"))
        while time.monotonic() < until:
            self.kernel_info()
            with suppress(Empty):
                reply = await self.shell_channel.get_msg(timeout=1)
                if reply["msg_type"] == "kernel_info_reply":
                    # Without a message here we are not subscribed yet, and would lose outputs.
                    await self.iopub_channel.get_msg(timeout=0.2)
                    self._handle_kernel_info_reply(reply)
                    return
            if not await self._async_is_alive():
                raise RuntimeError("the kernel died before it answered")
        raise RuntimeError(f"the kernel did not answer in {timeout} seconds")

    wait_for_ready = _async_wait_for_ready


class IpcKernelManager(AsyncKernelManager):
    """A kernel over Unix sockets: two kernels that start at once cannot take the same port."""

    @default("client_factory")
    def _client_factory(self) -> type[AsyncKernelClient]:
        return QuickClient

    @default("transport")
    def _transport(self) -> str:
        return "ipc"

    @default("connection_file")
    def _connection(self) -> str:
        return str(Path(jupyter_runtime_dir()) / f"{uuid.uuid4().hex[:8]}.json")


def code_numbers(notebook: nbformat.NotebookNode) -> dict[int, int]:
    """Return, for each code cell's position in the notebook, its number among code cells."""
    positions = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    return {position: number for number, position in enumerate(positions, start=1)}


class PageError(Exception):
    """The page did what no page may; the message says what."""


class Outside(PageError):
    """The checkout changed while a cell ran."""


class Client(PapermillNotebookClient):
    """Runs the cells one by one, and sees to what papermill leaves to chance.

    It bounds the output, names the reason why a kernel died, ends the page at a cell that ends
    its kernel or writes into the checkout, and takes the seconds of the cells from a clock that
    nobody sets.
    """

    def __init__(self, nb_man: Any, job: Job, numbers: dict[int, int], **options: Any) -> None:
        super().__init__(nb_man, **options)
        self.job = job
        self.numbers = numbers
        self.cell = 0  # the number of the code cell that runs, or ran last
        self.seconds = 0.0
        self.failure = ""  # why the page ended, where the exception does not know
        self._began = 0.0
        self._said = 0.0
        self._saved = time.monotonic()
        self._checkout = state(Path(job.checkout))
        self.on_cell_execute = self._starts
        self.on_cell_executed = self._ended

    def papermill_execute_cells(self) -> None:
        """Run the cells, once the kernel is up and the run says so; see the base class."""
        while self.job.go and not Path(self.job.go).exists():
            time.sleep(0.005)
        super().papermill_execute_cells()

    def _starts(self, cell: Any, cell_index: int) -> None:
        self.cell = self.numbers[cell_index]
        write_atomic(Path(self.job.progress), str(self.cell))
        self._began = time.monotonic()

    def _ended(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        self.seconds += time.monotonic() - self._began
        content = (execute_reply or {}).get("content", {})
        leaves = any(part.get("source") == "ask_exit" for part in content.get("payload") or ())
        # Papermill takes the first for a good end, and the second as a wish for later.
        if content.get("ename") == "SystemExit" or leaves:
            raise PageError("the cell ends the page (sys.exit, exit or quit)")
        if time.monotonic() - self._saved > SAVE:
            write_atomic(Path(f"{self.job.output}.raw"), nbformat.writes(self.nb))
            self._saved = time.monotonic()
        if changed := differences(self._checkout, Path(self.job.checkout)):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise Outside(f"wrote outside its folder: {', '.join(changed[:3])}{more}")

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Take one message from the kernel; see the base class."""
        if self.failure:
            return None
        self._said += size(msg["content"])
        if self._said <= self.job.output_mib * MIB:
            return super().process_message(msg, cell, cell_index)
        self.failure = f"more than {self.job.output_mib:g} MiB of output"
        notice = nbformat.v4.new_output("stream", name="stderr", text=f"[cut: {self.failure}]\n")
        cell.outputs = [*cell.outputs, notice]
        if self.task_poll_for_reply:
            self.task_poll_for_reply.cancel()
        return None

    async def _async_check_alive(self) -> None:
        try:
            await super()._async_check_alive()
        except DeadKernelError:
            status = await self.km.provisioner.poll()
            self.failure = self.failure or f"the kernel {death(status)}"
            raise


class Engine(NBClientEngine):
    """Papermill's own engine with our client; ``client`` is the one that ran last."""

    client: Client | None = None

    @classmethod
    def execute_managed_notebook(  # type: ignore[no-untyped-def]
            cls, nb_man, kernel_name, job, numbers, log_output=False, stdout_file=None,
            stderr_file=None, start_timeout=60, execution_timeout=None, **options):
        """Run the notebook; see the base class."""
        options.pop("input_path", None)
        cls.client = Client(
            nb_man, job, numbers, timeout=execution_timeout, startup_timeout=start_timeout,
            kernel_name=kernel_name, log=logger, log_output=log_output, **options)
        return cls.client.execute()


papermill_engines.register("pages", Engine)


def size(content: Any) -> int:
    """Return about how many bytes of output a kernel's message brings."""
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return sum(map(size, content.values()))
    if isinstance(content, (list, tuple)):
        return sum(map(size, content))
    return 0


def death(status: int | None) -> str:
    """Say how a process ended, by its exit status as :mod:`subprocess` gives it."""
    if status is None:
        return "died"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"died of signal {-status} ({Signals(-status).name})"
    except ValueError:
        return f"died of signal {-status}"


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Return the time and the size of every file of a checkout that pages must leave alone."""
    found: dict[str, tuple[int, int]] = {}
    folders = [str(root)] if str(root) else []
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.name in OURS:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    about = entry.stat(follow_symlinks=False)
                    found[entry.path] = (about.st_mtime_ns, about.st_size)
            except OSError:
                continue
    return found


def differences(before: dict[str, tuple[int, int]], root: Path) -> list[str]:
    """Return the files that were made, changed or removed since, as seen from the root."""
    now = state(root)
    paths = {path for path, _ in before.items() ^ now.items()}
    return sorted(str(Path(path).relative_to(root)) for path in paths)


def execute(job: Job) -> Outcome:
    """Run the page and write its executed notebook, cleaned of what changes from run to run.

    Returns:
        The outcome; a failing page is an outcome, not an exception.
    """
    source = nbformat.read(job.notebook, as_version=4)
    error, suspect = "", False
    os.chdir(job.folder)
    try:
        execute_notebook(
            job.notebook, None, engine_name="pages", progress_bar=False, log_output=False,
            execution_timeout=int(job.cell_seconds), start_timeout=120,
            # It would write the whole notebook twice a cell, a tenth of the page's time.
            request_save_on_cell_execute=False, autosave_cell_every=0,
            kernel_manager_class=IpcKernelManager, shutdown_kernel="immediate",
            store_history=True, job=job, numbers=code_numbers(source),
        )
    except PapermillExecutionError as failure:
        error = first_line(f"{failure.ename}: {failure.evalue}")
    except PageError as failure:
        error, suspect = str(failure), isinstance(failure, Outside)
    except NoSuchKernel as failure:
        error = f"there is no kernel named {failure.name!r}"
    except Exception as failure:  # any other end is the page's end too, and must be told
        error = f"{type(failure).__name__}: {first_line(str(failure))}"
    client = Engine.client
    executed = clean(source, client.nb) if client else source
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    done = 0
    for number, cell in enumerate(code, start=1):
        if cell.execution_count != number:
            break
        done = number
    current = client.cell if client else 0
    if error and client and client.failure:
        error = client.failure
    if not error and done < len(code):
        error = f"the kernel stopped after cell {done} of {len(code)}"
        current = max(done, 1)
    if not code:
        error = "the page has no code cell"
    write_atomic(Path(job.output), nbformat.writes(executed) + "\n")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Outcome(error, current if error else len(code), done,
                   round(client.seconds, 3) if client else 0.0, suspect,
                   peak / (MIB if sys.platform == "darwin" else 1024))


def clean(source: nbformat.NotebookNode, ran: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the source notebook with the outputs of the run.

    Papermill's metadata (times, a cell with the error above the failing one) stay out, so that
    the executed notebook is the page and its outputs and nothing else.
    """
    by_id = {cell.get("id"): cell for cell in ran.cells}
    for cell in source.cells:
        twin = by_id.get(cell["id"])
        if cell.cell_type == "code" and twin and twin.source == cell.source:
            cell.outputs = joined(twin.outputs)
            cell.execution_count = twin.execution_count
    return source


def joined(outputs: list[Any]) -> list[Any]:
    """Return the outputs with each stream in one piece, stdout first; the others keep their order.

    A line may come in two messages, and the site would break it there. nbclient's own way
    (``coalesce_streams``) takes minutes for a long line, by the expression that it searches.
    """
    texts: dict[str, str] = {}
    others = []
    place = 0  # among the others, where the first stream stood
    for one in outputs:
        if one.output_type != "stream":
            others.append(one)
            continue
        if not texts:
            place = len(others)
        texts[one.name] = texts.get(one.name, "") + one.text
    streams = [nbformat.v4.new_output("stream", name=name, text=texts[name])
               for name in sorted(texts, reverse=True)]
    return [*others[:place], *streams, *others[place:]]


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def main(job: Job) -> None:
    """Run a page, end what it left behind, and then say how it went."""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    outcome = execute(job)
    procs.end_all(lambda: procs.below(os.getpid()))
    write_json(Path(job.outcome), asdict(outcome))


def cold() -> None:
    """Be the worker of a cold start: the job is in the file that the command line names."""
    procs.take_in_orphans()
    main(Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
