"""Folded cells that hold a record as JSON, written by a tool and never by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ci.pages import Cell, Page
from ci.pair import pair
from ci.project import BookError, Project, write_atomic

COLUMNS = 86


def json_source(title: str, name: str, record: dict[str, Any], where: str) -> str:
    """Return the source of a cell that gives a record a name.

    Args:
        title: the cell's first line, a comment.
        name: the variable that holds the record.
        record: what it holds; JSON must be able to say it.
        where: the file that an error names.

    Raises:
        BookError: a text of the record would end the literal.
    """
    if "'''" in (text := json.dumps(record)):
        raise BookError(where, "a text of the record holds three quotes", "Leave them out")
    return "\n".join([title, "import json", "", f"{name} = json.loads(r'''", *wrapped(text),
                      "''')"])


def fill(project: Project, page: Page, cell: Cell, source: str) -> None:
    """Give a page's cell another source, in its text and its notebook."""
    lines = page.text.splitlines(keepends=True)
    end = cell.line - 1 + cell.lines
    write_atomic(page.path, "".join([*lines[:cell.line - 1], source, "\n", *lines[end:]]))
    pair(project, only=page.slug)


def wrapped(text: str, columns: int = COLUMNS) -> list[str]:
    """Return JSON in lines of at most ``columns`` where its texts allow, broken between values."""
    lines = [""]
    for piece in pieces(text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > columns:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def pieces(text: str) -> Iterator[str]:
    """Split JSON behind each comma that separates values, and behind opening brackets."""
    start = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|, |[\[{]', text):
        if not match[0].startswith('"'):
            yield text[start:match.end()]
            start = match.end()
    yield text[start:]
