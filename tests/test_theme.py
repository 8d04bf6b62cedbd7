"""The slimmed theme: what its sheet, its icons, its pictures and its tables become."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from pygments.formatters import HtmlFormatter

from ci.project import BookError, Project
from ci.run import run
from ci.site import site
from ci.sphinx_ext import figures, icons, styles, theme
from tests.conftest import Make, cell, page, quiet

WORDS = styles.words_of_page(
    '<html><body class="a b"><p id="here">text</p><div class="box"></div></body></html>')


@pytest.mark.parametrize(("selector", "stays"), [
    (".a", True), (".z", False), ("p.a", True), ("video.a", False), ("#here", True),
    ("#there", False), (".a.z", False), (".a > .z", False), (".a:not(.z)", True),
    (":is(.z, .a)", True), (":is(.z, .y) p", False), ("p::before", True), (":root", True),
    ("[data-theme=dark] .a", True), (".a:has(.z)", False), (":host", False), ("P", True),
])
def test_a_rule_stays_if_something_can_match_it(selector: str, stays: bool) -> None:
    assert (styles.purge(f"{selector}{{color:red}}", WORDS).strip() != "") is stays


def test_what_only_lost_rules_use_is_lost_with_them() -> None:
    css = """
    /* a comment */ :root { --used: 1px; --chain: var(--used); --lost: 2px; --empty: ; }
    .a { margin: var(--chain) } .z { margin: var(--lost); animation: spin 1s }
    @media print { .z { color: red } .b { color: red; width: var(--empty) } }
    @media screen { .z { color: red } }
    @keyframes spin { to { rotate: 1turn } } @keyframes turn { to { rotate: 1turn } }
    .box { animation: turn 1s; & .inner { color: red } }
    @font-face { src: url("vendor/fontawesome/a.woff2") }
    """
    text = styles.purge(css, WORDS)
    assert "--chain" in text and "--used" in text and "--empty: " in text.replace(":", ": ")
    for lost in ("--lost", "comment", ".z", "screen", "spin", "font-face"):
        assert lost not in text
    assert "@media print{.b{" in text and "@keyframes turn" in text and "& .inner" in text


def test_imported_sheets_come_along_with_their_addresses(tmp_path: Path) -> None:
    (tmp_path / "styles").mkdir()
    (tmp_path / "styles" / "one.css").write_text(
        '@charset "UTF-8"; @import "../two.css"; p { background: url(pic.png) }')
    (tmp_path / "two.css").write_text('p { cursor: url("data:x"), url("cur.png") }')
    text = styles.read(tmp_path / "styles" / "one.css", tmp_path)
    assert 'url("styles/pic.png")' in text and 'url("cur.png")' in text
    assert 'url("data:x")' in text and "@charset" not in text and "@import" not in text


def test_icons_come_from_the_theme_and_an_unknown_one_is_an_error() -> None:
    used = icons.used_icons({"fa-solid fa-magnifying-glass fa-lg", "fab fa-github", "btn",
                             "fas fa-pencil-alt"})
    assert used == {("fas", "magnifying-glass"), ("fab", "github"), ("fas", "pencil-alt")}
    text = icons.rules(used)
    assert text.count(".fa-") >= 3 and "viewBox='" not in text and "%3Csvg" in text
    with pytest.raises(BookError, match="no icon fa-nonsense"):
        icons.rules({("fas", "nonsense")})


def png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def test_a_plot_gets_lighter_and_a_photograph_stays_itself() -> None:
    plot = Image.new("RGBA", (900, 600), "white")
    draw = ImageDraw.Draw(plot)
    for step in range(200):
        draw.line((step * 4, 20, 900 - step, 580), fill=(step, 90, 200 - step, 255), width=2)
    less = figures.lighter(png(plot))
    assert len(less) < 0.7 * len(png(plot))
    with Image.open(io.BytesIO(less)) as opened:
        assert opened.size == plot.size and opened.convert("RGB").getpixel((2, 2)) == (255,) * 3
    noise = random.Random(1)
    photo = Image.frombytes("RGB", (200, 200), noise.randbytes(120_000))
    kept = figures.lighter(png(photo))
    with Image.open(io.BytesIO(kept)) as opened:
        assert opened.convert("RGB").tobytes() == photo.tobytes()
    for other in (b"not a picture", png(Image.new("RGBA", (9, 9), (1, 2, 3, 99)))):
        assert figures.lighter(other) == other


def test_pictures_have_a_size_and_wait_unless_they_come_first(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(Image.new("RGB", (30, 20))))
    svg = tmp_path / "b.svg"
    svg.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="30pt" height="15pt"/>')
    html = ('<img src="_images/a.png" alt="x" /><h2>One</h2><img alt="y" src="_images/b.svg">'
            '<img src="logo.png" alt="">')
    first, second, third = re.findall(
        "<img[^>]*>", figures.prepared(html, {"a.png": path, "b.svg": svg}))
    assert 'width="30" height="20"' in first and "lazy" not in first and "async" in first
    assert 'width="40" height="20"' in second and 'loading="lazy"' in second
    assert "width" not in third and 'loading="lazy"' in third


def test_tokens_without_a_colour_of_their_own_need_no_element() -> None:
    for name in ("a11y-high-contrast-light", "a11y-high-contrast-dark"):
        rules = HtmlFormatter(style=name).get_style_defs(".x")
        plain = re.search(r"^\.x \{.*color: (#\w+)", rules, re.M)
        assert plain
        for token in ("n", "p", "w", "nn", "nx", "pm"):
            assert f".x .{token} {{ color: {plain[1]} }}" in rules
    assert theme.polished('<span class="n">a</span><span class="k">if</span>', {}) == \
        'a<span class="k">if</span>'


TABLE = """\
from IPython.display import HTML, display

import pandas as pd

display(pd.DataFrame({"a": [1, 2], "b": [3, 4]}))"""


def test_tables_of_pandas_have_heads_of_rows_and_columns(tiny: Make) -> None:
    project: Project = tiny({"one": page("# One", cell(TABLE))})
    assert not run(project, say=quiet).failed
    site(project, quiet)
    text = (project.html / "one.html").read_text(encoding="utf-8")
    table = text[text.index('<table class="dataframe">'):text.index("</table>")]
    assert table.count('<th scope="col">') == 2 and table.count('<th scope="row">') == 2
    assert "<th></th>" not in table and "border=" not in table
    # The rules for it are there, since a page has one; those for a widget that none has are not.
    css = (project.html / "_static" / "site.css").read_text(encoding="utf-8")
    assert "table.dataframe" in css and ".carousel" not in css and ".sd-tab" not in css
    names = {path.name for path in project.html.rglob("*")}
    assert not {"fontawesome.js", "bootstrap.js", "togglebutton.js", "locales"} & names
    assert not [name for name in names if name.endswith((".map", ".woff2", ".ttf"))]
