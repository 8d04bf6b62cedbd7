"""One style sheet for the site: all that pages and scripts name, and no other rule.

The theme's sheets hold several thousand rules, of which the book's pages can match a few hundred.
Here the sheets are put together, and a selector stays only if every class, identifier and element
that it names stands in some page, or in a script that may add it. So an unknown state of a page
costs a rule too many, never one too few. What a selector says in other ways (attributes, states,
``:not(...)``) is taken as possible.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tinycss2
from tinycss2.ast import (
    AtRule,
    Comment,
    Declaration,
    FunctionBlock,
    HashToken,
    IdentToken,
    LiteralToken,
    Node,
    ParseError,
    QualifiedRule,
    SquareBracketsBlock,
    StringToken,
    URLToken,
    WhitespaceToken,
)

from ci.project import BookError

CLASSES = re.compile(r'\sclass="([^"]*)"')
IDS = re.compile(r'\sid="([^"]*)"')
TAGS = re.compile(r"<([a-z][a-z0-9]*)")
NAMES = re.compile(r"-{0,2}[A-Za-z_][\w-]*")
ANY_OF = ("is", "where", "has", "matches", "-webkit-any", "-moz-any")
GROUPS = ("media", "supports", "layer", "container", "scope", "starting-style")


def words_of_page(html: str) -> set[str]:
    """Return all that a page's elements are called: names, classes, identifiers, properties."""
    words = set(TAGS.findall(html)) | set(IDS.findall(html))
    for names in set(CLASSES.findall(html)):
        words.update(names.split())
    words.update(re.findall(r"var\((--[\w-]+)", html))
    return words


def words_of_script(text: str) -> set[str]:
    """Return all words of a script: any of them may be a class that it sets."""
    return set(NAMES.findall(text))


def read(path: Path, root: Path) -> str:
    """Return a sheet with the sheets that it imports, its addresses as seen from ``root``.

    Raises:
        BookError: an imported sheet is missing.
    """
    def there(address: str) -> str:
        if re.match(r"[a-z]+:|#|/", address):
            return address
        folder = path.parent.relative_to(root).as_posix()
        return posixpath.normpath(posixpath.join(folder, address))

    if not path.is_file():
        raise BookError(path, "a style sheet that is missing", "See ci/sphinx_ext/theme.py")
    parts = []
    for rule in tinycss2.parse_stylesheet(path.read_text(encoding="utf-8"), True, True):
        if isinstance(rule, AtRule) and rule.lower_at_keyword == "import":
            address = next(one.value for one in rule.prelude
                           if isinstance(one, (StringToken, URLToken)))
            parts.append(read(root / there(address), root))
        elif not (isinstance(rule, AtRule) and rule.lower_at_keyword == "charset"):
            _readdress(rule, there)
            parts.append(rule.serialize())
    return "\n".join(parts)


def _readdress(node: Any, there: Callable[[str], str]) -> None:
    for one in [*(getattr(node, "prelude", None) or ()), *(getattr(node, "content", None) or ())]:
        if isinstance(one, URLToken):
            one.value = there(one.value)
            one.representation = f'url("{one.value}")'
        elif isinstance(one, FunctionBlock) and one.lower_name == "url":
            for text in one.arguments:
                if isinstance(text, StringToken):
                    text.value = there(text.value)
                    text.representation = f'"{text.value}"'
        else:
            _readdress(one, there)


def purge(css: str, words: set[str], keep: Iterable[str] = ()) -> str:
    """Return the rules that can match something, without comments or unused properties.

    Args:
        css: the text of a sheet.
        words: what pages and scripts name, as :func:`words_of_page` finds it.
        keep: licence comments to stay at the top.
    """
    rules = list(_rules(tinycss2.parse_stylesheet(css, True, True), words))
    while True:  # a property may be used by another one only, which goes
        text = "\n".join(rules)
        used = set(re.findall(r"var\(\s*(--[\w-]+)", text)) | words
        fewer = [one for one in (_without_unused(rule, used) for rule in rules) if one]
        if fewer == rules:
            break
        rules = fewer
    named = set(NAMES.findall("\n".join(one for one in rules if not one.startswith("@keyframes"))))
    rules = [one for one in rules if not (found := re.match(r"@keyframes ([\w-]+)", one))
             or found[1] in named]
    return "\n".join([*keep, *rules]) + "\n"


def _rules(nodes: Iterable[Node], words: set[str]) -> Iterator[str]:
    for rule in nodes:
        if isinstance(rule, QualifiedRule):
            kept = [text for one in _split(rule.prelude) if possible(one, words)
                    and (text := _text(one))]
            body = _text(rule.content)
            if kept and body:
                yield f"{','.join(kept)}{{{body}}}"
        elif isinstance(rule, AtRule):
            if rule.content is None:
                yield rule.serialize()
            elif rule.lower_at_keyword in GROUPS:
                inner = list(_rules(tinycss2.parse_rule_list(rule.content, True, True), words))
                if inner:
                    yield f"@{rule.at_keyword} {_text(rule.prelude)}{{{''.join(inner)}}}"
            elif not (rule.lower_at_keyword == "font-face" and "fontawesome" in rule.serialize()):
                yield f"@{rule.at_keyword} {_text(rule.prelude)}{{{_text(rule.content)}}}"


def _split(tokens: Iterable[Node]) -> list[list[Node]]:
    """Return a list of selectors, cut at the commas between them."""
    parts: list[list[Node]] = [[]]
    for token in tokens:
        if isinstance(token, LiteralToken) and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def possible(selector: list[Node], words: set[str]) -> bool:
    """Return whether all that a selector names is among the words."""
    before = ""
    for token in selector:
        if isinstance(token, HashToken) and token.value not in words:
            return False
        if isinstance(token, IdentToken):
            name = token.value if before == "." else token.lower_value
            if before == ":":
                if name == "host":
                    return False
            elif name not in words:
                return False
        if isinstance(token, FunctionBlock) and token.lower_name in ANY_OF and not any(
                possible(one, words) for one in _split(token.arguments)):
            return False
        before = token.value if isinstance(token, LiteralToken) else ""
    return True


def _text(tokens: Iterable[Node]) -> str:
    """Return tokens as text, without comments and without space that says nothing."""
    return str(tinycss2.serialize(_lean(tokens))).strip()


def _lean(tokens: Iterable[Node]) -> list[Node]:
    kept: list[Node] = []
    for token in tokens:
        if isinstance(token, Comment):
            continue
        if isinstance(token, WhitespaceToken):
            if kept and not isinstance(kept[-1], WhitespaceToken) and not (
                    isinstance(kept[-1], LiteralToken) and kept[-1].value in (";", ",")):
                token.value = " "
                kept.append(token)
            continue
        for inner in ("content", "arguments"):
            if isinstance(value := getattr(token, inner, None), list) and not isinstance(
                    token, SquareBracketsBlock):
                setattr(token, inner, _lean(value))
        kept.append(token)
    return kept


def _without_unused(rule: str, used: set[str]) -> str:
    """Return a rule without the custom properties that nothing uses; empty if nothing is left."""
    if not re.search(r"[{;\s]--[\w-]+\s*:", rule):
        return rule
    (parsed,) = tinycss2.parse_stylesheet(rule, True, True)
    if isinstance(parsed, AtRule):
        if parsed.lower_at_keyword not in GROUPS:
            return rule
        inner = [text for one in tinycss2.parse_rule_list(parsed.content, True, True)
                 if (text := _without_unused(one.serialize(), used))]
        head = f"@{parsed.at_keyword} {_text(parsed.prelude)}"
        return f"{head}{{{''.join(inner)}}}" if inner else ""
    kept = []
    for one in tinycss2.parse_blocks_contents(parsed.content, True, True):
        if isinstance(one, ParseError):
            return rule
        if not isinstance(one, Declaration):
            kept.append(one.serialize())
        elif not one.name.startswith("--") or one.name in used:
            important = "!important" if one.important else ""
            # An empty custom property is a value of its own, which needs its space.
            kept.append(f"{one.name}:{tinycss2.serialize(one.value).strip() or ' '}{important};")
    return f"{_text(parsed.prelude)}{{{''.join(kept).rstrip(';')}}}" if kept else ""
