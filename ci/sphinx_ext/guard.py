"""The guard of ``make site``: a build that hands outputs over must execute nothing.

The plain ``jupyter-book build book/`` does not set the variable and executes what is missing.
"""

from __future__ import annotations

import os

from jupyter_cache import get_cache
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

from ci.pages import read_page
from ci.project import Project

GUARD = "PROOF_BY_RUNNING_EXECUTE_NOTHING"


def would_execute(project: Project, slugs: list[str]) -> list[str]:
    """Return which of the pages have no outputs in the cache for their code as it stands."""
    cache = get_cache(str(project.cache))
    found = []
    for slug in slugs:
        page = read_page(project.text(slug))
        if not page.is_notebook or not page.code:
            continue
        try:
            cache.match_cache_notebook(read_myst_markdown_notebook(page.text))
        except KeyError:
            found.append(slug)
    return found


def check(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Stop the build before it reads a page that it would have to execute."""
    if os.environ.get(GUARD) != "1":
        return
    project = Project.find(env.srcdir)
    missing = would_execute(project, sorted(docnames))
    if missing:
        raise ExtensionError(
            f"these pages would be executed by the site build: {', '.join(missing)}. "
            "Run `python -m ci run`, then `python -m ci site`"
        )


def setup(app: Sphinx) -> None:
    app.connect("env-before-read-docs", check)
