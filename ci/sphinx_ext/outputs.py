"""The pages' outputs in jupyter-cache, where myst-nb looks for them.

The cache knows a page by its code. It may be damaged, or hold another book's outputs of the same
code, or those of a second page with the same code; so what lies there is compared with what has to
be shown, before each build for all pages and once more just before a page is read.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from myst_nb.core.read import read_myst_markdown_notebook
from sqlalchemy import Engine, event

from ci.pages import Page, read_page
from ci.project import BookError, Project, digest
from ci.sphinx_ext.facts import Snapshot


@event.listens_for(Engine, "connect")
def _no_waiting(connection: Any, record: Any) -> None:
    """Do not wait for the disk at each of the cache's many commits; it can be made anew."""
    connection.execute("PRAGMA synchronous = OFF")


@dataclass(frozen=True)
class Handed:
    """A page's entry in the cache: what it was made of, its name there, the digest of its file."""

    made_of: str
    hashkey: str
    content: str


HANDED: dict[tuple[Path, str], Handed] = {}  # by cache and page: what this process vouches for


def hand_over(book: Snapshot, pages: list[str], last: dict[str, Handed]) -> dict[str, Handed]:
    """Have the cache hold the pages' outputs; write what it lacks, or holds differently.

    Args:
        book: the book; the pages' records vouch for their executed notebooks.
        pages: their names.
        last: the entries as the last call returned them.

    Returns:
        The pages' entries.

    Raises:
        BookError: an executed notebook is not its page's, or the cache cannot be written.
    """
    project = book.project
    try:
        found = _fill(book, pages, last)
    except BookError:
        raise
    except Exception:  # a damaged database shows itself by any kind of error
        shutil.rmtree(project.cache, ignore_errors=True)
        try:
            found = _fill(book, pages, {})
        except BookError:
            raise
        except Exception as error:
            raise BookError(project.relative(project.cache), f"cannot be written ({error})",
                            "Run `python -m ci clean` and then `python -m ci run`") from None
    HANDED.update({(project.cache, page): one for page, one in found.items()})
    return found


def _fill(book: Snapshot, pages: list[str], last: dict[str, Handed]) -> dict[str, Handed]:
    project = book.project
    cache = _open(project, len(pages))
    there = {record.hashkey for record in cache.list_cache_records()}
    if len(there) > 2 * len(pages) + 50:  # what earlier texts left behind
        shutil.rmtree(project.cache)
        cache, there = _open(project, len(pages)), set()
    # Pages with the same code share a file; any of their outputs may lie in it now.
    contents: dict[str, set[str]] = {}
    for one in last.values():
        contents.setdefault(one.hashkey, set()).add(one.content)
    found = {}
    for page in pages:
        made_of, known = _made_of(project, page), last.get(page)
        if known and known.made_of == made_of and known.hashkey in there and (
                _content(project, known.hashkey) in contents[known.hashkey]):
            found[page] = known
            continue
        found[page] = one = _write(cache, book, page, made_of)
        contents.setdefault(one.hashkey, set()).add(one.content)
        there.add(one.hashkey)
    return found


def _open(project: Project, pages: int) -> JupyterCacheAbstract:
    project.cache.mkdir(parents=True, exist_ok=True)
    cache = get_cache(str(project.cache))
    if 2 * pages + 50 > cache.get_cache_limit():  # beyond its limit it forgets the oldest
        cache.change_cache_limit(2 * pages + 50)
    return cache


def _write(cache: JupyterCacheAbstract, book: Snapshot, slug: str, made_of: str) -> Handed:
    project, page, record = book.project, book.page(slug), book.record(slug)
    bundle = CacheBundleIn(merged(page, project.executed_notebook(slug)), str(page.path),
                           data={"execution_seconds": record.cell_seconds if record else 0.0})
    entry = cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return Handed(made_of, entry.hashkey, _content(project, entry.hashkey))


def _made_of(project: Project, slug: str) -> str:
    return digest(*(path.read_bytes() if path.is_file() else b""
                    for path in (project.text(slug), project.executed_notebook(slug))))


def _content(project: Project, hashkey: str) -> str:
    try:
        return digest((project.cache / "executed" / hashkey / "base.ipynb").read_bytes())
    except OSError:
        return ""


def merged(page: Page, executed: Path) -> nbformat.NotebookNode:
    """Return the page, as the site reads it, with the outputs of its executed notebook.

    Raises:
        BookError: the notebook's code is not the page's.
    """
    notebook: nbformat.NotebookNode = read_myst_markdown_notebook(page.text)
    outputs = [c for c in nbformat.read(executed, as_version=4).cells if c.cell_type == "code"]
    code = [c for c in notebook.cells if c.cell_type == "code"]
    if [c.source for c in code] != [c.source for c in outputs]:
        raise BookError(executed, "its code is not the page's",
                        f"Run `python -m ci run {page.slug}`")
    for cell, twin in zip(code, outputs, strict=True):
        cell.outputs, cell.execution_count = twin.outputs, twin.execution_count
    return notebook


def would_execute(project: Project, slugs: list[str]) -> list[str]:
    """Return which of the pages have no outputs in the cache for their code as it stands."""
    found = []
    cache = None
    for slug in slugs:
        handed = HANDED.get((project.cache, slug))
        if handed and handed.made_of == _made_of(project, slug) and _content(
                project, handed.hashkey):
            continue
        page = read_page(project.text(slug))
        if not page.is_notebook or not page.code:
            continue
        cache = cache or get_cache(str(project.cache))
        try:
            cache.match_cache_notebook(read_myst_markdown_notebook(page.text))
        except KeyError:
            found.append(slug)
    return found


def ensure(project: Project, slug: str) -> None:
    """Have the cache hold this page's outputs, not those of another page with the same code."""
    handed = HANDED.get((project.cache, slug))
    if handed and _content(project, handed.hashkey) != handed.content:
        _write(_open(project, 1), Snapshot(project), slug, handed.made_of)
