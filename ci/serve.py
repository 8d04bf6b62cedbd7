"""The site on a local server: on each save, pair, run what changed, rebuild, reload the browser.

An edit of prose runs nothing and reads one page again. An edit of code runs its page, forked from a
parent of warm kernels that lives as long as the server (:class:`ci.warm.KeptNursery`), so that no
save waits for the frameworks' imports. A page that fails leaves the last site standing.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ci import pair as pairs
from ci import run as runs
from ci import site as sites
from ci.project import BookError, Project
from ci.warm import KeptNursery, supported

WATCHED = ("book/*.md", "book/_data/*.yml", "_config.yml", "_toc.yml", "CITATION.cff",
           "requirements.txt", "ci/sphinx_ext/*.py", "ci/sphinx_ext/static/*",
           "ci/sphinx_ext/templates/*")


def serve(project: Project, port: int, host: str, say: Callable[[str], None] = print) -> None:
    """Serve the site until Ctrl-C or SIGTERM; nothing that was started is left then.

    Args:
        project: the checkout.
        port: where to serve.
        host: likewise; only this machine can reach the default of the command line.
        say: takes what is told in the terminal.
    """
    from livereload import Server  # a web server is wanted by this verb only

    sites.load()
    with _kept(project) as keep:
        def saved() -> None:
            rebuild(project, keep, say)

        saved()
        server = Server()
        for watched in WATCHED:
            server.watch(str(project.root / watched), saved)
        # A line for each picture that a page asks for would hide what a page's failure says.
        logging.getLogger("tornado.access").setLevel(logging.ERROR)
        say(f"serving http://{host}:{port}/index.html, until Ctrl-C")
        server.serve(port=port, host=host, root=str(project.html))


def rebuild(project: Project, keep: KeptNursery | None, say: Callable[[str], None]) -> bool:
    """Bring the site in step with the texts; return whether it is.

    Where it is not, what was wrong has been said and the last site stays: the next save tries
    again.
    """
    began = time.monotonic()
    try:
        if keep:
            runs.prepare(project, keep)
        pairs.pair(project)
        report = runs.run(project, say=_without_unchanged(say), keep=keep)
        if report.failed:
            for line in runs.failure_lines(report):
                say(line)
            say("the site stays as it was, until the next save")
            return False
        sites.site(project, say)
    except BookError as error:
        error.show()
        say("the site stays as it was, until the next save")
        return False
    say(f"in step after {time.monotonic() - began:.1f} s")
    return True


def _without_unchanged(say: Callable[[str], None]) -> Callable[[str], None]:
    """Leave out the lines of pages that did not run: on each save those are nearly all."""
    return lambda line: None if line.endswith(" unchanged") else say(line)


@contextmanager
def _kept(project: Project) -> Iterator[KeptNursery | None]:
    """Keep a parent of warm kernels, where the system can; SIGTERM ends it as Ctrl-C does."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    keep = KeptNursery(project) if supported() else None
    try:
        yield keep
    finally:
        held = {number: signal.signal(number, signal.SIG_IGN)
                for number in (signal.SIGINT, signal.SIGTERM)}
        if keep:
            keep.close()
        signal.signal(signal.SIGINT, held[signal.SIGINT])
        signal.signal(signal.SIGTERM, before)
