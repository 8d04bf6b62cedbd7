"""The theme's icons as style rules: those that pages use, cut from the theme's own package.

The theme brings 1.5 MB of script and three fonts for them. An icon here is a mask in the colour of
the text around it, so it follows the theme, needs no script and no font, and moves nothing.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pydata_sphinx_theme

from ci.project import BookError

SCRIPT = (Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
          / "scripts" / "fontawesome.js")
ICON = re.compile(r'(?:"([\w-]+)"|([\w-]+)):\[(\d+),(\d+),\[([^\]]*)\],"[0-9a-f]+","([^"]+)"')
STYLES = {"fa-solid": "fas", "fas": "fas", "fa": "fas", "fa-brands": "fab", "fab": "fab",
          "fa-regular": "far", "far": "far"}
# Of the classes that begin so, those that name no icon.
SHAPES = re.compile(r"fa-(solid|brands|regular|lg|fw|sm|xs|xl|2xl|2xs|\d+x|spin|pulse)")
LICENCE = "/*! Icons: Font Awesome Free 6, fontawesome.com, licence CC BY 4.0 */"
BASE = """\
:is(.fa,.fas,.far,.fab,.fa-solid,.fa-regular,.fa-brands){display:inline-block;flex:none;
width:1.25em;height:1em;vertical-align:-.125em;font-size:inherit;line-height:1;
background:currentColor;mask:var(--icon) center/contain no-repeat;
forced-color-adjust:none}
:is(.fa,.fas,.far,.fab,.fa-solid,.fa-regular,.fa-brands)::before{content:none}
@media (forced-colors:active){:is(.fa,.fas,.far,.fab,.fa-solid,.fa-regular,.fa-brands){
background:ButtonText}}
@media print{:is(.fa,.fas,.far,.fab,.fa-solid,.fa-regular,.fa-brands){print-color-adjust:exact}}
.fa-lg{font-size:1.25em}
.admonition:not(.hide)>.admonition-title::after{content:""!important;width:1em;height:1em;
top:.65rem!important;background:currentColor;mask:var(--icon) center/contain no-repeat}
"""
# What the theme draws before the titles of notes; a kind that no page has is left out again.
TITLES = {"": "bell", "attention": "circle-exclamation", "caution": "bolt", "danger": "bolt",
          "error": "circle-xmark", "hint": "lightbulb", "important": "fire", "note": "circle-info",
          "seealso": "circle-info", "tip": "lightbulb", "warning": "triangle-exclamation"}


@cache
def shapes() -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return width, height and path of every icon by its style and name.

    Raises:
        BookError: the theme's package no longer holds them in the form known here.
    """
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    text = SCRIPT.read_text(encoding="utf-8") if SCRIPT.is_file() else ""
    packs = re.split(r"var \w=(?=\{)", text)
    for pack in packs:
        if not (style := re.search(r'\w\("(fa[sbr])",\w\)', pack)):
            continue
        for icon in ICON.finditer(pack):
            shape = (icon[3], icon[4], icon[6])
            for name in [icon[1] or icon[2], *re.findall(r'"([\w-]+)"', icon[5])]:
                found.setdefault((style[1], name), shape)
    if ("fas", "magnifying-glass") not in found or ("fab", "github") not in found:
        raise BookError(SCRIPT, "holds no icons in the form known",
                        "See what the theme changed and mend ci/sphinx_ext/icons.py")
    return found


def used_icons(class_lists: set[str]) -> set[tuple[str, str]]:
    """Return style and name of the icons that class attributes ask for."""
    found = set()
    for names in class_lists:
        parts = names.split()
        style = next((STYLES[one] for one in parts if one in STYLES), "")
        if style:
            found |= {(style, one.removeprefix("fa-")) for one in parts
                      if one.startswith("fa-") and not SHAPES.fullmatch(one)}
    return found


def rules(icons: set[tuple[str, str]]) -> str:
    """Return the style rules for icons.

    Raises:
        BookError: there is no such icon.
    """
    parts = [BASE]
    for style, name in sorted(icons):
        if (style, name) not in shapes():
            raise BookError("the site", f"there is no icon fa-{name} in style {style}",
                            "Choose one of Font Awesome Free 6")
        parts.append(f".fa-{name}{{--icon:{_picture(style, name)}}}")
    for kind, name in TITLES.items():
        selector = f".admonition{'.' * bool(kind)}{kind}>.admonition-title::after"
        parts.append(f"{selector}{{--icon:{_picture('fas', name)}}}")
    return "\n".join(parts)


def _picture(style: str, name: str) -> str:
    width, height, path = shapes()[style, name]
    picture = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
               f'<path d="{path}"/></svg>')
    return f"""url("data:image/svg+xml,{quote(picture, safe=" =:/'-.,+")}")"""
