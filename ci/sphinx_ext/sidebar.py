"""The list of pages beside each page, made once per part instead of once per page.

The theme makes the whole list anew for every page: time that grows with the square of their
number. What differs between pages is the part that holds the page itself. The rest is taken from
what the theme made for another page, and in a large book is folded to one link per part.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from html import escape
from typing import Any

from docutils import nodes
from pydata_sphinx_theme.toctree import add_toctree_functions
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment.adapters.toctree import _resolve_toctree

LARGE = 100  # pages; a longer list is of no use to a reader, and weighs on every page


class Sidebar:
    """The list of one build: its parts, and what has been made of them so far."""

    def __init__(self, app: Sphinx) -> None:
        self.app = app
        self.parts = list(app.env.master_doctree.findall(addnodes.toctree))
        self.large = len(app.env.found_docs) > LARGE
        self.part_of: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            waiting = list(part["includefiles"])
            while waiting:
                page = waiting.pop()
                if page not in self.part_of:
                    self.part_of[page] = number
                    waiting += app.env.toctree_includes.get(page, [])
        self.made: dict[tuple[Any, ...], str] = {}

    def toctree(self, page: str, part: int, collapse: bool = True, **kwargs: Any) -> str:
        """Return one part of the contents as Sphinx renders it for a page."""
        kwargs["maxdepth"] = int(kwargs.get("maxdepth") or 0)
        tree = _resolve_toctree(self.app.env, page, self.app.builder, self.parts[part], prune=True,
                                collapse=collapse, **kwargs)
        return str(self.app.builder.render_partial(tree)["fragment"])  # type: ignore[attr-defined]

    def html(self, page: str, whole: Callable[..., Any], **kwargs: Any) -> str:
        """Return the list for a page; ``whole`` is the theme's function that makes it."""
        out = []
        here = self.part_of.get(page)
        for part in range(len(self.parts)):
            if part == here:
                out.append(str(whole(part=part, **kwargs)))
                continue
            # Links are relative to the folder of the page.
            key = (part, posixpath.dirname(page), *sorted(kwargs.items()))
            if key not in self.made:
                self.made[key] = self.folded(page, part) if self.large else str(
                    whole(part=part, **kwargs))
            out.append(self.made[key])
        return "".join(out)

    def folded(self, page: str, part: int) -> str:
        """Return a link to the first page of a part, in the part's name."""
        tree = self.parts[part]
        first = next(iter(tree["includefiles"]), None)
        if first is None:
            return ""
        name = tree.get("caption") or self.app.env.titles[first].astext()
        target = self.app.builder.get_relative_uri(page, first)
        return (f'<p class="caption" role="heading"><span class="caption-text">'
                f'<a class="reference internal" href="{escape(target)}">{escape(name)}</a>'
                f"</span></p>\n")


def by_parts(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
             doctree: nodes.document | None) -> None:
    """Have the theme make the part of this page only."""
    whole, toctree = context.get("generate_toctree_html"), context.get("toctree")
    if whole is None or toctree is None:
        return
    if not hasattr(app, "book_sidebar"):
        app.book_sidebar = Sidebar(app)  # type: ignore[attr-defined]
    sidebar: Sidebar = app.book_sidebar  # type: ignore[attr-defined]

    def one_part(part: int | None = None, **kwargs: Any) -> str:
        return str(toctree(**kwargs)) if part is None else sidebar.toctree(pagename, part, **kwargs)

    def listed(kind: str, startdepth: int = 1, show_nav_level: int = 1, **kwargs: Any) -> Any:
        asked = {"kind": kind, "startdepth": startdepth, "show_nav_level": show_nav_level, **kwargs}
        if kind != "sidebar" or startdepth != 0 or int(show_nav_level) == 0:
            return whole(**asked)
        return sidebar.html(pagename, whole, **asked)

    context["toctree"] = one_part
    context["generate_toctree_html"] = listed


def take_over(app: Sphinx) -> None:
    """Follow the theme's own function at once: its next one renders the list already."""
    listeners = app.events.listeners["html-page-context"]
    for place, listener in enumerate(listeners):
        if listener.handler is add_toctree_functions:
            def both(*args: Any) -> None:
                add_toctree_functions(*args)
                by_parts(*args)

            listeners[place] = listener._replace(handler=both)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", take_over)  # the theme has been loaded by now
