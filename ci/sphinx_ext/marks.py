"""A note below a page's title, while its code fails with newer or older versions."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

from ci.sphinx_ext.incremental import data_of


def add_marks(app: Sphinx, doctree: nodes.document) -> None:
    """Put a warning below the title for each set of versions that the page fails with."""
    env = app.env
    assert env is not None
    title = doctree.next_node(nodes.title)
    if title is None or title.parent is None:
        return
    place = title.parent.index(title) + 1
    for line in reversed(data_of(env, "book-marks", env.docname)):
        title.parent.insert(place, nodes.warning("", nodes.paragraph("", line),
                                                 classes=["version-mark"]))


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", add_marks)
