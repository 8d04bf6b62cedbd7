"""What is checked without running anything: the pages' grammar, their links, the settings.

Each finding names the file, the line, what is wrong and how to mend it. The rules and their
reasons are in the style guide; the numbers are here.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from ci.claims import Listed, load_claims, load_topics
from ci.gpu import check_gpu
from ci.imports import check_imports
from ci.legacy import check_legacy
from ci.pages import (
    GENERATED,
    VERDICTS,
    Cell,
    Page,
    Problem,
    asserting_functions,
    asserts,
    claims,
    headings,
    parse,
    prose_tokens,
    read_page,
    toc_files,
    words,
)
from ci.pair import normal_form, pair
from ci.project import BookError, Project, load_yaml
from ci.renamed import renamed_problems
from ci.sets import canonical
from ci.shard import line_of, load_seconds

SECTIONS = (
    "Short answer", "At a glance", "Set-up", "The mechanism, rebuilt", "Claims, run",
    "When it goes wrong", "In the other framework", "What changed", "On a GPU",
    "The small print, run", "Say it in a minute", "Exercises", "Further reading",
)
OPTIONAL = {"On a GPU"}
TAGS = {"parameters", "hide-cell", "hide-input", "hide-output", "varies"}
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
FORMATS = "book//md:myst,notebooks//ipynb"
HEADER_KEYS = {"jupytext", "kernelspec", "accelerator", "colab"}
ALERTS = {"NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION"}

SHORT_ANSWER = 60  # words
CELL_LINES, MECHANISM_LINES, COLUMNS = 25, 40, 88
WORDS, CODE_CELLS, FULL_CLAIMS = (1000, 2400), (20, 45), (3, 6)
RECORDED = "# @title Recorded "  # cells that a tool has filled, which nobody reads through
MEDIAN = (3, 11)  # lines; 3 to 8 where the claims are few enough to leave the cells for it
LINKS, EXERCISES = (3, 6), (2, 3)

# Sphinx's own settings that the book sets; the rest of _config.yml is known by its schema.
SPHINX_KEYS = {
    "html_title", "language", "html_math_renderer", "nb_merge_streams",
    "nb_execution_show_tb", "myst_heading_anchors", "sitemap_url_scheme",
    "suppress_warnings", "html_show_sourcelink", "html_copy_source", "nb_render_image_options",
}


@dataclass(frozen=True)
class Finding:
    """One thing to mend, said in one line."""

    file: str
    line: int
    what: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}. {self.way_out}"


def check(project: Project, only: list[str] | None = None) -> list[Finding]:
    """Return what is wrong with the pages (all, or those named) and with the settings."""
    found: list[Finding] = []
    try:
        slugs = toc_files(project)
    except BookError as error:
        return [_as_finding(error)]
    for slug in only or []:
        if slug not in slugs:
            raise BookError(f"book/{slug}.md", "not in _toc.yml", f"One of: {', '.join(slugs)}")
    try:
        known = load_claims(project)
        topics = load_topics(project)
    except BookError as error:
        return [_as_finding(error)]
    pages = []
    for slug in only or slugs:
        try:
            pages.append(read_page(project.text(slug)))
        except BookError as error:
            found.append(_as_finding(error))
    imports = dict[str, list[Problem]]()
    try:
        imports = check_imports(project, [page for page in pages if page.is_notebook])
    except BookError as error:
        found.append(_as_finding(error))
    for page in pages:
        problems = list(check_page(page, known, slugs, is_topic=page.slug in topics))
        problems += imports.get(page.slug, [])
        found += [Finding(project.relative(page.path), p.line, p.what, p.way_out)
                  for p in sorted(problems, key=lambda p: p.line)]
    if only is None:
        for rule in (check_toc, check_config, check_figures, check_pairs, check_readme,
                     check_records, check_renamed, check_requirements, check_seconds):
            try:
                found += rule(project, slugs)
            except BookError as error:
                found.append(_as_finding(error))
    return found


def _as_finding(error: BookError) -> Finding:
    """Split an error's one line into the parts of a finding."""
    where, _, rest = error.message.partition(": ")
    file, _, line = where.partition(":")
    what, _, way_out = rest.partition(". ")
    return Finding(file, int(line) if line.isdigit() else 1, what, way_out)


# ------------------------------------------------------------------ one page

Rule = Callable[[Page], Iterator[Problem]]


def check_page(page: Page, known: dict[str, Listed], slugs: list[str], is_topic: bool = True
               ) -> Iterator[Problem]:
    """Yield what is wrong with one page.

    Args:
        page: the page.
        known: the listed claims, by id.
        slugs: the pages that a link may lead to.
        is_topic: whether it answers one of the book's questions; only those have a set length.
    """
    yield from links(page, slugs)
    if not page.is_notebook:
        yield from no_code(page)
        return
    rules: tuple[Rule, ...] = (header, form, sections, cells, options, prose, exercises, figures)
    for rule in rules:
        yield from rule(page)
    yield from claim_rules(page, known)
    if is_topic:
        yield from length(page)


def no_code(page: Page) -> Iterator[Problem]:
    """A page without code is plain Markdown: a header would start a kernel for nothing."""
    if page.code:
        yield Problem(page.code[0].line, "a code cell on a page without a notebook header",
                      "Add the header, or make it an ordinary fence")


def header(page: Page) -> Iterator[Problem]:
    """One kernelspec and one pairing for all pages: both count in the key of the outputs."""
    if page.metadata.get("kernelspec") != KERNELSPEC:
        yield Problem(1, f"the kernelspec is {json.dumps(page.metadata.get('kernelspec'))}",
                      f"Write {json.dumps(KERNELSPEC)}")
    jupytext = page.metadata.get("jupytext") or {}
    if jupytext.get("formats") != FORMATS:
        yield Problem(1, f"jupytext formats are {jupytext.get('formats')!r}",
                      f"Write `formats: {FORMATS}`")
    for key in page.metadata:
        if key not in HEADER_KEYS:
            yield Problem(1, f"unknown header key {key!r}", f"Use {', '.join(sorted(HEADER_KEYS))}")


def form(page: Page) -> Iterator[Problem]:
    """The text must be as jupytext writes it, or opening the page in JupyterLab changes it."""
    try:
        wanted = normal_form(page.text)
    except Exception as error:  # options that are no JSON cannot make the round trip
        yield Problem(1, f"jupytext cannot write it back ({type(error).__name__}: {error})",
                      "Mend the cell options")
        return
    if wanted != page.text:
        pairs = enumerate(zip(page.text.splitlines(), wanted.splitlines(), strict=False), start=1)
        line = next((n for n, (a, b) in pairs if a != b), 1)
        yield Problem(line, "not in jupytext's own form, so opening it elsewhere would change it",
                      "Run `python -m ci pair --normalize`")


def sections(page: Page) -> Iterator[Problem]:
    """The same sections in the same order on every page."""
    tops = [h for h in headings(page) if h.level == 1]
    seconds = [h for h in headings(page) if h.level == 2]
    if len(tops) != 1:
        yield Problem(tops[1].line if tops else 1, f"{len(tops)} titles", "Keep one `# Title`")
    place = -1
    for heading in seconds:
        if heading.text not in SECTIONS:
            yield Problem(heading.line, f"unknown section {heading.text!r}",
                          f"Use `###`, or one of: {'; '.join(SECTIONS)}")
        elif SECTIONS.index(heading.text) <= place:
            yield Problem(heading.line, f"section {heading.text!r} is out of order or stands twice",
                          f"The order is: {'; '.join(SECTIONS)}")
        else:
            place = SECTIONS.index(heading.text)
    there = {h.text for h in seconds}
    for name in SECTIONS:
        if name not in there | OPTIONAL:
            yield Problem(1, f"section {name!r} is missing", f"Add `## {name}`")
    short = len(page.short_answer.split())
    if short > SHORT_ANSWER:
        line = next(h.line for h in seconds if h.text == "Short answer")
        yield Problem(line, f"the short answer has {short} words",
                      f"Say it in {SHORT_ANSWER}, as you would aloud")


def cells(page: Page) -> Iterator[Problem]:
    """Small cells of plain Python, each with a sentence before it."""
    long = [cell for cell in page.code if cell.lines > CELL_LINES]
    for cell in sorted(long, key=lambda c: -c.lines)[1:]:
        yield Problem(cell.line, f"code cell {cell.number} has {cell.lines} lines",
                      f"Split it: {CELL_LINES} lines at most, but for one cell, the mechanism")
    for cell in page.code:
        if cell.lines > MECHANISM_LINES:
            yield Problem(cell.line, f"code cell {cell.number} has {cell.lines} lines",
                          f"Even the mechanism has {MECHANISM_LINES} at most")
        if not cell.source.strip():
            yield Problem(cell.line, f"code cell {cell.number} is empty", "Remove it")
        for offset, line in enumerate(cell.source.splitlines()):
            bare = line.strip()
            if bare.startswith("!") or re.match(r"%{1,2}(pip|conda|sh|bash|writefile|system)\b",
                                                bare):
                yield Problem(cell.line + offset, f"`{bare.split()[0]}` in a cell: its failure "
                              "passes in silence", "Write subprocess.run(..., check=True)")
            if len(line) > COLUMNS:
                yield Problem(cell.line + offset, f"a line of {len(line)} columns",
                              f"Break it at {COLUMNS}: phones scroll")
        if parse(cell.source) is None:
            yield Problem(cell.line, f"code cell {cell.number} is not Python", "Mend its syntax")
    for before, after in pairwise(page.cells):
        if before.kind == after.kind == "code":
            yield Problem(after.line, f"code cell {after.number} follows another without a word",
                          "Say in a sentence what comes")
    tagged = [cell for cell in page.code if "parameters" in cell.tags]
    if len(tagged) != 1:
        yield Problem(tagged[1].line if tagged else 1, f"{len(tagged)} cells tagged parameters",
                      "Tag one")
    for cell in tagged:
        yield from parameters(cell)


def parameters(cell: Cell) -> Iterator[Problem]:
    """Parameters are lower-case names with plain values and a comment each."""
    lines = cell.source.splitlines()
    for node in (parse(cell.source) or ast.Module([], [])).body:
        plain = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if not plain or not node.targets[0].id.islower():  # type: ignore[attr-defined]
            yield Problem(cell.line + node.lineno - 1, "the parameters cell does more than set "
                          "lower-case names", "Move the rest to another cell")
        elif "#" not in lines[node.lineno - 1]:
            yield Problem(cell.line + node.lineno - 1, "a parameter without a comment",
                          "Say behind it what values it takes")


def options(page: Page) -> Iterator[Problem]:
    """Cell options are JSON with known keys; a date kills the build, a typing error is silent."""
    for cell in page.code:
        try:
            json.dumps(cell.metadata)
        except (TypeError, ValueError):
            yield Problem(cell.line, f"code cell {cell.number}: an option is no JSON value "
                          "(a date?)", "Put it in quotes")
            continue
        for key in cell.metadata:
            if key not in {"tags", "mystnb", "cellView"}:
                yield Problem(cell.line, f"code cell {cell.number}: unknown option {key!r}",
                              "Use tags, mystnb or cellView")
        for tag in cell.tags:
            if tag not in TAGS:
                yield Problem(cell.line, f"code cell {cell.number}: unknown tag {tag!r}",
                              f"Use one of: {', '.join(sorted(TAGS))}")
        if cell.metadata.get("cellView", "form") != "form":
            yield Problem(cell.line, f"code cell {cell.number}: cellView is not `form`",
                          "Write `cellView: form`")
    for cell in page.cells:
        if cell.kind == "raw":
            yield Problem(cell.line, "a raw cell", "Colab drops it; use prose or code")


MYST = (
    (re.compile(r"^\s*(`{3,}|:{3,})\s*\{"), "a MyST directive"),
    (re.compile(r"^:{3,}"), "a colon fence"),
    (re.compile(r"(?<!`)\{[a-zA-Z][\w:+-]*\}`"), "a MyST role"),
    (re.compile(r"^\([\w-]+\)=\s*$"), "a MyST target"),
    (re.compile(r"^%"), "a MyST comment"),
    (re.compile(r"\[\^[^\]]+\]"), "a footnote"),
    (re.compile(r"<img\b|!\[[^\]]*\]\("), "an image"),
    (re.compile(r"\{\{.*\}\}"), "a substitution"),
)


def prose(page: Page) -> Iterator[Problem]:
    """Colab, GitHub and JupyterLab show MyST as raw text, so prose is plain Markdown."""
    for cell in page.cells:
        if cell.kind == "code":
            continue
        fenced = {
            n for t in prose_tokens(cell) if t.type in ("fence", "code_block") and t.map
            and not t.info.startswith("{") for n in range(*t.map)
        }
        for offset, line in enumerate(cell.source.splitlines()):
            if offset in fenced:
                continue
            spared = re.sub(r"(?<!\})`[^`]*`", "``", line) if "}`" not in line else line
            for pattern, name in MYST:
                if pattern.search(spared):
                    yield Problem(cell.line + offset, f"{name} in the prose",
                                  "Write plain Markdown: Colab shows this as raw text")
            if (alert := re.match(r"^>\s*\[!(\w+)\]", line)) and alert[1] not in ALERTS:
                yield Problem(cell.line + offset, f"unknown alert {alert[1]!r}",
                              f"Use one of: {', '.join(sorted(ALERTS))}")
        opened = len(re.findall(r"^<details>$", cell.source, re.M))
        closed = len(re.findall(r"^</details>$", cell.source, re.M))
        if opened != closed:
            yield Problem(cell.line, "<details> and </details> do not match in one cell",
                          "Close it before the next code cell, each on a line of its own")


def exercises(page: Page) -> Iterator[Problem]:
    """Folded cells fold on the site and in Colab alike; two or three exercises, all solved."""
    for cell in page.code:
        titled = cell.source.startswith("# @title ")
        hidden = "hide-cell" in cell.tags
        form = cell.metadata.get("cellView") == "form"
        if titled != form or (titled and not hidden):
            yield Problem(cell.line, f"code cell {cell.number} folds in one place only",
                          "Give it the tag hide-cell, `cellView: form` and a first line `# @title`")
    asked = [h for h in headings(page) if h.level == 3 and h.text.startswith("Exercise ")]
    if asked and not EXERCISES[0] <= len(asked) <= EXERCISES[1]:
        yield Problem(asked[0].line, f"{len(asked)} exercises", "Give two or three")
    solutions = [c for c in page.code if c.source.startswith("# @title Solution")]
    answers = sum(c.source.count("<summary>Answer</summary>") for c in page.cells
                  if c.kind != "code")
    if "Exercises" in {h.text for h in headings(page)} and len(solutions) + answers < len(asked):
        yield Problem(asked[-1].line, "an exercise without a solution",
                      "Add a cell `# @title Solution ...` or a <details> with an answer")
    helpers = asserting_functions(page)
    for cell in solutions:
        if not asserts(cell, helpers):
            yield Problem(cell.line, "a solution that asserts nothing",
                          "Assert that the checker accepts it")


def figures(page: Page) -> Iterator[Problem]:
    """Every figure says in words what it shows: without alt text it would say its file name."""
    for cell in page.code:
        mystnb = cell.metadata.get("mystnb") or {}
        draws = re.search(r"\bplt\.show\(\)", cell.source) is not None
        figure, image = mystnb.get("figure") or {}, mystnb.get("image") or {}
        if (draws or figure) and not str(image.get("alt", "")).strip():
            yield Problem(cell.line, f"code cell {cell.number} draws without alt text",
                          "Add `mystnb: image: alt:` with a sentence that says what one sees")
        if (draws or figure) and not str(figure.get("caption", "")).strip():
            yield Problem(cell.line, f"code cell {cell.number} draws without a caption",
                          "Add `mystnb: figure: caption:` and `name:`")
        if figure and not str(figure.get("name", "")).startswith(f"fig-{page.slug}-"):
            yield Problem(cell.line, f"code cell {cell.number}: figure name "
                          f"{figure.get('name')!r}", f"Name it fig-{page.slug}-<what>")


def claim_rules(page: Page, known: dict[str, Listed]) -> Iterator[Problem]:
    """Every claim of the topic, once, with a verdict that a cell asserts."""
    found, problems = claims(page)
    yield from problems
    helpers = asserting_functions(page)
    seen: dict[str, int] = {}
    for claim in found:
        if claim.id not in known:
            yield Problem(claim.line, f"unknown claim id {claim.id!r}",
                          "Add it to book/_data/claims.yml, or mend the id")
        elif known[claim.id].topic != page.slug:
            yield Problem(claim.line, f"claim {claim.id} belongs to another page", "Move it there")
        elif claim.full and plain(claim.text) != plain(known[claim.id].says):
            yield Problem(claim.line, f"claim {claim.id} is not worded as in the list",
                          f"Write: {known[claim.id].says}")
        if claim.id in seen:
            yield Problem(claim.line, f"claim {claim.id} stands twice (line {seen[claim.id]})",
                          "Keep one")
        seen[claim.id] = claim.line
        if claim.verdict and claim.verdict not in VERDICTS:
            yield Problem(claim.line, f"claim {claim.id}: unknown verdict {claim.verdict!r}",
                          f"Use one of: {', '.join(VERDICTS)}")
        if claim.verdict and not claim.shows:
            yield Problem(claim.line, f"claim {claim.id}: the verdict says nothing more",
                          "Say in a sentence what the run shows")
        if claim.verdict == "not checkable here":
            continue
        if not claim.tests:
            yield Problem(claim.line, f"claim {claim.id} has no test cell",
                          "Test it in a cell before the verdict" if claim.full else
                          "Test it in a cell that holds its id as a string")
        elif claim.deciding(helpers) is None:
            yield Problem(claim.tests[-1].line, f"no cell of {claim.id} asserts anything",
                          "End one in an assert that would fail if the verdict were another")
    full = sum(claim.full for claim in found)
    if len(found) > FULL_CLAIMS[0] and not FULL_CLAIMS[0] <= full <= FULL_CLAIMS[1]:
        yield Problem(1, f"{full} claims in full treatment", "Give it to three to six")
    for claim_id, listed in known.items():
        if listed.topic == page.slug and claim_id not in seen:
            yield Problem(1, f"claim {claim_id} is not dealt with ({listed.says})",
                          "Give it a quote with cells, or a row under The small print")


def plain(text: str) -> str:
    """Return a wording without its code marks and line breaks, for comparing."""
    return " ".join(text.replace("`", "").split())


def length(page: Page) -> Iterator[Problem]:
    """A page is one sitting: so many words, so many small cells."""
    count = words(page)
    if not WORDS[0] <= count <= WORDS[1]:
        yield Problem(1, f"{count} words of prose", f"Keep to {WORDS[0]} to {WORDS[1]}")
    written = [cell for cell in page.code if not cell.source.startswith(RECORDED)]
    if not CODE_CELLS[0] <= len(written) <= CODE_CELLS[1]:
        yield Problem(1, f"{len(written)} code cells",
                      f"Keep to {CODE_CELLS[0]} to {CODE_CELLS[1]}")
    reading = page.section("Further reading").count("](https://")
    if not LINKS[0] <= reading <= LINKS[1]:
        yield Problem(1, f"{reading} links for further reading",
                      f"Give {LINKS[0]} to {LINKS[1]}, each with its reason")
    middle = median(cell.lines for cell in page.code) if page.code else 0
    if not MEDIAN[0] <= middle <= MEDIAN[1]:
        yield Problem(1, f"the median cell has {middle} lines", "Split cells, or join crumbs")


def links(page: Page, slugs: list[str]) -> Iterator[Problem]:
    """Links lead to a page of the book, to a heading of it that exists, or to https."""
    for cell in page.cells:
        if cell.kind == "code":
            continue
        for token in prose_tokens(cell):
            if token.type != "inline":
                continue
            line = cell.line + (token.map[0] if token.map else 0)
            for child in token.children or []:
                if child.type == "link_open":
                    yield from link(page, str(child.attrs["href"]), line, slugs)


def link(page: Page, target: str, line: int, slugs: list[str]) -> Iterator[Problem]:
    """Check one link of a page."""
    if target.startswith(("https://", "mailto:")):
        return
    if target.startswith("http://"):
        yield Problem(line, f"link to {target}", "Use https")
        return
    path, _, anchor = target.partition("#")
    pattern = r"\.\./notebooks/([\w-]+)\.ipynb" if page.is_notebook else r"([\w-]+)\.md"
    match = re.fullmatch(pattern, path)
    if not path:
        slug = page.slug
    elif not match:
        yield Problem(line, f"link to {target}", "Write ../notebooks/<page>.ipynb" if
                      page.is_notebook else "Write <page>.md")
        return
    else:
        slug = match[1]
    if slug not in slugs:
        yield Problem(line, f"broken link: there is no page {slug!r}",
                      "Mend the name, or take the link out until the page exists")
    elif anchor:
        other = page if slug == page.slug else read_page(page.path.with_name(f"{slug}.md"))
        if anchor not in anchors(other):
            yield Problem(line, f"broken link: {slug} has no heading #{anchor}",
                          "Take it from the heading: lower case, dashes for spaces")
    if page.is_notebook and slug in GENERATED:
        yield Problem(line, f"link to {slug}, which has no notebook",
                      "Link to it by its https address on the site")


def anchors(page: Page) -> set[str]:
    """Return the addresses of the page's headings, as GitHub and the site form them."""
    return {re.sub(r"[^\w\- ]", "", h.text.replace("`", "").lower()).strip().replace(" ", "-")
            for h in headings(page)}


# ------------------------------------------------------------------ the book as a whole

def check_toc(project: Project, slugs: list[str]) -> list[Finding]:
    """Every page in the table of contents once, and no stray page beside them."""
    found = []
    for slug in {s for s in slugs if slugs.count(s) > 1}:
        found.append(Finding("_toc.yml", 1, f"{slug} stands twice", "Keep one"))
    for path in sorted(project.book.glob("*.md")):
        if path.stem not in slugs:
            found.append(Finding(project.relative(path), 1, "a page that is not in _toc.yml",
                                 f"Add `- file: {path.stem}`, or remove it"))
    link = project.book / "_toc.yml"
    if not link.is_symlink() or link.resolve() != (project.root / "_toc.yml").resolve():
        found.append(Finding("book/_toc.yml", 1, "not a link to ../_toc.yml",
                             "Run `ln -sfn ../_toc.yml book/_toc.yml`"))
    return found


def check_config(project: Project, slugs: list[str]) -> list[Finding]:
    """Keys that Jupyter Book knows; it passes an unknown one in silence."""
    import jupyter_book.config as jb

    path = project.root / "_config.yml"
    given = load_yaml(path) or {}
    defaults = yaml.safe_load(jb.PATH_YAML_DEFAULT.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8").splitlines()
    found = []

    def report(key: str, name: str, choices: set[str]) -> None:
        named = re.compile(rf"(?<![\w.]){re.escape(key)}\s*:")
        line = next((n for n, row in enumerate(text, 1) if named.search(row)), 1)
        found.append(Finding("_config.yml", line, f"unknown key {name!r}",
                             f"Known here: {', '.join(sorted(choices))}"))

    for key, value in given.items():
        if key not in defaults:
            report(key, key, set(defaults))
        elif isinstance(value, dict) and isinstance(defaults[key], dict):
            for inner in value:
                if inner not in defaults[key]:
                    report(inner, f"{key}.{inner}", set(defaults[key]))
    for key in (given.get("sphinx") or {}).get("config") or {}:
        if key not in SPHINX_KEYS:
            report(key, f"sphinx.config.{key}", SPHINX_KEYS)
    return found


def check_figures(project: Project, slugs: list[str]) -> list[Finding]:
    """A figure's name is its address: once in the whole book."""
    found, seen = [], dict[str, str]()
    for slug in slugs:
        page = read_page(project.text(slug))
        for cell in page.code:
            name = ((cell.metadata.get("mystnb") or {}).get("figure") or {}).get("name")
            if name and name in seen:
                found.append(Finding(project.relative(page.path), cell.line,
                                     f"figure {name} stands in {seen[name]} too", "Rename one"))
            elif name:
                seen[name] = slug
    return found


def check_pairs(project: Project, slugs: list[str]) -> list[Finding]:
    """The notebooks are what the texts give."""
    return [
        Finding(f"notebooks/{slug}.ipynb", 1, "not in step with its text",
                "Run `python -m ci pair`")
        for slug in pair(project, check=True).stale
    ]


def check_readme(project: Project, slugs: list[str]) -> list[Finding]:
    """The README's table of pages names every page with code, by its title."""
    path = project.root / "README.md"
    if not path.is_file():
        return [Finding("README.md", 1, "missing", "Write it")]
    text = path.read_text(encoding="utf-8")
    found = []
    for slug in slugs:
        page = read_page(project.text(slug))
        row = f"| [{page.title}](notebooks/{slug}.ipynb) |"
        if page.is_notebook and row not in text:
            found.append(Finding("README.md", 1, f"no row for {slug} in the table of pages",
                                 f"Add: {row} ... |"))
    return found


def check_renamed(project: Project, slugs: list[str]) -> list[Finding]:
    """Old names of pages lead to pages that exist, and are no longer in use."""
    return [Finding("book/_data/renamed.yml", *problem)
            for problem in renamed_problems(project, slugs)]


def check_records(project: Project, slugs: list[str]) -> list[Finding]:
    """What pages show of old versions and of GPUs is what was recorded, of code as it stands."""
    return [Finding(file, p.line, p.what, p.way_out)
            for file, p in (*check_legacy(project), *check_gpu(project))]


def check_seconds(project: Project, slugs: list[str]) -> list[Finding]:
    """The recorded seconds speak of pages with code that exist."""
    return [
        Finding("book/_data/seconds.json", line_of(project, slug),
                f"{slug} is not a page with code in _toc.yml",
                "Remove the line, or run `python -m ci run --keep-seconds`")
        for slug in load_seconds(project)
        if slug not in slugs or not read_page(project.text(slug)).is_notebook
    ]


PINNED = re.compile(r"^([A-Za-z0-9._-]+)(\[[^\]]*\])?==([^\s;]+)")


def check_requirements(project: Project, slugs: list[str]) -> list[Finding]:
    """requirements.txt pins everything, holds each direct dependency, and no CUDA library."""
    path = project.requirements
    if not path.is_file():
        return [Finding("requirements.txt", 1, "missing", "Run `make lock`")]
    found = []
    pins: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = PINNED.match(line)
        if not match:
            found.append(Finding("requirements.txt", number, f"not pinned: {line.strip()}",
                                 "Run `make lock`"))
            continue
        name = canonical(match[1])
        pins[name] = match[3]
        if is_cuda(name):
            found.append(Finding("requirements.txt", number, f"{name} is torch's own to choose",
                                 "Run `make lock`"))
    for name in direct(project):
        if name not in pins:
            found.append(Finding("pyproject.toml", 1, f"{name} is not in requirements.txt",
                                 "Run `make lock`"))
    return found


def is_cuda(name: str) -> bool:
    """Return whether a package comes with a CUDA build of torch and is pinned by torch itself."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def direct(project: Project) -> list[str]:
    """Return the names of the direct dependencies in pyproject.toml."""
    path: Path = project.root / "pyproject.toml"
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BookError(project.relative(path), str(error), "Restore it from git") from None
    names = [re.match(r"[A-Za-z0-9._-]+", d) for d in data["project"]["dependencies"]]
    return [canonical(match[0]) for match in names if match]
