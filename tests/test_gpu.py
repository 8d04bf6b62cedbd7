"""What a run on a GPU measured: kept with where and when, shown by its page, and never stale.

No GPU is needed: the runs here are made on this machine, and their records say another device.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.check import check
from ci.cli import main
from ci.gpu import EMPTY, FOLDER, MIME, forget, keep
from ci.pages import read_page
from ci.pair import pair
from ci.project import BookError, Project, write_json
from ci.run import run
from tests.conftest import Make, cell, page, quiet

MEASURES = f"""\
gpu = {{"copies, GB/s": 12.5, "kernel": "one's own"}}
display({{"{MIME}": gpu, "text/plain": "kept"}}, raw=True)"""
FOLDED = "cellView: form\ntags: [hide-cell]"


def written(measures: str = MEASURES, shows: str = EMPTY) -> str:
    return page("# One", cell("from IPython.display import display"), "On a GPU.",
                cell(measures), "Recorded.", cell(shows, FOLDED), "Beside it.",
                cell("print(gpu_record and gpu_record['values'])"))


@pytest.fixture
def project(tiny: Make) -> Project:
    return tiny({"one": written(), "two": page("# Two", cell("print(2)"))})


def ran(project: Project, device: str = "Fake GPU 9") -> Path:
    """Run the book into a folder of its own, which says that another device did it."""
    out = project.root / "machine" / "_build"
    assert not run(replace(project, out=out), say=quiet, warm=False).failed
    for path in (out / "records").glob("*.json"):
        write_json(path, json.loads(path.read_text()) | {"device": device})
    return out.parent


def found(project: Project) -> list[str]:
    return [str(one) for one in check(project)
            if "GPU" in str(one) or "gpu" in str(one)]


def source(project: Project) -> str:
    return read_page(project.text("one")).code[2].source


def test_what_was_measured_is_kept_and_shown_with_device_versions_and_date(
        project: Project) -> None:
    assert found(project) == []
    assert keep(project, ran(project), quiet) == ["one"]
    entry = json.loads((project.root / FOLDER / "one.json").read_text())
    assert entry["device"] == "Fake GPU 9" and entry["commit"] and len(entry["date"]) == 10
    names: dict[str, object] = {}
    exec(source(project), names)
    shows = names["gpu_record"]
    assert shows == {name: entry[name] for name in ("device", "versions", "date", "values")}
    assert entry["values"] == {"copies, GB/s": 12.5, "kernel": "one's own"}
    assert {"python", "numpy"} <= entry["versions"].keys()
    assert found(project) == [] and not pair(project, check=True).stale
    # the page now prints it, and the same run can be kept again
    assert not run(project, ["one"], say=quiet, warm=False).failed
    assert "12.5" in project.executed_notebook("one").read_text(encoding="utf-8")
    before = project.text("one").read_bytes()
    keep(project, project.root / "machine", quiet)
    assert project.text("one").read_bytes() == before


def test_a_run_without_a_gpu_is_refused(project: Project) -> None:
    before = project.text("one").read_bytes()
    with pytest.raises(BookError, match="no page of this run has measured anything on a GPU"):
        keep(project, ran(project, "cpu"), quiet)
    assert project.text("one").read_bytes() == before
    assert not (project.root / FOLDER).exists()


def test_a_run_of_other_code_is_refused(project: Project) -> None:
    machine = ran(project)
    project.text("one").write_text(written(MEASURES.replace("12.5", "13")), encoding="utf-8")
    with pytest.raises(BookError, match=r"one\.ipynb: not a run of book/one\.md as it stands"):
        keep(project, machine, quiet)


@pytest.mark.parametrize(("value", "says"), [
    ("[1, 2]", r"'kernel' is \[1, 2\], not a number or a text"),
    ('"\'" * 3', "a text of the record holds three quotes"),
])
def test_what_cannot_be_kept_is_named_and_nothing_is_written(project: Project, value: str,
                                                             says: str) -> None:
    project.text("one").write_text(written(MEASURES.replace('"one\'s own"', value)),
                                   encoding="utf-8")
    pair(project)
    before = project.text("one").read_bytes()
    with pytest.raises(BookError, match=says):
        keep(project, ran(project), quiet)
    assert project.text("one").read_bytes() == before
    assert not (project.root / FOLDER / "one.json").exists()


def test_a_cell_that_measures_otherwise_makes_its_record_stale_until_it_is_forgotten(
        project: Project) -> None:
    keep(project, ran(project), quiet)
    text = project.text("one").read_text(encoding="utf-8")
    project.text("one").write_text(text.replace("gpu = {", "gpu = {'more': 1, "),
                                   encoding="utf-8")
    assert len(said := found(project)) == 1 and "has changed since its record" in said[0]
    forget(project, "one", quiet)
    assert found(project) == [] and source(project) == EMPTY
    with pytest.raises(BookError, match="there is no such record"):
        forget(project, "one", quiet)


def test_files_and_cells_that_do_not_belong_together_are_found(project: Project) -> None:
    keep(project, ran(project), quiet)
    path = project.root / FOLDER / "one.json"
    text, entry = project.text("one").read_text(encoding="utf-8"), path.read_text()

    def says(what: str) -> bool:
        lines = found(project)
        return len(lines) == 1 and what in lines[0]

    path.write_text(entry.replace("12.5", "99"))
    assert says("says something else than book/_data/gpu/one.json")
    path.write_text("{}")
    assert says("one.json is not a record")
    path.rename(path.with_name("two.json"))
    lines = found(project)
    assert len(lines) == 2 and "shows a record that book/_data/gpu/one.json does not" in lines[0]
    assert "two.json:1: book/two.md measures nothing on a GPU" in lines[1]
    path.with_name("two.json").rename(path.with_name("none.json"))
    assert "there is no such page" in found(project)[1]
    path.with_name("none.json").unlink()
    for changed, what in ((written(shows="gpu_record = 1"), "no cells show what was measured"),
                          (written(), ""),
                          (written(measures="gpu = {}"), "and no cell measures one"),
                          (written(measures=MEASURES, shows=EMPTY + "\n\nfake = 3"),
                           "shows a record that")):
        project.text("one").write_text(changed, encoding="utf-8")
        assert says(what) if what else found(project) == []
    project.text("one").write_text(text, encoding="utf-8")
    path.write_text(entry)
    assert found(project) == []


def test_the_verb(project: Project) -> None:
    machine = ran(project)

    def verb(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["--root", str(project.root), "gpu", *words])
        return done.exit_code, done.output

    assert verb()[0] == 2 and verb(str(machine), "--forget", "one")[0] == 2
    assert verb(str(machine)) == (0, "one: 2 values on Fake GPU 9, kept\n")
    assert verb("--forget", "one")[0] == 0
    assert verb("--forget", "../one")[0] == 1
