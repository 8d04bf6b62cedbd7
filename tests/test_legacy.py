"""Scripts for old versions: run in environments of their own, recorded on their pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.check import check
from ci.cli import main
from ci.legacy import FOLDER, legacy, scripts
from ci.pages import read_page
from ci.pair import pair
from ci.project import BookError, Project
from ci.recorded import COLUMNS, wrapped
from tests.conftest import ROOT, Make, cell, page, quiet

HEADER = '# /// script\n# requires-python = ">=3.11"\n# dependencies = []\n# ///\n'
SCRIPT = HEADER + "import json, sys\nprint(json.dumps({'sum': 2 + 2, 'own': sys.prefix}))\n"
RECORDED = f"# @title Recorded by {FOLDER}/old.py"
FOLDED = "cellView: form\ntags: [hide-cell]"
ONE = page("# One", cell("import math"), "The old one.", cell(RECORDED, FOLDED),
           "After it.", cell("print(recorded['sum'])"))


@pytest.fixture
def project(tiny: Make) -> Project:
    """A project with one script and the page that records it."""
    made = tiny({"one": ONE})
    script(made, SCRIPT)
    return made


def script(project: Project, text: str, name: str = "old") -> Path:
    path = project.root / FOLDER / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def source(project: Project) -> str:
    """Return the source of the cell that records."""
    return read_page(project.text("one")).code[1].source


def found(project: Project) -> list[str]:
    return [str(one) for one in check(project) if "record" in one.what.split(" uses ")[0]]


def test_the_record_is_what_the_script_printed_and_stands_in_text_and_notebook(
        project: Project) -> None:
    assert found(project) == [f"book/one.md:{read_page(project.text('one')).code[1].line}: not the "
                              f"record of {FOLDER}/old.py as it stands. Run "
                              "`python -m ci legacy old`"]
    assert legacy(project, [], quiet) == ["one"]
    names: dict[str, object] = {}
    exec(source(project), names)
    recorded = names["recorded"]
    assert isinstance(recorded, dict) and recorded["sum"] == 4
    assert not Path(recorded["own"]).is_relative_to(Path.cwd())  # an environment of its own
    assert found(project) == [] and not pair(project, check=True).stale
    text = project.text("one").read_text(encoding="utf-8")
    assert "After it." in text and "print(recorded['sum'])" in text and "cellView: form" in text


def test_the_same_record_changes_nothing_and_an_edited_script_is_found(project: Project) -> None:
    script(project, SCRIPT.replace("'own': sys.prefix", "'two': 2"))
    legacy(project, ["old"], quiet)
    before = project.text("one").read_bytes()
    assert legacy(project, ["old"], quiet) == []
    assert project.text("one").read_bytes() == before
    script(project, SCRIPT.replace("2 + 2", "2 + 3"))
    assert len(found(project)) == 1
    legacy(project, ["old"], quiet)
    assert found(project) == [] and '"sum": 5' in source(project)


@pytest.mark.parametrize(("text", "says"), [
    (HEADER + "raise ValueError('no such thing')\n", "ValueError: no such thing"),
    (HEADER + "print('warming up')\nprint('{}')\n", "does not print one JSON object"),
    (HEADER + "print('[1]')\n", "does not print one JSON object"),
    (HEADER + "import time; time.sleep(600)\n", "took more than 5 s"),
    (SCRIPT.replace(">=3.11", "==2.7.*"), "old.py: "),
    (HEADER + "import json; print(json.dumps({'x': \"'''\"}))\n", "holds three quotes"),
])
def test_a_script_that_fails_is_named_and_the_page_stays(project: Project, text: str, says: str
                                                         ) -> None:
    before = project.text("one").read_bytes()
    script(project, text)
    with pytest.raises(BookError) as error:
        legacy(project, [], quiet, seconds=5)
    assert f"{FOLDER}/old.py" in error.value.message and says in error.value.message
    assert "\n" not in error.value.message
    assert project.text("one").read_bytes() == before


def test_scripts_and_cells_that_do_not_belong_together_are_found(project: Project) -> None:
    legacy(project, [], quiet)
    stray = script(project, SCRIPT, "stray")
    assert [line.split(". ")[0] for line in found(project)] == [
        f"{FOLDER}/stray.py:1: no page records it"]
    with pytest.raises(BookError, match="no page records it"):
        legacy(project, ["stray"], quiet)
    stray.unlink()
    (project.root / FOLDER / "old.py").rename(stray)
    assert len(found(project)) == 2  # the cell names a script that is gone, the other is not named


def test_the_verb_names_what_there_is(project: Project) -> None:
    done = CliRunner().invoke(main, ["--root", str(project.root), "legacy", "new"])
    assert done.exit_code == 1 and "there is no such script. One of: old" in done.output
    done = CliRunner().invoke(main, ["--root", str(project.root), "legacy", "old"])
    assert done.exit_code == 0 and "old: recorded in book/one.md" in done.output


@pytest.mark.parametrize("value", [
    {"a, b": "c, {d", "list": [1, 2.5, None, True, "\"quoted, \\ text\""] * 20, "empty": {}},
    {"long": "word " * 60, "after": [[], {}, ""]}])
def test_wrapped_json_is_the_same_json_in_lines_that_a_phone_shows(value: object) -> None:
    lines = wrapped(json.dumps(value))
    assert json.loads("\n".join(lines)) == value
    assert all(len(line) <= COLUMNS for line in lines if "word word" not in line)
    assert len(lines) > 2


def test_the_books_scripts_pin_each_of_their_versions() -> None:
    for path in scripts(Project(ROOT)):
        asked = re.findall(r'^#     "([^"]+)",$', path.read_text(encoding="utf-8"), re.M)
        assert asked and all(re.fullmatch(r"[A-Za-z0-9._-]+==[\d.]+", one) for one in asked), path
