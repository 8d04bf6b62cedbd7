"""Pages run several times: what differs is found, named, and told apart by its cause."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

from ci.cli import main
from ci.project import BookError, Project
from ci.record import Failure, Record
from ci.repeat import Repeated, html_text, printed, repeat, report_lines
from ci.run import Report
from tests.conftest import Make, cell, ci, make_tiny, page, quiet

LINUX = sys.platform == "linux"


def parts(*cells: str) -> str:
    return page("# Page", *[part for n, one in enumerate(cells) for part in (f"x{n}", one)])


# ------------------------------------------------------------------ real runs

PAGES = {
    "equal": parts(
        cell("import sys\n\nprint('out')\nprint('err', file=sys.stderr)\n{'x': 1}"),
        cell("from IPython.display import HTML\n\nHTML('<b>bold</b>')"),
        # The parent of warm kernels loads this for all pages, so "peeks" sees it there.
        cell("import markdown_it\n\nprint(markdown_it.__name__)")),
    "random": parts(cell("import random"), cell("print('same')\nprint(random.random())"),
                    cell("object()")),
    "tagged": parts(cell("import random"), cell("print(random.random())", "tags: [varies]"),
                    cell("print('the same every time')", "tags: [varies]")),
    "raises": parts(cell("print(1)"), cell("1 / 0"), cell("print(3)")),
    "peeks": parts(cell("import sys\n\nprint('markdown_it' in sys.modules)")),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, Repeated]]:
    """Run all these pages four times, where the system can, warm and cold in turn."""
    project = make_tiny(tmp_path_factory.mktemp("repeat"), PAGES)
    (project.build / "executed").mkdir(parents=True)
    project.executed_notebook("equal").write_text("published")
    said: list[str] = []
    repeated = {one.page: one for one in repeat(project, times=4, say=said.append)}
    kinds = ["warm", "cold"] * 2 if LINUX else ["cold"] * 4
    assert [line for line in said if line.startswith("run ")] == [
        f"run {n} of 4, {kind}" for n, kind in enumerate(kinds, start=1)]
    return project, repeated


Real = tuple[Project, dict[str, Repeated]]


def test_equal_pages_and_tagged_cells_are_ok(real: Real) -> None:
    for slug in ("equal", "tagged"):
        assert real[1][slug].status == "ok", slug
        assert real[1][slug].differences == ()
        assert len(real[1][slug].takes) == 4
        assert {take.cells for take in real[1]["equal"].takes} == {
            real[1]["equal"].takes[0].cells}


def test_what_is_published_stays(real: Real) -> None:
    project = real[0]
    assert project.executed_notebook("equal").read_text() == "published"
    assert [p.name for p in project.build.rglob("*") if p.is_file()] == ["equal.ipynb"]


def test_random_numbers_and_addresses_are_found_with_their_cells(real: Real) -> None:
    found = real[1]["random"]
    assert found.status == "differs"
    assert [one.cell for one in found.differences] == [2, 3]
    number, address = found.differences
    assert PAGES["random"].splitlines()[number.line - 1] == "print('same')"
    assert "differ among themselves: the page varies" in number.why
    assert len(number.variants) == 4 and all(line.startswith("0.") for _, line in number.variants)
    assert address.variants[0][1].startswith("<object at 0x")


def test_a_tagged_cell_that_never_varies_is_a_hint(real: Real) -> None:
    assert real[1]["tagged"].unvaried == (3,)
    assert real[1]["equal"].unvaried == ()


def test_a_page_that_fails_says_where_and_is_compared_up_to_there(real: Real) -> None:
    found = real[1]["raises"]
    assert found.status == "fails" and found.differences == ()
    assert all(take.failure and take.failure.cell == 2 for take in found.takes)
    assert found.takes[0].cells[1].kinds == ("error",) and len(found.takes[0].cells) == 2
    assert not any("\x1b" in line for line in found.takes[0].cells[1].lines)


@pytest.mark.skipif(not LINUX, reason="pages start warm on Linux only")
def test_what_the_parent_has_loaded_shows_as_a_matter_of_starting(real: Real) -> None:
    found = real[1]["peeks"].differences
    assert [one.variants for one in found] == [
        (("warm 1, warm 3", "True"), ("cold 2, cold 4", "False"))]
    assert found[0].why.startswith("warm and cold differ, and each agrees with itself")


# ------------------------------------------------------------------ runs that are made up

Says = Callable[[bool, int], list[Any]]


def fake(says: Says, fails: Callable[[bool, int], bool], started: bool | None
         ) -> Callable[..., Report]:
    """Return a run that executes nothing: its first cell gives what ``says`` returns.

    Both functions get the way of starting and the number of the run. The record says ``started``,
    or what was asked for.
    """
    def made(project: Project, only: list[str] | None, *, force: bool, warm: bool,
             say: Callable[[str], None]) -> Report:
        assert force and project.out and (project.build / ".matplotlib").is_dir()
        number = int(project.build.name)
        bad = fails(warm, number)
        notebook = nbformat.read(project.notebook("one"), as_version=4)
        next(c for c in notebook.cells if c.cell_type == "code").outputs = says(warm, number)
        path = project.failed / "one.ipynb" if bad else project.executed_notebook("one")
        path.parent.mkdir()
        nbformat.write(notebook, path)
        record = Record(
            page="one", status="failed" if bad else "ok", key="k", started="", seconds=1,
            cell_seconds=1, peak_mib=1, cells=2, device="cpu", python="3", platform="x",
            versions={}, requirements="r", commit="c", claims={},
            warm=warm if started is None else started,
            failure=Failure("one", 1, "", "ZeroDivisionError: x", "") if bad else None)
        return Report((record,), ("one",), 1.0)

    return made


def stream(text: str, name: str = "stdout") -> Any:
    return nbformat.v4.new_output("stream", name=name, text=text)


def shows(**data: Any) -> Any:
    return nbformat.v4.new_output("display_data", data={
        mime.replace("_", "/"): value for mime, value in data.items()})


@pytest.fixture
def repeated(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Repeated]:
    """Return a function that repeats the made-up runs of a page with one odd cell."""
    monkeypatch.setattr("ci.repeat.supported", lambda: True)

    def made(says: Says, times: int = 4, tags: str = "", **options: Any) -> Repeated:
        project = tiny({"one": parts(cell("odd = 1", tags), cell("print(2)"))})
        fails = options.pop("fails", lambda warm, number: False)
        run = fake(says, fails, options.pop("started", None))
        (found,) = repeat(project, ["one"], times, say=quiet, run=run, **options)
        return found

    return made


Made = Callable[..., Repeated]


def test_the_way_of_starting_is_told_from_chance(repeated: Made) -> None:
    by_start = repeated(lambda warm, n: [stream(f"preloaded: {warm}\n")])
    assert by_start.differences[0].why == (
        "warm and cold differ, and each agrees with itself: the way of starting shows")
    assert by_start.differences[0].variants == (
        ("warm 1, warm 3", "preloaded: True"), ("cold 2, cold 4", "preloaded: False"))
    chance = repeated(lambda warm, n: [stream(f"{n}")])
    assert chance.differences[0].why == (
        "warm and cold runs differ among themselves: the page varies")
    cold_only = repeated(lambda warm, n: [stream("x" if warm else f"{n}")])
    assert cold_only.differences[0].why == "cold runs differ among themselves: the page varies"
    too_few = repeated(lambda warm, n: [stream(f"{warm}")], times=3)
    assert "more --times would tell" in too_few.differences[0].why


def test_a_run_counts_as_what_it_was(repeated: Made) -> None:
    """Some pages are started cold in a warm run; what differs there is the page's own."""
    found = repeated(lambda warm, n: [stream(f"{warm}")], started=False)
    assert [take.name for take in found.takes] == ["cold 1", "cold 2", "cold 3", "cold 4"]
    assert found.differences[0].why == "cold runs differ among themselves: the page varies"


def test_one_way_of_starting_only(repeated: Made) -> None:
    for warm, name in ((True, "warm"), (False, "cold")):
        found = repeated(lambda warm, n: [stream(f"{warm}")], times=3, warm=warm)
        assert [take.name for take in found.takes] == [f"{name} {n}" for n in (1, 2, 3)]
        assert found.status == "ok"


def test_where_no_page_starts_warm_all_runs_are_cold(repeated: Made,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci.repeat.supported", lambda: False)
    assert not any(take.warm for take in repeated(lambda warm, n: []).takes)
    with pytest.raises(BookError, match="on Linux only"):
        repeated(lambda warm, n: [], warm=True)


def test_a_page_that_fails_in_some_runs(repeated: Made) -> None:
    found = repeated(lambda warm, n: [], fails=lambda warm, n: not warm)
    assert found.status == "fails"
    text = "\n".join(report_lines([found]))
    assert "  cold 2 failed in cell 1: ZeroDivisionError: x\n" in text
    assert "warm 1 failed" not in text and "1 pages: 0 ok, 0 differs, 1 fails" in text


@pytest.mark.parametrize(("says", "line"), [
    (lambda warm, n: [stream("same\n"), stream(f"{n}\n")], "1"),
    (lambda warm, n: [stream("same", "stderr" if n == 1 else "stdout")], "outputs stderr"),
    (lambda warm, n: [shows(text_plain=f"<x {n}>")], "<x 1>"),
    (lambda warm, n: [shows(text_html=f"<p>a</p><p>b{n}</p>", text_plain="x")], "b1"),
    (lambda warm, n: [shows(text_latex=f"${n}$")], "$1$"),
    (lambda warm, n: [stream("more")] * (n == 1), "outputs stdout: more"),
    (lambda warm, n: [stream("same"), stream("E000", "stderr")][:3 - n],
     "outputs stdout, stderr: E000"),
    (lambda warm, n: [shows(image_png="x", text_plain="<Figure>")] * n, "outputs image/png+"),
    (lambda warm, n: [shows(**{"image_png" if n == 1 else "image_jpeg": "x"})],
     "outputs image/png"),
    (lambda warm, n: [nbformat.v4.new_output(
        "error", ename="E", evalue="x", traceback=["\x1b[31mcalm\x1b[0m", f"\x1b[3{n}mred{n}"])],
     "red1"),
    (lambda warm, n: [stream("a\nb\n" if n == 1 else "a\n")], "b"),
])
def test_each_kind_of_difference(repeated: Made, says: Says, line: str) -> None:
    found = repeated(says, times=2)
    assert [one.cell for one in found.differences] == [1]
    assert found.differences[0].variants[0][1].startswith(line)


@pytest.mark.parametrize("says", [
    lambda warm, n: [shows(image_png=f"pixels {n}", text_plain="<Figure>")],
    lambda warm, n: [shows(text_html=f"<style>.c{n} {{}}</style><p id='{n}'>a\n b</p>")],
    lambda warm, n: [stream("ab")] if n == 1 else [stream("a"), stream("b")],
    lambda warm, n: [stream("a"), stream("b", "stderr")][::-1 if n == 1 else 1],
    lambda warm, n: [nbformat.v4.new_output(
        "error", ename="E", evalue="x", traceback=[f"\x1b[3{n}mred\x1b[0m"])],
])
def test_what_is_no_difference(repeated: Made, says: Says) -> None:
    assert repeated(says, times=3).status == "ok"


def test_of_a_tagged_cell_count_and_types_are_compared(repeated: Made) -> None:
    tags = "tags: [varies]"
    assert repeated(lambda warm, n: [stream(f"{n} s")], tags=tags).status == "ok"
    more = repeated(lambda warm, n: [stream(f"{n} s"), shows(text_plain="x")][:n], tags=tags)
    assert more.status == "differs" and more.differences[0].cell == 1
    # Pixels are not compared, so a figure that was the same is no reason to take the tag away.
    drawn = repeated(lambda warm, n: [shows(image_png="x", text_plain="<Figure>")], tags=tags)
    assert drawn.status == "ok" and drawn.unvaried == ()
    assert repeated(lambda warm, n: [stream("0 s")], tags=tags).unvaried == (1,)


def test_the_report_shows_the_line_around_the_difference(repeated: Made) -> None:
    found = repeated(lambda warm, n: [stream("x" * 200 + f" here {n} " + "y" * 200)], times=6)
    text = list(report_lines([found]))
    assert text[1].split() == ["one", "differs", "warm", "1,", "cold", "2,", "warm", "3,", "cold",
                               "4,", "warm", "5,", "cold", "6"]
    assert text[2].startswith("  cell 1 (book/one.md:")
    assert text[3].startswith("    warm 1: … x") and " here 1 y" in text[3]
    assert max(map(len, text)) < 120 and text[-2] == "    and 2 more"
    assert text[-1] == "1 pages: 0 ok, 1 differs, 0 fails"


def test_html_comes_down_to_its_text() -> None:
    html = "<style>p {}</style><table><tr><td>1 &lt; 2</td><td> b\n c</td></tr></table><script>x()"
    assert html_text(html) == "1 < 2\nb c"
    assert printed([]).kinds == () == printed([]).lines


# ------------------------------------------------------------------ the verb

def test_the_verb_ends_with_status_1_when_anything_differs(tiny: Make) -> None:
    project = tiny({"equal": PAGES["equal"], "random": PAGES["random"]})
    done = ci(project, "repeat", "--times", "2", "--cold")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "equal                        ok       cold 1, cold 2" in lines
    assert "random                       differs  cold 1, cold 2" in lines
    assert lines[-1] == "2 pages: 1 ok, 1 differs, 0 fails"
    assert not project.build.exists() or not list(project.build.rglob("*.ipynb"))


@pytest.mark.parametrize(("arguments", "status", "says"), [
    (["equal", "--times", "2", "--cold"], 0, "1 pages: 1 ok, 0 differs, 0 fails"),
    (["--times", "1"], 2, "--times"),
    (["none"], 1, "book/none.md: not a page with code"),
])
def test_other_ends_of_the_verb(tiny: Make, arguments: list[str], status: int, says: str) -> None:
    project = tiny({"equal": PAGES["equal"]})
    done = CliRunner().invoke(main, ["--root", str(project.root), "repeat", *arguments])
    assert done.exit_code == status and says in done.output


def test_nothing_of_the_runs_stays(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    places: list[Path] = []

    def broken(project: Project, *arguments: Any, **options: Any) -> Report:
        places.append(project.build)
        raise KeyboardInterrupt

    project = replace(tiny({"equal": PAGES["equal"]}), out=tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        repeat(project, say=quiet, run=broken)
    assert places and not places[0].parent.exists()
