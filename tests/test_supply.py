"""Known weaknesses are mended or answered; a release holds what it says, and agrees with itself."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.archive import release as release_name
from ci.cli import main
from ci.project import BookError, Project
from ci.release import notes_of, release
from ci.run import run
from ci.site import site
from ci.sphinx_ext import licences
from ci.supply import ANSWERS, bill_of_materials, read_answers, supply
from tests.conftest import ROOT, Make, cell, page, quiet

# Stands for the package of this name: prints what the file named by ADVISORIES holds.
PIP_AUDIT = """\
import os, pathlib, sys
assert "--no-deps" in sys.argv and sys.argv[sys.argv.index("-r") + 1].endswith("requirements.txt")
text = pathlib.Path(os.environ["ADVISORIES"]).read_text()
print(text if text else sys.exit("no way to the index"))
"""
WEAK = {"name": "click", "version": "8", "vulns": [
    {"id": "GHSA-1", "fix_versions": ["8.9"]}, {"id": "GHSA-2", "fix_versions": []}]}


@pytest.fixture
def project(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "pip_audit.py").write_text(PIP_AUDIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setenv("ADVISORIES", str(tmp_path / "advisories.json"))
    return tiny({"one": page("# One", cell("print(1)"))})


def advise(project: Project, *packages: dict[str, object]) -> None:
    text = json.dumps({"dependencies": packages}) if packages else ""
    (project.root.parent / "advisories.json").write_text(text)


def answer(project: Project, text: str) -> None:
    (project.root / ".github").mkdir(exist_ok=True)
    (project.root / ANSWERS).write_text(text)


def test_a_weakness_needs_an_answer_that_still_holds(project: Project) -> None:
    advise(project, WEAK)
    assert [line.split(". ")[0] for line in supply(project, quiet)] == [
        "requirements.txt: click 8: GHSA-1, mended in 8.9",
        "requirements.txt: click 8: GHSA-2, not mended yet"]
    answer(project, "GHSA-1: {reason: we parse no input of strangers, until: 2999-01-01}\n"
                    "GHSA-2: {reason: the same, until: 2020-01-01}\nGHSA-3: "
                    "{reason: the same, until: 2999-01-01}\n")
    said: list[str] = []
    assert [line.split(". ")[0] for line in supply(project, said.append)] == [
        f"{ANSWERS}: the answer to GHSA-2 held until 2020-01-01",
        f"{ANSWERS}: nothing asks for the answer to GHSA-3 any more"]
    assert "we parse no input" in said[0] and said[-1].endswith("2 weaknesses known")
    advise(project, {"name": "click", "version": "8", "vulns": []})
    answer(project, "{}\n")
    assert supply(project, quiet) == []


@pytest.mark.parametrize("text", ["GHSA-1: {reason: x}", "GHSA-1: {until: 2999-01-01}",
                                  "GHSA-1: {reason: x, until: soon}", "GHSA-1: later",
                                  "GHSA-1: {reason: '', until: 2999-01-01}"])
def test_an_answer_needs_a_reason_and_a_day(project: Project, text: str) -> None:
    answer(project, text + "\n")
    with pytest.raises(BookError, match="GHSA-1 needs a `reason` and a day `until`"):
        read_answers(project)


def test_without_a_way_to_the_advisories_nothing_is_called_sound(project: Project) -> None:
    advise(project)
    with pytest.raises(BookError, match="pip-audit failed: no way to the index"):
        supply(project, quiet)
    advise(project, {"name": "click", "skip_reason": "not found on PyPI"})
    done = CliRunner().invoke(main, ["--root", str(project.root), "supply"])
    assert done.exit_code == 1 and "advisories cannot be asked from here" in done.output


def test_the_books_own_answers_can_be_read() -> None:
    read_answers(Project(ROOT))


def test_the_bill_names_every_version(tmp_path: Path) -> None:
    bill_of_materials(Project(ROOT), tmp_path / "bom.json")
    named = {f"{one['name']}=={one['version']}"
             for one in json.loads((tmp_path / "bom.json").read_text())["components"]}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            assert line.partition(";")[0].strip() in named


CHANGES = "# Changes\n\n## 0.2.0 (2027-01-02)\n\nNew pages.\n\n## 0.1.0 (2026-11-30)\n\nFirst.\n"


@pytest.fixture
def released(project: Project) -> Project:
    """A project with what a release asks for, built."""
    for name in ("LICENSE", "LICENSE-CODE"):
        (project.root / name).write_text(name)
    (project.root / "README.md").write_text("# Tiny\n")
    (project.root / "CHANGELOG.md").write_text(CHANGES)
    (project.root / "CITATION.cff").write_text(
        "cff-version: 1.2.0\nmessage: cite\ntitle: Tiny\nauthors: [{name: Tests}]\n"
        "license: MIT\nversion: 0.2.0\ndate-released: '2027-01-02'\n")
    run(project, say=quiet, warm=False)
    site(project, quiet)
    return project


def test_a_release_holds_what_its_checksums_say(released: Project) -> None:
    made = release(released, "v0.2.0", quiet)
    names = {path.name for path in made}
    assert {"CITATION.cff", "licences.txt", "bom.cdx.json", "SHA256SUMS",
            f"{release_name(released)}.zip"} <= names and len(names) == 7
    folder = made[0].parent
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True,
                   capture_output=True)
    assert (released.build / "release-notes.md").read_text() == "New pages.\n"
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made}
    again = release(released, "v0.2.0", quiet)
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in again} == before


@pytest.mark.parametrize(("tag", "changes", "says"), [
    ("v0.3.0", CHANGES, "has version 0.2.0, and the tag is v0.3.0"),
    ("v0.2.0", CHANGES.replace("0.2.0", "0.1.9"), r"has no section `## 0\.2\.0 \(2027-01-02\)`"),
    ("v0.2.0", CHANGES.replace("New pages.\n\n", ""), "has no section"),
    ("v0.2.0", CHANGES.replace("2027-01-02", "2027-01-03"), "dates 0.2.0 2027-01-03"),
])
def test_tag_citation_and_changelog_agree(released: Project, tag: str, changes: str, says: str
                                          ) -> None:
    (released.root / "CHANGELOG.md").write_text(changes)
    with pytest.raises(BookError, match=says):
        release(released, tag, quiet)
    assert not (released.build / "release").exists()


def test_the_books_changelog_has_its_version() -> None:
    project = Project(ROOT)
    notes_of(project, "v" + release_name(project).rpartition("-")[2])


def test_the_site_lists_the_licences_of_what_it_carries(released: Project,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    text = (released.html / "licences.txt").read_text(encoding="utf-8")
    for package, _, _ in licences.CARRIED:
        assert f"\n{package} " in text
    assert "Permission is hereby granted" in text and "Redistribution and use in source" in text
    monkeypatch.setattr(licences, "CARRIED", (("click", ("COPYING.9",), "nothing"),))
    with pytest.raises(BookError, match=r"its package has no file COPYING\.9"):
        licences.text()
