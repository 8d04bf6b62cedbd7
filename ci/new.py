"""A new page from the style guide: its boxes become comments, its set-up stays, claims wait."""

from __future__ import annotations

import re
from pathlib import Path

from ci.check import SECTIONS
from ci.claims import load_claims, load_topics
from ci.pages import Cell, Page, read_page
from ci.pair import normal_form
from ci.project import BookError, Project, write_atomic

GUIDE = "style-guide"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def new(project: Project, slug: str) -> Path:
    """Write ``book/<slug>.md`` and return its path.

    The page has every section with the style guide's rule as a comment, the guide's set-up,
    parameters and row function, and one quote with an open cell for each claim of its topic.
    ``check`` then lists what is left to do.

    Raises:
        BookError: the name is no name for a page, or the page exists.
    """
    path = project.text(slug)
    if not SLUG.fullmatch(slug):
        raise BookError(path, "not a name for a page", "Use lower case, digits and dashes")
    if path.exists():
        raise BookError(project.relative(path), "exists already", "Choose another name")
    guide = read_page(project.text(GUIDE))
    topic = load_topics(project).get(slug)
    rules = boxes(guide)
    header = guide.text.split("\n---\n", 1)[0] + "\n---\n"
    parts = [header, f"# {topic.en if topic else 'The question, as a person would put it'}",
             rules.get("", "")]
    for name in SECTIONS:
        parts += [f"## {name}", rules.get(name, "")]
        if name == "Set-up":
            parts += ["The libraries, quiet, and their versions in one line.",
                      fence(guide.code[0]),
                      "One parameter.", fence(guide.code[1])]
        elif name == "Claims, run":
            for claim in load_claims(project).values():
                if claim.topic == slug:
                    parts += [f"> **Claim `{claim.id}`.** {claim.says}",
                              "What is measured, in a sentence.",
                              "```{code-cell}\n...  # measure it, then assert it\n```"]
        elif name == "The small print, run":
            helper = next(c for c in guide.code if c.source.startswith("def row("))
            parts += ["The function prints a row and stops the page if the run no longer shows it.",
                      fence(helper), "| Claim | Says | Verdict | What the run shows |\n"
                                     "| --- | --- | --- | --- |"]
    text = "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    write_atomic(path, normal_form(text))
    return path


def boxes(guide: Page) -> dict[str, str]:
    """Return the guide's rule boxes by section ('' for the top), each as an HTML comment."""
    found: dict[str, list[str]] = {"": []}
    section = ""
    for cell in guide.cells:
        for line in cell.source.splitlines() if cell.kind != "code" else []:
            if line.startswith("## "):
                section = line[3:].strip()
                found[section] = []
            elif line.startswith(">") and not line.startswith(("> **Claim", "> **Verdict")):
                found[section].append(re.sub(r"^> ?", "", line))
    comments = {}
    for name, lines in found.items():
        rule = "\n".join(line for line in lines if "[!" not in line and "--" not in line).strip()
        if rule:
            comments[name] = f"<!--\n{rule}\n-->"
    return comments


def fence(cell: Cell) -> str:
    """Return a cell of the guide as text."""
    tags = f":tags: [{', '.join(cell.tags)}]\n\n" if cell.tags else ""
    return f"```{{code-cell}}\n{tags}{cell.source}\n```"
