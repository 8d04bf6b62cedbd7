"""Two runs with other versions: what says something else is named, and nothing else is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.cli import main
from ci.drift import Drift, Drifted, drift, report
from ci.project import BookError, Project
from ci.run import run
from tests.conftest import cell, make_tiny, page, quiet

# What stands for another version: the cells read it, so that both runs are of the same code.
SET = "import os\n\nnewer = os.environ.get('LIBRARY') == '2.0.1'\n"
PRINTS = SET + "print('library', os.environ.get('LIBRARY', '1.9'))"


def parts(*cells: str) -> str:
    return page("# Page", cell(PRINTS), *[part for one in cells for part in ("Then.", one)])


PAGES = {
    "same": parts(cell("print('equal')\nprint(id(object()) % 1)"),
                  cell("import time\n\nprint(time.time())", "tags: [varies]")),
    "rounds": parts(cell("print('first line')\nprint(2 if newer else 3)")),
    "warns": parts(cell("import sys\n\nprint('done')\n"
                        "if newer:\n    print('f is deprecated, use g', file=sys.stderr)")),
    "breaks": parts(cell("print('before')"), cell("assert not newer, 'gone'"), cell("print('x')")),
    "mends": parts(cell("assert newer, 'not yet'")),
    "never": parts(cell("1 / 0")),
    "loses": parts(cell("import time\n\nif newer:\n    print(time.time())", "tags: [varies]")),
    "index2": "# Only prose\n",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path, Path]:
    """The same pages, run for real in two environments."""
    project = make_tiny(tmp_path_factory.mktemp("drift"), PAGES)
    folders = []
    with pytest.MonkeyPatch.context() as patch:
        for name, version in (("first", ""), ("second", "2.0.1")):
            if version:
                patch.setenv("LIBRARY", version)
            folder = project.root / name
            run(replace(project, out=folder), say=quiet, warm=False)
            folders.append(folder)
    for path in (folders[1] / "records").glob("*.json"):  # what another environment would say
        record = json.loads(path.read_text())
        record["versions"]["numpy"] = "9.9"
        path.write_text(json.dumps(record))
    return project, folders[0], folders[1]


Runs = tuple[Project, Path, Path]


@pytest.fixture(scope="module")
def drifted(runs: Runs) -> Drifted:
    return drift(*runs)


def of(drifted: Drifted, slug: str) -> Drift:
    return next(one for one in drifted.pages if one.page == slug)


def test_what_says_the_same_is_no_drift(drifted: Drifted) -> None:
    assert not of(drifted, "same").any
    assert len(drifted.pages) == len(PAGES) - 1


def test_a_changed_result_is_named_with_its_cell_and_both_lines(drifted: Drifted) -> None:
    one = of(drifted, "rounds")
    assert [(c.cell, c.before, c.after) for c in one.changed] == [(2, ("3",), ("2",))]
    assert PAGES["rounds"].splitlines()[one.changed[0].line - 1].startswith("print('first")
    assert not one.fails and not one.deprecated


def test_what_will_go_is_listed_by_itself(drifted: Drifted) -> None:
    one = of(drifted, "warns")
    assert one.deprecated == ("cell 2: f is deprecated, use g",)
    assert [c.why for c in one.changed] == ["gave stdout, now stdout, stderr"]


def test_failures_are_told_apart(drifted: Drifted) -> None:
    assert of(drifted, "breaks").fails == "cell 3: AssertionError: gone"
    assert of(drifted, "breaks").changed == ()  # equal up to there
    assert of(drifted, "mends").mended == "cell 2: AssertionError: not yet"
    assert of(drifted, "never").still == "cell 2: ZeroDivisionError: division by zero"
    assert not of(drifted, "never").fails


def test_a_cell_that_varies_counts_by_its_outputs(drifted: Drifted) -> None:
    assert [c.why for c in of(drifted, "loses").changed] == ["gave nothing, now stdout"]


def test_the_report_names_versions_pages_and_counts(drifted: Drifted, runs: Runs) -> None:
    text = "\n".join(report(drifted))
    assert text.splitlines()[0].startswith("Versions: numpy ")
    assert "to 9.9" in text.splitlines()[0]
    assert "- **fails now**, cell 3: AssertionError: gone" in text
    assert "      - 3\n      + 2\n" in text and "## same" not in text
    assert text.endswith("7 pages: 1 say the same, 1 fail now, 3 cells say something else")
    done = CliRunner().invoke(main, ["--root", str(runs[0].root), "drift", *map(str, runs[1:])])
    assert done.exit_code == 1 and done.output.rstrip() == text.rstrip()
    done = CliRunner().invoke(main, ["--root", str(runs[0].root), "drift",
                                     *[str(runs[2])] * 2])
    assert done.exit_code == 1  # a page that fails in both is not fine either


def test_a_run_of_other_code_or_of_nothing_is_refused(runs: Runs, tmp_path: Path) -> None:
    project, first, second = runs
    with pytest.raises(BookError, match="holds no record of a page of this book"):
        drift(project, first, tmp_path)
    other = tmp_path / "other"
    shutil.copytree(second, other)
    text = (other / "executed" / "rounds.ipynb").read_text()
    (other / "executed" / "rounds.ipynb").write_text(text.replace("2 if newer", "7 if newer"))
    with pytest.raises(BookError, match=r"not a run of book/rounds\.md as it stands here"):
        drift(project, first, other)
    (other / "executed" / "rounds.ipynb").unlink()
    with pytest.raises(BookError, match="there is a record and no notebook"):
        drift(project, first, other)


def test_a_page_that_one_run_lacks_is_named(runs: Runs, tmp_path: Path) -> None:
    project, first, second = runs
    part = tmp_path / "part"
    shutil.copytree(second, part)
    (part / "records" / "same.json").unlink()
    assert of(drift(project, first, part), "same").only == "first"
