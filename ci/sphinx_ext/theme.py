"""The theme, slimmed: its markup, one style sheet, one deferred script, no fonts.

As it comes, the theme loads ten style sheets and fourteen scripts for every page, 860 kB over the
wire, most of it for icons and widgets that no page shows. Here

- all style sheets become ``_static/site.css``, without the rules that no page can match
  (:mod:`ci.sphinx_ext.styles`), with the icons that pages use (:mod:`ci.sphinx_ext.icons`);
- all scripts that every page loads become ``_static/site.js``, deferred; a script for a widget
  stays on the pages that hold the widget;
- what nothing refers to any more is not published.

The style sheet is made of all pages, so it is written after them; the versions in the addresses of
both files are then brought up to date in all pages.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript
from sphinx.config import Config

from ci.project import digest, write_atomic, write_json
from ci.sphinx_ext import figures, icons, styles

# The theme loads these by itself, ahead of all others.
THEME_STYLES = ("styles/theme.css", "styles/pydata-sphinx-theme.css")
THEME_SCRIPTS = ("scripts/pydata-sphinx-theme.js",)
# Scripts of widgets, each with what a page that needs it holds.
WIDGETS = {
    "togglebutton.js": re.compile(r'class="[^"]*\b(?:toggle|dropdown-toggle-hidden|dropdown)\b'),
    "design-tabs.js": re.compile(r'class="[^"]*\bsd-tab-set\b'),
}
# What only the scripts of widgets, or the theme's own search, read.
SETTINGS = re.compile(r"toggle(Hint|OpenOnPrint|buttonSelector)|DOCUMENTATION_OPTIONS\.")
UNUSED = ("styles", "scripts", "vendor", "locales", "basic.css", "copybutton_funcs.js",
          "webpack-macros.html", "sbt-webpack-macros.html")
MARK = re.compile(r'(_static/site\.(css|js))(?:\?v=[0-9a-f]*)?(?=")')
SCRIPT_TAG = re.compile(r"<script(?=\s[^>]*\bsrc=)(?![^>]*\s(?:defer|async|type=\"module\"))")
ICON_TAG = re.compile(r'<(i|span) class="([^"]*\bfa[srb]?\b[^"]*|[^"]*\bfa-[^"]*)"(?![^>]*aria-)')


# ------------------------------------------------------------------ what a page loads

def _everywhere(app: Sphinx) -> tuple[list[str], list[str]]:
    """Return the style sheets and the scripts that every page loads, in their order."""
    builder = app.builder
    assert isinstance(builder, StandaloneHTMLBuilder)
    sheets = getattr(builder, "_orig_css_files", None) or builder._css_files
    scripts = getattr(builder, "_orig_js_files", None) or builder._js_files
    css = [_name(one) for one in sorted(sheets, key=lambda one: one.priority) if _is_local(one)]
    js = [_name(one) for one in sorted(scripts, key=lambda one: one.priority)
          if _is_local(one) and _name(one) not in WIDGETS]
    return [*THEME_STYLES, *dict.fromkeys(css)], [*dict.fromkeys(js), *THEME_SCRIPTS]


def _name(asset: Any) -> str:
    """Return an asset's name under ``_static``."""
    return os.fspath(asset.filename or "").removeprefix("_static/").split("?")[0]


def _is_local(asset: Any) -> bool:
    return os.fspath(asset.filename or "").startswith("_static/")


def _script(app: Sphinx) -> str:
    """Return the one script; the first statement keeps a library from setting a mode for all."""
    static = Path(app.outdir) / "_static"
    parts = ["/* The licences of the parts stand in their own comments. */ void 0;"]
    for name in _everywhere(app)[1]:
        text = (static / name).read_text(encoding="utf-8")
        parts.append(re.sub(r"\n?//# sourceMappingURL=\S*", "", text).strip() + "\n;")
    return "\n".join(parts) + "\n"


def one_of_each(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
                doctree: nodes.document | None) -> None:
    """Have a page load the one style sheet, the one script, and its own widgets' scripts."""
    css, js = _everywhere(app)
    body = str(context.get("body", ""))
    context["css_files"] = [
        _CascadingStyleSheet("_static/site.css", priority=100),
        *(one for one in context["css_files"] if not _is_local(one) or _name(one) not in css)]
    kept: list[Any] = [_JavaScript("_static/site.js", priority=100, defer="defer")]
    for one in context["script_files"]:
        name, text = _name(one), str(one.attributes.get("body") or "")
        if name in WIDGETS:
            if WIDGETS[name].search(body):
                kept.append(one)
        elif not (name and name in js) and not SETTINGS.search(text):
            kept.append(one)
    if any(_name(one) == "togglebutton.js" for one in kept):
        kept += [one for one in context["script_files"]
                 if "toggle" in str(one.attributes.get("body") or "")]
    context["script_files"] = kept


def polished(html: str, images: dict[str, Any]) -> str:
    """Return a rendered page in the book's form: pictures, icons, tables, scripts."""
    html = SCRIPT_TAG.sub("<script defer", html)
    html = PLAIN_TOKEN.sub(r"\1", html)
    html = html.replace(*SIDEBAR, 1)
    html = ICON_TAG.sub(r'<\1 aria-hidden="true" class="\2"', html)
    html = DATAFRAME.sub(lambda match: _dataframe(match[0]), html)
    return figures.prepared(html, images)


# What stands outside all landmarks is hard to find by ear, as the book's name and its search were.
SIDEBAR = ('<div id="pst-primary-sidebar" ',
           '<div id="pst-primary-sidebar" role="region" aria-label="This book" ')
# Tokens in the plain colour of code in both themes: half of a page's elements, for nothing.
PLAIN_TOKEN = re.compile(r'<span class="(?:n|p|w|nn|nx|pm)">([^<]*)</span>')
DATAFRAME = re.compile(r'<table border="1" class="dataframe">.*?</table>', re.S)


def _dataframe(table: str) -> str:
    """Return pandas' table with heads that say what they are the head of."""
    table = table.replace(' border="1"', "", 1).replace(' style="text-align: right;"', "")
    table = re.sub(r"<th>\s*</th>", "<td></td>", table)
    head, split, rest = table.partition("<tbody>")
    return (head.replace("<th>", '<th scope="col">') + split
            + rest.replace("<th>", '<th scope="row">'))


def polish(app: Sphinx) -> None:
    """Have every page pass through :func:`polished` on its way from the template to its file."""
    builder = app.builder
    if not isinstance(builder, StandaloneHTMLBuilder):
        return
    render = builder.templates.render

    def rendered(template: str, context: dict[str, Any]) -> str:
        html: str = render(template, context)
        if not html.lstrip()[:9].upper().startswith("<!DOCTYPE"):
            return html
        return polished(html, {name: Path(app.srcdir) / source
                               for source, name in builder.images.items()})

    builder.templates.render = rendered


# ------------------------------------------------------------------ what is published

def publish(app: Sphinx, exception: Exception | None) -> None:
    """Write the one script and the one style sheet, and remove what they are made of."""
    out = Path(app.outdir)
    static = out / "_static"
    if exception or not isinstance(app.builder, StandaloneHTMLBuilder) or not (
            static / THEME_STYLES[0]).is_file():
        return
    sheets, scripts = _everywhere(app)
    write_atomic(static / "site.js", _script(app))
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.html"))
             if path.relative_to(out).parts[0] not in ("_static", "_downloads")}
    loaded = "".join(pages.values())
    for name in WIDGETS:
        if name not in loaded:
            (static / name).unlink(missing_ok=True)
    write_atomic(static / "site.css", style_sheet(out, sheets, scripts, pages))
    versions = {kind: digest((static / f"site.{kind}").read_bytes())[:12] for kind in ("css", "js")}
    for path, html in pages.items():
        if (now := MARK.sub(lambda one: f"{one[1]}?v={versions[one[2]]}", html)) != html:
            write_atomic(path, now)
    for name in {*sheets, *scripts, *UNUSED}:
        path = static / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in static.rglob("*.map"):
        path.unlink()


def style_sheet(out: Path, sheets: list[str], scripts: list[str], pages: dict[Path, str]) -> str:
    """Return the text of the one style sheet for these pages."""
    static = out / "_static"
    words: set[str] = set()
    class_lists: set[str] = set()
    for html in pages.values():
        words |= styles.words_of_page(html)
        class_lists.update(names for names in styles.CLASSES.findall(html) if "fa" in names)
    for path in sorted(static.rglob("*.js")):
        name = path.relative_to(static).as_posix()
        # Scripts that no page loads set no class.
        if name in scripts or name.partition("/")[0] not in UNUSED:
            words |= styles.words_of_script(path.read_text(encoding="utf-8"))
    # Putting it together takes most of a second; the next build seldom brings a new word.
    drawn = icons.rules(icons.used_icons(class_lists))
    raw = [path.read_bytes() for path in sorted(static.rglob("*.css"))]
    named = set(styles.NAMES.findall(b"\n".join(raw).decode("utf-8") + drawn))
    key = digest(*raw, drawn, *sheets, *LICENCES, "words", *sorted(words & named),
                 Path(styles.__file__).read_bytes())
    kept = out.parent / "site.css.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        last = json.loads(kept.read_text(encoding="utf-8"))
        if last["key"] == key:
            return str(last["css"])
    css = "\n".join(styles.read(static / name, static) for name in sheets)
    text = styles.purge(f"{css}\n{drawn}", words, LICENCES)
    write_json(kept, {"key": key, "css": text})
    return text


LICENCES = (
    "/*! pydata-sphinx-theme, sphinx-book-theme: BSD 3-Clause; Bootstrap: MIT */",
    icons.LICENCE,
)


def settings(app: Sphinx, config: Config) -> None:
    """Put the book's templates before the theme's; leave out what would need scripts for nothing.

    That is the theme's place for advertisements, and its button back to the top.
    """
    config.templates_path.append(str(Path(__file__).with_name("templates")))
    config.html_theme_options.setdefault("primary_sidebar_end", [])
    config.html_theme_options.setdefault("back_to_top_button", False)


def setup(app: Sphinx) -> None:
    figures.setup(app)
    app.connect("config-inited", settings, priority=900)
    app.connect("builder-inited", polish, priority=900)
    app.connect("html-page-context", one_of_each, priority=990)
    app.connect("build-finished", publish, priority=990)
