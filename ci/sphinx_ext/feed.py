"""The feed of changes, ``feed.xml``: the commits that changed a page, from git, newest first.

An archive without git has no feed. Nothing in it depends on when it is built.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from ci.pages import toc_files
from ci.project import Project, digest, write_atomic
from ci.sphinx_ext.incremental import project_of

FEED = "feed.xml"
ENTRIES = 30
START, PART = "\x1e", "\x1f"  # not in any subject
FORMAT = START + PART.join(("%H", "%cI", "%s", ""))


@dataclass(frozen=True)
class Change:
    """A commit: its name, its time, its subject, the pages that it changed."""

    commit: str
    time: str
    subject: str
    pages: tuple[str, ...]


def changes(project: Project) -> list[Change]:
    """Return the last commits that changed pages of today; none where there is no git."""
    try:
        # The book's own folder: a checkout inside another one's has a history too.
        said = subprocess.run(
            ["git", "-C", str(project.root), "-c", "core.quotePath=off", "log",
             f"--format={FORMAT}", "--name-only", "--no-merges", "--no-renames", "--relative",
             f"--max-count={3 * ENTRIES}", "--", "book/*.md"],
            capture_output=True, text=True, check=True, encoding="utf-8").stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    there = set(toc_files(project))
    found = []
    for block in said.split(START)[1:]:
        commit, time, subject, files = block.split(PART)
        pages = tuple(sorted(name for line in files.split("\n") if line.startswith("book/")
                             and (name := Path(line).stem) in there))
        if pages:
            found.append(Change(commit, time, subject, pages))
    return found[:ENTRIES]


def feed_digest(project: Project) -> str:
    """Return the digest of what the feed says."""
    return digest(*(str(change) for change in changes(project)))


def atom(found: list[Change], titles: dict[str, str], title: str, author: str, base: str) -> str:
    """Return the feed; ``base`` is the site's address with its slash at the end."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>',
             '<feed xmlns="http://www.w3.org/2005/Atom">',
             f"<title>{escape(title)}: changes</title>",
             f"<id>{escape(base)}</id>",
             f'<link href="{escape(base)}"/>',
             f'<link rel="self" href="{escape(base + FEED)}"/>',
             f"<updated>{found[0].time}</updated>",
             f"<author><name>{escape(author)}</name></author>"]
    for change in found:
        links = "".join(f'<li><a href="{escape(base)}{page}.html">{escape(titles[page])}</a></li>'
                        for page in change.pages)
        lines += ["<entry>", f"<title>{escape(change.subject)}</title>",
                  f"<id>{escape(base)}{FEED}#{change.commit}</id>",
                  f'<link href="{escape(base)}{change.pages[0]}.html"/>',
                  f"<updated>{change.time}</updated>",
                  f'<content type="html">{escape(f"<ul>{links}</ul>")}</content>', "</entry>"]
    return "\n".join([*lines, "</feed>", ""])


def look(app: Sphinx, config: Config) -> None:
    """Find the changes; whether there are any is said on every page."""
    found = changes(project_of(app)) if config.html_baseurl else []
    app.book_changes = found  # type: ignore[attr-defined]
    config.book_feed = bool(found)


def announce(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
             doctree: nodes.document | None) -> None:
    if app.config.book_feed:
        context["metatags"] = context.get("metatags", "") + (
            f'\n<link rel="alternate" type="application/atom+xml" title="Changes" '
            f'href="{escape(context["pathto"](FEED, 1))}" />')


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    path = Path(app.outdir) / FEED
    path.unlink(missing_ok=True)
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    found = [change for change in app.book_changes  # type: ignore[attr-defined]
             if set(change.pages) <= titles.keys()]
    if found:
        base = app.config.html_baseurl.rstrip("/") + "/"
        write_atomic(path, atom(found, titles, app.config.html_title, app.config.author, base))


def setup(app: Sphinx) -> None:
    app.add_config_value("book_feed", False, "html")  # another value: all pages are written again
    app.connect("config-inited", look, priority=950)
    app.connect("html-page-context", announce)
    app.connect("build-finished", write)
