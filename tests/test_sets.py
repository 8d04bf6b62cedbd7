"""Other sets of versions: what they ask for follows from the lock, and from one table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ci import sets
from ci.check import direct
from ci.project import Project
from ci.sets import VersionSet, canonical, load, name_of, requirements
from tests.conftest import ROOT

LOCK = "# a comment\nclick==8.1\nnumpy==2.2\ntorch==2.13 ; python_version < '3.14'\nsympy==1.14\n"
DIRECT = ["torch==2.13", "click", "jupyter-book==1.0.4"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text(LOCK)
    (tmp_path / "pyproject.toml").write_text(
        "[project]\ndependencies = [" + ", ".join(f'"{one}"' for one in DIRECT) + "]\n"
        "[tool.proof-by-running.sets.old]\nrequire = ['torch==2.11', 'NumPy==2.1']\n"
        "free = ['sympy']\n[tool.proof-by-running.sets.bad]\nwants = ['x']\n")
    return tmp_path


def test_a_set_keeps_the_lock_but_for_what_it_asks_and_frees(root: Path) -> None:
    wanted, listed = load(root, "old")
    assert requirements(root, wanted, listed) == ["torch==2.11", "NumPy==2.1", "click==8.1"]


def test_a_free_set_takes_the_newest_of_the_direct_dependencies(root: Path) -> None:
    wanted = VersionSet("new", require=("torch",), free=("*",))
    assert requirements(root, wanted, DIRECT) == ["torch", "click", "jupyter-book==1.0.4"]


def test_a_set_that_inherits_leaves_what_the_machine_has(root: Path) -> None:
    wanted = VersionSet("there", inherit=("torch", "Click"), index="https://example.org/x")
    assert requirements(root, wanted, DIRECT) == ["--extra-index-url https://example.org/x",
                                                  "jupyter-book==1.0.4"]


def test_mistakes_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"there is no set 'odd'. One of: old, bad"):
        load(root, "odd")
    with pytest.raises(ValueError, match=r"set 'bad': wants is not known"):
        load(root, "bad")
    assert sets.main(["one"]) == 2 and sets.main(["odd", "/nowhere/x"]) == 1
    assert "there is no set 'odd'" in capsys.readouterr().err


def test_the_sets_of_the_book_ask_for_what_is_known_and_keep_the_line() -> None:
    known = {canonical(line.partition("==")[0])
             for line in (ROOT / "requirements.txt").read_text().splitlines()}
    for name in ("newest", "pre", "oldest", "colab", "gpu-tensorflow"):
        wanted, listed = load(ROOT, name)
        asked = {name_of(line) for line in requirements(ROOT, wanted, listed)}
        for one in (*wanted.require, *wanted.inherit, *wanted.free):
            assert one == "*" or name_of(one) in known, one
        kept = {canonical(one) for one in direct(Project(ROOT))}
        assert kept <= asked | {canonical(one) for one in (*wanted.inherit, *wanted.free)}, name


def test_an_environment_is_made_without_anything_installed(tmp_path: Path) -> None:
    """From a set that needs no index: the plain Python of the machine runs the module."""
    (tmp_path / "ci").mkdir()
    for name in ("__init__", "sets"):
        (tmp_path / "ci" / f"{name}.py").write_bytes((ROOT / "ci" / f"{name}.py").read_bytes())
    (tmp_path / "requirements.txt").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        "[project]\ndependencies = []\n[tool.proof-by-running.sets.bare]\nrequire = []\n")
    folder = tmp_path / "made"
    done = subprocess.run([sys.executable, "-I", "-c",
                           f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
                           f"from ci import sets; sys.exit(sets.main(['bare', {str(folder)!r}]))"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "bin" / "python").exists() and (folder / "requirements.txt").is_file()
