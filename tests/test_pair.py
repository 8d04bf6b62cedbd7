"""Text to notebook, one way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from ci.pair import normal_form, notebook_text, pair
from ci.project import BookError
from tests.conftest import ROOT, Make, cell, ci, page

TEXT = page("# One", "Some *prose*.", cell("x = 1"), "More.", cell("x + 1"))


def test_the_notebook_is_the_text_without_outputs(tiny: Make) -> None:
    project = tiny({"one": TEXT})
    notebook = nbformat.read(project.notebook("one"), as_version=4)
    nbformat.validate(notebook)
    assert [c.cell_type for c in notebook.cells] == ["markdown", "code", "markdown", "code"]
    assert [c.source for c in notebook.cells if c.cell_type == "code"] == ["x = 1", "x + 1"]
    assert all(not c.outputs and c.execution_count is None for c in notebook.cells
               if c.cell_type == "code")
    assert notebook.metadata.kernelspec.name == "python3"


def test_twice_gives_the_same_bytes() -> None:
    assert notebook_text("one", TEXT) == notebook_text("one", TEXT)


def test_ids_are_stable_and_differ_between_pages() -> None:
    ids = [c["id"] for c in json.loads(notebook_text("one", TEXT))["cells"]]
    edited = TEXT.replace("x = 1", "x = 2").replace("More.", "Less.")
    assert [c["id"] for c in json.loads(notebook_text("one", edited))["cells"]] == ids
    assert len(set(ids)) == len(ids)
    assert not set(ids) & {c["id"] for c in json.loads(notebook_text("two", TEXT))["cells"]}


def test_a_newer_notebook_never_wins(tiny: Make) -> None:
    """A notebook that somebody edited, its file time in the future, is overwritten by the text."""
    project = tiny({"one": TEXT})
    path = project.notebook("one")
    wanted = path.read_bytes()
    path.write_text(path.read_text().replace("x = 1", "x = 99"))
    os.utime(path, (time.time() + 10_000, time.time() + 10_000))
    assert pair(project, check=True).stale == ("one",)
    assert pair(project).written == ("one",)
    assert path.read_bytes() == wanted
    assert "x = 99" not in project.text("one").read_text()
    assert pair(project).written == ()


def test_check_writes_nothing_and_fails(tiny: Make) -> None:
    project = tiny({"one": TEXT}, paired=False)
    done = ci(project, "pair", "--check")
    assert done.returncode == 1
    assert "notebooks/one.ipynb is not in step" in done.stdout
    assert "python -m ci pair" in done.stderr
    assert not project.notebook("one").exists()


def test_a_notebook_without_a_page_goes(tiny: Make) -> None:
    project = tiny({"one": TEXT})
    stray = project.notebook("gone")
    stray.write_text("{}")
    assert pair(project, check=True).stale == ("gone",)
    pair(project)
    assert not stray.exists()


def test_broken_options_name_the_file(tiny: Make) -> None:
    text = TEXT.replace("x = 1", "---\ntags: [a\n---\nx = 1")
    with pytest.raises(BookError, match=r"one\.md"):
        tiny({"one": text})


def test_normal_form_is_a_fixed_point_and_sorts_options() -> None:
    text = page("# One", cell("x = 1", "tags: [hide-cell]\ncellView: form"))
    assert text.index("cellView") < text.index("tags:")
    assert normal_form(text) == text


def test_jupytext_sync_on_a_clean_clone_changes_nothing(tmp_path: Path) -> None:
    """JupyterLab opens the pair by the same rules; whichever file is newer, nothing moves."""
    for folder in ("book", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    files = sorted((tmp_path / "notebooks").glob("*.ipynb"))
    texts = [tmp_path / "book" / f"{path.stem}.md" for path in files]
    before = {path: path.read_bytes() for path in [*files, *texts]}
    assert len(files) >= 2
    for newer in (files, texts):
        later = time.time() + 100 * (1 + (newer is texts))
        for path in newer:
            os.utime(path, (later, later))
        subprocess.run([sys.executable, "-m", "jupytext", "--sync", *map(str, texts)],
                       check=True, capture_output=True, cwd=tmp_path)
        assert {path: path.read_bytes() for path in before} == before
