"""What weekly runs with other versions found: compared, told once, marked on the pages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci import weekly as weeks
from ci.marks import all_marks, code_digest, marks_of, read_marks
from ci.pages import read_page
from ci.project import BookError, Project, write_json
from ci.run import run
from ci.shard import write_part
from ci.site import site
from ci.weekly import fetch, tell, weekly
from tests.conftest import cell, make_tiny, page, quiet
from tests.test_merge import commit, git

FAILS = "import os\n\nassert os.environ.get('SET') != 'newest', 'gone in 2'"
PAGES = {"one": page("# One", cell("print('fine')")),
         "two": page("# Two", cell("x = 1"), "Then.", cell(FAILS)),
         "status": "# Status\n\n```{book-status}\n```\n"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A repository, and beside it the parts of two real runs, one of which fails."""
    folder = tmp_path_factory.mktemp("weekly")
    project = make_tiny(folder, PAGES)
    (project.root / ".gitignore").write_text("_build/\nparts/\n")
    git(project.root, "init", "-q")
    commit(project)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("pinned", "newest"):
            patch.setenv("SET", name)
            out = replace(project, out=project.root / "parts" / f"part-{name}-1")
            run(out, say=quiet, warm=False)
            write_part(out, 1, 1, ["one", "two"])
            if name == "newest":
                for path in (out.build / "records").glob("*.json"):
                    record = json.loads(path.read_text())
                    record["versions"]["numpy"] = "9.9"
                    write_json(path, record)
    return project


@pytest.fixture
def project(world: Project, tmp_path: Path) -> Project:
    shutil.copytree(world.root, tmp_path / "tiny", symlinks=True)
    return Project(tmp_path / "tiny")


def compare(project: Project, *sets: str) -> dict[str, bool]:
    return weekly(project, project.root / "parts", list(sets or ("newest",)), quiet)


def test_what_fails_is_reported_and_marked_until_its_code_changes(project: Project) -> None:
    assert compare(project) == {"newest": False}
    report = (project.drift / "newest.md").read_text()
    assert "fails now" in report and "cell 2: AssertionError: gone in 2" in report
    assert list(all_marks(project)) == ["two"]
    line = all_marks(project)["two"][0]
    assert line.startswith("With numpy 9.9, cell 2 of this page fails since ")
    assert line.endswith("AssertionError: gone in 2")
    assert not (project.build / "beside" / "newest").exists()
    text = project.text("two").read_text(encoding="utf-8")
    project.text("two").write_text(text + "\nMore prose.\n", encoding="utf-8")
    assert all_marks(project)
    project.text("two").write_text(text.replace("x = 1", "x = 2"), encoding="utf-8")
    assert not all_marks(project)


def test_a_mark_keeps_the_day_when_it_began(project: Project) -> None:
    compare(project)
    path = project.drift / "newest.json"
    marks = read_marks(path)
    marks["pages"]["two"]["since"] = "2026-03-02"
    write_json(path, marks)
    compare(project)
    assert "since 2 March 2026" in all_marks(project)["two"][0]
    marks["pages"]["two"]["code"] = "other"  # it was other code that failed then
    write_json(path, marks)
    compare(project)
    assert "2 March" not in all_marks(project)["two"][0]


def test_a_set_without_a_run_is_told_and_the_same_set_says_the_same(project: Project) -> None:
    assert compare(project, "newest", "pre") == {"newest": False, "pre": False}
    assert "No page was run with the set `pre`" in (project.drift / "pre.md").read_text()
    shutil.copytree(project.root / "parts" / "part-pinned-1",
                    project.root / "parts" / "part-again-1", symlinks=True)
    assert compare(project)["again"] is True
    assert read_marks(project.drift / "again.json")["pages"] == {}
    shutil.rmtree(project.root / "parts" / "part-pinned-1")
    with pytest.raises(BookError, match="no part of the pinned versions"):
        compare(project)


@pytest.mark.parametrize("spoil", [
    lambda one: one.pop("pages"), lambda one: one["pages"]["two"].update(cell="2"),
    lambda one: one["pages"]["two"].update(since="soon"), lambda one: one.update(versions=[]),
    lambda one: one["pages"].update(two=None)])
def test_marks_that_cannot_be_trusted_are_none(project: Project,
                                               spoil: Callable[[dict[str, Any]], object]) -> None:
    compare(project)
    path = project.drift / "newest.json"
    data = json.loads(path.read_text())
    spoil(data)
    write_json(path, data)
    code = code_digest(read_page(project.text("two")))
    assert read_marks(path) == {} and marks_of(project, "two", code) == []


def test_the_site_shows_marks_and_takes_them_away(project: Project) -> None:
    def shown(name: str) -> str:
        return (project.html / f"{name}.html").read_text(encoding="utf-8")

    run(project, say=quiet, warm=False)
    site(project, quiet)
    assert "version-mark" not in shown("two") and "With other versions" not in shown("status")
    compare(project)
    site(project, quiet)
    assert "version-mark" in shown("two") and "cell 2 of this page fails since" in shown("two")
    assert "version-mark" not in shown("one")
    assert "With other versions" in shown("status")
    shutil.rmtree(project.drift)
    site(project, quiet)
    assert "version-mark" not in shown("two") and "With other versions" not in shown("status")


# ------------------------------------------------------------------ with a `gh` of our own

GH = """#!/bin/sh
echo "$@" >> "$GH_LOG"
case "$1 $2" in
  "issue list") cat "$GH_ISSUES" ;;
  "issue create") echo "https://example.org/issues/7" ;;
  "run list") printf '12\\n11\\n' ;;
  "run download") [ "$3" = 11 ] && mkdir -p "$7" && cp "$GH_MARKS"/* "$7" ;;
  "issue edit") [ -z "$GH_FAILS" ] || { echo "no rights" >&2; exit 1; } ;;
esac
"""


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the log of a command `gh` that stands for the repository's host."""
    command = tmp_path / "bin" / "gh"
    command.parent.mkdir()
    command.write_text(GH)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    for name in ("log", "issues", "marks", "fails"):
        monkeypatch.setenv(f"GH_{name.upper()}", "" if name == "fails" else str(tmp_path / name))
    (tmp_path / "issues").write_text("[]")
    return tmp_path / "log"


def test_one_issue_for_a_set_is_opened_renewed_and_closed(
        project: Project, gh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(project)
    tell(project, {"newest": False}, quiet)
    assert f"issue create --title The pages with the versions of the set newest --label drift " \
           f"--body-file {project.drift / 'newest.md'}" in gh.read_text()
    issues = gh.parent / "issues"
    issues.write_text('[{"number": 7, "title": "The pages with the versions of the set newest"},'
                      '{"number": 8, "title": "Something else"}]')
    gh.unlink()
    tell(project, {"newest": False, "pre": True}, quiet)
    assert "issue edit 7 --body-file" in gh.read_text() and "close" not in gh.read_text()
    tell(project, {"newest": True}, quiet)
    assert "issue close 7 --comment" in gh.read_text()
    monkeypatch.setenv("GH_FAILS", "1")
    with pytest.raises(BookError, match="gh: issue edit failed: no rights"):
        tell(project, {"newest": False}, quiet)


def test_the_marks_of_the_last_weekly_run_that_left_any_are_taken_over(
        project: Project, gh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(project)
    project.drift.rename(gh.parent / "marks")
    said: list[str] = []
    fetch(project, said.append)
    assert said == ["marks: those of the weekly run 11: two"]
    assert list(all_marks(project)) == ["two"]
    monkeypatch.setenv("GH_MARKS", str(gh.parent / "none"))
    shutil.rmtree(project.drift)
    fetch(project, said.append)
    assert said[1] == "marks: no weekly run has left any" and not project.drift.exists()


def test_without_gh_it_says_what_to_do(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weeks.shutil, "which", lambda name: None)
    with pytest.raises(BookError, match="gh: the command is not there"):
        fetch(project, quiet)
