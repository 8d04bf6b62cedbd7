"""Each page imports what it uses: in its own cells, before the use, submodules by name.

A page runs in a kernel that may have been forked from a process in which the frameworks are loaded
already. There ``import matplotlib`` is enough to reach ``matplotlib.pyplot``; in the reader's
kernel it is not. So a dotted name that is a submodule on disk has to be imported by the page, or be
brought by what the page imports. Which of them are brought is asked of a bare interpreter, once for
each question and set of versions; the answers are kept in ``_build/imports.json``.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path
from typing import Any

from ci.pages import Cell, Page, Problem, parse, strings
from ci.project import BookError, Project, digest, write_json
from ci.record import requirements_digest

MEMORY = "imports.json"  # in _build
PATIENCE = 300  # seconds for one interpreter to import what a page imports
# What a notebook's kernel defines beside Python's own names.
KERNEL_NAMES = ("get_ipython", "display", "In", "Out", "_", "__")


def check_imports(project: Project, pages: list[Page]) -> dict[str, list[Problem]]:
    """Return, by page, the names that its cells use and do not bring.

    Args:
        project: the checkout; its ``_build`` keeps the answers of earlier calls.
        pages: pages with code.

    Raises:
        BookError: an import of a page ends the interpreter, or never comes back.
    """
    found = {page.slug: list(problems) for page, problems in undefined(pages)}
    uses = [(page.slug, use) for page in pages for use in read_uses(page)]
    memory = Memory(project)
    # The bare import of the package answers nearly all, and for every page alike.
    memory.learn(use.narrow() for _, use in uses)
    doubtful = [(slug, use) for slug, use in uses if not memory.knows(use.narrow())]
    memory.learn(use.question for _, use in doubtful)
    seen: set[tuple[str, str]] = set()
    for slug, use in doubtful:
        name = use.question.name
        if memory.knows(use.question) or (slug, name) in seen:
            continue
        seen.add((slug, name))  # one import mends all later uses
        takes = f"takes {name} from sys.modules" if use.question.listed else f"uses {name}"
        found[slug].append(Problem(
            use.line, f"cell {use.cell} {takes}, which nothing in the page imports",
            f"Write `import {name}` before it"))
    return found


# ------------------------------------------------------------------ names that nothing defines

def undefined(pages: list[Page]) -> Iterator[tuple[Page, Iterator[Problem]]]:
    """Yield each page with its undefined names, as ruff finds them in one call for all pages."""
    with tempfile.TemporaryDirectory() as folder:
        for page in pages:
            cells: list[dict[str, Any]] = [
                {"cell_type": "code", "source": cell.source, "metadata": {}, "outputs": [],
                 "execution_count": None} for cell in page.code]
            (Path(folder) / f"{page.slug}.ipynb").write_text(json.dumps(
                {"cells": cells, "metadata": {"language_info": {"name": "python"}},
                 "nbformat": 4, "nbformat_minor": 4}), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--exit-zero",
             "--no-respect-gitignore", "--select", "F821", "--output-format", "json",
             "--target-version", f"py3{sys.version_info.minor}",
             "--config", f"builtins = {json.dumps(KERNEL_NAMES)}", folder],
            capture_output=True, text=True, check=False)
    try:
        answers = json.loads(done.stdout)
    except ValueError:
        raise BookError("book", f"ruff did not check the names: {done.stderr.strip()}",
                        "Install requirements.txt") from None
    for page in pages:
        # Cells that are no Python have no F821; the page's other rules report them.
        mine = [one for one in answers
                if one["code"] == "F821" and Path(one["filename"]).stem == page.slug]
        elsewhere = _sent_names(page) if mine else set()
        yield page, (
            Problem(cell.line + row - 1, f"cell {cell.number} uses {name}, which no cell up to "
                    "there defines", "Import or define it before")
            for one in mine
            for cell, row in [(page.code[one["cell"] - 1], one["location"]["row"])]
            for name in [one["message"].split("`")[1]]
            if name not in elsewhere or not _in_function(cell, row))


def _sent_names(page: Page) -> set[str]:
    """Return what programs that the page holds as text import.

    A page may write a program to a file and send it the source of its own functions; these then
    find the names of that program.
    """
    names: set[str] = set()
    for cell in page.code:
        for text in strings(cell.source):
            for node in ast.walk(parse(text) or ast.Module([], [])) if "import" in text else ():
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    names |= {one.asname or one.name.partition(".")[0] for one in node.names}
    return names


def _in_function(cell: Cell, row: int) -> bool:
    return any(
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno < row <= (node.end_lineno or 0)
        for node in ast.walk(parse(cell.source) or ast.Module([], [])))


# ------------------------------------------------------------------ what a page reaches into

@dataclass(frozen=True)
class Question:
    """Is ``name`` there when only ``statements`` have run?

    ``listed`` asks for the entry of ``sys.modules``, else for the attribute.
    """

    statements: tuple[str, ...]
    name: str
    listed: bool = False

    def __str__(self) -> str:
        return f"{'; '.join(self.statements)} -> {'sys.modules ' * self.listed}{self.name}"


@dataclass(frozen=True)
class Use:
    """A submodule that a page uses without importing it by name, and what it imports before."""

    cell: int
    line: int
    question: Question
    imported: frozenset[str]

    def narrow(self) -> Question:
        """Return the question for the bare import of the package alone, where the page has one.

        A yes to it is a yes to the whole question: further imports take nothing away.
        """
        top = self.question.name.partition(".")[0]
        if top not in self.imported:
            return self.question
        return Question((f"import {top}",), self.question.name, self.question.listed)


@dataclass
class _Scope:
    """The names of a module or a function; ``names`` maps to a module's full name, else None."""

    names: dict[str, str | None] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)


def read_uses(page: Page) -> list[Use]:
    """Return the submodules that the page's cells use and that none of them imports by name."""
    reader = _Reader()
    for cell in page.code:
        if tree := parse(cell.source):
            reader.read(tree, cell.number, cell.line)
    return sorted(reader.found, key=lambda use: use.line)


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class _Reader(ast.NodeVisitor):
    """Follows imports and names through the cells, in the order in which they run.

    A function's body counts where its cell ends: it can't be called before, and a name that it
    takes from the page may come from a later cell. What a function imports counts inside it only.
    """

    def __init__(self) -> None:
        self.found: list[Use] = []
        self.cell = self.first = 0
        self.scopes = [_Scope()]
        self.bodies: list[tuple[Function, list[_Scope]]] = []
        # Uses in functions whose first name no cell has defined yet.
        self.waiting: list[tuple[list[str], int, int, list[_Scope]]] = []

    def read(self, tree: ast.Module, cell: int, first: int) -> None:
        """Read one cell; ``first`` is the line of the page where it starts."""
        self.cell, self.first = cell, first
        self.visit(tree)
        while self.bodies:
            node, outer = self.bodies.pop(0)
            own = _Scope(dict.fromkeys(_bound(node)))
            self.scopes = [*outer, own]
            for part in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(part)
        waiting, self.waiting = self.waiting, []
        for chain, number, line, scopes in waiting:
            self._use(chain, number, line, scopes)
        self.scopes = self.scopes[:1]

    # -------------------------------------------------------------- what binds names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(alias.name, f"import {alias.name}")
            top = alias.name.partition(".")[0]
            self.scopes[-1].names[alias.asname or top] = alias.name if alias.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return
        for alias in node.names:
            self._import(node.module, f"from {node.module} import {alias.name}")
            full = f"{node.module}.{alias.name}"
            is_module = folders(full) is not None
            if is_module:
                self.scopes[-1].imported.add(full)
            # `modules` is no module, and the one object that is followed all the same.
            follow = is_module or full in ("sys.modules", "importlib.import_module")
            self.scopes[-1].names[alias.asname or alias.name] = full if follow else None

    def _import(self, name: str, statement: str) -> None:
        self.scopes[-1].statements.append(statement)
        parts = name.split(".")
        self.scopes[-1].imported |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        # `except ImportError: module = None` does not make the module another thing.
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            for target in node.targets:
                self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.scopes[-1].names[node.id] = None

    def _function(self, node: Function) -> None:
        self.visit(node.args)  # defaults and annotations, which Python evaluates here
        if not isinstance(node, ast.Lambda):
            for part in filter(None, [*node.decorator_list, node.returns]):
                self.visit(part)
            self.scopes[-1].names[node.name] = None
        self.bodies.append((node, list(self.scopes)))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        outer = self.scopes[-1]
        outer.names[node.name] = None
        # Its names are its own; its imports run at once, as if they stood before it.
        self.scopes.append(_Scope({}, outer.statements, outer.imported))
        for part in node.body:
            self.visit(part)
        self.scopes.pop()

    def _comprehension(self, node: Comprehension) -> None:
        inner = _Scope(dict.fromkeys(
            name.id for part in node.generators for name in ast.walk(part.target)
            if isinstance(name, ast.Name)))
        self.scopes.append(inner)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    # -------------------------------------------------------------- what uses them

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if chain := _chain(node):
            self._use(chain, self.cell, self.first + node.lineno - 1, self.scopes)
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._listed(node.value, node.slice)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                self._listed(right, node.left)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            self._listed(node.func.value, node.args[0])
        given = node.args[0] if node.args else None
        if (self._full(node.func) == "importlib.import_module" and isinstance(given, ast.Constant)
                and isinstance(given.value, str) and re.fullmatch(r"\w+(\.\w+)*", given.value)):
            self._import(given.value, f"import {given.value}")
        self.generic_visit(node)

    def _listed(self, modules: ast.expr, key: ast.expr) -> None:
        """Note a use of ``sys.modules`` by the name of a module."""
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return
        imported = self._imported(self.scopes)
        if self._full(modules) == "sys.modules" and key.value not in imported:
            self._note(key.value, self.cell, self.first + key.lineno - 1, self.scopes, listed=True)

    def _full(self, node: ast.expr) -> str:
        """Return the full name of what an expression names, '' if it is not of a module."""
        chain = _chain(node)
        root = self._lookup(chain[0], self.scopes) if chain else None
        return ".".join([root, *chain[1:]]) if root else ""

    @staticmethod
    def _lookup(name: str, scopes: list[_Scope]) -> str | None:
        for scope in reversed(scopes):
            if name in scope.names:
                return scope.names[name]
        return ""  # nothing defines it so far

    @staticmethod
    def _imported(scopes: list[_Scope]) -> frozenset[str]:
        return frozenset().union(*(scope.imported for scope in scopes))

    def _use(self, chain: list[str], cell: int, line: int, scopes: list[_Scope]) -> None:
        root = self._lookup(chain[0], scopes)
        if root == "" and len(scopes) > 1:
            self.waiting.append((chain, cell, line, scopes))
        if not root:
            return
        doubtful = ""
        name = root
        for part in chain[1:]:
            name += f".{part}"
            if folders(name) is None:
                break
            if name not in self._imported(scopes):
                doubtful = name
        if doubtful:
            self._note(doubtful, cell, line, scopes)

    def _note(self, name: str, cell: int, line: int, scopes: list[_Scope], listed: bool = False
              ) -> None:
        before = tuple(dict.fromkeys(s for scope in scopes for s in scope.statements))
        self.found.append(Use(cell, line, Question(before, name, listed), self._imported(scopes)))


def _chain(node: ast.AST) -> list[str]:
    """Return ``a.b.c`` as its three names, [] for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def _bound(node: Function) -> Iterator[str]:
    """Yield the names that are a function's own: its arguments and what it assigns."""
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            yield one.arg
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id


@lru_cache(maxsize=4096)
def folders(name: str) -> tuple[str, ...] | None:
    """Return where the submodules of a module lie, () for a module that has none.

    None when there is no such module on disk (built in, not installed, or no module at all).
    Nothing is imported for it.
    """
    parent, _, last = name.rpartition(".")
    if not parent:
        spec = PathFinder.find_spec(name, search_path())
        return tuple(spec.submodule_search_locations or ()) if spec else None
    for folder in folders(parent) or ():
        place = Path(folder) / last
        if place.is_dir():
            return (str(place),)
        if any(Path(f"{place}{suffix}").is_file() for suffix in all_suffixes()):
            return ()
    return None


@lru_cache(maxsize=1)
def search_path() -> list[str]:
    """Return where a page's kernel finds modules: as here, without the folder of this package."""
    ours = {Path(__file__).resolve().parent.parent, Path.cwd()}
    return [entry for entry in sys.path if entry and Path(entry).resolve() not in ours]


# ------------------------------------------------------------------ what imports bring

class Memory:
    """Questions with their answers, kept between calls; a file that cannot be read counts as none.

    Answers hold for one ``requirements.txt`` and one version of Python.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.path = project.build / MEMORY
        self.holds_for = digest(requirements_digest(project), platform.python_version())
        self.answers: dict[str, bool] = {}
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            if kept["for"] == self.holds_for:
                self.answers = {str(key): bool(value) for key, value in kept["answers"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass

    def knows(self, question: Question) -> bool:
        """Return the answer, False when the question has not been asked."""
        return self.answers.get(str(question), False)

    def learn(self, questions: Iterable[Question]) -> None:
        """Answer the new ones among the questions, with one interpreter per list of imports."""
        groups: dict[tuple[str, ...], dict[str, Question]] = {}
        for one in questions:
            if str(one) not in self.answers:
                groups.setdefault(one.statements, {})[str(one)] = one
        for group in groups.values():
            self.answers.update(zip(group, ask(self.project, list(group.values())), strict=True))
        if groups:
            write_json(self.path, {"for": self.holds_for, "answers": self.answers})


# Modules that every interpreter has loaded, and no other, so that nothing is there by this script.
# A fork for each question: reaching an attribute may load more, which must not answer the next one.
ASK = """
import _signal, posix, sys
sys.path[:] = {path!r}
for statement in {statements!r}:
    try:
        exec(statement, {{}})
    except BaseException:
        pass
answers = []
for name, listed in {questions!r}:
    child = posix.fork()
    if not child:
        _signal.alarm({patience})  # ends a child that hangs, with no other process to see to it
        try:
            first, *rest = [name] if listed else name.split('.')
            thing = sys.modules[first]
            for part in rest:
                thing = getattr(thing, part)
        except BaseException:
            posix._exit(1)
        posix._exit(0)
    answers.append(posix.waitpid(child, 0)[1] == 0)
sys.__stdout__.write('\\nANSWERS ' + repr(answers) + '\\n')
sys.__stdout__.flush()
posix._exit(0)
"""


def ask(project: Project, questions: list[Question]) -> list[bool]:
    """Return the answers to questions that share their statements, from a bare interpreter.

    It has no ``site``, so that no ``.pth`` file has imported anything, and finds the packages that
    are installed here. A statement that fails is passed over: the page shows what comes of it.

    Raises:
        BookError: the interpreter died, or gave no answer in time.
    """
    statements = questions[0].statements
    script = ASK.format(path=search_path(), statements=statements, patience=PATIENCE,
                        questions=[(one.name, one.listed) for one in questions])
    fonts = project.build / ".matplotlib"
    fonts.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", MPLBACKEND="agg", MPLCONFIGDIR=str(fonts))
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-"], input=script, env=env, capture_output=True,
            text=True, errors="replace", timeout=PATIENCE, check=False)
        why = f"end the interpreter with status {done.returncode}"
        answers = re.search(r"^ANSWERS (\[.*\])$", done.stdout, re.M)
    except subprocess.TimeoutExpired:
        why, answers = f"take more than {PATIENCE} s", None
    if answers is None:
        raise BookError("book", f"these imports {why}: {'; '.join(statements)}",
                        "Try them in that order in a new interpreter")
    return list(ast.literal_eval(answers[1]))
