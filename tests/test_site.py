"""Executed notebooks to site, on a tiny real book built by the real tools."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from ci.pair import pair
from ci.project import BookError, Project
from ci.run import run
from ci.site import GUARD, build, preview, site
from ci.sphinx_ext.guard import would_execute
from tests.conftest import CONFIG, Make, cell, make_tiny, page, quiet

PICTURE = (
    "mystnb:\n  figure:\n    caption: A line.\n    name: fig-one-line\n"
    "  image:\n    alt: A line that rises.\n"
)
ONE = page(
    "# One",
    "> [!WARNING]\n> Mind **this**.",
    "Inline $a^2$ and\n\n$$\n\\sum_i x_i\n$$",
    "See [the other](../notebooks/two.ipynb#a-part), and `[x](../notebooks/two.ipynb)`.",
    "> **Claim `one-01`.** Two and two make four.",
    cell("print('first run')\ntotal = 2 + 2\nassert total == 4"),
    "> **Verdict: holds with limits.** It does.",
    cell("import matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()", PICTURE),
    "| Claim | Says | Verdict | What the run shows |\n| --- | --- | --- | --- |\n"
    "| `one-02` | so | wrong | not so |",
)
TWO = page("# Two", "## A part", cell("# @title Folded\nprint('folded')",
                                      "cellView: form\ntags: [hide-cell]"))


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A tiny book with one page of everything, run and built."""
    project = make_tiny(tmp_path_factory.mktemp("site"), {
        "one": ONE,
        "two": TWO,
        "claims": "# Claims\n\n```{book-claims}\n```\n",
        "questions": "# Questions\n\n```{book-questions}\n```\n",
        "status": "# Status\n\n```{book-status}\n```\n",
    })
    assert not run(project, say=quiet).failed
    site(project, quiet)
    return project


def html(project: Project, name: str) -> str:
    return (project.html / f"{name}.html").read_text(encoding="utf-8")


def test_outputs_reach_the_site_and_nothing_is_executed(book: Project) -> None:
    assert "first run" in html(book, "one")
    assert "folded" in html(book, "two")


def test_quotes_become_boxes_with_addresses(book: Project) -> None:
    text = html(book, "one")
    assert '<blockquote class="claim" id="claim-one-01">' in text
    assert '<blockquote class="verdict verdict-holds-with-limits">' in text
    assert "<strong>Verdict: holds with limits.</strong>" in text
    assert 'class="admonition warning"' in text and "[!WARNING]" not in text
    assert re.search(r'<tr[^>]*id="claim-one-02"', text)
    assert re.search(r'<td class="verdict-word verdict-wrong"', text)


def test_links_between_pages_lead_to_pages_and_code_is_left_alone(book: Project) -> None:
    text = html(book, "one")
    assert 'href="two.html#a-part"' in text
    assert "[x](../notebooks/two.ipynb)" in re.sub(r"<[^>]+>", "", text)


def test_formulas_are_mathml_without_a_script(book: Project) -> None:
    text = html(book, "one")
    assert text.count("<math ") == 2
    assert not re.search(r"<script[^>]*mathjax", text, re.I)


def test_cells_have_the_numbers_of_the_records(book: Project) -> None:
    text = html(book, "one")
    assert text.index('id="cell-1"') < text.index("first run") < text.index('id="cell-2"')


def test_figures_say_what_they_show(book: Project) -> None:
    assert 'alt="A line that rises."' in html(book, "one")


def test_colab_and_edit_buttons(book: Project) -> None:
    text = html(book, "one")
    assert ('href="https://colab.research.google.com/github/someone/tiny/blob/trunk/notebooks/'
            'one.ipynb"') in text
    assert 'href="https://github.com/someone/tiny/edit/trunk/book/one.md"' in text
    assert "colab" not in html(book, "index").lower()


def test_the_download_has_outputs(book: Project) -> None:
    notebook = nbformat.read(book.html / "_sources" / "one.ipynb", as_version=4)
    assert notebook.cells[1].outputs[0].text == "first run\n"
    assert 'href="_sources/one.ipynb"' in html(book, "one")


def test_generated_pages(book: Project) -> None:
    claims = html(book, "claims")
    assert 'href="one.html#claim-one-01"' in claims and 'href="one.html#cell-1"' in claims
    assert "Two and two make four." in claims
    assert 'option[value="holds with limits"]:checked' in claims
    questions = html(book, "questions")
    assert "What is two and two?" in questions
    assert '<span lang="zh">二加二等于几？</span>' in questions
    assert 'href="one.html#cell-1"' in questions
    status = html(book, "status")
    assert 'href="one.html"' in status and "ok" in status and "Python 3." in status


def test_nothing_changed_builds_nothing(book: Project) -> None:
    before = (book.html / "one.html").stat().st_mtime_ns
    lines: list[str] = []
    site(book, lines.append)
    assert lines == ["site: unchanged"]
    assert (book.html / "one.html").stat().st_mtime_ns == before


def plain_build(project: Project) -> str:
    """Run `jupyter-book build book/` as a person would, and return what it says."""
    start = "from jupyter_book.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", start, "build", "book", "--all"],
                          cwd=project.root, capture_output=True, text=True, check=True,
                          env={k: v for k, v in os.environ.items() if k != GUARD})
    return done.stdout + done.stderr


def test_the_plain_build_uses_the_outputs_too(book: Project) -> None:
    said = plain_build(book)
    assert "Executing notebook" not in said
    assert said.count("Using cached notebook") == 2


def test_the_plain_build_executes_what_has_no_outputs(tiny: Make) -> None:
    """From a fresh clone, with nothing run before; the page starts in an empty folder."""
    folder = "import pathlib\n\nprint('files', len(list(pathlib.Path.cwd().iterdir())))"
    project = tiny({"one": page("# One", cell(folder)),
                    "status": "# Status\n\n```{book-status}\n```\n"})
    said = plain_build(project)
    assert "Executing notebook" in said and "WARNING:" not in said
    assert "files 0" in html(project, "one")
    assert "no record: executed by the site build" in html(project, "status")
    assert not list(project.notebooks.glob("*.py")) and not project.records.exists()


def test_a_changed_output_reaches_the_site_and_prose_runs_nothing(tiny: Make) -> None:
    project = tiny({"one": TWO.replace("# Two", "# One")})
    run(project, say=quiet)
    site(project, quiet)
    assert "folded" in html(project, "one")
    prose = TWO.replace("# Two", "# A new title")
    project.text("one").write_text(prose)
    pair(project)
    assert run(project, say=quiet).executed == ()
    site(project, quiet)
    assert "A new title" in html(project, "one")
    project.text("one").write_text(prose.replace("print('folded')", "print('changed')"))
    pair(project)
    with pytest.raises(BookError, match="has changed since its last run"):
        site(project, quiet)
    run(project, say=quiet)
    site(project, quiet)
    assert "changed" in html(project, "one") and "folded</span>" not in html(project, "one")


def test_the_guard_stops_a_build_that_would_execute(tiny: Make,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    project = tiny({"one": TWO})
    project.cache.mkdir(parents=True)
    with pytest.raises(BookError, match="the site build failed"):
        build(project, strict=True)
    assert "would be executed by the site build: one" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "complaint"), [
    (page("# One", "[gone](../notebooks/gone.ipynb)", cell("1")), "gone"),
    (page("# One", cell("import sys\n\nprint('stray', file=sys.stderr)")), "stderr"),
])
def test_warnings_are_errors_and_the_old_site_stays(
        tiny: Make, capsys: pytest.CaptureFixture[str], text: str, complaint: str) -> None:
    project = tiny({"one": TWO})
    run(project, say=quiet)
    site(project, quiet)
    project.text("one").write_text(text)
    pair(project)
    run(project, say=quiet)
    with pytest.raises(BookError, match="the site build failed"):
        site(project, quiet)
    assert complaint in capsys.readouterr().err
    assert "folded" in html(project, "one")
    # The failed build must not pass for a finished one.
    with pytest.raises(BookError):
        site(project, quiet)


def test_a_fork_changes_one_file(tiny: Make) -> None:
    config = CONFIG.replace("someone/tiny", "other/fork").replace("trunk", "dev")
    project = tiny({"one": TWO}, config=config)
    run(project, say=quiet)
    site(project, quiet)
    text = html(project, "one")
    assert "someone/tiny" not in text
    assert "github/other/fork/blob/dev/notebooks/one.ipynb" in text
    assert "github.com/other/fork/edit/dev/book/one.md" in text


def test_one_page_alone(tiny: Make) -> None:
    project = tiny({"one": TWO, "two": TWO.replace("# Two", "# Three"), "three": TWO})
    run(project, only=["one", "two"], say=quiet)
    path: Path = preview(project, "one")
    assert "folded" in path.read_text(encoding="utf-8")
    assert not project.html.exists()
    assert would_execute(project, ["one", "two"]) == []
