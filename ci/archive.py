"""The book away from its server: the site in one archive, and the notebooks for a course in two.

The archives are the same bytes whenever they are made from the same files: sorted names, one fixed
time. Beside each lies its checksum, in the form that ``sha256sum -c`` reads.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat

from ci import pair as pairs
from ci.imports import undefined
from ci.pages import Page
from ci.project import BookError, Project, load_yaml, write_atomic
from ci.record import doubts
from ci.site import current_site
from ci.sphinx_ext.facts import Snapshot, plan_data

SOLUTION = "# @title Solution"
# A folded answer; what is folded as a hint stays.
ANSWER = re.compile(r"<details>\s*<summary>(?!\s*hint)(?P<title>.*?)</summary>.*?</details>",
                    re.I | re.S)
WITHHELD = "*The solution is not part of this archive.*"
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP file can name


def zip_site(project: Project, say: Callable[[str], None] = print) -> Path:
    """Write the site, as it was built, into one archive to be read without a network.

    Returns:
        The archive; its checksum lies beside it.

    Raises:
        BookError: the site is not that of the texts and outputs as they are now.
    """
    html = current_site(project, say)
    name = release(project)
    files = {f"html/{path.relative_to(html).as_posix()}": path.read_bytes()
             for path in html.rglob("*") if path.is_file()}
    files |= _licences(project)
    files["README.txt"] = site_readme(project).encode("utf-8")
    return _write(project.build / f"{name}.zip", name, files)


def course(project: Project, say: Callable[[str], None] = print) -> tuple[Path, Path]:
    """Write all notebooks, without outputs, into two archives.

    Returns:
        The one without solutions, and the one with.

    Raises:
        BookError: a notebook is not in step with its text, a page has no current run (the plan
            would not be true), or a cell uses what only a solution defines.
    """
    if stale := pairs.pair(project, check=True).stale:
        raise BookError(f"notebooks/{stale[0]}.ipynb", "not in step with its text",
                        "Run `python -m ci pair`")
    book = Snapshot(project)
    for slug in book.notebooks:
        if why := doubts(project, book.page(slug), book.record(slug)):
            raise BookError(f"book/{slug}.md", why, f"Run `python -m ci run {slug}`")
    _require_whole([book.page(slug) for slug in book.notebooks])
    made = []
    for solved in (False, True):
        name = f"{release(project)}-notebooks" + "-with-solutions" * solved
        files = {f"notebooks/{slug}.ipynb": _notebook(project, slug, solved).encode("utf-8")
                 for slug in book.notebooks}
        files |= _licences(project)
        files["requirements.txt"] = project.requirements.read_bytes()
        files["README.md"] = course_readme(book, solved).encode("utf-8")
        made.append(_write(project.build / f"{name}.zip", name, files))
    return made[0], made[1]


def release(project: Project) -> str:
    """Return the name of this release: the book's title and the version in ``CITATION.cff``.

    Raises:
        BookError: the version cannot be part of a file's name.
    """
    title = str(load_yaml(project.root / "_config.yml").get("title") or "book")
    version = str(Snapshot(project).citation["version"])
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+-]*", version):
        raise BookError("CITATION.cff", f"{version!r} is no version", "Write one such as 1.2.0")
    return f"{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}-{version}"


def _licences(project: Project) -> dict[str, bytes]:
    names = ("LICENSE", "LICENSE-CODE", "CITATION.cff")
    return {name: path.read_bytes() for name in names
            if (path := project.root / name).is_file()}


def _write(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    """Write an archive of one folder, and its checksum beside it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{folder}/{name}", TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # one system and one mode, wherever it is made
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name], compresslevel=9)
    write_atomic(path, held.getvalue())
    checksum = hashlib.sha256(held.getvalue()).hexdigest()
    write_atomic(path.with_name(f"{path.name}.sha256"), f"{checksum}  {path.name}\n")
    return path


# ------------------------------------------------------------------ notebooks without solutions

def without_solutions(notebook: Any) -> Any:
    """Return the notebook with its exercises and without what solves them.

    A cell ``# @title Solution ...`` and the sentence that leads to it become a short note; so
    does a folded answer in the text of an exercise.
    """
    cells: list[Any] = []
    exercises = False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if cell.source.startswith(SOLUTION):
                # What is said between the reader's cell and this one speaks of the solution.
                if len(cells) > 1 and cells[-1].cell_type == "markdown" \
                        and cells[-2].cell_type == "code" and not _has_heading(cells[-1].source):
                    cells.pop()
                cell = _note(cell["id"])
            cells.append(cell)
            continue
        parts = []
        for part in re.split(r"^(?=## )", cell.source, flags=re.M):
            if part.startswith("## "):
                exercises = part.partition("\n")[0].strip() == "## Exercises"
            parts.append(ANSWER.sub(WITHHELD, part) if exercises else part)
        cell.source = "".join(parts)
        cells.append(cell)
    notebook.cells = cells
    return notebook


def _has_heading(source: str) -> bool:
    return re.search(r"^#", source, re.M) is not None


def _note(name: str) -> Any:
    note = nbformat.v4.new_markdown_cell(WITHHELD)
    note["id"] = name
    return note


def _notebook(project: Project, slug: str, solved: bool) -> str:
    """Return a notebook's text for a course."""
    text = project.notebook(slug).read_text(encoding="utf-8")
    if solved:
        return text
    notebook = without_solutions(nbformat.reads(text, as_version=4))
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def _require_whole(pages: Iterable[Page]) -> None:
    """Refuse pages with a cell that needs what only a solution defines.

    Raises:
        BookError: it names the cell and the name.
    """
    reduced = [replace(page, cells=tuple(cell for cell in page.cells
                                         if not cell.source.startswith(SOLUTION)))
               for page in pages]
    for page, problems in undefined(reduced):
        for problem in problems:
            raise BookError(f"book/{page.slug}.md:{problem.line}",
                            f"{problem.what} when the solutions are left out",
                            "Define it outside the solution")


# ------------------------------------------------------------------ what is told with them

def site_readme(project: Project) -> str:
    """Return the text that lies beside the site in its archive."""
    return "\n".join([
        str(Snapshot(project).citation["title"]), release(project), "",
        "Unpack the archive; a browser cannot read the pages inside it. Then open html/index.html,",
        "by a double click or from the browser's menu for files. Nothing else is needed, neither a",
        "server nor a network, and the search works as well.", "",
        "To put the book on a web server, copy the folder html to any address there.",
        "The executed notebooks lie in html/_sources.", "", _rights(project), ""])


def _rights(project: Project) -> str:
    licences = Snapshot(project).citation["license"]
    names = licences if isinstance(licences, list) else [licences]
    return (f"{' and '.join(names)}: LICENSE is the licence of the text, LICENSE-CODE that of the "
            "code.\nTo cite the book, see CITATION.cff.")


def course_readme(book: Snapshot, solved: bool) -> str:
    """Return the text that lies beside the notebooks: the plan of all pages, and how to run them.

    Args:
        book: the book.
        solved: whether the archive holds the solutions.
    """
    project = book.project
    lines = [f"# {book.citation['title']}: the notebooks", "",
             f"Release {release(project)}. "
             + ("Solutions and answers are part of it: for teachers." if solved else
                "Exercises are part of it, solutions and answers are not."),
             "", "## Running them", "",
             "Each notebook runs by itself from top to bottom, with no network and no file but "
             "its own.",
             "Python and the libraries are those of `requirements.txt`:", "",
             "    python -m venv .venv", "    .venv/bin/pip install -r requirements.txt jupyterlab",
             "    .venv/bin/jupyter lab notebooks", "",
             "On Windows it is `.venv\\Scripts` instead of `.venv/bin`.",
             "In Colab or Kaggle, upload a notebook; both frameworks are installed there, in "
             "versions that the first cell prints.", "",
             "## The plan", "",
             "Minutes are those of reading the prose; seconds and memory are those of the run "
             "whose outputs the site shows.", "",
             "| | Page | Minutes to read | Seconds to run | MiB of memory | Needs | Exercises |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for number, one in enumerate(plan_data(book, ""), start=1):
        needs = " and ".join(one["frameworks"]) or "Python"
        if one["first"]:
            needs += "; after " + ", ".join(f"[{name}](notebooks/{name}.ipynb)"
                                            for name in one["first"])
        needs += "; a GPU adds numbers" * bool(one["gpu"])
        lines.append(f"| {number} | [{one['title']}](notebooks/{one['page']}.ipynb) | "
                     f"{one['minutes']} | {one['seconds']:.0f} | {one['mib']:.0f} | {needs} | "
                     f"{one['exercises']} |")
    lines += ["", "## Licences", "", _rights(project), ""]
    return "\n".join(lines)
