"""Books of any size for benchmarks and tests: small pages, and a pretended run of them.

Only for measuring how the line grows. Nothing made here is ever published: the outputs are made
up, which is what the rest of the line exists to prevent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat

from ci.pages import count_verdicts, notebook_slugs, read_page
from ci.pair import pair
from ci.project import Project, digest, git_commit, load_yaml, write_atomic, write_json
from ci.record import Machine, Record, page_key, versions, write_record

CHECKOUT = Path(__file__).resolve().parent.parent

HEADER = """\
---
jupytext:
  formats: book//md:myst,notebooks//ipynb
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
    jupytext_version: 1.19.6
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
PAGE = HEADER + """
# Question {number} of many

## Short answer

The answer to question {number} is {answer}, and [a neighbour](../notebooks/{other}.ipynb) agrees.

## Claims, run

> **Claim `{slug}-01`.** Twice {number} is {answer}.

Double it, in a cell that asserts what it shows.

```{{code-cell}}
number = {number}
print("twice", number, "is", 2 * number)
assert 2 * number == {answer}
```

> **Verdict: holds.** The cell doubles the number.

## What changed

Nothing since the page before.
"""
TEXTS = {
    "index": "# A book for measuring\n\n```{book-pages}\n```\n",
    "questions": "# Questions\n\n```{book-questions}\n```\n",
    "claims": "# Claims\n\n```{book-claims}\n```\n",
    "status": "# Status\n\n```{book-status}\n```\n",
}


def slug_of(number: int) -> str:
    """Return the name of a page, from its number."""
    return f"page-{number:04d}"


def make_book(folder: Path, pages: int, parts_of: int = 10) -> Project:
    """Write a book of small pages, one code cell each and no frameworks, with its notebooks.

    Args:
        folder: becomes the root of the checkout; what lies there is written over.
        pages: how many pages with code.
        parts_of: how many of them make a part of the table of contents.

    Returns:
        The project, with the settings of this checkout; nothing is executed.
    """
    project = Project(folder)
    names = [slug_of(number) for number in range(1, pages + 1)]
    for number, slug in enumerate(names, start=1):
        write_atomic(project.text(slug), PAGE.format(
            number=number, answer=2 * number, slug=slug, other=names[number % pages]))
    for slug, text in TEXTS.items():
        write_atomic(project.text(slug), text)
    parts = [
        {"caption": f"Part {start // parts_of + 1}",
         "chapters": [{"file": slug} for slug in names[start : start + parts_of]]}
        for start in range(0, pages, parts_of)
    ]
    parts.append({"caption": "Reference",
                  "chapters": [{"file": slug} for slug in TEXTS if slug != "index"]})
    # JSON is YAML.
    write_json(project.root / "_toc.yml", {"format": "jb-book", "root": "index", "parts": parts})
    link = project.book / "_toc.yml"
    link.unlink(missing_ok=True)
    link.symlink_to("../_toc.yml")
    config = load_yaml(CHECKOUT / "_config.yml")
    config["sphinx"]["local_extensions"] = {"ci.sphinx_ext": str(CHECKOUT)}
    write_json(project.root / "_config.yml", config)
    write_json(project.claims_file, {
        slug: [{"id": f"{slug}-01", "kind": "behaviour", "says": f"Twice {n} is {2 * n}."}]
        for n, slug in enumerate(names, start=1)})
    write_json(project.topics_file, {
        slug: {"framework": "both", "en": f"What is twice {n}?", "zh": f"{n}的两倍是多少？"}
        for n, slug in enumerate(names, start=1)})
    write_atomic(project.requirements, "click==8\n")
    write_atomic(project.root / "pyproject.toml",
                 '[project]\nname = "measured"\ndependencies = ["click"]\n')
    pair(project)
    return project


def one_line(source: str) -> list[nbformat.NotebookNode]:
    """Return what a pretended cell puts out: a line of text made from its own source."""
    said = f"pretended {digest(source)[:12]}\n"
    return [nbformat.v4.new_output("stream", name="stdout", text=said)]


def pretend_run(project: Project,
                outputs: Callable[[str], list[nbformat.NotebookNode]] = one_line) -> None:
    """Write executed notebooks and records as a run would, without running anything.

    For benchmarks and tests only.

    Args:
        project: a book whose notebooks are in step with its texts.
        outputs: returns a cell's outputs from its source.
    """
    machine, found, commit = Machine.here(project), versions(), git_commit(project.root)
    for slug in notebook_slugs(project):
        page = read_page(project.text(slug))
        notebook = nbformat.read(project.notebook(slug), as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for count, cell in enumerate(code, start=1):
            cell.execution_count, cell.outputs = count, outputs(cell.source)
        executed = (nbformat.writes(notebook) + "\n").encode("utf-8")
        write_atomic(project.executed_notebook(slug), executed)
        write_record(project, Record(
            page=slug, status="ok", key=page_key(page, machine),
            started="2026-01-01T00:00:00+00:00", seconds=0.1, cell_seconds=0.05, peak_mib=1.0,
            cells=len(code), device=machine.device, python=machine.python,
            platform=machine.platform, versions=found, requirements=machine.requirements,
            commit=commit, claims=count_verdicts(page), notebook=digest(executed),
        ))
