"""Shards run in separate clones of a real repository, merged in another: whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ci import merge as merges
from ci.merge import fits, gather, merge
from ci.pages import read_page
from ci.pair import pair
from ci.project import BookError, Project, digest, git_commit, locked
from ci.record import FORMAT, Machine, Record, doubts, page_key, read_record, write_record
from ci.run import run
from ci.shard import seconds_file, split, write_part
from ci.site import site
from tests.conftest import ROOT, Make, cell, ci, make_tiny, page, quiet
from tests.test_shard import invoke, record_of

SLUGS = ("one", "two", "three")
PAGES = {name: page(f"# {name}", cell(f"print('made by {name}')")) for name in SLUGS}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=Tests", "-c",
                    "user.email=tests@example.org", "-c", "commit.gpgsign=false", *arguments],
                   check=True, capture_output=True)


def commit(project: Project) -> None:
    git(project.root, "add", "-A")
    git(project.root, "commit", "-q", "--allow-empty", "-m", "A state of the book")


@dataclass(frozen=True)
class World:
    """A repository, and two clones in which one shard each has run."""

    folder: Path
    origin: Project
    shards: tuple[Project, Project]

    def clone(self, folder: Path, build: Project | None = None) -> Project:
        """Return a fresh clone in ``folder``, with a copy of another clone's ``_build``."""
        git(self.folder, "clone", "-q", str(self.origin.root), str(folder / "tiny"))
        project = Project(folder / "tiny")
        if build:
            shutil.copytree(build.build, project.build, symlinks=True)
        return project


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Run two shards through the command line; the second machine has old records of its own."""
    folder = tmp_path_factory.mktemp("world")
    origin = make_tiny(folder, PAGES)
    (origin.root / ".gitignore").write_text("_build/\n")
    seconds_file(origin).write_text('{"one": 9, "three": 3, "two": 5}')
    git(origin.root, "init", "-q")
    commit(origin)
    world = World(folder, origin, (Project(folder / "a" / "tiny"), Project(folder / "b" / "tiny")))
    for i, shard in enumerate(world.shards, start=1):
        world.clone(shard.root.parent)
        if i == 2:
            for name, seconds in zip(SLUGS, (1.0, 500.0, 900.0), strict=True):
                write_record(shard, record_of(name, seconds))
        done = ci(shard, "run", "--shard", f"{i}/2")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"shard {i}/2: {i} of 3 pages, about {(9, 8)[i - 1]} s in cells: " in done.stdout
        assert "uncommitted" not in done.stdout
    return world


@pytest.fixture
def parts(world: World, tmp_path: Path) -> list[Path]:
    """Return copies of the two parts, for a test to break."""
    folders = [tmp_path / "parts" / name for name in ("first", "second")]
    for shard, folder in zip(world.shards, folders, strict=True):
        shutil.copytree(shard.build, folder, symlinks=True)
    return folders


@pytest.fixture
def target(world: World, tmp_path: Path) -> Project:
    """Return a clone with outputs of its own, which a refused merge must leave alone."""
    project = world.clone(tmp_path / "target")
    for slug in SLUGS:
        write_record(project, record_of(slug, 1.0))
    project.executed.mkdir()
    project.executed_notebook("one").write_text("old")
    project.failed.mkdir()
    (project.failed / "two.ipynb").write_text("old")
    return project


def state(project: Project) -> dict[str, bytes]:
    """Return every file below ``_build`` but the lock."""
    return {str(path.relative_to(project.build)): path.read_bytes()
            for path in sorted(project.build.rglob("*"))
            if path.is_file() and not path.name.startswith(".lock")}


def printed(project: Project, slug: str) -> str:
    notebook = nbformat.read(project.executed_notebook(slug), as_version=4)
    return "".join(c.outputs[0].text for c in notebook.cells if c.cell_type == "code")


# ------------------------------------------------------------------ what goes well

def test_each_clone_finds_the_same_split(world: World) -> None:
    first, second = world.shards
    assert read_record(first, "two") is None and read_record(second, "two") is not None
    for n in range(1, 8):
        assert split(first, n) == split(second, n)
    assert split(first, 2) == [["one"], ["two", "three"]]
    said = [json.loads((p.build / "shard.json").read_text()) for p in world.shards]
    assert [one["pages"] for one in said] == split(first, 2)
    assert {one["commit"] for one in said} == {git_commit(world.origin.root)}
    # Each has run its share and no more.
    assert sorted(p.stem for p in first.executed.glob("*")) == ["one"]
    assert sorted(p.stem for p in second.executed.glob("*")) == ["three", "two"]


def test_a_run_beside_changes_nothing_else_and_the_status_page_shows_it(
        world: World, parts: list[Path], tmp_path: Path) -> None:
    """A CPU's run under another device's name, in the parts only."""
    project = world.clone(tmp_path / "target")
    project.text("index").write_text("# Tiny\n\n```{book-status}\n```\n")
    assert not merge(project, parts, quiet).failed
    site(project, quiet)
    alone = (project.html / "index.html").read_text(encoding="utf-8")
    assert "No run on a GPU is on record." in alone and "Beside it" not in alone
    before = state(project)
    for part in parts:
        for path in (part / "records").glob("*.json"):
            record = json.loads(path.read_text())
            machine = Machine("Tiny T1", record["requirements"], record["python"],
                              record["platform"])
            key = page_key(read_page(project.text(path.stem)), machine)
            path.write_text(json.dumps({**record, "device": "Tiny T1", "key": key}))
    status, said = invoke(project, "merge", "--beside", "gpu", *map(str, parts))
    assert status == 0 and "run on Tiny T1" in said
    assert {name: data for name, data in state(project).items()
            if not name.startswith("beside/")} == before
    lines: list[str] = []
    site(project, lines.append)
    assert "1 read" in lines[0]
    both = (project.html / "index.html").read_text(encoding="utf-8")
    assert "Beside it: gpu, on Tiny T1" in both and "No run on a GPU" not in both
    assert both.count("status-beside") == 1 and "of an earlier text" not in both
    record = project.beside[0].record("one")  # of code that the page no longer has
    record.write_text(record.read_text().replace('"key": "', '"key": "0'))
    site(project, quiet)
    assert "of an earlier text" in (project.html / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["../up", "A", "-x", "a/b"])
def test_the_name_of_a_run_beside_is_one_folder(target: Project, parts: list[Path], name: str
                                                ) -> None:
    status, said = invoke(target, "merge", f"--beside={name}", *map(str, parts))
    assert status == 2 and "is not a name" in said


def test_merged_parts_become_a_site(world: World, parts: list[Path], tmp_path: Path) -> None:
    project = world.clone(tmp_path / "target")
    for stray in ("executed/stray.ipynb", "executed/.hidden.ipynb", "records/stray.json",
                  "html/index.html", "site.key", "failed/one.ipynb"):
        (parts[0] / stray).parent.mkdir(exist_ok=True)
        (parts[0] / stray).write_text("not to be taken")
    done = ci(project, "merge", str(parts[1]), str(parts[0]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "merged 3 pages of 2 parts, run on " in done.stdout
    assert "3 pages: 3 ok, 0 failed; 0 executed" in done.stdout
    assert set(state(project)) == {f"{kind}/{slug}.{end}" for slug in SLUGS
                                   for kind, end in (("executed", "ipynb"), ("records", "json"))}
    for slug, shard in zip(SLUGS, (0, 1, 1), strict=True):
        assert read_record(project, slug) == read_record(world.shards[shard], slug)
    assert run(project, say=quiet).executed == ()
    done = ci(project, "site")
    assert done.returncode == 0, done.stdout + done.stderr
    for slug in SLUGS:
        assert f"made by {slug}" in (project.html / f"{slug}.html").read_text(encoding="utf-8")


def test_old_outputs_are_replaced_and_the_checkout_itself_may_be_given(
        world: World, target: Project, parts: list[Path]) -> None:
    (target.build / ".merge" / "failed").mkdir(parents=True)  # of a merge that was killed
    (target.build / ".merge" / "failed" / "one.ipynb").write_text("{ cut")
    around = [shard.root for shard in world.shards]
    report = merge(target, around, quiet)
    assert [r.page for r in report.records] == list(SLUGS) and not report.failed
    assert printed(target, "one") == "made by one\n"
    assert list(target.failed.iterdir()) == []
    assert not (target.build / ".merge").exists()
    before = state(world.shards[0])
    own = world.clone(target.root.parent / "own", build=world.shards[0])
    assert len(merge(own, [own.build, parts[1]], quiet).records) == 3
    assert {n: b for n, b in state(own).items() if n in before} == before


def test_a_gpu_shard_beside_a_cpu_shard(target: Project, parts: list[Path]) -> None:
    """Devices and Pythons may differ; each record says its own, and the summary all."""
    for slug in ("two", "three"):
        edit_record(parts[1], slug, device="NVIDIA H200", python="3.12.1",
                    commit="0123456789ab")  # an unchanged page keeps an older run's record
        rekey(parts[1], target, slug)
    lines: list[str] = []
    merge(target, parts, lines.append)
    here = Machine.here(target)
    assert lines == [f"merged 3 pages of 2 parts, run on NVIDIA H200 (2), {here.device} (1) with "
                     f"Python {here.python} (1), 3.12.1 (2)"]
    for slug in SLUGS:
        assert doubts(target, read_page(target.text(slug)), read_record(target, slug)) == ""
    record = read_record(target, "two")
    assert record is not None and (record.device, record.python) == ("NVIDIA H200", "3.12.1")


def test_gathered_parts_show_the_gpu_and_keep_the_cpu_beside_for_the_next_run(
        world: World, parts: list[Path], tmp_path: Path) -> None:
    folder = parts[0].parent
    with pytest.raises(BookError, match="holds no part of a machine named gpu or cpu"):
        gather(world.clone(tmp_path / "none"), folder, quiet)
    for i, part in enumerate(parts, start=1):
        shutil.copytree(part, folder / f"part-cpu-{i}")
        shutil.copytree(part, folder / f"part-gpu-{i}")
    plain = world.clone(tmp_path / "plain")
    for i, part in enumerate(parts, start=1):
        for slug in read_part(part):
            machine = Machine("Tiny T1", *(json.loads((part / "records" / f"{slug}.json")
                                                      .read_text())[name]
                                           for name in ("requirements", "python", "platform")))
            edit_record(folder / f"part-gpu-{i}", slug, device="Tiny T1",
                        key=page_key(read_page(plain.text(slug)), machine))
    report = gather(plain, folder, quiet)
    assert {one.device for one in report.records} == {"Tiny T1"}
    assert [one.build.name for one in plain.beside] == ["cpu"]
    # a machine without a GPU takes the CPU's outputs from beside them, and runs nothing
    assert run(plain, say=quiet, warm=False).executed == ()
    assert {read_record(plain, slug).device for slug in SLUGS} == {"cpu"}  # type: ignore[union-attr]
    for i in (1, 2):
        shutil.rmtree(folder / f"part-gpu-{i}")
    other = world.clone(tmp_path / "other")
    gather(other, folder, quiet)
    assert other.beside == [] and read_record(other, "one").device == "cpu"  # type: ignore[union-attr]


def read_part(part: Path) -> list[str]:
    return list(json.loads((part / "shard.json").read_text())["pages"])


def test_a_page_that_failed_beside_fails_what_is_gathered(
        world: World, parts: list[Path], tmp_path: Path) -> None:
    folder = parts[0].parent
    for i, part in enumerate(parts, start=1):
        shutil.copytree(part, folder / f"part-gpu-{i}")
        shutil.copytree(part, folder / f"part-cpu-{i}")
    edit_record(folder / "part-cpu-1", "one", status="failed", failure={
        "page": "one", "cell": 1, "source": "x", "error": "E: no", "rerun": "again"})
    target = world.clone(tmp_path / "gathers")
    code, said = invoke(target, "gather", str(folder))
    assert code == 1 and "FAILED one, code cell 1: E: no" in said


def test_a_failed_page_is_taken_over_and_stops_the_site(world: World, tmp_path: Path) -> None:
    """Run again at a later commit, where one page fails: its shard writes its part all the same."""
    origin = world.clone(tmp_path / "later")
    origin.text("three").write_text(page("# three", cell("before = 1"), "x", cell("1 / 0")))
    pair(origin)
    commit(origin)
    later = World(tmp_path, origin, world.shards)
    clones = [later.clone(tmp_path / name, build=shard)
              for name, shard in zip("ab", world.shards, strict=True)]
    first = ci(clones[0], "run", "--shard", "1/2")
    assert first.returncode == 0 and "1 pages: 1 ok, 0 failed; 0 executed" in first.stdout
    second = ci(clones[1], "run", "--shard", "2/2")
    assert second.returncode == 1 and "FAILED three, code cell 2" in second.stdout
    target = later.clone(tmp_path / "target")
    done = ci(target, "merge", str(clones[0].build), str(clones[1].build))
    assert done.returncode == 1 and done.stderr == ""
    assert "merged 3 pages of 2 parts" in done.stdout
    for line in ("3 pages: 2 ok, 1 failed; 0 executed", "    1 / 0",
                 "FAILED three, code cell 2: ZeroDivisionError: division by zero",
                 "run it again alone: python -m ci run three"):
        assert line in done.stdout
    assert printed(target, "one") == "made by one\n" and printed(target, "two") == "made by two\n"
    assert nbformat.read(target.failed / "three.ipynb", as_version=4).cells[1].execution_count == 1
    assert not target.executed_notebook("three").exists()
    done = ci(target, "site")
    assert done.returncode == 1
    assert "three.md: failed in its last run, in code cell 2" in done.stderr
    assert not target.html.exists()


def test_seconds_are_kept_on_request(world: World, target: Project, parts: list[Path]) -> None:
    for part, slug, seconds in ((0, "one", 33.3), (1, "three", 4.5), (1, "two", 8.2)):
        edit_record(parts[part], slug, cell_seconds=seconds)
    before = seconds_file(target).read_bytes()
    assert ci(target, "merge", *map(str, parts)).returncode == 0
    assert seconds_file(target).read_bytes() == before
    done = ci(target, "merge", "--keep-seconds", *map(str, parts))
    assert done.returncode == 0, done.stderr
    assert "seconds: one, two changed in book/_data/seconds.json" in done.stdout
    # `three` took 1.5 s more: too little for a change.
    assert json.loads(seconds_file(target).read_text()) == {"one": 33, "three": 3, "two": 8}
    assert git_commit(target.root).endswith("+")
    assert not merge(target, parts, quiet).failed  # the list it has just written is no obstacle
    done = ci(target, "run", "--keep-seconds")
    assert "seconds: nothing changed" in done.stdout


# ------------------------------------------------------------------ what is refused

def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_part(part: Path, **changes: Any) -> None:
    edit(part / "shard.json", **changes)


def edit_record(part: Path, slug: str, **changes: Any) -> None:
    edit(part / "records" / f"{slug}.json", **changes)


def rekey(part: Path, project: Project, slug: str) -> None:
    """Give a record the key that its page has with the record's device and Python."""
    data = json.loads((part / "records" / f"{slug}.json").read_text())
    made_on = Machine(data["device"], data["requirements"], data["python"], data["platform"])
    edit_record(part, slug, key=page_key(read_page(project.text(slug)), made_on))


def other_code(part: Path) -> None:
    """Put another page's notebook in place, and let the record vouch for it."""
    raw = (part / "executed" / "three.ipynb").read_bytes()
    (part / "executed" / "two.ipynb").write_bytes(raw)
    edit_record(part, "two", notebook=digest(raw))


def linked(part: Path, name: str) -> None:
    """Put a link in the place of a file or folder of the part, to the very same outside of it."""
    outside = part.parent / "outside"
    (part / name).rename(outside)
    (part / name).symlink_to(outside)


def half_copied(part: Path) -> None:
    whole = (part / "records" / "two.json").read_text()
    (part / "records" / "two.json").write_text(whole[:200])


Break = Callable[[Path], object]
AGAIN = r"python -m ci run --shard 2/2"
FAULTS: dict[str, tuple[Break, str]] = {
    # the part
    "no shard.json": (lambda p: (p / "shard.json").unlink(),
                      r"second: no shard\.json, so this is no part\. Give the `_build`"),
    "empty": (lambda p: shutil.rmtree(p) or p.mkdir(), r"second: no shard\.json"),
    "cut": (lambda p: (p / "shard.json").write_text('{"i": 2,'),
            r"second/shard\.json: not readable as a part \("),
    "deep": (lambda p: (p / "shard.json").write_text("[" * 100_000), r"shard\.json: not readable"),
    "list": (lambda p: (p / "shard.json").write_text("[]"), r"not readable as a part \(not an obj"),
    "a folder": (lambda p: (p / "shard.json").unlink() or (p / "shard.json").mkdir(),
                 r"second/shard\.json: cannot be read"),
    "format": (lambda p: edit_part(p, format=2), r"not readable as a part \(format 2, not 1\)"),
    "unknown field": (lambda p: edit_part(p, more=1), r"not readable as a part"),
    "text for a number": (lambda p: edit_part(p, i="2"), r"not readable as a part \(a value"),
    "number for a page": (lambda p: edit_part(p, pages=[3]), r"not readable as a part \(a value"),
    "control characters": (lambda p: edit_part(p, python="\x1b[2J"), r"not readable as a part"),
    "too far": (lambda p: edit_part(p, i=3), r"not readable as a part"),
    "too many": (lambda p: edit_part(p, n=10**9), r"not readable as a part"),
    # together
    "other n": (lambda p: edit_part(p, n=3),
                r"second \(shard 2/3\): is of 3 shards, and \S+first \(shard 1/2\) is of 2\. Give"),
    "same shard": (lambda p: edit_part(p, i=1),
                   r"second \(shard 1/2\): is the same shard as \S+first\. Give each shard once"),
    "page in two": (lambda p: edit_part(p, pages=["two", "three", "one"]),
                    r"second \(shard 2/2\): holds page one, and so does \S+first \(shard 1/2\)"),
    "page in none": (lambda p: edit_part(p, pages=["three"]), r"merge: no part holds two\. Run"),
    "page twice": (lambda p: edit_part(p, pages=["two", "three", "two"]), r"holds page two twice"),
    "unknown page": (lambda p: edit_part(p, pages=["two", "three", "../../evil"]),
                     r"second \(shard 2/2\): holds '\.\./\.\./evil', which is not a page"),
    "prose page": (lambda p: edit_part(p, pages=["two", "three", "index"]), r"holds 'index', w"),
    # origin
    "other commit": (lambda p: edit_part(p, commit="0123456789ab"),
                     r"second \(shard 2/2\): was run from commit 0123456789ab, and this is [0-9a-f]"
                     r"{12}\. Check out 0123456789ab here, or run"),
    "uncommitted": (lambda p: edit_part(p, commit="0123456789ab+"),
                    rf"was run from uncommitted changes \(0123456789ab\+\)\. Commit .*{AGAIN}"),
    "outside git": (lambda p: edit_part(p, commit="none"), r"second .*: was run outside git"),
    "requirements": (lambda p: edit_part(p, requirements="0" * 64),
                     r"second .*: was run with another requirements\.txt than this checkout's"),
    # records
    "no record": (lambda p: (p / "records" / "two.json").unlink(),
                  rf"second \(shard 2/2\): page two has no record\. Copy .*{AGAIN}"),
    "no records": (lambda p: shutil.rmtree(p / "records"), r"page two has no record"),
    "record format": (lambda p: edit_record(p, "two", format=0),
                      rf"page two has a record of format 0, not {FORMAT}\. Run .*{AGAIN}"),
    "half copied": (half_copied, r"second .*: page two has a record that cannot be read \("),
    "record of a page": (lambda p: edit_record(p, "two", page="three"),
                         r"page two has a record that cannot be read \(it speaks of 'three'"),
    "wrong kind": (lambda p: edit_record(p, "two", seconds="long"), r"two has a record that can"),
    "no number": (lambda p: edit_record(p, "two", cell_seconds=float("nan")), r"cannot be read"),
    "unknown record field": (lambda p: edit_record(p, "two", more=1), r"cannot be read"),
    "failed without failure": (lambda p: edit_record(p, "two", status="failed"),
                               r"page two has a record that cannot be read \(failed without"),
    "record uncommitted": (lambda p: edit_record(p, "two", commit="0123456789ab+"),
                           rf"page two was run from uncommitted changes .*{AGAIN} --force"),
    "record outside git": (lambda p: edit_record(p, "two", commit="none"),
                           r"page two was run outside git"),
    "record requirements": (lambda p: edit_record(p, "two", requirements="0" * 64),
                            r"page two was run with another requirements\.txt"),
    "record key": (lambda p: edit_record(p, "two", key="0" * 64),
                   r"second .*: page two was run from other code than this checkout's\. Run"),
    "record cells": (lambda p: edit_record(p, "two", cells=0), r"page two has a record of 0 cells"),
    "no Python": (lambda p: edit_record(p, "two", python=""), r"page two was run from other code"),
    # notebooks
    "no notebook": (lambda p: (p / "executed" / "two.ipynb").unlink(),
                    r"second .*: page two has a record and no executed notebook\. Copy"),
    "forged": (lambda p: (p / "executed" / "two.ipynb").write_text(
        (p / "executed" / "two.ipynb").read_text().replace("made by", "forged by")),
        r"second .*: page two has an executed notebook that its record does not know\. Copy"),
    "other code": (other_code, r"second .*: page two has an executed notebook of other code\. Run"),
    # links
    "linked notebook": (lambda p: linked(p, "executed/two.ipynb"),
                        r"second/executed/two\.ipynb: is a link, and links in a part are not"),
    "linked folder": (lambda p: linked(p, "records"), r"second/records: is a link"),
    "linked part": (lambda p: linked(p, "shard.json"), r"second/shard\.json: is a link"),
    "pipe": (lambda p: (p / "executed" / "two.ipynb").unlink() or os.mkfifo(
        p / "executed" / "two.ipynb"), r"executed/two\.ipynb: cannot be read \(not a file\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_leaves_everything_as_it_was(
        target: Project, parts: list[Path], fault: str) -> None:
    breaks, said = FAULTS[fault]
    breaks(parts[1])
    before = state(target)
    with pytest.raises(BookError) as error:
        merge(target, parts, quiet)
    assert re.search(said, error.value.message), error.value.message
    assert "\n" not in error.value.message and len(error.value.message) < 400
    assert state(target) == before
    assert not (target.build / ".merge").exists()


def test_a_missing_part_and_its_pages(target: Project, parts: list[Path]) -> None:
    done = ci(target, "merge", str(parts[0]))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == ("Error: merge: no part is shard 2/2, which has to hold two, three. Run "
                           "`python -m ci run --shard 2/2` and give its `_build` too\n")
    with pytest.raises(BookError, match=r"no part is shard 1/2, which has to hold one\."):
        merge(target, parts[1:], quiet)
    with pytest.raises(BookError, match=r"is the same shard as \S+first"):
        merge(target, [parts[0], parts[1], parts[0]], quiet)


def test_a_linked_build_is_not_followed(target: Project, parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "_build").symlink_to(parts[1])
    with pytest.raises(BookError, match="around/_build: is a link"):
        merge(target, [parts[0], tmp_path / "around"], quiet)


def test_wrong_usage(target: Project) -> None:
    assert invoke(target, "merge")[0] == 2
    status, said = invoke(target, "merge", str(target.root / "nowhere"))
    assert status == 2 and "nowhere' does not exist" in said


def test_a_part_of_another_commit_or_of_uncommitted_files(world: World, target: Project,
                                                          parts: list[Path], tmp_path: Path
                                                          ) -> None:
    """For real, not by editing: the pages are unchanged, so nothing runs again."""
    other = world.clone(tmp_path / "other", build=world.shards[1])
    (other.root / "README.md").write_text("# Tiny\n")
    commit(other)
    assert ci(other, "run", "--shard", "2/2").returncode == 0
    with pytest.raises(BookError, match="was run from commit"):
        merge(target, [parts[0], other.build], quiet)
    changed = world.clone(tmp_path / "changed", build=world.shards[1])
    changed.text("index").write_text("# Changed\n")
    done = ci(changed, "run", "--shard", "2/2")
    assert done.returncode == 0
    assert "there are uncommitted changes, so `merge` will refuse this part" in done.stdout
    with pytest.raises(BookError, match=r"was run from uncommitted changes \([0-9a-f]{12}\+\)"):
        merge(target, [parts[0], changed.build], quiet)


def test_parts_of_another_text_or_requirements_in_this_checkout(
        target: Project, parts: list[Path]) -> None:
    """What is checked out here decides, even when it is not committed."""
    target.text("two").write_text(page("# two", cell("print('edited')")))
    with pytest.raises(BookError, match="page two was run from other code"):
        merge(target, parts, quiet)
    target.requirements.write_text("click==9\n")
    with pytest.raises(BookError, match=r"was run with another requirements\.txt"):
        merge(target, parts, quiet)


def test_outside_git_nothing_is_merged(tiny: Make, target: Project, parts: list[Path]) -> None:
    project = tiny({"one": PAGES["one"]})
    folders = [project.root / name for name in ("x", "y")]
    for i, pages in ((1, ["one"]), (2, [])):
        assert write_part(project, i, 2, pages).commit == "none"
        shutil.copytree(project.build, folders[i - 1])
    with pytest.raises(BookError, match="not a git checkout, so nothing says that the parts are"):
        merge(project, folders, quiet)
    with pytest.raises(BookError, match=r"y \(shard 2/2\): was run outside git"):
        merge(target, [parts[0], folders[1]], quiet)


# ------------------------------------------------------------------ in one go

def test_a_merge_waits_for_a_run(target: Project, parts: list[Path]) -> None:
    before = state(target)
    command = [sys.executable, "-m", "ci", "--root", str(target.root), "merge", *map(str, parts)]
    with locked(target):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == ("another run works in this checkout (process "
                                             f"{os.getpid()}): waiting\n")
        assert state(target) == before
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and said.startswith("merged 3 pages")


def test_a_full_disk_leaves_everything_as_it_was(
        target: Project, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    really = merges.write_atomic

    def full(path: Path, data: bytes) -> None:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(path, data)

    monkeypatch.setattr(merges, "write_atomic", full)
    before = state(target)
    with pytest.raises(BookError, match=r"_build: cannot be written \(.*No space left"):
        merge(target, parts, quiet)
    assert written == 3 and state(target) == before


@pytest.mark.parametrize("end", [OSError(errno.EACCES, "Permission denied"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_an_end_between_two_renames_puts_the_old_files_back(
        target: Project, parts: list[Path], monkeypatch: pytest.MonkeyPatch, after: int,
        end: BaseException) -> None:
    really = Path.replace
    done = 0

    def replace(self: Path, place: Path) -> Path:
        nonlocal done
        if ".merge" in self.parts and self.parent.name in ("executed", "records") \
                and place.parent.parent == target.build:
            done += 1
        if done == after // 2 + 1:
            done += 100
            raise end
        return really(self, place)

    before = state(target)
    monkeypatch.setattr(merges.Path, "replace", replace)
    with pytest.raises((BookError, KeyboardInterrupt)):
        merge(target, parts, quiet)
    monkeypatch.undo()
    assert done > 100
    assert state(target) == before


def test_values_of_a_record_are_weighed(world: World) -> None:
    record = read_record(world.shards[0], "one")
    assert fits(record, Record)
    for name, value in (("claims", {"holds": "2"}), ("claims", [1]), ("cells", 1.5),
                        ("cells", True), ("seconds", float("inf")), ("seconds", -1.0),
                        ("seconds", 10**400), ("device", None), ("device", "two\nlines"),
                        ("failure", {"page": "one"})):
        assert record is not None
        assert not fits(Record(**{**record.__dict__, name: value}), Record), (name, value)
