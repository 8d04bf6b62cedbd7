"""Executed notebooks to site, on a tiny real book built by the real tools."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
import pytest
from docutils import nodes

from ci import site as sites
from ci.pair import pair
from ci.project import BookError, Project, digest, write_json
from ci.run import run
from ci.site import build, preview, site
from ci.sphinx_ext import sidebar
from ci.sphinx_ext.formulas import mathml
from ci.sphinx_ext.guard import GUARD, would_execute
from ci.synthetic import make_book, one_line, pretend_run
from tests.conftest import CONFIG, ROOT, Make, cell, make_tiny, page, quiet

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


def test_an_escaped_sign_in_the_text_of_a_formula_is_shown_without_its_backslash() -> None:
    shown = mathml(nodes.math(text=r"n = \text{fan\_in} \cdot 5\,\text{\%}"), "inline")
    assert "<mtext>fan_in</mtext>" in shown and "<mtext>%</mtext>" in shown and "\\" not in shown


def test_a_function_stands_apart_and_infinity_is_a_number() -> None:
    space = '<mspace width="0.17em"></mspace>'
    shown = mathml(nodes.math(text=r"x \log x + \log 0 \cdot \infty"), "inline")
    assert f"<mi>x</mi>{space}<mi>log</mi>{space}<mi>x</mi>" in shown
    assert f"<mo>&#x0002B;</mo><mi>log</mi>{space}<mn>0</mn>" in shown
    assert "<mi>&#x0221E;</mi>" in shown
    assert space not in mathml(nodes.math(text=r"\tanh(x_t W)"), "inline")


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


def test_a_new_run_that_no_page_shows_leaves_the_site_whole(tiny: Make) -> None:
    """Other records, the same outputs, and no status page: nothing is read, all files are there."""
    project = tiny({"one": TWO.replace("# Two", "# One")})
    run(project, say=quiet)
    site(project, quiet)
    before = {path.relative_to(project.html): path.read_bytes()
              for path in project.html.rglob("*") if path.is_file()}
    first = json.loads(project.record("one").read_text(encoding="utf-8"))
    run(project, force=True, say=quiet)
    record = json.loads(project.record("one").read_text(encoding="utf-8"))
    # The page does show its whole seconds, its GiB and its day: those of the first run.
    shown = {name: first[name] for name in ("seconds", "peak_mib", "started")}
    others = {**record, **shown, "cell_seconds": first["cell_seconds"] + 1}
    write_json(project.record("one"), others)
    lines: list[str] = []
    site(project, lines.append)
    assert lines != ["site: unchanged"] and "0 read" in lines[0]
    assert {path.relative_to(project.html): path.read_bytes()
            for path in project.html.rglob("*") if path.is_file()} == before


def plain_build(project: Project) -> str:
    """Run `jupyter-book build book/` as a person would, and return what it says."""
    start = "from jupyter_book.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", start, "build", "book", "--all"],
                          cwd=project.root, capture_output=True, text=True, check=True,
                          env={k: v for k, v in os.environ.items() if k != GUARD})
    return done.stdout + done.stderr


def test_the_plain_build_uses_the_outputs_too_and_makes_the_same_pages(book: Project) -> None:
    ours = contents(book.html)
    said = plain_build(book)
    assert "Executing notebook" not in said
    assert said.count("Using cached notebook") == 2
    theirs = contents(book.html)
    assert [name for name in ours if ours[name] != theirs[name]] == [
        "_sources/one.ipynb", "_sources/two.ipynb"]  # ours hold the outputs


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
    assert not (project.build / ".stage").exists()
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


# ------------------------------------------------------------------ builds upon the last one

def outputs(source: str) -> list[nbformat.NotebookNode]:
    """Return a pretended cell's outputs: a line, and a picture where the cell draws one."""
    found = one_line(source)
    if "plt" in source:
        raw = base64.b64encode(source.encode()).decode()
        found.append(nbformat.v4.new_output("display_data", {"image/png": raw}))
    return found


def chapter(name: str, *parts: str, verdict: str = "holds") -> str:
    """Return a page of the edited book: a claim, a figure, a heading to link to, a link."""
    return page(
        f"# The page {name}", "## Short answer\n\nIt depends.", "## A part", *parts,
        f"> **Claim `{name}-01`.** Two and two make four.",
        cell(f"print('{name}')\nassert 2 + 2 == 4"),
        f"> **Verdict: {verdict}.** It does.",
        cell(f"plt.plot([1, 2], label='{name}')", PICTURE.replace("one-line", name)),
    )


TO_TWO = "See [](../notebooks/two.ipynb), [its part](../notebooks/two.ipynb#a-part)."
EDITED = {
    "index": "# Tiny\n\n```{book-pages}\n```\n",
    "one": chapter("one", TO_TWO, "A word that goes: ephemeral."),
    "two": chapter("two", "```{index} single: an entry; of the index\n```"),
    "three": chapter("three", "Plain."),
    "news": "# News\n\n```{book-claim} one-01\n```\n",
    "claims": "# Claims\n\n```{book-claims}\n```\n",
    "questions": "# Questions\n\n```{book-questions}\n```\n",
    "status": "# Status\n\n```{book-status}\n```\n",
}


@dataclass
class Edited:
    """A book that is edited and built again and again, beside builds of it from nothing."""

    folder: Path
    pages: dict[str, str]
    project: Project
    builds: int = 0

    def write(self) -> None:
        """Write the pages that changed, and pretend to run all."""
        for slug, text in self.pages.items():
            path = self.project.text(slug)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                os.utime(path, (1e9, 1e9))  # as unpacked from an archive: no help from its time
        pair(self.project)
        pretend_run(self.project, outputs)

    def build(self) -> dict[str, list[str]]:
        """Write, pretend to run, build upon the last site, compare; return what was read."""
        self.write()
        return self.build_and_compare()

    def report(self) -> dict[str, list[str]]:
        """Return what the last build read and wrote."""
        path = self.project.build / ".stage" / "_build" / "report.json"
        found: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def build_and_compare(self) -> dict[str, list[str]]:
        site(self.project, quiet)
        self.builds += 1
        fresh = replace(self.project, out=self.folder / f"fresh-{self.builds}")
        for made in (self.project.executed, self.project.records):
            shutil.copytree(made, fresh.build / made.name)
        site(fresh, quiet)
        ours, theirs = contents(self.project.html), contents(fresh.html)
        assert sorted(ours) == sorted(theirs)
        assert [name for name in ours if ours[name] != theirs[name]] == []
        shutil.rmtree(fresh.build)
        return self.report()


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a site. Nothing is left out or made equal: nothing is random."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    config = CONFIG.replace("html: {", "html: {baseurl: 'https://example.org/', ").replace(
        "sphinx:\n", "sphinx:\n  extra_extensions: [sphinx_sitemap]\n")
    project = make_tiny(tmp_path, EDITED, config)
    return Edited(tmp_path, dict(EDITED), project)


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_every_edit_gives_the_site_of_a_build_from_nothing(edited: Edited) -> None:
    """Byte for byte, all files; and no more pages are read than the edit concerns."""
    pages, book = edited.pages, edited.project
    everything = sorted(pages)
    assert sorted(edited.build()["read"]) == everything

    pages["one"] = pages["one"].replace("ephemeral", "lasting")  # prose
    done = edited.build()
    # The index is always written: Sphinx does so with the page that holds the contents.
    assert done["read"] == ["one"] and done["written"] == ["index", "one"]
    assert b"ephemer" not in (book.html / "searchindex.js").read_bytes()

    before = {path.name for path in (book.html / "_images").iterdir()}
    pages["one"] = pages["one"].replace("[1, 2]", "[1, 2, 3]")  # code, and a new output
    assert edited.build()["read"] == ["one"]
    assert len({path.name for path in (book.html / "_images").iterdir()} - before) == 1

    pages["two"] = pages["two"].replace("# The page two", "# A new title")
    done = edited.build()
    assert done["read"] == ["index", "two"] and done["written"] == everything
    assert "A new title" in html(book, "one")

    pages["two"] = pages["two"].replace("## A part", "## A part\n\n## One more heading")
    done = edited.build()
    assert done["read"] == ["two"] and done["written"] == everything

    pages["one"] = pages["one"].replace("Verdict: holds.", "Verdict: wrong.")
    done = edited.build()
    assert done["read"] == ["claims", "news", "one"]
    assert "verdict-wrong" in html(book, "claims") and "verdict-wrong" in html(book, "news")

    record = book.record("three")
    replace_in(record, '"peak_mib": 1.0', '"peak_mib": 77.0')  # a record alone
    done = edited.build_and_compare()
    assert done["read"] == ["status"] and "77" in html(book, "status")

    replace_in(book.claims_file, "make four", "make exactly four")
    done = edited.build()
    assert "claims" in done["read"] and "make exactly four" in html(book, "claims")

    replace_in(book.topics_file, "two and two?", "two plus two?")
    assert "questions" in edited.build()["read"] and "two plus two" in html(book, "questions")

    # The order of the table of contents; then its caption.
    replace_in(book.root / "_toc.yml", "      - file: one\n      - file: two\n",
               "      - file: two\n      - file: one\n")
    assert edited.build()["written"] == everything
    replace_in(book.root / "_toc.yml", "caption: Part", "caption: The part")
    assert edited.build()["written"] == everything

    pages["four"] = chapter("four", "A page more: quadruple.")
    replace_in(book.root / "_toc.yml", "      - file: news\n",
               "      - file: four\n      - file: news\n")
    done = edited.build()
    assert "four" in done["read"] and "three" not in done["read"]
    assert "four.html" in (book.html / "sitemap.xml").read_text(encoding="utf-8")

    # A page removed leaves nothing: not itself, its figure, its words or its record.
    del pages["four"]
    for gone in (book.text("four"), book.executed_notebook("four"), book.record("four")):
        gone.unlink()
    replace_in(book.root / "_toc.yml", "      - file: four\n", "")
    edited.build()
    assert not [name for name, data in contents(book.html).items()
                if "four.html" in name or b"quadruple" in data or b"four.html" in data]

    style = book.book / "_static" / "own.css"
    style.parent.mkdir()
    style.write_text("p { margin: 1em }")
    assert sorted(edited.build()["read"]) == everything
    style.write_text("p { margin: 2em }")
    assert sorted(edited.build()["read"]) == everything
    assert "2em" in (book.html / "_static" / "site.css").read_text(encoding="utf-8")

    replace_in(book.root / "_config.yml", "title: Tiny", "title: Not so tiny")
    assert sorted(edited.build()["read"]) == everything
    assert "Not so tiny" in html(book, "one")


def test_a_stage_that_is_not_whole_is_built_anew(edited: Edited, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    edited.write()
    site(edited.project, quiet)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    edited.pages["one"] = edited.pages["one"].replace("ephemeral", "lasting")
    with monkeypatch.context() as patch:
        patch.setattr(sites, "_publish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            edited.write()
            site(edited.project, quiet)
    (edited.project.build / ".stage" / "_build" / "html" / "two.html").write_text("half a fi")
    assert sorted(edited.build()["read"]) == sorted(edited.pages)


def test_a_harmed_cache_is_mended(edited: Edited) -> None:
    """Nothing of another book shows, and the plain build finds every page afterwards."""
    edited.write()
    site(edited.project, quiet)
    cache = edited.project.cache
    for harm in ("database", "lost", "lost files", "foreign"):
        if harm == "database":
            (cache / "global.db").write_bytes(b"garbage" * 1000)
        elif harm == "lost":
            shutil.rmtree(cache)
        else:
            for path in (cache / "executed").rglob("base.ipynb"):
                if harm == "foreign":
                    path.write_text(path.read_text().replace("pretended", "foreign"))
                else:
                    path.unlink()
        edited.pages["one"] += f"\nAfter {harm}.\n"
        edited.write()
        site(edited.project, quiet)
        assert edited.report()["read"] == ["one"]
        assert "pretended" in html(edited.project, "one")
        assert not re.search("foreign [0-9a-f]{12}", html(edited.project, "one"))
    assert "Executing notebook" not in plain_build(edited.project)
    assert not re.search("foreign [0-9a-f]{12}", html(edited.project, "two"))


def test_pages_with_the_same_code_show_their_own_outputs(edited: Edited) -> None:
    """The cache knows a page by its code; here two pages have the same, and other outputs."""
    edited.pages["news"] = "# News\n"
    edited.pages["two"] = TWO
    edited.pages["three"] = TWO.replace("# Two", "# Three")
    edited.pages["one"] = TWO.replace("# Two", "# One")
    edited.build()
    for turn in ("first", "second"):
        for slug in ("one", "two", "three"):
            path, record = edited.project.executed_notebook(slug), edited.project.record(slug)
            notebook = nbformat.read(path, as_version=4)
            notebook.cells[-1].outputs = [
                nbformat.v4.new_output("stream", name="stdout", text=f"{turn} of {slug}\n")]
            nbformat.write(notebook, path)
            data = json.loads(record.read_text(encoding="utf-8"))
            record.write_text(json.dumps({**data, "notebook": digest(path.read_bytes())}))
        edited.build_and_compare()
        for slug in ("one", "two", "three"):
            assert f"{turn} of {slug}\n" in html(edited.project, slug)


def test_the_list_of_pages_is_the_themes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    """Made part by part it is what the theme makes in one piece; a large book's is folded."""
    project = make_book(tmp_path / "many", 4, parts_of=2)
    pretend_run(project)
    site(project, quiet)
    ours = contents(project.html)
    other = replace(project, out=tmp_path / "other")
    pretend_run(other)
    with monkeypatch.context() as patch:
        patch.setattr(sidebar, "take_over", lambda app: None)
        site(other, quiet)
    theirs = contents(other.html)
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    assert html(project, "page-0001").count('href="page-0004.html"') == 1

    shutil.rmtree(other.build / "html")
    monkeypatch.setattr(sidebar, "LARGE", 3)
    shutil.rmtree(other.build / ".stage")
    site(other, quiet)
    text = html(other, "page-0001")
    menu = text[text.index('<nav class="bd-links'):]
    menu = menu[:menu.index("</nav>")]
    # This page and its neighbour, the first page of the other part, the first of the reference.
    assert re.findall(r'href="([^"]+)"', menu) == [
        "index.html", "#", "page-0002.html", "page-0003.html", "questions.html"]
    assert ">Part 2</a>" in menu


def test_edited_code_is_used_by_a_process_that_had_loaded_the_old(
        edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_run(edited.project, outputs)
    monkeypatch.setattr(sites, "CODE", "what it was")
    monkeypatch.setattr(sites, "_site", None)  # not in this process
    lines: list[str] = []
    site(edited.project, lines.append)
    assert lines == ["site: 8 pages, 8 read, 8 written"]
    site(edited.project, lines.append)
    assert lines[1:] == ["site: unchanged"]


def test_the_stage_depends_on_all_the_code_that_makes_the_site() -> None:
    listing = "import sys, ci.site; print([m for m in sys.modules if m.split('.')[0] == 'ci'])"
    done = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    loaded = {name.split(".")[1] for name in ast.literal_eval(done.stdout) if "." in name}
    assert loaded - {"sphinx_ext"} == set(sites.MODULES) - {"__init__"}
