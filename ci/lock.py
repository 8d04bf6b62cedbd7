"""``pyproject.toml``'s short list to ``requirements.txt``: every version, for every machine."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ci.check import check_requirements, is_cuda
from ci.project import BookError, Project, write_atomic
from ci.sets import canonical

HEAD = """\
# Every version that the book runs on, the indirect ones too. Made by `make lock` from the
# dependencies in pyproject.toml, for Python 3.11 to 3.13; do not edit.
# torch is pinned and brings its own exact CUDA libraries where its build has them, so this one
# list serves a machine without a GPU and one with.
"""


def lock(project: Project, check: bool = False) -> str:
    """Resolve the direct dependencies with uv and write the lock.

    Args:
        project: the checkout.
        check: resolve nothing; fail if the lock lacks a direct dependency or leaves one unpinned.

    Returns:
        One line that says what was done.

    Raises:
        BookError: uv found no solution, or the check failed.
    """
    if check:
        if found := check_requirements(project, []):
            raise BookError("requirements.txt", found[0].what, found[0].way_out)
        return "lock: in step"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lock.txt"
        done = subprocess.run(
            [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal",
             "--fork-strategy", "fewest", "--python-version", "3.11", "--no-header",
             "--no-annotate", "--upgrade", str(project.root / "pyproject.toml"), "-o", str(out)],
            capture_output=True, text=True, check=False,
        )
        if done.returncode:
            raise BookError("pyproject.toml", done.stderr.strip(), "Mend the dependencies")
        text = clean(out.read_text(encoding="utf-8"))
    write_atomic(project.requirements, text)
    return f"requirements.txt: {len(text.splitlines()) - len(HEAD.splitlines())} packages"


def clean(text: str) -> str:
    """Return uv's lock without CUDA libraries and without local versions such as ``+cpu``."""
    lines = []
    for line in text.splitlines():
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name and not is_cuda(canonical(name[0])):
            lines.append(re.sub(r"(==[^\s;+]+)\+[^\s;]+", r"\1", line))
    return HEAD + "\n".join(lines) + "\n"
