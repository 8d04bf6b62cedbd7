"""A publication shows the old site or the new one, whole, whatever happens to it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.cli import main
from ci.project import BookError
from ci.publish import current, is_whole, publish, switch, tree_digest
from ci.run import run
from ci.site import site
from tests.conftest import ROOT, Make, cell, page, quiet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "srv"


def made(tmp_path: Path, text: str, files: int = 3) -> Path:
    """Return a folder of files, one below another folder."""
    place = tmp_path / "html"
    shutil.rmtree(place, ignore_errors=True)
    (place / "deep").mkdir(parents=True)
    for number in range(files):
        (place / "deep" / f"{number}.html").write_text(text)
    (place / "index.html").write_text(text)
    return place


def test_a_version_is_shown_whole_and_the_last_two_are_kept(tmp_path: Path, folder: Path) -> None:
    names = []
    for text in "abc":
        switch(made(tmp_path, text), folder, quiet)
        assert (folder / "site" / "deep" / "2.html").read_text() == text and is_whole(folder)
        shown = current(folder)
        assert shown is not None
        names.append(shown.name)
    assert {path.name for path in (folder / "versions").iterdir()} == set(names[1:])
    said: list[str] = []
    switch(made(tmp_path, "b"), folder, said.append)  # back to the one before
    shown = current(folder)
    assert shown is not None and shown.name == names[1] and names[1][:12] in said[0]
    switch(made(tmp_path, "b"), folder, said.append)
    assert "shows this site already" in said[1]


def test_a_version_that_somebody_wrote_into_is_not_shown(tmp_path: Path, folder: Path) -> None:
    switch(made(tmp_path, "a"), folder, quiet)
    (folder / "site" / "index.html").write_text("spoiled")
    assert not is_whole(folder)
    switch(made(tmp_path, "a"), folder, quiet)
    assert is_whole(folder) and (folder / "site" / "index.html").read_text() == "a"


@pytest.mark.parametrize("prepare", [
    lambda folder: (folder / "letters.txt").write_text("mine"),
    lambda folder: ((folder / "versions").mkdir(), (folder / "site").mkdir()),
])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, folder: Path, prepare) -> None:  # type: ignore[no-untyped-def]
    folder.mkdir()
    prepare(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(BookError, match=r"holds something else|is not the link"):
        switch(made(tmp_path, "a"), folder, quiet)
    assert sorted(folder.rglob("*")) == before


def test_a_publication_that_is_killed_leaves_the_old_site_and_the_next_one_is_clean(
        tmp_path: Path, folder: Path) -> None:
    switch(made(tmp_path, "old"), folder, quiet)
    old = current(folder)
    place = made(tmp_path, "new", files=3000)
    script = ("import sys; from pathlib import Path; from ci import publish\n"
              "publish.switch(Path(sys.argv[1]), Path(sys.argv[2]))")
    process = subprocess.Popen([sys.executable, "-c", script, str(place), str(folder)], cwd=ROOT,
                               stdout=subprocess.DEVNULL)
    while not (folder / "versions" / ".new").exists() and process.poll() is None:
        time.sleep(0.001)  # until it copies
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert current(folder) == old and is_whole(folder)
    assert (folder / "versions" / ".new").exists()
    switch(place, folder, quiet)
    assert is_whole(folder) and not (folder / "versions" / ".new").exists()
    shown = current(folder)
    assert shown is not None and shown.name == tree_digest(place)


def test_only_a_current_site_is_published(tiny: Make, folder: Path) -> None:
    project = tiny({"one": page("# One", cell("print(1)"))})
    with pytest.raises(BookError):
        publish(project, folder, quiet)
    assert not folder.exists()
    run(project, say=quiet, warm=False)
    site(project, quiet)
    done = CliRunner().invoke(main, ["--root", str(project.root), "publish", str(folder)])
    assert done.exit_code == 0 and "shows version" in done.output
    assert (folder / "site" / "one.html").is_file()
    text = project.text("one").read_text(encoding="utf-8")
    project.text("one").write_text(text + "\nMore.\n", encoding="utf-8")
    with pytest.raises(BookError, match="not the site of the texts"):
        publish(project, folder, quiet)
