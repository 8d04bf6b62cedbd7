"""The marks of pages that fail with other versions, as the weekly runs leave them.

``_build/drift/<set>.json`` says which pages fail with a set, in which cell, since when. The site
shows a mark on a page as long as its code is still the code that failed. :mod:`ci.weekly` writes
them.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from ci.pages import Page, notebook_slugs, read_page
from ci.project import Project, digest


def read_marks(path: Path) -> dict[str, Any]:
    """Return the marks of a set; none where the file cannot be trusted."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for one in data["pages"].values():
            if (type(one["cell"]) is not int or not isinstance(one["error"], str)
                    or not isinstance(one["code"], str)):
                raise ValueError
            datetime.strptime(one["since"], "%Y-%m-%d")
        if not all(isinstance(v, str) for v in [data["name"], *data["versions"].values()]):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return dict(data)


def code_digest(page: Page) -> str:
    """Return the digest of a page's code."""
    return digest(*(cell.source for cell in page.code))


def marks_of(project: Project, slug: str, code: str) -> list[str]:
    """Return a line for each set of versions that a page, with its code's digest, fails with."""
    lines = []
    for path in sorted(project.drift.glob("*.json")):
        data = read_marks(path)
        one = data.get("pages", {}).get(slug)
        if not one or one["code"] != code:
            continue
        versions = [f"{name} {data['versions'][name]}" for name in ("torch", "tensorflow", "keras",
                    "numpy", "python") if name in data["versions"]]
        day = datetime.strptime(one["since"], "%Y-%m-%d")
        lines.append(f"With {', '.join(versions) or data['name']}, cell {one['cell']} of this page "
                     f"fails since {day.day} {day:%B %Y}: {one['error']}")
    return lines


def all_marks(project: Project) -> dict[str, list[str]]:
    """Return the marked pages with their lines."""
    found = {slug: marks_of(project, slug, code_digest(read_page(project.text(slug))))
             for slug in notebook_slugs(project)}
    return {slug: lines for slug, lines in found.items() if lines}
