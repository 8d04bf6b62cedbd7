"""What only an old version can show: scripts in environments of their own, recorded on pages.

A script ``book/_data/legacy/<name>.py`` names the versions it needs in its header (inline script
metadata, PEP 723) and prints one JSON object. ``python -m ci legacy`` has uv make that environment
and run it, and writes the object into the page's recorded cell, which begins with
``# @title Recorded by book/_data/legacy/<name>.py``. So the page needs no old version, and no
number on it is typed by hand. The title line ends in a digest of the script: ``check`` finds a
record that is not of the script as it stands.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ci.pages import Cell, Page, Problem, read_page, toc_files
from ci.project import BookError, Project, digest, locked
from ci.recorded import fill, json_source

FOLDER = "book/_data/legacy"
TITLE = re.compile(r"# @title Recorded by (?P<script>\S+\.py)(?: \((?P<digest>[0-9a-f]*)\))?")
NAME = "recorded"
SECONDS = 900.0


def legacy(project: Project, only: list[str], say: Callable[[str], None] = print,
           seconds: float = SECONDS) -> list[str]:
    """Run the scripts (all, or those named) and write their records into their pages.

    Args:
        project: the checkout.
        only: names of scripts, without folder and ending; all if empty.
        say: is told of each record.
        seconds: how long one script may take, its installation included.

    Returns:
        The pages that changed.

    Raises:
        BookError: there is no such script, no page records it, or it failed; no page has changed
            on account of that script.
    """
    there = {path.stem: path for path in scripts(project)}
    for name in only:
        if name not in there:
            raise BookError(f"{FOLDER}/{name}.py", "there is no such script",
                            f"One of: {', '.join(there)}")
    changed = []
    for name in only or there:
        place(project, there[name])  # told before the minutes that it takes
        say(f"{name}: running in an environment of its own ...")
        record = run_script(project, there[name], seconds)
        with locked(project, say):
            page, cell = place(project, there[name])  # the text may have been edited meanwhile
            source = recorded_source(project, there[name], record)
            if source == cell.source:
                say(f"{name}: as recorded in book/{page.slug}.md")
                continue
            fill(project, page, cell, source)
        changed.append(page.slug)
        say(f"{name}: recorded in book/{page.slug}.md")
    return changed


def scripts(project: Project) -> list[Path]:
    """Return the scripts of the book."""
    return sorted((project.root / FOLDER).glob("*.py"))


def place(project: Project, script: Path) -> tuple[Page, Cell]:
    """Return the page and the cell that record a script.

    Raises:
        BookError: no cell does, or more than one.
    """
    name = project.relative(script)
    found = [(page, cell) for slug in toc_files(project)
             for page in [read_page(project.text(slug))] for cell in page.code
             if (match := TITLE.match(cell.source)) and match["script"] == name]
    if len(found) != 1:
        raise BookError(name, f"{len(found)} cells record it" if found else "no page records it",
                        f"Give one page a cell with the first line `# @title Recorded by {name}`")
    return found[0]


def run_script(project: Project, script: Path, seconds: float = SECONDS) -> Any:
    """Run a script in the environment that its header asks for, and return what it prints.

    Raises:
        BookError: the environment cannot be made, the script failed or took too long, or what it
            printed is not one JSON object.
    """
    name = project.relative(script)
    command = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project",
               "--no-python-downloads", "--script", str(script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds,
                              stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise BookError(name, f"took more than {seconds:.0f} s", "Mend the script") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise BookError(name, said[-1].strip() if said else f"exit status {done.returncode}",
                        "Mend the script or its header; `uv run --script` runs it by hand")
    try:
        record = json.loads(done.stdout)
    except json.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise BookError(name, "does not print one JSON object",
                        "Print json.dumps of a dictionary, and nothing else")
    return record


def script_digest(script: Path) -> str:
    """Return the first digits of the digest of a script's text."""
    return digest(script.read_bytes())[:12]


def recorded_source(project: Project, script: Path, record: dict[str, Any]) -> str:
    """Return the source of the cell that holds a record."""
    name = project.relative(script)
    return json_source(f"# @title Recorded by {name} ({script_digest(script)})", NAME, record, name)


def check_legacy(project: Project) -> Iterator[tuple[str, Problem]]:
    """Yield the file and what is wrong with it: records and scripts that do not belong together."""
    known = {project.relative(path): path for path in scripts(project)}
    recorded = set()
    for slug in toc_files(project):
        page = read_page(project.text(slug))
        for cell in page.code:
            if not (match := TITLE.match(cell.source)):
                continue
            file, name = project.relative(page.path), match["script"]
            recorded.add(name)
            if name not in known:
                yield file, Problem(cell.line, f"recorded by {name}, which does not exist",
                                    "Mend the name, or remove the cell")
            elif match["digest"] != script_digest(known[name]):
                yield file, Problem(cell.line, f"not the record of {name} as it stands",
                                    f"Run `python -m ci legacy {known[name].stem}`")
    for name in known.keys() - recorded:
        yield name, Problem(1, "no page records it",
                            f"Give a page a cell with the first line `# @title Recorded by {name}`")
