"""``make rehearsal``: what the workflow does on its machines, done here, and then broken.

``.github/workflows/book.yml`` itself is read: its jobs run in its order, each in a clone of its
own that stands for a machine, each step by the command that stands in the file; artifacts move
between the clones as files in a folder, and what is deployed goes to a folder by one switch. Then
the same with a page that fails, a part that is missing, a part of another commit, and publications
that are killed: each time the published site must be whole, and old where it may not be new.

Only what the workflow uses is understood here; anything else in it is an error, so that the two
cannot drift apart.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.pages import notebook_slugs, read_page
from ci.pair import pair
from ci.project import BookError, Project, load_yaml
from ci.publish import current, is_whole, switch, tree_digest

WORKFLOW = ".github/workflows/book.yml"
TESTS = "tests/test_book.py"
ORDER = ("check", "cpu", "build", "publish")  # a machine here has no GPU, as a fork has none
KILLS = 6
# The conditions that the workflow's steps have, for an event.
WHEN: dict[str, Callable[[str], bool]] = {
    "always()": lambda event: True,
    "github.event_name == 'pull_request'": lambda event: event == "pull_request",
    "github.event_name != 'pull_request'": lambda event: event != "pull_request",
}


class Failed(Exception):
    """A job of the rehearsed workflow failed, as it would on its machine."""


@dataclass
class Rehearsal:
    """One state of the repository on its way through the workflow.

    ``store`` holds the artifacts of a run, ``cache`` what runs leave to later ones, ``published``
    the site that readers see.
    """

    project: Project
    work: Path
    tests: str
    say: Callable[[str], None]
    store: Path = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.jobs = load_yaml(self.project.root / WORKFLOW)["jobs"]
        self.origin = self.work / "origin"
        self.published = self.work / "published"
        self.cache = self.work / "cache"

    # -------------------------------------------------------------- the workflow

    def run(self, event: str, spoil: Callable[[Path], None] | None = None,
            parts: Path | None = None) -> None:
        """Run the workflow for the origin's commit.

        Args:
            event: ``push`` or ``pull_request``.
            spoil: may change the artifacts before they are gathered.
            parts: the artifacts of an earlier run, to take in place of executing the pages again.

        Raises:
            Failed: a job did, and those after it were not begun.
            BookError: the workflow has something that is not understood here.
        """
        self.number += 1
        self.store = self.work / f"run-{self.number}"
        self.store.mkdir()
        for path in parts.glob("part-*.tar") if parts else ():
            shutil.copyfile(path, self.store / path.name)
        for name in ORDER[ORDER.index("build") if parts else 0:]:
            job = self.jobs[name]
            needs = job.get("needs", [])
            later = ORDER[ORDER.index(name):]
            for needed in [needs] if isinstance(needs, str) else needs:
                if needed in later:
                    raise BookError(WORKFLOW, f"{name} needs {needed}, which comes later",
                                    "Mend ORDER in ci/rehearse.py")
            if name == "publish" and event == "pull_request":
                continue
            if name == "build" and spoil:
                spoil(self.store)
            self._job(name, job, event)

    def _job(self, name: str, job: dict[str, Any], event: str) -> None:
        if "uses" not in job:
            self._machine(name, job["steps"], {}, event)
            return
        called = load_yaml(self.project.root / job["uses"])["jobs"]["run"]
        defaults = load_yaml(self.project.root / job["uses"])
        # YAML reads the key `on` as true.
        inputs = {key: one.get("default", "") for key, one in
                  defaults.get("on", defaults.get(True))["workflow_call"]["inputs"].items()}
        inputs |= job["with"]
        failed = []
        for share in json.loads(inputs["shares"]):
            values = {f"inputs.{key}": str(value) for key, value in inputs.items()}
            values |= {f"matrix.{key}": str(value) for key, value in share.items()}
            try:
                self._machine(f"{name} {share['shard']}", called["steps"], values, event)
            except Failed as error:  # the other shards go on, as the matrix says
                failed.append(str(error))
        if failed:
            raise Failed(failed[0])

    def _machine(self, name: str, steps: list[dict[str, Any]], values: dict[str, str],
                 event: str) -> None:
        """Run a job's steps in a clone of its own; what it must do in any case is done last."""
        began = time.monotonic()
        clone = self.store / name.replace(" ", "-")
        git(self.work, "clone", "--quiet", "--no-hardlinks", str(self.origin), str(clone))
        trouble = ""
        for step in steps:
            condition = str(step.get("if", "")).strip().removeprefix("${{").removesuffix("}}")
            if (condition := condition.strip()) and condition not in WHEN:
                raise BookError(WORKFLOW, f"the condition {condition!r} is not known here",
                                "Add it to WHEN in ci/rehearse.py")
            if condition and not WHEN[condition](event):
                continue
            if trouble and condition != "always()":
                continue
            try:
                self._step(clone, step, values, event)
            except Failed as error:
                trouble = trouble or str(error)
        self.say(f"  {name}: {'FAILED: ' + trouble if trouble else 'ok'} "
                 f"({time.monotonic() - began:.0f} s)")
        if trouble:
            raise Failed(f"{name}: {trouble}")

    def _step(self, clone: Path, step: dict[str, Any], values: dict[str, str], event: str) -> None:
        if "run" in step:
            self._command(clone, step, values, event)
            return
        action = step["uses"].partition("@")[0]
        given = {key: filled(str(value), values, event)
                 for key, value in step.get("with", {}).items()}
        if action in ("actions/checkout", "actions/setup-python"):
            return  # the clone and this Python
        if action in ("actions/upload-artifact", "actions/upload-pages-artifact"):
            pack(clone, given["path"], self.store / f"{given.get('name', 'github-pages')}.tar")
        elif action == "actions/download-artifact":
            for path in sorted(self.store.glob(f"{given['pattern']}.tar")):
                unpack(path, clone / given["path"] / path.stem)
        elif action == "actions/cache/save":
            pack(clone, given["path"], self.cache / "outputs.tar")
        elif action == "actions/cache/restore":
            if (self.cache / "outputs.tar").is_file():
                unpack(self.cache / "outputs.tar", clone)
        elif action == "actions/deploy-pages":
            site = self.store / "deployed"
            unpack(self.store / "github-pages.tar", site)
            switch(site / "_build" / "html", self.published, lambda line: None)
        else:
            raise BookError(WORKFLOW, f"the action {action} is not known here",
                            "Say in ci/rehearse.py what it does")

    def _command(self, clone: Path, step: dict[str, Any], values: dict[str, str], event: str
                 ) -> None:
        """Run a step's command by the shell, with this Python in place of a fresh environment."""
        command = filled(step["run"], values, event)
        if command in ("make browser", "make marks"):
            return  # this machine has its browser; there is no host to ask for a weekly run
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("PYTEST", "MAKE"))}
        env |= {name: filled(str(value), values, event)
                for name, value in step.get("env", {}).items()}
        env |= {"MAKEFLAGS": f"-- READY= PY={sys.executable}", "PYTEST_ADDOPTS": self.tests,
                "CI": ""}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=clone, env=env,
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Failed(cause(done.stdout + "\n" + done.stderr, command))

    # -------------------------------------------------------------- what is asserted

    def shown(self) -> str:
        """Return the version that readers see.

        Raises:
            Failed: it is not whole.
        """
        if not is_whole(self.published):
            raise Failed("the published site is not whole")
        version = current(self.published)
        return version.name if version else ""


def filled(text: str, values: dict[str, str], event: str) -> str:
    """Return a text of the workflow with its expressions put in.

    Raises:
        BookError: one of them is not known.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1].strip()
        if name in values:
            return values[name]
        if choice := re.fullmatch(r"(github\.event_name [!=]= 'pull_request') && '([^']*)' \|\| "
                                  r"'([^']*)'", name):
            return choice[2] if WHEN[choice[1]](event) else choice[3]
        if name.startswith(("hashFiles(", "github.")):
            return "-"  # keys of caches, tokens: a folder needs none
        raise BookError(WORKFLOW, f"the expression {name!r} is not known here",
                        "Say in ci/rehearse.py what it is")

    # What a called workflow was given may hold expressions of its own.
    pattern = re.compile(r"\$\{\{(.*?)\}\}")
    return pattern.sub(value, pattern.sub(value, text))


def cause(said: str, command: str) -> str:
    """Return the line that tells best why a command failed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for sign in (r"FAILED ", r"Error: ", r"E   "):
        if found := [line for line in lines if line.startswith(sign.strip())]:
            return found[0]
    return lines[-2] if len(lines) > 1 else f"{command} said nothing"


def pack(clone: Path, paths: str, out: Path) -> None:
    """Put files into an artifact; what is not there is left out, as on the real machines."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w") as archive:
        for name in paths.split():
            if (clone / name).exists():
                archive.add(clone / name, arcname=name)


def unpack(artifact: Path, folder: Path) -> None:
    """Take an artifact's files out, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(artifact) as archive:
        archive.extractall(folder, filter="data")


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody, and return what it says."""
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=Rehearsal", "-c",
         "user.email=rehearsal@example.org", "-c", "commit.gpgsign=false", *arguments],
        check=True, capture_output=True, text=True)
    return done.stdout.strip()


# ------------------------------------------------------------------ the whole play

def rehearse(project: Project, tests: str, keep: bool, say: Callable[[str], None] = print
             ) -> list[str]:
    """Rehearse the workflow and its faults; return what was not as it must be.

    Args:
        project: a checkout whose changes are committed.
        tests: options of pytest for the step that tests, '' for all tests.
        keep: keep the folder of the machines, to look into it.
        say: takes the log.

    Raises:
        BookError: the checkout has changes, or the workflow is not understood.
    """
    if git(project.root, "status", "--porcelain"):
        raise BookError(project.root, "has changes that are not committed, and clones lack them",
                        "Commit them first")
    work = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    troubles: list[str] = []
    try:
        git(work, "clone", "--quiet", "--no-hardlinks", str(project.root), str(work / "origin"))
        _play(Rehearsal(project, work, tests, say), troubles)
    finally:
        if keep:
            say(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    for trouble in troubles:
        say(f"NOT as it must be: {trouble}")
    say(f"rehearsal: {'as it must be' if not troubles else f'{len(troubles)} troubles'}")
    return troubles


def _play(stage: Rehearsal, troubles: list[str]) -> None:
    say = stage.say
    say("main: four shards, merged, built, tested, published")
    try:
        stage.run("push")
    except Failed as error:
        troubles.append(f"the workflow fails on the book as it is: {error}")
        return
    shown = stage.shown()
    say(f"  published: version {shown[:12]}, whole")
    first, second = notebook_slugs(stage.project)[:2]

    def unharmed(what: str, expected: str, **scene: Any) -> None:
        """Play a scene that has to fail, and see that readers notice nothing."""
        say(what)
        try:
            stage.run(**{"event": "push", **scene})
            troubles.append(f"{what}: nothing failed")
        except Failed as error:
            if not re.search(expected, str(error)):
                troubles.append(f"{what}: failed otherwise: {error}")
        try:
            if stage.shown() != shown:
                troubles.append(f"{what}: another site was published")
            say(f"  published: still version {shown[:12]}, whole")
        except Failed as error:
            troubles.append(f"{what}: {error}")

    here = git(stage.origin, "rev-parse", "HEAD")
    expected = rf"FAILED {first}, code cell {_break_page(stage.origin, first)}\b"
    unharmed("a page fails, in a pull request", expected, event="pull_request")
    unharmed("a page fails, on main", expected)
    git(stage.origin, "reset", "--quiet", "--hard", here)
    parts = stage.work / "run-1"
    unharmed("a part is missing", r"no part is shard 2/", parts=parts,
             spoil=lambda store: (store / "part-cpu-2.tar").unlink())
    unharmed("a part is there twice, another not", r"is the same shard as|holds page", parts=parts,
             spoil=lambda store: shutil.copyfile(store / "part-cpu-2.tar",
                                                 store / "part-cpu-3.tar"))
    other = stage.work / "run-2" / "part-cpu-4.tar"
    if other.is_file():
        unharmed("a part is of another commit", r"was run from commit", parts=parts,
                 spoil=lambda store: shutil.copyfile(other, store / "part-cpu-4.tar"))
    else:
        troubles.append("the failing page's commit has left no part to mix in")

    say(f"{KILLS} publications of another site, each killed at another moment")
    site = stage.work / "next"
    unpack(stage.work / "run-1" / "github-pages.tar", site)
    _kill_publications(stage, site / "_build" / "html", {shown}, troubles)

    say("main again, with a change of prose: its pages are not run again in a pull request")
    text = Project(stage.origin).text(second)
    text.write_text(text.read_text(encoding="utf-8") + "\nOne more sentence.\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ci", "--root", str(stage.origin), "pair"], check=True,
                   capture_output=True, cwd=stage.project.root)
    git(stage.origin, "commit", "--quiet", "--all", "-m", "A change of prose")
    try:
        stage.run("pull_request")
        if (again := _executed(stage)) != 0:
            troubles.append(f"a pull request without changed code ran {again} pages")
        stage.run("push")
        if stage.shown() == shown:
            troubles.append("a change on main was not published")
        say(f"  published: version {stage.shown()[:12]}, whole")
    except Failed as error:
        troubles.append(f"the workflow fails on a change of prose: {error}")


def _break_page(origin: Path, slug: str) -> int:
    """Commit a page with a cell that fails, its shortest one, and return the cell's number."""
    project = Project(origin)
    page = read_page(project.text(slug))
    cell = min((one for one in page.code if not one.tags), key=lambda one: one.lines)
    lines = page.text.splitlines(keepends=True)
    lines.insert(cell.line - 1, "1 / 0\n")
    page.path.write_text("".join(lines), encoding="utf-8")
    pair(project)
    git(origin, "commit", "--quiet", "--all", "-m", "A page that fails")
    return cell.number


def _executed(stage: Rehearsal) -> int:
    """Return how many pages the shards of the last run executed, by the times of their records."""
    count = 0
    known = {}
    cached = stage.store / "cached"
    unpack(stage.cache / "outputs.tar", cached)
    for path in (cached / "_build" / "records").glob("*.json"):
        known[path.name] = path.read_bytes()
    for clone in stage.store.glob("cpu-*"):
        for path in (clone / "_build" / "records").glob("*.json"):
            count += known.get(path.name) != path.read_bytes()
    return count


def _kill_publications(stage: Rehearsal, site: Path, known: set[str], troubles: list[str]) -> None:
    """Publish other sites in a process that is killed, at moments spread over its work."""
    script = ("import sys; from pathlib import Path; from ci.publish import switch; "
              "switch(Path(sys.argv[1]), Path(sys.argv[2]))")
    draw = random.Random(0)
    took = 1.0
    for number in range(KILLS + 1):
        (site / "number.txt").write_text(str(number), encoding="utf-8")
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(site), str(stage.published)],
            cwd=stage.project.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number:  # the first one may end, to see how long it takes
            time.sleep(took * draw.uniform(0.1, 1.0))
            process.send_signal(signal.SIGKILL)
        process.wait()
        took = max(0.2, time.monotonic() - began) if not number else took
        new = tree_digest(site)
        try:
            shown = stage.shown()
        except Failed as error:
            troubles.append(f"killed after {time.monotonic() - began:.2f} s: {error}")
            continue
        if shown not in known | {new}:
            troubles.append("a killed publication shows neither the old site nor the new one")
        known.add(new)
        if number:
            stage.say(f"  killed after {time.monotonic() - began:.2f} s: "
                      f"{'the new' if shown == new else 'the old'} site, whole")
    switch(site, stage.published, lambda line: None)  # after all that it still can be done
