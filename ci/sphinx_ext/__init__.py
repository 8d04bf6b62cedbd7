"""The Sphinx side of the book: plain Markdown in, boxes, links, buttons and generated pages out.

``_config.yml`` names this package under ``local_extensions``, so the plain
``jupyter-book build book/`` uses it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from ci.sphinx_ext import (
    addresses,
    api_index,
    boxes,
    exercises,
    feed,
    formulas,
    generated,
    guard,
    incremental,
    licences,
    links,
    marks,
    previews,
    search,
    sidebar,
    theme,
    using,
)


def drop_live_code(app: Sphinx) -> None:
    """Take out the live-code extension that Jupyter Book always loads.

    The book has no live cells; what the extension leaves on each page is an error in the console
    and an unused address of somebody else's server.
    """
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__.startswith("sphinx_thebe"):
                app.disconnect(listener.id)
    app.registry.css_files[:] = [f for f in app.registry.css_files if "thebe" not in f[0]]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything; called by Sphinx."""
    app.connect("config-inited", lambda app, config: drop_live_code(app), priority=900)
    static = Path(__file__).with_name("static")
    app.connect("builder-inited", lambda app: app.config.html_static_path.append(str(static)))
    app.add_css_file("book.css")
    app.add_js_file("book.js", loading_method="defer")
    for module in (addresses, api_index, boxes, exercises, feed, formulas, generated, guard,
                   incremental, licences, links, marks, previews, search, sidebar, theme,
                   using):
        module.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
