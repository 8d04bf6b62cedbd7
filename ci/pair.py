"""``book/<page>.md`` to ``notebooks/<page>.ipynb``: one way, the same bytes every time.

The text is the only master. Nothing here looks at file times, so a notebook that was opened, or
checked out later than its text, never wins over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jupytext
import nbformat

from ci.pages import notebook_slugs
from ci.project import BookError, Project, digest, write_atomic

TEXT = "md:myst"


@dataclass(frozen=True)
class Paired:
    """What :func:`pair` did or found: pages written, pages (or stray notebooks) not in step."""

    written: tuple[str, ...]
    stale: tuple[str, ...]


def notebook_text(slug: str, text: str) -> str:
    """Return the notebook of a page, as the text of an ``.ipynb`` file without outputs.

    Each cell gets an id derived from the page, its kind and its position among the cells of that
    kind: editing one cell changes no other cell's id. The metadata are the ones that
    ``jupytext --sync`` would write, so that a sync on a clean clone changes nothing.

    Raises:
        BookError: jupytext cannot read the text.
    """
    try:
        notebook = jupytext.reads(text, fmt=TEXT)
    except Exception as error:  # jupytext raises many kinds; the reader needs one line
        raise BookError(f"book/{slug}.md", " ".join(str(error).split()), "Mend the text") from None
    notebook.metadata.get("jupytext", {}).pop("text_representation", None)
    counts: dict[str, int] = {}
    for cell in notebook.cells:
        position = counts[cell.cell_type] = counts.get(cell.cell_type, 0) + 1
        cell["id"] = digest(slug, cell.cell_type, str(position))[:12]
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def normal_form(text: str) -> str:
    """Return the text as jupytext would write it after a round trip through the notebook.

    A page in normal form is left alone by JupyterLab and by ``jupytext --sync``.
    """
    through = nbformat.reads(nbformat.writes(jupytext.reads(text, fmt=TEXT)), as_version=4)
    return str(jupytext.writes(through, fmt=TEXT))


def pair(project: Project, check: bool = False, only: str | None = None) -> Paired:
    """Write the notebooks of the pages in the table of contents; remove notebooks without a page.

    Args:
        project: the checkout.
        check: write nothing, report what is not in step.
        only: one page's name; the others are left alone.

    Returns:
        The names of what was written and of what was found stale.

    Raises:
        BookError: a page cannot be read, or ``only`` is not a page with code.
    """
    slugs = notebook_slugs(project)
    if only is not None and only not in slugs:
        raise BookError(f"book/{only}.md", "not a page with code in _toc.yml",
                        f"One of: {', '.join(slugs)}")
    written, stale = [], []
    for slug in slugs if only is None else [only]:
        wanted = notebook_text(slug, project.text(slug).read_text(encoding="utf-8"))
        path = project.notebook(slug)
        if path.is_file() and path.read_text(encoding="utf-8") == wanted:
            continue
        stale.append(slug)
        if not check:
            write_atomic(path, wanted)
            written.append(slug)
    if only is None and project.notebooks.is_dir():
        for path in sorted(project.notebooks.glob("*.ipynb")):
            if path.stem not in slugs:
                stale.append(path.stem)
                if not check:
                    path.unlink()
    return Paired(tuple(written), tuple(stale))


def normalize(project: Project, only: str | None = None) -> list[str]:
    """Bring the pages' texts into jupytext's own form; return the names of those that changed."""
    changed = []
    for slug in notebook_slugs(project) if only is None else [only]:
        path = project.text(slug)
        text = path.read_text(encoding="utf-8")
        if (wanted := normal_form(text)) != text:
            write_atomic(path, wanted)
            changed.append(slug)
    return changed
