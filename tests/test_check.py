"""The checks: a page that follows the rules has no finding, and each broken rule has one."""

from __future__ import annotations

import re

import pytest

from ci.check import check, check_config, check_page, check_requirements
from ci.pages import Problem, claims
from ci.pair import normal_form
from ci.project import BookError, load_yaml
from tests.conftest import CONFIG, KNOWN, Make, cell, ci, page, parsed, whole_page

SLUGS = ["index", "one", "two"]


def findings(text: str) -> list[Problem]:
    return list(check_page(parsed(text), KNOWN, SLUGS, is_topic=False))


def test_a_page_in_the_house_form_has_no_finding() -> None:
    assert findings(whole_page()) == []


ASSERTING = "print(add(2, 2))\nassert add(2, 2) == 4"
CLAIM = "> **Claim `one-01`.** Two and two make four."
VERDICT = "> **Verdict: holds.** The cell counts to four."


@pytest.mark.parametrize(("old", "new", "what"), [
    # claims
    (f"```{{code-cell}}\n{ASSERTING}\n```\n\n", "", "claim one-01 has no test cell"),
    (VERDICT, "It is four.", "claim one-01 has no verdict"),
    ("Verdict: holds.", "Verdict: mostly.", "unknown verdict 'mostly'"),
    ("`one-01`", "`one-99`", "unknown claim id 'one-99'"),
    ("`one-01`", "`one-99`", "claim one-01 is not dealt with"),
    (ASSERTING, "print(add(2, 2))", "no cell of one-01 asserts anything"),
    (ASSERTING, "print(add(2, 2))\nassert True", "no cell of one-01 asserts anything"),
    (ASSERTING, "print(add(2, 2))\nassert (add(2, 2) == 5, 'no')",
     "no cell of one-01 asserts anything"),
    (ASSERTING, "def never():\n    assert add(2, 2) == 4", "no cell of one-01 asserts anything"),
    ("make four.", "make five.", "not worded as in the list"),
    ("> **Verdict: holds.** The cell counts to four.", "> **Verdict: holds.**",
     "the verdict says nothing more"),
    ("> **Verdict: holds.**", "> **Verdict holds**", "nearly a claim or a verdict"),
    (VERDICT, f"{VERDICT}\n\n{CLAIM}\n\nAgain.", "claim one-01 stands twice"),
    # sections
    ("## What changed\n\nNothing.\n\n", "", "section 'What changed' is missing"),
    ("## What changed", "## Changes", "unknown section 'Changes'"),
    ("## At a glance", "## Set-up", "out of order or stands twice"),
    ("# What is", "Not a title: what is", "0 titles"),
    ("Four, in all that was tried.", "word " * 61, "the short answer has 61 words"),
    # cells
    ("seed = 0  # any whole number", "seed = 0", "a parameter without a comment"),
    ("seed = 0  # any whole number", "Seed = 0  # any", "does more than set lower-case names"),
    (":tags: [parameters]\n\n", "", "0 cells tagged parameters"),
    ("answer = 2 + 1", "!ls\nanswer = 3", "`!ls` in a cell"),
    ("answer = 2 + 1", "%pip install x\nanswer = 3", "`%pip` in a cell"),
    ("answer = 2 + 1", "answer = (", "is not Python"),
    ("answer = 2 + 1", "answer = 3  # " + "x" * 90, "a line of"),
    ("answer = 2 + 1", "\n".join(f"x{n} = {n}" for n in range(41)), "has 42 lines"),
    ("One parameter.\n\n", "", "follows another without a word"),
    # options
    (":cellView: form\n", "", "folds in one place only"),
    ("tags: [hide-cell]", "tags: [hide-cel]", "unknown tag 'hide-cel'"),
    (":cellView: form\n", ":cellView: form\n:mystbn: {}\n", "unknown option 'mystbn'"),
    (":cellView: form\n", ":cellView: form\n:date: 2026-01-01\n", "no JSON value"),
    ("assert answer == 3", "print(answer)", "a solution that asserts nothing"),
    # the header
    ("name: python3", "name: python4", "the kernelspec is"),
    ("book//md:myst,notebooks//ipynb", "ipynb,md:myst", "jupytext formats are"),
    # prose
    ("Count on fingers.", "```{note}\nx\n```", "a MyST directive"),
    ("Count on fingers.", ":::{note}\nx\n:::", "a MyST directive"),
    ("Count on fingers.", "See {ref}`x`.", "a MyST role"),
    ("Count on fingers.", "(here)=\nCount.", "a MyST target"),
    ("Count on fingers.", "Count.[^1]", "a footnote"),
    ("Count on fingers.", "![hand](hand.png)", "an image"),
    ("Count on fingers.", "> [!HINT]\n> Count.", "unknown alert 'HINT'"),
    ("</details>", "", "do not match"),
    # links
    ("Count on fingers.", "See [x](../notebooks/gone.ipynb).", "there is no page 'gone'"),
    ("Count on fingers.", "See [x](two.md).", "link to two.md"),
    ("Count on fingers.", "See [x](http://example.com).", "link to http://example.com"),
    ("Count on fingers.", "See [x](#no-such).", "one has no heading #no-such"),
    # figures
    ("answer = 2 + 1", "plt.show()\nanswer = 3", "draws without alt text"),
])
def test_a_broken_rule_is_found(old: str, new: str, what: str) -> None:
    text = whole_page()
    assert old in text
    broken = text.replace(old, new, 1)
    found = findings(broken)
    assert any(what in problem.what for problem in found), found
    assert all(problem.line >= 1 and problem.way_out for problem in found)


def test_lines_are_those_of_the_file() -> None:
    text = normal_form(whole_page().replace("answer = 2 + 1", "answer = 3\n\n\n!ls"))
    problem = next(p for p in findings(text) if "`!ls`" in p.what)
    assert text.splitlines()[problem.line - 1] == "!ls"
    text = normal_form(whole_page().replace("Verdict: holds.", "Verdict: mostly."))
    problem = next(p for p in findings(text) if "mostly" in p.what)
    assert text.splitlines()[problem.line - 1] == CLAIM
    text = whole_page().replace("tags: [hide-cell]", "tags: [hide-cel]")
    problem = next(p for p in findings(text) if "hide-cel'" in p.what)
    assert text.splitlines()[problem.line - 1].startswith("# @title")


def test_a_row_is_found_by_its_id_and_needs_a_condition() -> None:
    def with_row(call: str) -> str:
        text = whole_page()
        claim = text[text.index(CLAIM):text.index("## When it goes wrong")]
        table = ("| Claim | Says | Verdict | What the run shows |\n| --- | --- | --- | --- |\n"
                 "| `one-01` | so | holds | four |")
        helper = cell("def row(claim, ok):\n    assert ok, claim\n    print(claim)")
        return normal_form(text.replace(claim, "Nothing.\n\n").replace(
            "None.", f"{helper}\n\nThen.\n\n{cell(call)}\n\n{table}"))

    good = with_row('row("one-01", add(2, 2) == 4)')
    assert findings(good) == []
    dealt = claims(parsed(good))[0]
    assert [(c.id, c.verdict, c.full) for c in dealt] == [("one-01", "holds", False)]
    literal = findings(with_row('row("one-01", True)'))
    assert any("no cell of one-01 asserts anything" in p.what for p in literal)
    missing = findings(with_row('row("other", add(2, 2) == 4)'))
    assert any("claim one-01 has no test cell" in p.what for p in missing)


def test_not_checkable_needs_no_cell() -> None:
    text = whole_page().replace(f"```{{code-cell}}\n{ASSERTING}\n```\n\n", "").replace(
        "Verdict: holds.", "Verdict: not checkable here.")
    assert findings(text) == []


def test_the_length_of_a_topic_page() -> None:
    found = list(check_page(parsed(whole_page()), KNOWN, SLUGS, is_topic=True))
    assert any("words of prose" in p.what for p in found)
    assert any("code cells" in p.what for p in found)
    assert any("1 links for further reading" in p.what for p in found)


def test_figures_need_a_name_of_their_page() -> None:
    options = ("mystnb:\n  figure:\n    caption: x\n    name: fig-two-x\n  image:\n"
               "    alt: A line.\n")
    text = page("# One", cell("plt.show()", options))
    assert any("figure name 'fig-two-x'" in p.what for p in findings(text))


def test_findings_name_file_line_and_way_out(tiny: Make) -> None:
    project = tiny({"one": whole_page().replace("Verdict: holds.", "Verdict: mostly.")})
    done = ci(project, "check", "one")
    assert done.returncode == 1
    assert re.search(r"^book/one\.md:\d+: claim one-01: unknown verdict 'mostly'\. Use one of: ",
                     done.stdout, re.M)


def test_stray_pages_stale_pairs_and_missing_rows(tiny: Make) -> None:
    project = tiny({"one": whole_page()})
    (project.book / "stray.md").write_text("# Stray\n")
    project.notebook("one").write_text("{}")
    found = [str(finding) for finding in check(project)]
    assert any(f.startswith("book/stray.md:1: a page that is not in _toc.yml") for f in found)
    assert any(f.startswith("notebooks/one.ipynb:1: not in step") for f in found)
    assert any(f.startswith("README.md:1: missing") for f in found)


def test_a_key_twice_is_refused_everywhere(tiny: Make) -> None:
    project = tiny({"one": whole_page()})
    for path in (project.root / "_config.yml", project.root / "_toc.yml", project.claims_file,
                 project.topics_file):
        text = path.read_text(encoding="utf-8")
        key = text.splitlines()[0].split(":")[0]
        path.write_text(f"{text.rstrip()}\n{key}: again\n", encoding="utf-8")
        with pytest.raises(BookError, match=rf"{path.name}:\d+: found duplicate key"):
            load_yaml(path)
        assert any("duplicate key" in str(f) for f in check(project))
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("line", "name"), [
    ("titel: Typo", "titel"),
    ("latex: {latex_engin: x}", "latex.latex_engin"),
])
def test_an_unknown_key_is_found(tiny: Make, line: str, name: str) -> None:
    project = tiny({"one": whole_page()}, config=CONFIG + line + "\n")
    found = check_config(project, [])
    assert [f.what for f in found] == [f"unknown key '{name}'"]
    assert found[0].line == len(CONFIG.splitlines()) + 1


def test_an_unknown_sphinx_key_is_found(tiny: Make) -> None:
    config = CONFIG.replace("nb_merge_streams", "nb_merge_stream")
    assert "unknown key 'sphinx.config.nb_merge_stream'" in [
        f.what for f in check_config(tiny({"one": whole_page()}, config=config), [])]


def test_requirements_are_pinned_whole_and_free_of_cuda(tiny: Make) -> None:
    project = tiny({"one": whole_page()})
    (project.root / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["click", "Types_PyYAML==1"]\n')
    project.requirements.write_text(
        "click==8.1 ; python_version < '4'\ntypes-pyyaml==1\n# a comment\n")
    assert check_requirements(project, []) == []
    project.requirements.write_text("click>=8\nnvidia-cublas==1\n")
    found = [f.what for f in check_requirements(project, [])]
    assert found == ["not pinned: click>=8", "nvidia-cublas is torch's own to choose",
                     "click is not in requirements.txt", "types-pyyaml is not in requirements.txt"]
