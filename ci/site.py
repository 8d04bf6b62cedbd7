"""Executed notebooks to ``_build/html``: outputs into jupyter-cache, then one strict build.

Nothing is executed here. Every page must have outputs that its record vouches for; they are handed
over through the cache that myst-nb looks into, and each is looked up again at once, as the build
will do it. The site is built beside the old one and takes its place only when it is whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook

from ci.pages import Page, notebook_slugs, read_page
from ci.project import BookError, Project, digest, write_atomic, write_json
from ci.record import doubts, read_record
from ci.sphinx_ext.guard import GUARD, would_execute

STAGE = ".stage"


def site(project: Project, say: Callable[[str], None] = print) -> Path:
    """Build the site from the executed notebooks; do nothing when nothing has changed.

    Returns:
        The address of the first page, a file.

    Raises:
        BookError: a page has no current outputs, or the build printed a warning.
    """
    pages = [read_page(project.text(slug)) for slug in notebook_slugs(project)]
    for page in pages:
        _require_outputs(project, page)
    first = project.html / "index.html"
    stamp = project.build / "site.key"
    key = site_key(project)
    if first.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        say("site: unchanged")
        return first
    stamp.unlink(missing_ok=True)
    hand_over(project, pages)
    built = build(project, strict=True)
    for page in pages:
        shutil.copyfile(project.executed_notebook(page.slug),
                        built / "_sources" / f"{page.slug}.ipynb")
    _swap(project, built)
    write_atomic(stamp, key)
    return first


def site_key(project: Project) -> str:
    """Return a digest of everything that the site is made of."""
    sources = [project.root / "_config.yml", project.root / "_toc.yml", project.requirements]
    folders = [project.book, project.executed, project.records, Path(__file__).parent]
    for folder in folders:
        sources += sorted(p for p in folder.rglob("*")
                          if p.is_file() and "__pycache__" not in p.parts)
    parts: list[str | bytes] = []
    for path in sources:
        if path.is_file():
            parts += [str(path), path.read_bytes()]
    return digest(*parts)


def hand_over(project: Project, pages: list[Page]) -> None:
    """Fill the cache anew with the pages' outputs, and find every page in it again.

    Raises:
        BookError: an executed notebook is not the page's, or the cache does not answer.
    """
    shutil.rmtree(project.cache, ignore_errors=True)
    project.cache.parent.mkdir(parents=True, exist_ok=True)
    cache = get_cache(str(project.cache))
    for page in pages:
        path = project.executed_notebook(page.slug)
        bundle = CacheBundleIn(merged(page, path), str(page.path),
                               data={"execution_seconds": _seconds(project, page.slug)})
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    if missing := would_execute(project, [page.slug for page in pages]):
        raise BookError(project.relative(project.cache), f"lost the outputs of {missing}",
                        "Run `python -m ci clean` and then `python -m ci run`")


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


def build(project: Project, strict: bool, toc: Path | None = None, stage: str = STAGE) -> Path:
    """Run Jupyter Book into a folder of its own and return the folder of the pages.

    Args:
        project: the checkout.
        strict: fail on any warning, and on any page that would be executed.
        toc: another table of contents, absolute.
        stage: the folder's name under ``_build``.

    Raises:
        BookError: the build failed; its complaints have been printed.
    """
    folder = project.build / stage
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "_build").mkdir(parents=True)
    # The build looks for its cache beside its output.
    (folder / "_build" / ".jupyter_cache").symlink_to("../../.jupyter_cache")
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", str(project.book),
               "--path-output", str(folder), "--quiet", "--all"]
    command += ["-n", "-W", "--keep-going"] if strict else []
    command += ["--toc", str(toc)] if toc else []
    done = subprocess.run(
        command, cwd=project.root, env=dict(os.environ, **{GUARD: "1"}), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    html = folder / "_build" / "html"
    if done.returncode or not html.is_dir():
        sys.stderr.write(done.stdout)
        raise BookError(project.relative(project.book), "the site build failed, see above",
                        "Mend the text and run `python -m ci site`")
    return html


def preview(project: Project, slug: str) -> Path:
    """Build one page alone, without demanding the others' outputs, and return its file.

    Raises:
        BookError: the page has no current outputs, or the build failed.
    """
    page = read_page(project.text(slug))
    if page.is_notebook:
        _require_outputs(project, page)
    everything = [read_page(project.text(name)) for name in notebook_slugs(project)]
    hand_over(project, [
        one for one in everything if not doubts(project, one, read_record(project, one.slug))])
    toc = project.build / ".page_toc.yml"
    write_json(toc, {"format": "jb-book", "root": slug})  # JSON is YAML
    built = build(project, strict=False, toc=toc, stage=".page")
    return built / f"{slug}.html"


def _seconds(project: Project, slug: str) -> float:
    record = read_record(project, slug)
    return record.cell_seconds if record else 0.0


def _require_outputs(project: Project, page: Page) -> None:
    if why := doubts(project, page, read_record(project, page.slug)):
        raise BookError(project.relative(page.path), why, f"Run `python -m ci run {page.slug}`")


def _swap(project: Project, built: Path) -> None:
    """Put the new site in the old one's place."""
    old = project.build / ".old_html"
    shutil.rmtree(old, ignore_errors=True)
    if project.html.exists():
        project.html.replace(old)
    built.replace(project.html)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(project.build / STAGE, ignore_errors=True)
