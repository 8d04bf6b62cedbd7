"""Which names of the frameworks a page's code uses, and in which cell it uses them first.

Read from the code by :mod:`ast`, nothing is imported: what is listed is what the cells say. Only
chains of attributes that start at an imported name count (``nn.init.kaiming_normal_``), written
out in full (``torch.nn.init.kaiming_normal_``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ci.pages import Claim, Page, parse

# A name's first part, as it is imported, to the way in which people write it. `tf.keras` is Keras.
WRITTEN = {"torch": "torch", "tensorflow": "tf", "keras": "keras", "numpy": "np"}
# Classes whose methods return one of their own kind: in `tf.data.Dataset.range(3).map(f)` the
# method is `tf.data.Dataset.map`.
FLUENT = ("tf.data.Dataset",)


def api_of(page: Page, found: list[Claim], helpers: set[str]) -> list[list[str | int]]:
    """Return the names that a page uses, in order.

    Args:
        page: the page.
        found: its claims.
        helpers: its own functions that assert.

    Returns:
        For each name: the name, the number of the first code cell that uses it, the number of
        the first cell that uses it and decides a claim (0 if none does), and that claim's id.
    """
    decides = {cell.number: claim.id for claim in reversed(found)
               if (cell := claim.deciding(helpers))}
    first: dict[str, int] = {}
    deciding: dict[str, int] = {}
    aliases: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for cell in page.code:
        if cell.source.startswith("# @title"):  # a solution
            continue
        for name in _names(parse(cell.source), aliases, kinds):
            first.setdefault(name, cell.number)
            if cell.number in decides:
                deciding.setdefault(name, cell.number)
    return [[name, first[name], deciding.get(name, 0), decides.get(deciding.get(name, 0), "")]
            for name in sorted(first, key=lambda n: (n.lower(), n))]


def _names(tree: ast.AST | None, aliases: dict[str, str], kinds: dict[str, str]) -> Iterator[str]:
    """Yield the full names in a tree; learn what it imports and which variables it makes."""
    for statement in getattr(tree, "body", []):  # in order: a later one knows of the earlier
        yield from _in_statement(statement, aliases, kinds)


def _in_statement(statement: ast.stmt, aliases: dict[str, str], kinds: dict[str, str]
                  ) -> Iterator[str]:
    nodes = list(ast.walk(statement))
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            aliases.update(_imported(node))
    inner: set[int] = set()  # parts of a longer chain that has been seen already
    for node in nodes:
        if isinstance(node, ast.Assign):
            bound = [one.id for one in node.targets if isinstance(one, ast.Name)]
            if kind := _kind(node.value, aliases, kinds):
                kinds.update(dict.fromkeys(bound, kind))
            elif isinstance(node.value, ast.Attribute) and (
                    full := _full(node.value, aliases, kinds, modules=True)):
                aliases.update(dict.fromkeys(bound, full))  # Dataset = tf.data.Dataset
            else:
                for name in bound:
                    kinds.pop(name, None)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and "import " in node.value and "\n" in node.value:
            yield from _names(parse(node.value), dict(aliases), {})  # a script that a cell writes
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner:
            if isinstance(node, ast.Attribute):
                inner.update(_parts(node))
            if name := _full(node, aliases, kinds):
                yield name


def _is_module(name: str) -> bool:
    """Return whether a name is one that people import to write the next name after it."""
    return "." not in name or name in {
        "torch.nn", "torch.nn.functional", "torch.distributed", "torch.utils.data",
        "torch.multiprocessing", "torch.nn.init", "keras.layers", "tf.data",
        "tf.data.experimental"}


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return what an import binds: the name in the code, and what it stands for."""
    if isinstance(node, ast.ImportFrom):
        if node.level or not node.module:
            return {}
        pairs: Iterable[tuple[str, str]] = [
            (one.asname or one.name, f"{node.module}.{one.name}") for one in node.names]
    else:
        pairs = [(one.asname, one.name) if one.asname else
                 (one.name.split(".")[0],) * 2 for one in node.names]
    return {bound: full for bound, name in pairs if (full := _written(name))}


def _written(name: str) -> str:
    """Return a module's or object's name as people write it; '' for other libraries."""
    head, _, rest = name.partition(".")
    if head not in WRITTEN:
        return ""
    full = WRITTEN[head] + (f".{rest}" if rest else "")
    return full.removeprefix("tf.") if full.startswith("tf.keras") else full


def _parts(node: ast.Attribute) -> Iterator[int]:
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        yield id(value)
        value = value.value
    yield id(value)


def _full(node: ast.Attribute | ast.Name, aliases: dict[str, str], kinds: dict[str, str],
          modules: bool = False) -> str:
    """Return the full name of a chain of attributes, '' if it does not start at a framework.

    A module's name is one only if ``modules``.
    """
    chain: list[str] = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        chain.insert(0, value.attr)
        value = value.value
    if any(part.startswith("__") for part in chain):
        return ""
    if isinstance(value, ast.Name) and value.id in aliases:
        name = ".".join([aliases[value.id], *chain])
        name = name.removeprefix("tf.") if name.startswith("tf.keras") else name
        return name if modules or not _is_module(name) else ""
    kind = _kind(value, aliases, kinds)
    return f"{kind}.{chain[0]}" if kind and chain else ""


def _kind(node: ast.expr, aliases: dict[str, str], kinds: dict[str, str]) -> str:
    """Return the class of FLUENT that an expression is an instance of, '' if none."""
    if isinstance(node, ast.Name):
        return kinds.get(node.id, "")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = _full(node.func, aliases, kinds)
        return next((kind for kind in FLUENT if name.startswith(f"{kind}.")
                     and name.rpartition(".")[2] not in NOT_FLUENT), "")
    return ""


NOT_FLUENT = {"as_numpy_iterator", "reduce", "cardinality", "save", "get_single_element"}
