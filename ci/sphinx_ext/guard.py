"""The guard of ``make site``: a build that hands outputs over must execute nothing.

The plain ``jupyter-book build book/`` does not set the variable and executes what is missing.
"""

from __future__ import annotations

import os

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

from ci.sphinx_ext.incremental import project_of
from ci.sphinx_ext.outputs import ensure, would_execute

GUARD = "PROOF_BY_RUNNING_EXECUTE_NOTHING"


def guarded() -> bool:
    return os.environ.get(GUARD) == "1"


def check(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Stop the build before it reads a page that it would have to execute."""
    if not guarded():
        return
    missing = would_execute(project_of(app), sorted(docnames))
    if missing:
        raise ExtensionError(
            f"these pages would be executed by the site build: {', '.join(missing)}. "
            "Run `python -m ci run`, then `python -m ci site`"
        )


def own_outputs(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a page's own outputs into the cache just before it is read."""
    if guarded():
        ensure(project_of(app), docname)


def setup(app: Sphinx) -> None:
    app.connect("env-before-read-docs", check)
    app.connect("source-read", own_outputs)
