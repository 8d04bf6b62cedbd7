"""The list of renamed pages, ``book/_data/renamed.yml``: ``old-name: new-name``, a line each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ci.project import BookError, Project, load_yaml


def renamed_file(project: Project) -> Path:
    return project.claims_file.with_name("renamed.yml")


def load_renamed(project: Project) -> dict[str, str]:
    """Return the new names of pages by their old ones; there need not be such a file.

    Raises:
        BookError: it is not a list of `old: new`.
    """
    path = renamed_file(project)
    found = load_yaml(path) if path.is_file() else None
    if found is not None and not (isinstance(found, dict) and all(
            isinstance(name, str) for pair in found.items() for name in pair)):
        raise BookError(project.relative(path), "not a list of old and new names",
                        "Write `old-name: new-name`, a line each")
    return found or {}


def renamed_problems(project: Project, slugs: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield what is wrong with the list of renamed pages: line, what, way out."""
    path = renamed_file(project)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for old, new in load_renamed(project).items():
        line = next((number for number, text in enumerate(lines, 1)
                     if text.startswith((f"{old}:", f'"{old}'))), 1)
        if old in slugs or project.text(old).exists():
            yield line, f"{old} is the name of a page", "Remove the line, or rename the page"
        if new not in slugs:
            yield (line, f"{old} leads to {new}, which is no page of _toc.yml",
                   "Write the page's name of today")
