"""Tiny pages and tiny books, built in code; the real tools run on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ci.claims import Listed
from ci.cli import BUILT
from ci.pages import Page, parse_page
from ci.pair import normal_form, pair
from ci.project import Project
from ci.synthetic import HEADER

ROOT = Path(__file__).resolve().parent.parent


def cell(source: str, options: str = "") -> str:
    """Return a code cell as text; ``options`` are the lines between its dashes."""
    head = f"---\n{options.strip()}\n---\n" if options else ""
    return f"```{{code-cell}}\n{head}{textwrap.dedent(source).strip()}\n```"


def page(*parts: str) -> str:
    """Return the text of a page from its parts, prose and cells, in normal form."""
    return normal_form(HEADER + "\n" + "\n\n".join(parts) + "\n")


CONFIG = f"""\
title: Tiny
author: Tests
only_build_toc_files: true
repository: {{url: https://github.com/someone/tiny, branch: trunk, path_to_book: book}}
launch_buttons: {{colab_url: https://colab.research.google.com}}
html: {{use_edit_page_button: true, use_repository_button: true}}
execute: {{execute_notebooks: cache, run_in_temp: true, timeout: 60, stderr_output: remove-warn}}
sphinx:
  local_extensions: {{ci.sphinx_ext: {ROOT}}}
  config: {{html_math_renderer: mathml, myst_heading_anchors: 3, nb_merge_streams: true}}
"""

CLAIMS = """\
one:
  - {id: one-01, kind: behaviour, says: Two and two make four.}
"""
TOPICS = "one: {framework: PyTorch, en: What is two and two?, zh: 二加二等于几？}\n"


Make = Callable[..., Project]


def quiet(line: str) -> None:
    """Take the place of print."""


def make_tiny(folder: Path, pages: dict[str, str], config: str = CONFIG, paired: bool = True
              ) -> Project:
    """Make a tiny project under ``folder`` from pages by name; ``index`` comes by itself."""
    project = Project(folder / "tiny")
    (project.book / "_data").mkdir(parents=True, exist_ok=True)
    pages = {"index": "# Tiny\n\nA book.\n", **pages}
    for name, text in pages.items():
        project.text(name).write_text(text, encoding="utf-8")
    toc = "format: jb-book\nroot: index\nparts:\n  - caption: Part\n    chapters:\n"
    toc += "".join(f"      - file: {name}\n" for name in pages if name != "index")
    (project.root / "_toc.yml").write_text(toc, encoding="utf-8")
    (project.root / "_config.yml").write_text(config, encoding="utf-8")
    if not (project.book / "_toc.yml").is_symlink():
        (project.book / "_toc.yml").symlink_to("../_toc.yml")
    project.requirements.write_text("click==8\n", encoding="utf-8")
    (project.root / "pyproject.toml").write_text(
        '[project]\nname = "tiny"\ndependencies = ["click"]\n', encoding="utf-8")
    (project.book / "_data" / "claims.yml").write_text(CLAIMS, encoding="utf-8")
    (project.book / "_data" / "topics.yml").write_text(TOPICS, encoding="utf-8")
    if paired:
        pair(project)
    return project


@pytest.fixture
def tiny(tmp_path: Path) -> Make:
    """Return :func:`make_tiny` for the test's own folder."""
    return partial(make_tiny, tmp_path)


def parsed(text: str, slug: str = "one") -> Page:
    """Return the page that a text is."""
    return parse_page(slug, Path(f"book/{slug}.md"), text)


KNOWN = {"one-01": Listed("one-01", "one", "behaviour", "Two and two make four.")}


def whole_page() -> str:
    """Return a page that follows every rule but those of length."""
    return page(
        "# What is two and two?",
        "## Short answer\n\nFour, in all that was tried.",
        "## At a glance\n\nYou will be able to add.",
        "## Set-up\n\nNothing but a version.",
        cell('import sys\n\nprint("Python", sys.version_info[0])'),
        "One parameter.",
        cell("seed = 0  # any whole number", "tags: [parameters]"),
        "## The mechanism, rebuilt\n\nCount on fingers.",
        cell("def add(a, b):\n    return sum([1] * a + [1] * b)"),
        "## Claims, run\n\n> **Claim `one-01`.** Two and two make four.\n\nAdd them.",
        cell("print(add(2, 2))\nassert add(2, 2) == 4"),
        "> **Verdict: holds.** The cell counts to four.",
        "## When it goes wrong\n\nIt does not.",
        "## In the other framework\n\nIt is four too.",
        "## What changed\n\nNothing.",
        "## The small print, run\n\nNone.",
        "## Say it in a minute\n\nFour.",
        "## Exercises\n\n### Exercise 1: three\n\nWrite it.",
        cell("answer = 2 + 1\nprint(answer)"),
        "The solution.",
        cell("# @title Solution to exercise 1\nassert answer == 3",
             "cellView: form\ntags: [hide-cell]"),
        "### Exercise 2: guess\n\n<details>\n<summary>Answer</summary>\n\nFour.\n\n</details>",
        "## Further reading\n\n- [Python](https://docs.python.org/3/): the language.",
    )


def ci(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m ci`` on a project, as a person would, and return what came of it."""
    return subprocess.run(
        [sys.executable, "-m", "ci", "--root", str(project.root), *arguments], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )


@pytest.fixture(scope="session")
def site() -> Project:
    """Return the real book, run and built; when all is unchanged this takes seconds."""
    project = Project(ROOT)
    done = ci(project, "site" if os.environ.get(BUILT) else "book")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def chromium_path() -> str | None:
    """Return the browser of the machine, None for the one that Playwright installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None
