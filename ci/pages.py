"""What a page holds: its cells with their lines, its headings, its claims and verdicts.

The text file is read once, by jupytext, into cells; the prose is read by markdown-it, so that a
fence inside a quote or a table inside a list is seen as the site sees it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ci.project import BookError, Project, load_yaml

VERDICTS = ("holds", "holds with limits", "outdated", "wrong", "not checkable here")
GENERATED = ("questions", "claims", "status")

CLAIM = re.compile(r"\*\*Claim `([^`]*)`\.\*\*\s*(.*)", re.S)
VERDICT = re.compile(r"\*\*Verdict: ([^*]*?)\.\*\*\s*(.*)", re.S)
# Anything that was meant as one of the two and misses the form.
NEARLY = re.compile(r"\*{0,2}(Claim|Verdict)\b", re.I)
ROW_ID = re.compile(r"^`([a-z0-9-]+-\d{2,3})`$")


@dataclass(frozen=True)
class Cell:
    """One cell of a page. ``line`` is the line of its first line of source, from 1.

    ``number`` counts code cells from 1 and is 0 for prose.
    """

    kind: str
    source: str
    metadata: dict[str, Any]
    line: int
    number: int

    @property
    def tags(self) -> list[str]:
        tags = self.metadata.get("tags", [])
        return list(tags) if isinstance(tags, list) else []

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    line: int


@dataclass(frozen=True)
class Quote:
    """A claim or verdict quote. ``name`` is the claim's id or the verdict's word."""

    kind: str  # 'claim', 'verdict', or 'malformed'
    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Row:
    """One row of the table of small claims."""

    cells: tuple[str, ...]
    line: int


@dataclass
class Claim:
    """One claim as its page deals with it."""

    id: str
    text: str
    line: int
    verdict: str = ""
    shows: str = ""
    full: bool = True  # a quote with its own cells, or a row of the table
    tests: list[Cell] = field(default_factory=list)

    def deciding(self, helpers: set[str]) -> Cell | None:
        """Return the last of its cells that asserts something, None if there is none.

        Args:
            helpers: the page's own functions that assert, see :func:`asserting_functions`.
        """
        return next((cell for cell in reversed(self.tests) if asserts(cell, helpers)), None)


@dataclass(frozen=True)
class Problem:
    """Something wrong with a page: the line, what is wrong, how to mend it."""

    line: int
    what: str
    way_out: str


@dataclass(frozen=True)
class Page:
    """A page as it stands in ``book/``."""

    slug: str
    path: Path
    text: str
    cells: tuple[Cell, ...]
    metadata: dict[str, Any]

    @property
    def code(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.kind == "code")

    @property
    def is_notebook(self) -> bool:
        return bool(self.metadata.get("jupytext") or self.metadata.get("kernelspec"))

    @property
    def title(self) -> str:
        return next((h.text for h in headings(self) if h.level == 1), self.slug)

    def section(self, name: str) -> str:
        """Return the prose below the second-level heading ``name``, '' if there is none."""
        parts: list[str] = []
        inside = False
        for cell in self.cells:
            if cell.kind == "code":
                continue
            for line in cell.source.splitlines():
                if line.startswith("## "):
                    inside = line[3:].strip() == name
                elif line.startswith("# "):
                    inside = False
                elif inside:
                    parts.append(line)
        return "\n".join(parts).strip()

    @property
    def short_answer(self) -> str:
        """The section of that name as one line, without quotes and comments."""
        text = re.sub(r"<!--.*?-->", "", self.section("Short answer"), flags=re.S)
        return " ".join(" ".join(line for line in text.splitlines()
                                 if not line.startswith(">")).split())


def read_page(path: Path) -> Page:
    """Read one page.

    Raises:
        BookError: the file is missing, or its header or a cell's options are not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BookError(path, "no such page", "See _toc.yml for the names") from None
    return parse_page(path.stem, path, text)


@lru_cache(maxsize=256)
def parse_page(slug: str, path: Path, text: str) -> Page:
    """Parse the text of a page; see :func:`read_page`."""
    try:
        notebook = myst_to_notebook(text, add_source_map=True)
    except MystMetadataParsingError as error:
        raise BookError(path, " ".join(str(error).split()), "Mend the YAML there") from None
    lines = text.splitlines()
    cells: list[Cell] = []
    number = 0
    for cell, start in zip(notebook.cells, notebook.metadata.pop("source_map"), strict=True):
        is_code = cell.cell_type == "code"
        number += is_code
        line = _first_line(lines, start, cell.source, is_code) + 1
        cells.append(Cell(cell.cell_type, cell.source, dict(cell.metadata), line,
                          number if is_code else 0))
    return Page(slug, path, text, tuple(cells), dict(notebook.metadata))


def _first_line(lines: list[str], start: int, source: str, is_code: bool) -> int:
    """Return the line (from 0) where a cell's source starts, past blank lines and options."""
    at = start
    if is_code and at < len(lines):
        if lines[at].strip() == "---":
            at = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "---"), at) + 1
        else:
            while at < len(lines) and lines[at].startswith(":"):
                at += 1
    while source and at < len(lines) and not lines[at].strip():
        at += 1
    return min(at, max(len(lines) - 1, 0))


def toc_files(project: Project) -> list[str]:
    """Return the pages in the order of ``_toc.yml``, the root first.

    Raises:
        BookError: the file is not a table of contents of a Jupyter Book.
    """
    return [slug for _, slug in toc_parts(project)]


def toc_parts(project: Project) -> list[tuple[str, str]]:
    """Return (part, page) in the order of ``_toc.yml``; the root's part is ''."""
    path = project.root / "_toc.yml"
    toc = load_yaml(path)
    if not isinstance(toc, dict) or not isinstance(toc.get("root"), str):
        raise BookError(path, "no root page", "Write `root: index`")
    found = [("", toc["root"])]
    for entry in toc.get("chapters") or []:
        found.append(("", entry["file"]))
    for part in toc.get("parts") or []:
        for entry in part.get("chapters") or []:
            if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
                raise BookError(path, f"{entry!r} is not `file: name`", "Write `- file: name`")
            found.append((str(part.get("caption", "")), entry["file"]))
    return found


def notebook_slugs(project: Project) -> list[str]:
    """Return the pages of the table of contents that have code, in its order."""
    return [slug for slug in toc_files(project) if read_page(project.text(slug)).is_notebook]


# ------------------------------------------------------------------ prose, by markdown-it

_MARKDOWN = MarkdownIt("commonmark").enable("table")


@lru_cache(maxsize=4096)
def _tokens(source: str) -> tuple[Token, ...]:
    return tuple(_MARKDOWN.parse(source))


def prose_tokens(cell: Cell) -> tuple[Token, ...]:
    """Return the block tokens of a prose cell."""
    return _tokens(cell.source)


def headings(page: Page) -> list[Heading]:
    """Return the headings in order."""
    found = []
    for cell in page.cells:
        if cell.kind == "code":
            continue
        tokens = prose_tokens(cell)
        for token, inline in pairwise(tokens):
            if token.type == "heading_open" and token.map and token.level == 0:
                found.append(Heading(int(token.tag[1]), inline.content, cell.line + token.map[0]))
    return found


def _quotes_and_rows(cell: Cell) -> Iterator[Quote | Row]:
    tokens = prose_tokens(cell)
    for index, token in enumerate(tokens):
        line = cell.line + (token.map[0] if token.map else 0)
        if token.type == "blockquote_open" and tokens[index + 1].type == "paragraph_open":
            content = tokens[index + 2].content
            if match := CLAIM.fullmatch(content):
                yield Quote("claim", match[1], " ".join(match[2].split()), line)
            elif match := VERDICT.fullmatch(content):
                yield Quote("verdict", match[1], " ".join(match[2].split()), line)
            elif NEARLY.match(content):
                yield Quote("malformed", "", content, line)
        elif token.type == "tr_open":
            row: list[str] = []
            for inner in tokens[index + 1 :]:
                if inner.type == "tr_close":
                    break
                if inner.type == "inline":
                    row.append(inner.content.strip())
            if row and ROW_ID.match(row[0]):
                yield Row(tuple(row), line)


def claims(page: Page) -> tuple[list[Claim], list[Problem]]:
    """Return the page's claims with their verdicts and test cells, and what is wrong with them.

    A claim quote opens a claim; the code cells after it test it; the verdict quote closes it. A
    row of the table of small claims is tested by the code cells that hold its id as a string.
    """
    found: list[Claim] = []
    problems: list[Problem] = []
    opened: Claim | None = None
    rows: list[Row] = []
    for cell in page.cells:
        if cell.kind == "code":
            if opened:
                opened.tests.append(cell)
            continue
        for item in _quotes_and_rows(cell):
            if isinstance(item, Row):
                rows.append(item)
            elif item.kind == "malformed":
                problems.append(Problem(
                    item.line, f"a quote that is nearly a claim or a verdict: {item.text[:50]!r}",
                    "Write `> **Claim `id`.** ...` or `> **Verdict: word.** ...`"))
            elif item.kind == "claim":
                if opened:
                    problems.append(_no_verdict(opened))
                opened = Claim(item.name, item.text, item.line)
                found.append(opened)
            elif opened is None:
                problems.append(Problem(item.line, "a verdict without a claim before it",
                                        "Open the claim, or make this ordinary text"))
            else:
                opened.verdict, opened.shows = item.name, item.text
                opened = None
    if opened:
        problems.append(_no_verdict(opened))
    for row in rows:
        name = ROW_ID.match(row.cells[0])
        assert name
        if len(row.cells) != 4:
            problems.append(Problem(row.line, f"{name[1]}: a row of {len(row.cells)} cells",
                                    "Write | Claim | Says | Verdict | What the run shows |"))
            continue
        tests = [cell for cell in page.code if name[1] in strings(cell.source)]
        found.append(Claim(name[1], row.cells[1], row.line, row.cells[2], row.cells[3], False,
                           tests))
    return found, problems


def _no_verdict(claim: Claim) -> Problem:
    return Problem(claim.line, f"claim {claim.id} has no verdict",
                   "Close it with `> **Verdict: holds.** ...` after its cells")


def count_verdicts(page: Page) -> dict[str, int]:
    """Return how many claims of the page got which verdict; verdicts that none got are left out."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims(page)[0]:
        if claim.verdict in counts:
            counts[claim.verdict] += 1
    return {verdict: count for verdict, count in counts.items() if count}


def words(page: Page) -> int:
    """Return how many words of prose the page has; code, addresses and formulas count as one."""
    total = 0
    for cell in page.cells:
        if cell.kind == "code":
            continue
        plain = re.sub(r"\]\([^)]*\)|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|<[^>]+>", " x ",
                       cell.source, flags=re.S)
        total += len(re.findall(r"[^\W_][\w'’.-]*", plain))
    return total


# ------------------------------------------------------------------ code, by ast

def python(source: str) -> str:
    """Return a cell's source with IPython's magics turned into plain Python."""
    return str(TransformerManager().transform_cell(source))


@lru_cache(maxsize=4096)
def parse(source: str) -> ast.Module | None:
    """Return the syntax tree of a cell, None if it is not Python."""
    try:
        return ast.parse(python(source))
    except SyntaxError:
        return None


def top_modules(page: Page) -> set[str]:
    """Return the top packages that the page's cells import, anywhere in them."""
    return {
        name.partition(".")[0]
        for cell in page.code for node in ast.walk(parse(cell.source) or ast.Module([], []))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) else [])}


def strings(source: str) -> set[str]:
    """Return the string literals of a cell."""
    tree = parse(source)
    return {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    } if tree else set()


def asserting_functions(page: Page) -> set[str]:
    """Return the names of the page's own functions whose body asserts something."""
    names: set[str] = set()
    for cell in page.code:
        for node in ast.walk(parse(cell.source) or ast.Module([], [])):
            if isinstance(node, ast.FunctionDef) and any(_is_assertion(n, set()) for n in
                                                         ast.walk(node)):
                names.add(node.name)
    return names


def asserts(cell: Cell, helpers: set[str]) -> bool:
    """Return whether running the cell asserts something that could be false.

    That is an ``assert`` of something else than a constant, a call of a function named
    ``assert...`` (NumPy's and both frameworks' testing functions), or a call of one of
    ``helpers``, at the cell's own level and not only inside a function that it defines.
    """
    tree = parse(cell.source)
    return tree is not None and any(_is_assertion(node, helpers) for node in _executed(tree))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, leaving out the bodies of functions and classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        yield from _executed(node)


def _is_assertion(node: ast.AST, helpers: set[str]) -> bool:
    if isinstance(node, ast.Assert):
        return not _is_constant(node.test)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else (
            node.func.id if isinstance(node.func, ast.Name) else "")
        if name in helpers:
            # The condition is handed over: a literal True in its place proves nothing.
            return not any(isinstance(value, ast.Constant) and value.value is True
                           for value in [*node.args, *(k.value for k in node.keywords)])
        return name.startswith("assert")
    return False


def _is_constant(test: ast.expr) -> bool:
    """Return whether a condition is the same whatever ran: ``True``, ``1 == 1``, a filled tuple."""
    return not any(
        isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        for node in ast.walk(test)
    ) or (isinstance(test, ast.Tuple) and bool(test.elts))
