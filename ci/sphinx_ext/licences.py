"""``licences.txt`` beside the first page: what the site carries of others, with their licences.

The texts are those that the installed packages bring, so that they are of the version in use.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

from ci.project import BookError, write_atomic

# The package, the files of it that hold the licence, and what of it reaches a reader.
CARRIED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("sphinx", ("LICENSE.rst",), "pages' frame, search's word list"),
    ("pydata-sphinx-theme",
     ("LICENSE", "bootstrap.js.LICENSE.txt", "fontawesome.js.LICENSE.txt"),
     "style rules, with Bootstrap's; icons of Font Awesome Free (CC BY 4.0) as style rules"),
    ("sphinx-book-theme", ("LICENSE",), "style rules, layout"),
    ("pygments", ("LICENSE",), "colours of code"),
    ("sphinx-copybutton", ("LICENSE",), "style rules and pictures of the copy buttons"),
    ("sphinx-togglebutton", ("LICENSE",), "style rules of folded parts"),
    ("sphinx-design", ("LICENSE",), "style rules"),
    ("myst-nb", ("LICENSE",), "style rules of cells"),
    ("jupyter-book", ("LICENSE",), "settings of the build"),
)
NAME = "licences.txt"
OWN = """\
The text of this book is licensed CC BY 4.0, its code MIT. What it carries of others:

MiniSearch (the search index and its script): MIT, see the head of _static/minisearch.js.
"""


def text() -> str:
    """Return the file's text.

    Raises:
        BookError: a package lacks a file that holds its licence.
    """
    parts = [OWN]
    for package, names, what in CARRIED:
        found = metadata.distribution(package)
        parts.append(f"{'=' * 78}\n{package} {found.version}: {what}\n{'=' * 78}\n")
        files = {Path(str(file)).name: file for file in found.files or ()}
        for name in names:
            if name not in files:
                raise BookError(package, f"its package has no file {name}",
                                "Mend CARRIED in ci/sphinx_ext/licences.py")
            parts.append(Path(str(files[name].locate())).read_text(encoding="utf-8").strip()
                         + "\n")
    return "\n".join(parts)


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        write_atomic(Path(app.outdir) / NAME, text())


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write)
