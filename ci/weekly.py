"""What the weekly runs with other versions found: compared, told once, and marked on the pages.

``python -m ci weekly PARTS`` compares the run with the pinned versions with each other one that
the machines left, and writes for each set ``_build/drift/<set>.md`` (the report) and
``_build/drift/<set>.json`` (:mod:`ci.marks`); with ``--tell`` it opens, renews or closes one issue
for each set. ``python -m ci marks`` takes over the marks of the last weekly run, so that the next
build shows them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ci.drift import Drifted, drift, report
from ci.marks import all_marks, code_digest, read_marks
from ci.merge import merge, parts_by_machine
from ci.pages import read_page
from ci.project import BookError, Project, write_atomic, write_json

PINNED = "pinned"
WORKFLOW, ARTIFACT = "nightly.yml", "marks"
LABEL = "drift"


def weekly(project: Project, folder: Path, wanted: list[str],
           say: Callable[[str], None] = print) -> dict[str, bool]:
    """Compare the pinned run with all others, and write reports and marks.

    Args:
        project: the checkout that all of them ran.
        folder: the folder of the parts: part-pinned-1, part-newest-1, ...
        wanted: the sets that should be there; one without a part could not be installed.
        say: takes a line for each set.

    Returns:
        For each set whether it says the same as the pinned versions.

    Raises:
        BookError: there is no pinned run, or a part was refused.
    """
    parts = parts_by_machine(folder)
    if PINNED not in parts:
        raise BookError(folder, "holds no part of the pinned versions",
                        "Name its folders part-pinned-1, part-pinned-2, ...")
    names = [name for name in dict.fromkeys([*wanted, *parts]) if name != PINNED]
    for name in [PINNED, *(name for name in names if name in parts)]:
        merge(project, parts[name], say, beside=name)
    same = {}
    for name in names:
        if name not in parts:
            write_atomic(_report(project, name),
                         f"No page was run with the set `{name}`: it could not be installed, or "
                         "its machines ended before. See the log of the workflow.\n")
            same[name] = False
            say(f"{name}: no page was run")
            continue
        beside = project.build / "beside"
        found = drift(project, beside / PINNED, beside / name)
        write_atomic(_report(project, name), "\n".join(report(found)).strip() + "\n")
        mark(project, found, name)
        same[name] = not found.any
        say(f"{name}: {'says the same' if same[name] else 'differs, see the report'}")
    for name in [PINNED, *parts]:  # the status page is about the runs that the site shows
        shutil.rmtree(project.build / "beside" / name, ignore_errors=True)
    return same


def _report(project: Project, name: str) -> Path:
    return project.drift / f"{name}.md"


def mark(project: Project, found: Drifted, name: str) -> None:
    """Write the marks of one set; a page that failed before keeps the day when it began."""
    path = project.drift / f"{name}.json"
    before = read_marks(path).get("pages", {})
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    pages = {}
    for one in found.pages:
        if not one.fails:
            continue
        cell, error = one.fails.removeprefix("cell ").split(": ", 1)
        code = code_digest(read_page(project.text(one.page)))
        last = before.get(one.page, {})
        pages[one.page] = {"cell": int(cell), "error": error, "code": code,
                           "since": last["since"] if last.get("code") == code else today}
    versions = {key: version for key, version in found.second.items()
                if found.first.get(key) != version and key != "device"}
    write_json(path, {"name": name, "versions": versions, "pages": pages})


# ------------------------------------------------------------------ with the help of gh

def fetch(project: Project, say: Callable[[str], None] = print) -> None:
    """Take over the marks of the last weekly run; where there is none, say so.

    Raises:
        BookError: there is no `gh`, which asks the repository's host.
    """
    listed = _gh("run", "list", "--workflow", WORKFLOW, "--status", "completed", "--limit", "5",
                 "--json", "databaseId", "--jq", ".[].databaseId")
    for run in listed.stdout.split() if not listed.returncode else []:
        new = project.build / ".drift"
        shutil.rmtree(new, ignore_errors=True)
        if not _gh("run", "download", run, "--name", ARTIFACT, "--dir", str(new)).returncode:
            shutil.rmtree(project.drift, ignore_errors=True)
            new.replace(project.drift)
            say(f"marks: those of the weekly run {run}: "
                f"{', '.join(all_marks(project)) or 'no page fails'}")
            return
    say("marks: no weekly run has left any")


def tell(project: Project, same: dict[str, bool], say: Callable[[str], None] = print) -> None:
    """Open or renew one issue for each set that differs; close it when it says the same again.

    Raises:
        BookError: there is no `gh`, or it failed.
    """
    for name, fine in same.items():
        title = f"The pages with the versions of the set {name}"
        listed = _gh("issue", "list", "--state", "open", "--label", LABEL, "--json",
                     "number,title", "--limit", "100")
        numbers = [str(one["number"]) for one in json.loads(_said(listed))
                   if one["title"] == title]
        if fine:
            for number in numbers:
                _said(_gh("issue", "close", number, "--comment",
                          "They say the same as with the pinned versions again."))
                say(f"{name}: issue {number} closed")
            continue
        body = ("--body-file", str(_report(project, name)))
        if numbers:
            _said(_gh("issue", "edit", numbers[0], *body))
            say(f"{name}: issue {numbers[0]} renewed")
        else:
            _said(_gh("label", "create", LABEL, "--force", "--description",
                      "Pages that say something else with other versions"))
            said = _said(_gh("issue", "create", "--title", title, "--label", LABEL, *body))
            say(f"{name}: {said.strip()}")


def _gh(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("gh")
    if not command:
        raise BookError("gh", "the command is not there, and only it can ask the repository's host",
                        "Install it from https://cli.github.com")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise BookError("gh", f"{' '.join(map(str, done.args[1:3]))} failed: {last}",
                        "See its message; in a workflow the job needs `issues: write`")
    return done.stdout
