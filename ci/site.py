"""Executed notebooks to ``_build/html``: outputs into jupyter-cache, then one strict build.

Nothing is executed here. Every page must have outputs that its record vouches for; they are handed
over through the cache that myst-nb looks into. The build is kept in a folder of its own, the
stage, so that the next one reads and writes only what has changed
(:mod:`ci.sphinx_ext.incremental`); a whole copy of it takes the old site's place. A stage that is
not known to be whole, or was made by other code, settings or versions, is thrown away.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ci.pages import notebook_slugs, read_page
from ci.project import BookError, Project, digest, load_yaml, locked, write_atomic, write_json
from ci.record import doubts, read_record
from ci.sphinx_ext.facts import Snapshot
from ci.sphinx_ext.feed import feed_digest
from ci.sphinx_ext.guard import GUARD
from ci.sphinx_ext.incremental import KNOWN, REPORT
from ci.sphinx_ext.outputs import Handed, hand_over

STAGE = ".stage"
PACKAGE = Path(__file__).resolve().parent
# and all of sphinx_ext
MODULES = ("__init__", "claims", "marks", "pages", "project", "record", "renamed", "site")
BUILDERS = ("sphinx", "docutils", "jupyter-book", "myst-nb", "myst-parser", "jupyter-cache",
            "sphinx-book-theme", "pydata-sphinx-theme", "sphinx-external-toc", "sphinx-sitemap",
            "sphinx-design", "sphinx-togglebutton", "sphinx-copybutton", "markdown-it-py",
            "nbformat", "jinja2", "pygments", "tinycss2", "pillow", "beautifulsoup4",
            "latex2mathml", "matplotlib")


@dataclass
class Memory:
    """What the stage is known to be, beside it in ``memory.json``; written when it is whole.

    ``made_of`` is the digest of what all pages depend on; ``vouched`` are digests of pages with
    their outputs and records that were found in order; ``facts`` are those of pages by the
    digest of their text; ``depends`` are files outside the book that pages include.
    """

    made_of: str = ""
    vouched: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    handed: dict[str, Handed] = field(default_factory=dict)
    depends: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Memory:
        """Return what is written there, or an empty memory."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            handed = {page: Handed(**one) for page, one in data.pop("handed").items()}
            return cls(**data, handed=handed)
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return cls()


def site(project: Project, say: Callable[[str], None] = print) -> Path:
    """Build the site from the executed notebooks; do nothing when nothing has changed.

    Returns:
        The address of the first page, a file.

    Raises:
        BookError: a page has no current outputs, or the build printed a warning.
    """
    if code_digest() != CODE:  # a long-lived process, whose own code has been edited
        return _in_a_new_process(project, say)
    with locked(project, say):
        return _site(project, say)


def _site(project: Project, say: Callable[[str], None]) -> Path:
    path = project.build / STAGE / "memory.json"
    memory = Memory.read(path)
    made_of = shared_digest(project)
    if memory.made_of != made_of:
        memory = Memory()
    KNOWN.update(memory.facts)
    book = Snapshot(project, KNOWN)
    vouched = _vouched(project, book, set(memory.vouched))
    first = project.html / "index.html"
    stamp = project.build / "site.key"
    key = site_key(project, book, made_of, vouched, memory.depends)
    if first.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        say("site: unchanged")
        return first
    stamp.unlink(missing_ok=True)
    path.unlink(missing_ok=True)  # the stage is not whole until this build is
    handed = hand_over(book, book.notebooks, memory.handed)
    built = build(project, strict=True, keep=bool(memory.made_of))
    _publish(project, built, book.notebooks)
    report = json.loads((built.parent / REPORT).read_text(encoding="utf-8"))
    say(f"site: {len(book.slugs)} pages, {len(report['read'])} read, "
        f"{len(report['written'])} written")
    now = Memory(made_of, vouched, {}, handed, report["depends"])
    texts = {digest(slug, book.text(slug)) for slug in book.slugs}
    now.facts = {one: facts for one, facts in KNOWN.items() if one in texts}
    write_json(path, asdict(now))
    write_atomic(stamp, site_key(project, book, made_of, vouched, now.depends))
    return first


def current_site(project: Project, say: Callable[[str], None] = print) -> Path:
    """Return the folder of the site, once it is known to be what the texts and outputs make.

    Raises:
        BookError: it is not, or a page has no current outputs.
    """
    with locked(project, say):
        memory = Memory.read(project.build / STAGE / "memory.json")
        made_of = shared_digest(project)
        book = Snapshot(project, KNOWN)
        vouched = _vouched(project, book, set())
        depends = memory.depends if memory.made_of == made_of else []
        key = site_key(project, book, made_of, vouched, depends)
        stamp = project.build / "site.key"
        if not (project.html / "index.html").is_file() or not stamp.is_file() \
                or stamp.read_text(encoding="utf-8") != key:
            raise BookError(project.relative(project.html),
                            "not the site of the texts and outputs as they are now",
                            "Run `python -m ci site`")
        return project.html


def _in_a_new_process(project: Project, say: Callable[[str], None]) -> Path:
    """Do the same by the code as it stands now."""
    start = ("import sys; from pathlib import Path; from ci.project import BookError, Project; "
             "from ci.site import site\n"
             "root, out = sys.argv[1:]\n"
             "try:\n    site(Project(Path(root), Path(out) if out else None))\n"
             "except BookError as error:\n    sys.exit(str(error))")
    done = subprocess.run(
        [sys.executable, "-c", start, str(project.root), str(project.out or "")],
        cwd=PACKAGE.parent, text=True, capture_output=True, check=False)
    for line in done.stdout.splitlines():
        say(line)
    if done.returncode:
        *told, last = done.stderr.strip().splitlines() or ["the build ended without a word"]
        sys.stderr.writelines(line + "\n" for line in told)
        raise BookError(project.relative(project.book), last)
    return project.html / "index.html"


# ------------------------------------------------------------------ what the site is made of

def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts)


def _digest_files(paths: Iterable[Path]) -> str:
    return digest(*(part for path in paths if path.is_file()
                    for part in (str(path), path.read_bytes())))


def code_digest() -> str:
    """Return the digest of the code and static files of this package that the site is made by."""
    return _digest_files([*(PACKAGE / f"{name}.py" for name in MODULES),
                          *_files(PACKAGE / "sphinx_ext")])


CODE = code_digest()


def shared_digest(project: Project) -> str:
    """Return the digest of all that every page of the site depends on.

    That is the code, the settings and the versions of what builds it, and the files of the book
    that are neither pages nor data, such as styles and pictures.
    """
    config = project.root / "_config.yml"
    pages = {project.text(slug) for slug in Snapshot(project).slugs}
    others = [path for path in _files(project.book)
              if path not in pages and path.name != "_toc.yml"
              and project.claims_file.parent not in path.parents]
    local = (load_yaml(config).get("sphinx") or {}).get("local_extensions") or {}
    for name, folder in local.items():
        place = (project.root / folder / name.replace(".", "/")).resolve()
        if place != PACKAGE and PACKAGE not in place.parents:
            others += [*_files(place), place.with_suffix(".py")]
    versions = [f"{name} {_version(name)}" for name in BUILDERS]
    return digest(CODE, str(project.root), str(project.build), sys.version, *versions,
                  _digest_files([config, project.requirements, *others]))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def site_key(project: Project, book: Snapshot, made_of: str, vouched: list[str],
             depends: list[str]) -> str:
    """Return the digest of everything that the site is made of."""
    texts = [part for slug in book.slugs for part in (slug, book.text(slug))]
    return digest(made_of, *texts, *vouched, _digest_files(
        [project.root / "_toc.yml", project.root / "CITATION.cff",
         *_files(project.claims_file.parent), *map(Path, depends)]), feed_digest(project),
        _digest_files(run.record(slug) for run in project.beside for slug in book.slugs),
        _digest_files(sorted(project.drift.glob("*.json"))))


def _vouched(project: Project, book: Snapshot, known: set[str]) -> list[str]:
    """Return the digests of the pages with their outputs and records, each found in order.

    Raises:
        BookError: a page's outputs may not be shown.
    """
    found = []
    for slug in book.notebooks:
        one = digest(
            slug, book.text(slug),
            *(path.read_bytes() if path.is_file() else b"" for path in (
                project.executed_notebook(slug), project.record(slug), project.requirements)))
        if one not in known:
            page = book.page(slug)
            if why := doubts(project, page, book.record(slug)):
                raise BookError(project.relative(page.path), why,
                                f"Run `python -m ci run {page.slug}`")
        found.append(one)
    return found


# ------------------------------------------------------------------ the build

def load() -> None:
    """Load what a build needs in the background, while pages run elsewhere."""
    threading.Thread(target=import_module, args=("jupyter_book.sphinx",), daemon=True).start()


def build(project: Project, strict: bool, toc: Path | None = None, stage: str = STAGE,
          keep: bool = False) -> Path:
    """Run Jupyter Book into a folder of its own and return the folder of the pages.

    It is run in this process, as its command line would run it.

    Args:
        project: the checkout.
        strict: fail on any warning, and on any page that would be executed.
        toc: another table of contents, absolute.
        stage: the folder's name under ``_build``.
        keep: build upon what lies there; it must be the whole result of the same code, settings
            and versions.

    Raises:
        BookError: the build failed; its complaints have been printed, the stage is gone.
    """
    from jupyter_book.sphinx import build_sphinx  # wanted by a build only

    folder = project.build / stage
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    html = folder / "_build" / "html"
    html.parent.mkdir(parents=True, exist_ok=True)
    # The build looks for its cache beside its output.
    link = html.parent / ".jupyter_cache"
    link.unlink(missing_ok=True)
    link.symlink_to("../../.jupyter_cache")
    said = io.StringIO()
    with _alone(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        result = build_sphinx(
            project.book, html, noconfig=True, path_config=project.root / "_config.yml",
            confoverrides={
                "external_toc_path": (toc or project.book / "_toc.yml").as_posix(),
                "latex_individualpages": False, "book_out": str(project.build),
                **({"nitpicky": True} if strict else {})},
            warningiserror=strict, keep_going=strict, quiet=True)
    if result or not html.is_dir():
        shutil.rmtree(folder, ignore_errors=True)  # the next build would not warn again
        sys.stderr.write(said.getvalue())
        raise BookError(project.relative(project.book), "the site build failed, see above",
                        "Mend the text and run `python -m ci site`")
    return html


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Set the guard for one build, and keep from later ones what the themes write into defaults."""
    from sphinx.config import Config

    before, defaults = os.environ.get(GUARD), Config.config_values
    os.environ[GUARD] = "1"
    Config.config_values = copy.deepcopy(defaults)
    try:
        yield
    finally:
        Config.config_values = defaults
        if before is None:
            del os.environ[GUARD]
        else:
            os.environ[GUARD] = before


def preview(project: Project, slug: str) -> Path:
    """Build one page alone, without demanding the others' outputs, and return its file.

    Raises:
        BookError: the page has no current outputs, or the build failed.
    """
    page = read_page(project.text(slug))
    with locked(project):
        sound = []
        for name in notebook_slugs(project):
            one = read_page(project.text(name))
            why = doubts(project, one, read_record(project, name))
            if why and name == slug:
                raise BookError(project.relative(page.path), why, f"Run `python -m ci run {slug}`")
            if not why:
                sound.append(name)
        hand_over(Snapshot(project), sound, {})
        toc = project.build / ".page_toc.yml"
        write_json(toc, {"format": "jb-book", "root": slug})  # JSON is YAML
        return build(project, strict=False, toc=toc, stage=".page") / f"{slug}.html"


def _publish(project: Project, built: Path, notebooks: list[str]) -> None:
    """Put a copy of the new site in the old one's place, with the executed notebooks.

    A copy, since Sphinx writes into its files where they lie.
    """
    new, old = project.build / ".new_html", project.build / ".old_html"
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, new, copy_function=shutil.copyfile)
    for slug in notebooks:
        shutil.copyfile(project.executed_notebook(slug), new / "_sources" / f"{slug}.ipynb")
    if project.html.exists():
        project.html.replace(old)
    new.replace(project.html)
    shutil.rmtree(old, ignore_errors=True)
