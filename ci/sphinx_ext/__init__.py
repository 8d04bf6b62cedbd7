"""The Sphinx side of the book: plain Markdown in, boxes, links, buttons and generated pages out.

``_config.yml`` names this package under ``local_extensions``, so the plain
``jupyter-book build book/`` uses it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from ci.sphinx_ext import boxes, formulas, generated, guard, links


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything; called by Sphinx."""
    static = Path(__file__).with_name("static")
    app.connect("builder-inited", lambda app: app.config.html_static_path.append(str(static)))
    app.add_css_file("book.css")
    app.add_js_file("book.js", loading_method="defer")
    for module in (boxes, formulas, generated, guard, links):
        module.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
