"""A build reads and writes again what has changed, and nothing else; it never shows what is old.

Sphinx looks at the times of the texts. That misses new outputs of unchanged code, the generated
lists, and pages that show something of a changed page (its title, its place, its headings). Here:

- a page is read again when the bytes of its text, of its executed notebook or of a file that it
  includes have changed, or the data of a list in it (:mod:`ci.sphinx_ext.facts`);
- all pages are written again when anything changes that one page can show of another;
- files of pages, figures and downloads that are no longer part of the site are removed, and the
  search index and the sitemap speak of all pages, written again or not.

What was seen is kept in Sphinx's own environment, so the plain ``jupyter-book build book/``, which
keeps one too, profits as well.
"""

from __future__ import annotations

import json
import queue
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import sphinx_sitemap
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.osutil import os_path

from ci.project import Project, digest, write_json
from ci.sphinx_ext.facts import DATA, Snapshot, data_digest

REPORT = "report.json"
KNOWN: dict[str, dict[str, Any]] = {}  # facts by the digest of the text, for all builds


def project_of(app: Sphinx) -> Project:
    """Return the project that a build is about, with the place of its outputs."""
    project = Project.find(Path(app.srcdir))
    out = app.config.book_out
    return replace(project, out=Path(out)) if out else project


def snapshot(app: Sphinx) -> Snapshot:
    """Return the book as it stands at the start of this build."""
    if not hasattr(app, "book_snapshot"):
        app.book_snapshot = Snapshot(project_of(app), KNOWN)  # type: ignore[attr-defined]
    found: Snapshot = app.book_snapshot  # type: ignore[attr-defined]
    return found


# ------------------------------------------------------------------ what is read again

def _seen(env: BuildEnvironment) -> dict[str, Any]:
    """Return what the environment remembers: digests of pages and of the data of their lists."""
    if not hasattr(env, "book_seen"):
        env.book_seen = {  # type: ignore[attr-defined]
            "pages": {}, "includes": {}, "lists": {}, "shared": ""}
    seen: dict[str, Any] = env.book_seen  # type: ignore[attr-defined]
    return seen


def data_of(env: BuildEnvironment, name: str, argument: str) -> Any:
    """Return the data of a list, and note that the page that is being read shows them."""
    data = DATA[name](snapshot(env.app), argument)
    _seen(env)["lists"].setdefault(env.docname, {})[name, argument] = data_digest(data)
    return data


def outdated(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str],
             removed: set[str]) -> list[str]:
    """Return the pages whose inputs are no longer those that were read."""
    book, seen = snapshot(app), _seen(env)
    now = {name: _bytes_digest([Path(env.doc2path(name)), book.project.executed_notebook(name)])
           for name in env.found_docs}
    found = {name for name, one in now.items() if seen["pages"].get(name) != one}
    seen["pages"] = now
    found |= {name for name, one in seen["includes"].items() if _includes(env, name) != one}
    lists: dict[tuple[str, str], str] = {}
    for page, uses in seen["lists"].items():
        for use, one in uses.items():
            if use not in lists:
                lists[use] = data_digest(DATA[use[0]](book, use[1]))
            if lists[use] != one:
                found.add(page)
    return sorted(found)


def _bytes_digest(files: list[Path]) -> str:
    return digest(*(file.read_bytes() if file.is_file() else b"" for file in files))


def _includes(env: BuildEnvironment, name: str) -> str:
    """Return the digest of the files that a page includes, its figures among them."""
    return _bytes_digest([Path(env.srcdir) / file
                          for file in sorted(env.dependencies.get(name, ()))])


def purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    for seen in ("lists", "includes"):
        _seen(env)[seen].pop(docname, None)


def merge(app: Sphinx, env: BuildEnvironment, docnames: set[str],
          other: BuildEnvironment) -> None:
    for name in docnames & _seen(other)["lists"].keys():
        _seen(env)["lists"][name] = _seen(other)["lists"][name]


# ------------------------------------------------------------------ what is written again

def rewritten(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Return all pages when something has changed that a page can show of another one."""
    now = shared_digest(env)
    seen = _seen(env)
    for name in set(app.book_read) & env.found_docs:  # type: ignore[attr-defined]
        seen["includes"][name] = _includes(env, name)
    if seen["shared"] == now:
        # With no page to write Sphinx would leave out the static files, which are always made anew.
        return [] if app.book_read else [env.config.root_doc]  # type: ignore[attr-defined]
    seen["shared"] = now
    return sorted(env.found_docs)


def shared_digest(env: BuildEnvironment) -> str:
    """Return the digest of all that pages know of each other.

    That is the table of contents, every title and heading, every address that can be linked to,
    every number of a section, figure or formula, and the values that pages hand to each other.
    """
    site_map = getattr(env, "external_site_map", None)
    known: list[Any] = [
        site_map.as_json() if site_map else None,
        env.toctree_includes,
        {name: title.pformat() for name, title in sorted(env.longtitles.items())},
        {name: meta.get("myst_slugs") for name, meta in sorted(env.metadata.items())},
        env.toc_secnumbers, env.toc_fignumbers,
    ]
    for name, domain in sorted(env.domains.items()):
        known.append([name, sorted(map(str, domain.get_objects()))])
    for name, key in (("std", "labels"), ("std", "anonlabels"), ("math", "objects"),
                      ("citation", "citations")):
        known.append(sorted(map(str, env.domains[name].data.get(key, {}).items())))
    glued = {name for name, data in getattr(env, "nb_metadata", {}).items() if data.get("glue")}
    known.append([_seen(env)["pages"].get(name) for name in sorted(glued)])
    return digest(json.dumps(known, default=_plain, sort_keys=True))


def _plain(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)


class BookBuilder(StandaloneHTMLBuilder):
    """The HTML builder, made right for builds that write a part of the pages."""

    def load_indexer(self, docnames: Iterable[str]) -> None:
        """Take over the last search index, less the pages that will be written.

        Sphinx forgets the index entries of the others, and keeps words that no page has any more.
        """
        super().load_indexer(docnames)
        indexer = self.indexer
        assert indexer is not None
        indexer._objtypes.clear()
        indexer._objnames.clear()
        kept: dict[str, list[Any]] = {name: [] for name in indexer._titles}
        names, entries = self._last_entries()
        for entry, places in entries.items():
            for number, target, main in places:
                if names[number] in kept:
                    kept[names[number]].append((entry, target, "main" if main else ""))
        indexer._index_entries = {name: sorted(found) for name, found in kept.items() if found}
        for mapping in (indexer._mapping, indexer._title_mapping):
            for word in [word for word, pages in mapping.items() if not pages]:
                del mapping[word]

    def _last_entries(self) -> tuple[list[str], dict[str, Any]]:
        try:
            text = (Path(self.outdir) / self.searchindex_filename).read_text(encoding="utf-8")
            frozen = self.indexer_format.loads(text)
            return frozen["docnames"], frozen["indexentries"]
        except (OSError, ValueError, KeyError, TypeError):
            return [], {}

    def dump_search_index(self) -> None:
        if self.indexer is not None:
            # In the order in which a build from nothing meets the pages.
            self.indexer._index_entries = dict(sorted(self.indexer._index_entries.items()))
        super().dump_search_index()

    def finish(self) -> None:
        super().finish()
        self.finish_tasks.add_task(self.remove_strays)

    def remove_strays(self) -> None:
        """Remove the files of pages and figures that are not part of the site."""
        out = Path(self.outdir)
        written: set[str] = self.app.book_written  # type: ignore[attr-defined]
        pages = {Path(self.get_outfilename(name)) for name in self.env.found_docs | written}
        sources = {out / "_sources" / os_path(name) for name in self.env.found_docs}
        figures = {out / self.imagedir / name for _, name in self.env.images.values()}
        outputs = {(Path(self.srcdir) / name).resolve() for name in self.env.images}
        for path in _files(out):
            place = path.relative_to(out).parts[0]
            stray = (
                path not in figures if place == self.imagedir
                else path.with_suffix("") not in sources if place == "_sources"
                else path not in pages if path.suffix == self.out_suffix
                and place not in ("_static", "_downloads")
                else False)
            if stray:
                path.unlink()
        made = Path(self.env.mystnb_config.output_folder)  # type: ignore[attr-defined]
        for path in _files(made):
            if path.resolve() not in outputs and path.suffix not in (".ipynb", ".json"):
                path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


# ------------------------------------------------------------------ what every page carries

def note_written(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
                 doctree: nodes.document | None) -> None:
    app.book_written.add(pagename)  # type: ignore[attr-defined]
    if name := context.get("sourcename"):
        # Sphinx copies a file only if its size or time differ, which an edit may leave alone.
        (Path(app.outdir) / "_sources" / os_path(name)).unlink(missing_ok=True)


def start(app: Sphinx) -> None:
    app.book_written = set()  # type: ignore[attr-defined]
    # Pages carry checksums of these files, some of which are written after the pages; with last
    # time's lying there the checksums would be others. All are copied again; so are downloads.
    for name in ("_static", "_downloads"):
        shutil.rmtree(Path(app.outdir) / name, ignore_errors=True)


def plain_queue(app: Sphinx) -> None:
    """Collect the sitemap's links in this process; the extension starts another one for it."""
    app.env.is_directory_builder = app.builder.name == "dirhtml"  # type: ignore[attr-defined]
    app.sitemap_links = queue.Queue()  # type: ignore[attr-defined]


def note_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    app.book_read = list(docnames)  # type: ignore[attr-defined]


def report(app: Sphinx, exception: Exception | None) -> None:
    """Write beside the site which pages were read and written, and which files they include."""
    if exception is None:
        files: set[str] = set().union(*app.env.dependencies.values())
        write_json(Path(app.outdir).parent / REPORT, {
            "read": app.book_read,  # type: ignore[attr-defined]
            "written": sorted(app.book_written & app.env.found_docs),  # type: ignore[attr-defined]
            "depends": sorted(str((Path(app.srcdir) / file).resolve()) for file in files),
        })


def take_over_sitemap(app: Sphinx, config: Config) -> None:
    for listener in list(app.events.listeners["builder-inited"]):
        if listener.handler is sphinx_sitemap.record_builder_type:
            app.disconnect(listener.id)
            app.connect("builder-inited", plain_queue)
            app.connect("build-finished", whole_sitemap, priority=1)


def whole_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """Have the sitemap name the pages that were not written again too, in the same order."""
    links: queue.Queue[Any] = app.sitemap_links  # type: ignore[attr-defined]
    written = app.book_written  # type: ignore[attr-defined]
    while not links.empty():
        links.get_nowait()
    pages = sorted(app.env.found_docs)
    for name in [*pages, *sorted(written - set(pages))]:
        sphinx_sitemap.add_html_link(app, name, "", {}, None)


def setup(app: Sphinx) -> None:
    app.add_config_value("book_out", "", "", str)
    app.add_builder(BookBuilder, override=True)
    app.connect("builder-inited", start, priority=1)
    app.connect("config-inited", take_over_sitemap, priority=900)
    app.connect("env-get-outdated", outdated)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("env-get-updated", rewritten, priority=900)  # after the numbers are known
    app.connect("env-before-read-docs", note_read)
    app.connect("html-page-context", note_written)
    app.connect("build-finished", report)
