"""The real book in a real browser: what it asks for, how wide it is, what its controls do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from ci.audit import FLAGS, THEMES, examine, missed, pages_of, path_of, served, visit
from ci.claims import dealt_with
from ci.pages import notebook_slugs, toc_files
from ci.project import Project
from tests.conftest import ROOT, chromium_path

PROJECT = Project(ROOT)
NAMES = toc_files(PROJECT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        try:
            browser = play.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        except Exception as error:
            pytest.fail("the browser tests need Chromium: apt-get install chromium, or "
                        f".venv/bin/playwright install chromium ({str(error).splitlines()[0]})")
        yield browser
        browser.close()


def context(browser: Browser, width: int = 1280, theme: str = "light", script: bool = True
            ) -> BrowserContext:
    return browser.new_context(
        viewport={"width": width, "height": 800}, java_script_enabled=script,
        color_scheme="dark" if theme == "dark" else "light")


def opened(page: Page, site: Project, name: str) -> Page:
    page.goto((site.html / name).as_uri())  # returns when all of it has loaded
    return page


@pytest.mark.parametrize("name", NAMES)
def test_a_page_asks_for_nothing_outside_and_says_no_error(
        browser: Browser, site: Project, name: str) -> None:
    with context(browser) as tab:
        page = tab.new_page()
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
        opened(page, site, f"{name}.html")
        page.mouse.wheel(0, 20_000)
        page.wait_for_timeout(500)  # for what a script or a lazy picture asks for later
        assert asked
        outside = [u for u in asked if not u.startswith(("data:", "blob:", site.html.as_uri()))]
        assert outside == []
        assert errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_no_page_scrolls_sideways_on_a_phone(browser: Browser, site: Project, name: str,
                                             theme: str) -> None:
    # 320 px is also what a screen of 640 px has left at twice the size.
    with context(browser, width=320, theme=theme) as tab:
        page = opened(tab.new_page(), site, f"{name}.html")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        # Nothing lies beyond the edge either, unless it is in a box that scrolls by itself.
        assert page.evaluate(BEYOND) == []


BEYOND = """() => [...document.querySelectorAll('.bd-article p, .bd-article h1, .bd-article h2,' +
  '.bd-article img, .bd-article blockquote, .bd-article td')].filter(e => {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.right <= innerWidth + 1) return false;
    for (let up = e; up; up = up.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(up).overflowX)) return false;
    return true;
  }).map(e => e.outerHTML.slice(0, 80))"""

CONTRAST = """element => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  let up = element, back = [0, 0, 0, 0];
  while (up && back[3] < 255) {
    back = rgb(getComputedStyle(up).backgroundColor);
    up = up.parentElement;
  }
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [light(rgb(getComputedStyle(element).color)), light(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_verdicts_can_be_read_and_told_apart(browser: Browser, site: Project, theme: str) -> None:
    """By word, by mark and by colour, each with the contrast that WCAG asks of text."""
    colours: dict[str, str] = {}
    with context(browser, theme=theme) as tab:
        page = tab.new_page()
        for slug in notebook_slugs(PROJECT):
            opened(page, site, f"{slug}.html")
            for words, contrast, mark, colour in page.locator(
                    "blockquote.verdict strong").evaluate_all(
                    "(all, contrast) => all.map(e => [e.innerText, eval(contrast)(e), "
                    "getComputedStyle(e, '::before').content, getComputedStyle(e).color])",
                    CONTRAST):
                if match := re.match(r"Verdict: (.*)\.", words):
                    assert contrast >= 4.5
                    assert mark not in ("none", "normal")
                    colours[match[1]] = colour
    assert len(colours) >= 3
    assert len(set(colours.values())) == len(colours)


def test_figures_turn_with_the_theme(browser: Browser, site: Project) -> None:
    """White in the light theme, dark in the dark one: no white slab on a dark page."""
    corner: dict[str, int] = {}
    for theme in ("light", "dark"):
        with context(browser, theme=theme) as tab:
            page = opened(tab.new_page(), site, "style-guide.html")
            image = page.locator(".cell_output img").first
            image.scroll_into_view_if_needed()
            box = image.bounding_box()
            assert box
            shot = page.screenshot(clip={"x": box["x"] + 4, "y": box["y"] + 4, "width": 1,
                                         "height": 1})
            corner[theme] = brightness(page, shot)
    assert corner["light"] > 240 and corner["dark"] < 40


def brightness(page: Page, shot: bytes) -> int:
    """Return the mean of a one-pixel screenshot's channels."""
    import base64

    source = "data:image/png;base64," + base64.b64encode(shot).decode()
    return int(page.evaluate("""async source => {
      const image = new Image(); image.src = source; await image.decode();
      const canvas = document.createElement('canvas').getContext('2d');
      canvas.drawImage(image, 0, 0);
      const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data; return (r + g + b) / 3;
    }""", source))


@pytest.mark.parametrize("script", [True, False])
def test_the_claims_can_be_filtered(browser: Browser, site: Project, script: bool) -> None:
    dealt = dealt_with(PROJECT)
    topic = notebook_slugs(PROJECT)[0]
    wanted = [d for d in dealt if d.page.slug == topic and d.claim.verdict == "holds"]
    with context(browser, script=script) as tab:
        page = opened(tab.new_page(), site, "claims.html")
        rows = page.locator(".claim-row:visible")
        assert rows.count() == len(dealt)
        page.select_option("#filter-topic", topic)
        page.select_option("#filter-verdict", "holds")
        assert rows.count() == len(wanted) > 0
        if script:
            assert page.locator(".claim-filters output").inner_text() == \
                f"{len(wanted)} of {len(dealt)} claims"
            assert "verdict=holds" in page.url
            page.reload()
            assert rows.count() == len(wanted)
        rows.first.locator("a").first.click()
        page.wait_for_load_state()
        assert f"#claim-{wanted[0].claim.id}" in page.url
        assert page.locator(f"#claim-{wanted[0].claim.id}").is_visible()


def test_to_filter_the_claims_takes_about_as_long_as_to_open_them(browser: Browser, site: Project
                                                                  ) -> None:
    with context(browser) as tab:
        page = opened(tab.new_page(), site, "claims.html")
        opening = page.evaluate("performance.getEntriesByType('navigation')[0].duration")
        filtering = page.evaluate("""() => {
            const began = performance.now();
            for (const place of [1, 2]) {
                const topic = document.querySelector("#filter-topic");
                topic.selectedIndex = place;
                topic.dispatchEvent(new Event("input", {bubbles: true}));
                topic.dispatchEvent(new Event("change", {bubbles: true}));
                document.querySelectorAll(".claim-row").forEach(
                    row => getComputedStyle(row).display);
            }
            return performance.now() - began;
        }""")
        assert filtering / 2 < 2 * opening  # it was near 30 times as long


def test_solutions_are_folded_until_asked_for(browser: Browser, site: Project) -> None:
    with context(browser) as tab:
        page = opened(tab.new_page(), site, "style-guide.html")
        solution = page.locator("text=# @title Solution").first
        assert not solution.is_visible()
        page.locator(".cell.tag_hide-cell summary").last.click()
        assert solution.is_visible()


def test_the_first_screen_holds_a_claim_and_its_verdict(browser: Browser, site: Project) -> None:
    with context(browser) as tab:
        page = opened(tab.new_page(), site, "index.html")
        for name in ("blockquote.claim", "blockquote.verdict"):
            box = page.locator(name).first.bounding_box()
            assert box and box["y"] + box["height"] < 800


# ------------------------------------------------------------------ speed and access

@pytest.fixture(scope="module")
def base(site: Project) -> Iterator[str]:
    """The site, served as a static host does, below the path that it is published at."""
    with served(site.html, path_of(site)) as address:
        yield address


ALL = [*NAMES, "search", "404", "genindex"]


def test_these_are_all_pages(site: Project) -> None:
    assert sorted(ALL) == pages_of(site.html)


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_light_stands_still_and_asks_nobody_else(
        browser: Browser, base: str, name: str) -> None:
    seen = visit(browser, base, name)
    assert missed([seen]) == []
    assert seen.first > 0  # how much is allowed, `missed` knows
    if name in NAMES:  # the page, its styles, its script, and its own icon or first figure
        assert seen.requests <= 6


@pytest.mark.parametrize("name", ALL)
def test_axe_finds_nothing_in_either_theme(browser: Browser, base: str, name: str) -> None:
    found = examine(browser, base, name)
    assert found == {theme: [] for theme in THEMES}


FOCUS = """() => {
  const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
  const ring = (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)
    || s.boxShadow !== 'none';
  return {tag: e.tagName, id: e.id, text: (e.textContent || '').trim().slice(0, 40), ring,
          seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight, class: e.className};
}"""


@pytest.mark.parametrize("theme", THEMES)
def test_the_keyboard_reaches_and_works_everything(
        browser: Browser, site: Project, theme: str) -> None:
    with context(browser, width=360, theme=theme) as tab:
        page = opened(tab.new_page(), site, "style-guide.html")
        page.emulate_media(reduced_motion="reduce")
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS)["text"] == "Skip to main content"
        assert page.locator(".skip-link a").bounding_box()["y"] >= 0  # type: ignore[index]
        page.keyboard.press("Enter")
        page.wait_for_url("**#main-content")
        reached = []
        for _ in range(60):
            page.keyboard.press("Tab")
            now = page.evaluate(FOCUS)
            assert now["ring"] and now["seen"], now
            reached.append(now)
        assert [one for one in reached if one["tag"] == "PRE"]  # code wider than the screen
        # The contents open as a dialog, Escape closes it, and focus is where it was.
        page.locator(".secondary-toggle").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog#pst-secondary-sidebar-modal a")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog#pst-secondary-sidebar-modal", state="hidden")
        page.wait_for_function("document.activeElement.matches('.secondary-toggle')")
        page.locator("details.above-input summary").last.focus()
        page.keyboard.press("Enter")
        assert page.locator("text=# @title Solution").last.is_visible()


def test_the_theme_is_the_systems_until_chosen_and_is_there_before_any_script(
        browser: Browser, base: str) -> None:
    with context(browser, theme="dark") as tab:
        page = tab.new_page()
        page.route("**/site.js*", lambda route: route.abort())
        page.goto(f"{base}index.html")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.unroute("**/site.js*")
        page.reload()
        button = page.locator(".theme-switch-button").first
        assert button.get_attribute("aria-label") == "Colours: as the system"
        while button.get_attribute("aria-label") != "Colours: light":
            button.focus()
            page.keyboard.press("Enter")
        for _ in range(2):
            assert page.evaluate("document.documentElement.dataset.theme") == "light"
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == \
                "rgb(255, 255, 255)"
            page.goto(f"{base}claims.html")


@pytest.mark.parametrize("name", NAMES)
def test_pictures_and_icons(browser: Browser, base: str, name: str) -> None:
    """Pictures have a size and words; no sign of a font that is not there is left."""
    with context(browser) as tab:
        page = tab.new_page()
        page.goto(f"{base}{name}.html")
        assert page.evaluate("""() => [...document.querySelectorAll('.bd-article img')].filter(
            e => !(e.getAttribute('width') && e.getAttribute('height')
              && e.decoding === 'async' && e.alt.length > 20)).map(e => e.outerHTML)""") == []
        assert page.evaluate("""async () => {
            const wrong = [];
            for (const e of document.querySelectorAll('.bd-article .cell_output img')) {
              if (e.loading !== 'lazy') wrong.push(e.src);
              e.loading = 'eager'; await e.decode();
              const drawn = e.width / e.height, natural = e.naturalWidth / e.naturalHeight;
              if (Math.abs(drawn / natural - 1) > 0.01) wrong.push(e.src);
            }
            return wrong;
        }""") == []
        assert page.evaluate("""() => [...document.querySelectorAll('[class*="fa-"]')].filter(
            e => getComputedStyle(e).maskImage === 'none').map(e => e.className)""") == []
        assert page.evaluate(r"""() => [...document.querySelectorAll('*')].flatMap(e =>
            ['::before', '::after'].map(side => getComputedStyle(e, side).content)).filter(
            text => /[\uE000-\uF8FF]/.test(text))""") == []


def test_a_printed_page_can_be_read(browser: Browser, site: Project) -> None:
    with context(browser, theme="dark") as tab:
        page = opened(tab.new_page(), site, "style-guide.html")
        solution = page.locator("text=# @title Solution").first
        page.emulate_media(media="print")
        page.wait_for_selector("html[data-theme=light]")
        for name in (".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-header-article",
                     ".prev-next-footer", ".copybtn", ".headerlink"):
            assert not page.locator(name).first.is_visible(), name
        assert page.locator("h1").first.is_visible() and solution.is_visible()
        assert page.locator(".bd-article pre").first.evaluate(
            "e => getComputedStyle(e).whiteSpace") == "pre-wrap"
        assert page.locator(".bd-article p").first.evaluate(CONTRAST) >= 7
        link = page.locator("section#further-reading a[href^=http]").first
        assert str(link.get_attribute("href")) in link.evaluate(
            "e => getComputedStyle(e, '::after').content.replace('attr(href)', e.href)")
        page.emulate_media(media="screen")
        page.wait_for_selector("html[data-theme=dark]")
        assert not solution.is_visible()


def test_who_wants_no_motion_gets_none(browser: Browser, site: Project) -> None:
    with context(browser) as tab:
        page = opened(tab.new_page(), site, "index.html")
        moving = """() => [...document.querySelectorAll('*')].filter(e => {
            const s = getComputedStyle(e);
            return s.transitionDuration.split(', ').some(t => parseFloat(t) > 0)
              || s.animationName !== 'none' || s.scrollBehavior === 'smooth';
        }).length"""
        assert page.evaluate(moving) > 0
        page.emulate_media(reduced_motion="reduce")
        assert page.evaluate(moving) == 0


def test_tables_fit_and_have_heads_and_headings_are_in_order(browser: Browser, site: Project
                                                             ) -> None:
    with context(browser) as tab:
        page = tab.new_page()
        for name in NAMES:
            opened(page, site, f"{name}.html")
            for width in (390, 1280):  # a phone, a desk
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("""() => [...document.querySelectorAll('table.cards')]
                    .map(e => e.parentElement).filter(e => e.scrollWidth > e.clientWidth + 1)
                    .map(e => e.innerText.slice(0, 40))""") == [], (name, width)
            levels = page.evaluate("""() => [...document.querySelectorAll(
                '.bd-article :is(h1, h2, h3, h4, h5)')].map(e => Number(e.tagName[1]))""")
            assert levels[0] == 1 and levels.count(1) == 1
            assert all(b <= a + 1 for a, b in pairwise(levels)), (name, levels)
            assert page.evaluate("""() => [...document.querySelectorAll('.bd-article table')]
                .filter(e => !e.querySelector('thead th')).length""") == 0, name
