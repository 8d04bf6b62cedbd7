"""The parent of warm kernels, and what is born of it; started by :mod:`ci.warm`.

A fork inherits what must differ from page to page: each child gets its environment, folder,
streams, session and fresh random state of its own. Tests compare it with a cold start. The tree
of processes is that of a cold run: a worker for each page, and the page's kernel below it.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import nbformat
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ci import procs

# What every worker and every kernel loads.
ALWAYS = ("ci.worker", "papermill.execute", "ipykernel.kernelapp", "ipykernel.ipkernel",
          "ipykernel.debugger", "ipykernel_launcher", "IPython.core.completer", "numpy")


@dataclass(frozen=True)
class Birth:
    """What one forked worker gets."""

    job: dict[str, Any]
    env: dict[str, str]
    folder: str
    log: str
    mark: str


def serve() -> NoReturn:
    """Import what the run asks for, then fork a worker for each line on standard input."""
    says = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    procs.end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = sys.stdin.buffer
    modules = json.loads(lines.readline())["modules"]
    before = set(os.environ)
    for name in (*ALWAYS, *modules):
        try:
            import_module(name)
        except Exception:  # the page that needs it will say so, in its own cell
            print(f"not preloaded: {name}", file=sys.stderr)
    nbformat.validate(nbformat.v4.new_notebook())  # compiles its schema, once for all
    temporary = tempfile.gettempdir()  # a page has its own, and names made from it
    ForkedProvisioner.set_by_imports = {
        name: os.environ[name] for name in os.environ.keys() - before
        if not os.environ[name].startswith(temporary)}
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, the shared memory in each child
    says.write(json.dumps({"imported": True}) + "\n")

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    unread = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 512)
            _reap(says)
        if 0 in ready:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                os._exit(0)
            unread += chunk
            while b"\n" in unread:
                line, _, unread = unread.partition(b"\n")
                birth = Birth(**json.loads(line))
                pid = os.fork()
                if not pid:
                    says.close()
                    _live(birth, (woken, wake))
                says.write(json.dumps({"pid": pid}) + "\n")


def _reap(says: Any) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        says.write(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}) + "\n")


def _live(birth: Birth, close: Iterable[int]) -> NoReturn:
    """Be the worker of one page: first fork its kernel, then run it."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in close:
            os.close(number)
        _be_fresh(birth)
        os.setsid()
        procs.take_in_orphans()
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(write)
            _wait_to_be_kernel(read)
        os.close(read)
        ForkedProvisioner.waiting = (pid, write)
        factory = KernelProvisionerFactory.instance()
        name = "forked"
        factory.provisioners[name] = EntryPoint(
            name, f"{__name__}:{ForkedProvisioner.__name__}", factory.GROUP_NAME)
        factory.default_provisioner_name = name
        from ci.worker import Job, main

        main(Job(**birth.job))
        status = 0
    except BaseException:
        traceback.print_exc()
    _leave(status)


def _be_fresh(birth: Birth) -> None:
    """Take on the child's own environment, folder, streams and signals."""
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT
                      else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for old, new in ((null, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.close(null)
    os.close(log)
    os.environ.clear()
    os.environ.update(birth.env)
    procs.remark(birth.mark)
    os.chdir(birth.folder)
    tempfile.tempdir = None  # asked anew, with the new environment


def _wait_to_be_kernel(read: int) -> NoReturn:
    """Be the kernel: wait for the command line that a cold kernel would get, then start."""
    status = 1
    try:
        os.setsid()
        procs.end_with_parent()
        with os.fdopen(read, "rb") as pipe:
            told = pipe.read()
        if not told:
            os._exit(0)  # the worker needs none
        order = json.loads(told)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        _fresh_random_state()
        sys.path[:] = [p for p in sys.path if p != order["package"]]
        for name in [n for n in sys.modules if n == "ci" or n.startswith("ci.")]:
            del sys.modules[name]  # a page cannot import this package
        ipykernel_launcher = sys.modules["ipykernel_launcher"]
        from ipykernel.kernelapp import IPKernelApp

        sys.argv = [str(ipykernel_launcher.__file__), *order["arguments"]]
        IPKernelApp.launch_instance()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End a forked process without going back up the parent's frames."""
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


def _fresh_random_state() -> None:
    """Draw new states where a library draws one from the system when it is loaded.

    Python's own generator does so in every fork. TensorFlow's draws at its first use, which lies
    ahead; so do those of a GPU.
    """
    import numpy as np

    np.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


class _Forked:
    """The forked kernel, with the part of :class:`subprocess.Popen` that jupyter_client uses."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ForkedProvisioner(LocalProvisioner):
    """Hands the connection to the kernel that was forked with the worker.

    A second kernel, and one of another kind than this Python's, starts as ever.
    """

    waiting: tuple[int, int] | None = None  # the process, and where to write its command line
    set_by_imports: ClassVar[dict[str, str]] = {}  # what libraries put into the environment
    forked: _Forked | None = None

    async def wait(self) -> int | None:
        """Wait for the kernel to end; the base class looks every 0.1 s, which each page waits."""
        while self.forked and self.forked.poll() is None:
            await asyncio.sleep(0.002)
        return await super().wait()

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the kernel; see the base class."""
        cls = type(self)
        if cls.waiting is None or cmd[0] != sys.executable or "ipykernel_launcher" not in cmd:
            return await super().launch_kernel(cmd, **kwargs)
        pid, write = cls.waiting
        cls.waiting = None
        package = str(Path(__file__).resolve().parent.parent)
        env = {**cls.set_by_imports, **(kwargs.get("env") or os.environ),
               "JPY_PARENT_PID": str(os.getpid())}
        order = {"env": env, "package": package,
                 "cwd": str(kwargs.get("cwd") or Path.cwd()),
                 "arguments": cmd[cmd.index("ipykernel_launcher") + 1:]}
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(order).encode())
        self.process = self.forked = _Forked(pid)  # type: ignore[assignment]
        self.pid = self.pgid = pid
        self.cwd = kwargs.get("cwd", Path.cwd())
        return self.connection_info
