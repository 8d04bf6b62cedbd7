"""Using a page, in a real browser: its buttons, copying, ticks; and what the first page shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ci.audit import FLAGS
from ci.claims import dealt_with
from ci.pages import notebook_slugs, read_page, toc_files
from ci.pair import pair
from ci.project import Project, load_yaml
from ci.record import read_record
from ci.site import site as build_site
from ci.synthetic import pretend_run
from tests.conftest import CONFIG, ROOT, cell, chromium_path, make_tiny, page, quiet
from tests.test_site import Edited

REAL = Project(ROOT)
ONE = page(
    "# One & only",
    "## A part\n\n" + "Words. " * 900,
    "```python\n>>> 1 + 1\n2\n```\n\n```sh\n$ make book\nit was made\n$ make test\n```",
    "> **Claim `one-01`.** Two and two make four.",
    cell("total = 2 + 2\nassert total == 4"),
    "> **Verdict: wrong.** It says `five`.",
    "## On a GPU\n\nNothing.",
    "## Exercises\n\n### Exercise 1: three\n\nWrite it.",
    cell("# @title Checker for exercise 1\nprint('right')", "cellView: form\ntags: [hide-cell]"),
    cell("# @title Solution to exercise 1\nassert total == 4",
         "cellView: form\ntags: [hide-cell]"),
    "### Exercise 2: guess\n\n<details>\n<summary>Answer</summary>\n\nFour.\n\n</details>",
)
PAGES = {
    "index": "# Tiny\n\n```{book-evidence} one-01\nElsewhere.\n```\n\n```{book-counts}\n```\n\n"
             "```{book-pages}\n```\n",
    "one": ONE,
    "two": page("# Two", cell("print(2)")),
    "claims": "# Claims\n\n```{book-claims}\n```\n",
    "status": "# Status\n\n```{book-status}\n```\n",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_tiny(tmp_path_factory.mktemp("using"), PAGES)
    pretend_run(project)
    build_site(project, quiet)
    return project


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def served(tiny: Project) -> Iterator[str]:
    """Return a server's address; the tiny site lies in its folder ``html``."""
    (tiny.html.parent / "outer.html").write_text(
        '<iframe sandbox="allow-scripts" src="html/one.html" width="1200" height="700"></iframe>')
    handler = partial(Quiet, directory=str(tiny.html.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def opened(browser: Browser, project: Project, name: str, **settings: Any) -> Iterator[Page]:
    """Open a page of a site in a window of its own; an error of the page fails the test."""
    settings = {"viewport": {"width": 1280, "height": 800}, **settings}
    with browser.new_context(**settings) as tab:
        tab.grant_permissions(["clipboard-read", "clipboard-write"])
        view = tab.new_page()
        errors: list[str] = []
        view.on("pageerror", lambda error: errors.append(str(error)))
        view.goto((project.html / f"{name}.html").as_uri())
        yield view
        assert errors == []


def button(view: Page, words: str) -> str:
    """Return the address of one of the page's buttons."""
    return view.locator(".use-page").get_by_role("link", name=words, exact=True).evaluate(
        "link => link.href")


def issue(address: str) -> tuple[str, str, str]:
    """Return where an issue is written, its title, and its text."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    return f"{parts.netloc}{parts.path}", asked["title"][0], asked["body"][0]


# ------------------------------------------------------------------ buttons

@pytest.mark.parametrize("slug", notebook_slugs(REAL))
def test_each_button_leads_to_the_pages_own_file(browser: Browser, site: Project, slug: str
                                                 ) -> None:
    """Every address is of this repository and branch, and names a file that is there."""
    settings = load_yaml(ROOT / "_config.yml")["repository"]
    url, branch = settings["url"], settings["branch"]
    with opened(browser, site, slug) as view:
        blob = f"{url.removeprefix('https://github.com/')}/blob/{branch}/notebooks/{slug}.ipynb"
        assert button(view, "Open in Colab") == f"https://colab.research.google.com/github/{blob}"
        assert button(view, "Open in Kaggle") == (
            f"https://kaggle.com/kernels/welcome?src=https://github.com/{blob}")
        assert (ROOT / "notebooks" / f"{slug}.ipynb").is_file()
        assert button(view, "Text") == f"{url}/blob/{branch}/book/{slug}.md?plain=1"
        assert button(view, "Edit") == f"{url}/edit/{branch}/book/{slug}.md"
        assert (ROOT / "book" / f"{slug}.md").is_file()
        record = read_record(REAL, slug)
        assert record
        where, title, body = issue(button(view, "Report a problem"))
        assert where == f"{url}/issues/new".removeprefix("https://")
        assert slug in title and f"(book/{slug}.md)" in body and record.commit in body
        assert "Section: the whole page" in body
        for name in ("torch", "tensorflow", "keras"):
            assert f"{name} {record.versions[name]}" in body
        assert f"Python {record.python}, on {record.device}" in body
        notebook = site.html / "_sources" / f"{slug}.ipynb"
        assert button(view, "Notebook") == notebook.as_uri()
        assert any(one.get("outputs") for one in nbformat.read(notebook, as_version=4).cells)
        # The theme's menus with the same links are gone.
        assert view.locator("a[href*='colab.research']").count() == 1
        assert view.locator(".dropdown-source-buttons, .dropdown-download-buttons").count() == 0


def test_the_notebook_is_downloaded_from_any_place_of_a_server(browser: Browser, served: str
                                                               ) -> None:
    with browser.new_context() as tab:
        view = tab.new_page()
        view.goto(f"{served}/html/one.html")
        with view.expect_download() as started:
            view.get_by_role("link", name="Notebook", exact=True).click()
        assert started.value.suggested_filename == "one.ipynb"
        cells = nbformat.read(started.value.path(), as_version=4).cells
        assert any(one.get("outputs") for one in cells)
        # Ticks find their script from a folder of a server, too.
        view.get_by_role("checkbox").first.check()
        expect(view.locator(".bd-links .ticks")).to_have_text("1 of 2 done")


def test_a_fork_changes_one_file(browser: Browser, tmp_path: Path) -> None:
    config = CONFIG.replace("someone/tiny", "other/fork").replace("trunk", "dev/next")
    project = make_tiny(tmp_path, PAGES, config)
    pretend_run(project)
    build_site(project, quiet)
    with opened(browser, project, "one") as view:
        hrefs = view.locator(".use-page a").evaluate_all("all => all.map(link => link.href)")
    outside = [one for one in hrefs if one.startswith("https:")]
    assert len(outside) == 5 and all("other/fork" in one for one in outside)
    assert sum("dev/next" in one for one in outside) == 4  # an issue has no branch
    for made in project.html.rglob("*.html"):
        assert "someone/tiny" not in made.read_text(encoding="utf-8")


def test_a_repository_elsewhere_gets_no_buttons_that_lead_nowhere(tmp_path: Path) -> None:
    config = CONFIG.replace("https://github.com", "https://gitlab.com")
    config = re.sub(r"launch_buttons: .*\n", "", config)
    project = make_tiny(tmp_path, PAGES, config)
    pretend_run(project)
    build_site(project, quiet)
    text = (project.html / "one.html").read_text(encoding="utf-8")
    assert 'href="_sources/one.ipynb"' in text
    assert "colab" not in text and "issues/new" not in text


def test_a_report_names_the_section_that_was_read(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "one") as view:
        _, title, body = issue(button(view, "Report a problem"))
        assert title == "Problem on one" and "Page: One & only (book/one.md)" in body
        assert "Section: the whole page" in body
        view.locator("#exercise-2-guess").scroll_into_view_if_needed()
        view.evaluate("document.querySelector('#exercise-2-guess').scrollIntoView()")
        expect(view.locator("a.report").first).to_have_attribute(
            "href", re.compile("exercise-2-guess"))
        beside = view.get_by_role("link", name="Report a problem here")
        assert "Section: Exercise 2: guess (#exercise-2-guess)" in issue(
            str(beside.get_attribute("href")))[2]
        # Back at the top, where the button is, it is still the section that was read.
        view.evaluate("scrollTo(0, 0)")
        view.locator(".use-page a.report").focus()
        _, title, body = issue(button(view, "Report a problem"))
        assert title == "Problem on one: Exercise 2: guess"
        assert "What is wrong" in body and "Page: One & only" in body


def test_pages_without_code_can_be_edited_and_reported(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "claims") as view:
        words = view.locator(".use-page a").all_inner_texts()
        assert words == ["Text", "Edit", "Report a problem"]
        assert "Run with" not in issue(button(view, "Report a problem"))[2]
        assert button(view, "Edit") == "https://github.com/someone/tiny/edit/trunk/book/claims.md"


def test_the_buttons_are_reached_by_keyboard_and_seen(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "one") as view:
        reached = []
        for _ in range(40):
            view.keyboard.press("Tab")
            found = view.evaluate("""() => {
              const at = document.activeElement;
              if (!at.closest('.use-page')) return null;
              const look = getComputedStyle(at);
              return [at.textContent, look.outlineStyle !== 'none' || look.boxShadow !== 'none'];
            }""")
            if found:
                reached.append(found)
        assert [words for words, _ in reached][:6] == [
            "Open in Colab", "Open in Kaggle", "Notebook", "Text", "Edit", "Report a problem"]
        assert all(seen for _, seen in reached)


@pytest.mark.parametrize("script", [True, False])
def test_everything_fits_a_phone(browser: Browser, site: Project, script: bool) -> None:
    for name in ("index", "style-guide"):
        with opened(browser, site, name, viewport={"width": 360, "height": 740},
                    java_script_enabled=script) as view:
            boxes = view.locator(".use-page a, .plan li, .counts a, .bd-article summary, "
                                 ".tick label, .prev-next-area a").all()
            assert len(boxes) > 5
            for one in boxes:
                place = one.bounding_box()
                assert place and place["x"] >= 0 and place["x"] + place["width"] <= 360
            for one in view.locator(".use-page a, .tick label").all():
                place = one.bounding_box()
                assert place and place["height"] >= 28  # under a finger
            # The theme keeps its own small overhang out of this.
            assert view.locator(".bd-article").evaluate("e => e.scrollWidth <= e.clientWidth")
            if name == "style-guide":
                first = view.locator(".use-page").bounding_box()
                assert first and first["y"] + first["height"] < 740  # on the first screen


# ------------------------------------------------------------------ the plan

@pytest.mark.parametrize("slug", notebook_slugs(REAL))
def test_the_plan_is_that_of_the_record_and_the_text(browser: Browser, site: Project, slug: str
                                                     ) -> None:
    record, text = read_record(REAL, slug), read_page(REAL.text(slug))
    assert record
    with opened(browser, site, slug) as view:
        plan = view.locator(".plan").inner_text()
        assert f"{len(text.code)} code cells" in plan
        seconds = "under 1 s" if record.seconds < 1 else f"{round(record.seconds)} s"
        assert f"Ran in {seconds} on " in plan
        assert f"torch {record.versions['torch']}" in plan and record.commit[:12] in plan
        assert f"Python {record.python}" in plan
        assert view.locator(".plan time").get_attribute("datetime") == record.started[:10]
        for verdict, number in record.claims.items():
            assert re.search(rf"\b{number} {verdict}\b", plan)
        word, number = next(iter(record.claims.items()))
        view.get_by_role("link", name=f"{number} {word}", exact=True).click()
        view.wait_for_load_state()
        assert view.locator(".claim-row:visible").count() == number
        assert f"topic-{slug}" in str(
            view.locator(".claim-row:visible").first.get_attribute("class"))


def test_the_plan_says_what_a_page_needs(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "one") as view:
        plan = view.locator(".plan").inner_text()
        assert "one is used if there" in plan and "Needs 1 GiB of memory" in plan
        assert "1 claim: " in plan and "1 wrong" in plan
    with opened(browser, tiny, "two") as view:
        plan = view.locator(".plan").inner_text()
        assert "one is used" not in plan and "1 code cell" in plan and "claim" not in plan


def test_a_changed_record_or_output_reaches_the_pages_that_show_it(tmp_path: Path) -> None:
    """And the site is, byte for byte, that of a build from nothing."""
    book = Edited(tmp_path, dict(PAGES), make_tiny(tmp_path, PAGES))
    book.build()
    record = book.project.record("two")
    for old, new in (('"seconds": 0.1', '"seconds": 7.3'), ("2026-01-01", "2026-02-03"),
                     ('"peak_mib": 1.0', '"peak_mib": 2500.0')):
        text = record.read_text(encoding="utf-8")
        assert old in text
        record.write_text(text.replace(old, new), encoding="utf-8")
    assert book.build_and_compare()["read"] == ["status", "two"]
    shown = (book.project.html / "two.html").read_text(encoding="utf-8")
    for words in ("Ran in 7 s", "3 February 2026", "Needs 3 GiB"):
        assert words in shown
    book.pages["one"] = book.pages["one"].replace("total == 4", "total > 3", 1).replace(
        "### Exercise 2: guess", "### A guess")
    assert "index" in book.build()["read"]
    first = (book.project.html / "index.html").read_text(encoding="utf-8")
    assert "total &gt; 3" in re.sub(r"<[^>]+>", "", first)
    told = (book.project.html / "_static" / "exercises.js").read_text(encoding="utf-8")
    assert json.loads(told.partition("= ")[2].rstrip(";\n")) == {
        "book": "someone/tiny", "pages": {"one": [1]}}


# ------------------------------------------------------------------ copying

def copied(view: Page, place: str) -> str:
    """Press a copy button and return what is in the clipboard."""
    view.evaluate("navigator.clipboard.writeText('nothing')")
    view.locator(f"{place} .copybtn").click()
    return str(view.evaluate("navigator.clipboard.readText()"))


def test_copying_takes_code_only_and_says_so(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "one") as view:
        expect(view.locator(".copybtn").first).to_be_attached()
        assert copied(view, ".highlight-python >> nth=0 >>") == "1 + 1"
        assert copied(view, ".highlight-sh") == "make book\nmake test"
        assert copied(view, "#cell-1") == "total = 2 + 2\nassert total == 4"
        expect(view.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
        assert view.locator(".cell_output .copybtn").count() == 0
        # By keyboard: seen when it has the focus, and it has a name.
        view.evaluate("navigator.clipboard.writeText('nothing')")
        button = view.locator("#cell-1 .copybtn")
        assert button.get_attribute("aria-label") == "Copy this code"
        view.mouse.move(0, 0)
        expect(button).not_to_have_class(re.compile("success"))  # shown for a while after a copy
        expect(button).to_have_css("opacity", "0")
        button.focus()
        view.keyboard.press("Shift+Tab")
        view.keyboard.press("Tab")
        expect(button).to_be_focused()
        expect(button).to_have_css("opacity", "1")
        view.keyboard.press("Enter")
        assert view.evaluate("navigator.clipboard.readText()").startswith("total = ")


# ------------------------------------------------------------------ exercises

def test_solutions_hints_and_checkers_are_folded_under_their_names(browser: Browser, tiny: Project
                                                                   ) -> None:
    with opened(browser, tiny, "one") as view:
        names = [one.strip() for one in view.locator(".bd-article summary").all_inner_texts()]
        assert names == ["Checker for exercise 1", "Solution to exercise 1", "Answer"]
        looks = view.locator(".bd-article summary").evaluate_all(
            "all => all.map(e => { const s = getComputedStyle(e), d = "
            "getComputedStyle(e.parentElement); return [s.color, s.padding, s.fontWeight, "
            "d.border, d.borderRadius, getComputedStyle(e, '::before').content].join(' ') })")
        assert len(set(looks)) == 1
        solution = view.locator("summary", has_text="Solution to exercise 1")
        code = view.locator("#cell-3 .cell_input")
        assert not code.is_visible()
        solution.focus()
        view.keyboard.press("Enter")
        assert code.is_visible()


def test_ticks_stay_on_this_device_and_are_counted_everywhere(browser: Browser, tiny: Project
                                                              ) -> None:
    with opened(browser, tiny, "one") as view:
        boxes = view.get_by_role("checkbox")
        assert boxes.count() == 2
        assert "of" not in str(view.evaluate("localStorage.length"))
        assert "on this device only" in view.locator(".ticks-here").inner_text()
        assert not view.get_by_role("button", name="Clear").is_visible()
        boxes.nth(1).focus()
        view.keyboard.press("Space")
        expect(view.locator(".ticks-here output")).to_have_text("1 of 2 done.")
        view.reload()
        expect(boxes.nth(1)).to_be_checked()
        expect(boxes.nth(0)).not_to_be_checked()
        sidebar = view.locator(".bd-links a", has_text="One & only")
        expect(sidebar.locator(".ticks")).to_have_text("1 of 2 done")
        # The first page says so beside the page's name, and other pages' names say nothing.
        view.goto((tiny.html / "index.html").as_uri())
        expect(view.locator(".page-list .ticks")).to_have_text("1 of 2 done")
        assert view.locator(".page-list dt", has_text="One & only").locator(".ticks").count() == 1
        assert "on this device only" in view.locator(".ticks-here").inner_text()
        view.get_by_role("button", name="Clear all ticks").click()
        expect(view.locator(".ticks")).to_have_count(0)
        assert view.evaluate("localStorage.getItem('exercises:someone/tiny:one')") is None
        view.goto((tiny.html / "one.html").as_uri())
        expect(boxes.nth(1)).not_to_be_checked()
        # Clearing on the page itself; another book's ticks are left alone.
        view.evaluate("localStorage.setItem('exercises:other/book:one', '[1]')")
        boxes.nth(0).check()
        view.get_by_role("button", name="Clear").click()
        expect(boxes.nth(0)).not_to_be_checked()
        expect(boxes.nth(0)).to_be_focused()
        assert view.evaluate("Object.keys(localStorage).filter(n => n.startsWith('exercises'))"
                             ) == ["exercises:other/book:one"]


@pytest.mark.parametrize("kept", ["not JSON", '"text"', "[7]", "{}"])
def test_what_else_lies_in_the_store_does_no_harm(browser: Browser, tiny: Project, kept: str
                                                  ) -> None:
    with opened(browser, tiny, "one") as view:
        view.evaluate("kept => localStorage.setItem('exercises:someone/tiny:one', kept)", kept)
        view.reload()
        expect(view.locator(".ticks-here output")).to_have_text("0 of 2 done.")
        view.get_by_role("checkbox").first.check()
        expect(view.locator(".ticks-here output")).to_have_text("1 of 2 done.")


def test_nothing_breaks_where_the_store_is_refused(browser: Browser, served: str) -> None:
    """A frame without an origin of its own has no store: asking for it is an error."""
    with browser.new_context(viewport={"width": 1280, "height": 800}) as tab:
        view = tab.new_page()
        errors: list[str] = []
        view.on("pageerror", lambda error: errors.append(str(error)))
        view.goto(f"{served}/outer.html")
        frame = view.frame_locator("iframe")
        expect(frame.locator(".ticks-here")).to_contain_text("keeps nothing")
        frame.get_by_role("checkbox").first.check()
        expect(frame.locator(".ticks-here output")).to_have_text("1 of 2 done.")
        expect(frame.locator(".bd-links .ticks")).to_have_text("1 of 2 done")
        frame.get_by_role("button", name="Clear").click()
        expect(frame.get_by_role("checkbox").first).not_to_be_checked()
        frame.locator(".bd-article summary").first.click()
        expect(frame.locator("#cell-2 .cell_input")).to_be_visible()
        expect(frame.locator("#cell-1 .copybtn")).to_be_attached()
        assert errors == []


def test_without_scripts_there_is_no_box_that_does_nothing(browser: Browser, tiny: Project) -> None:
    with opened(browser, tiny, "one", java_script_enabled=False) as view:
        assert view.locator(".use-page a").count() == 6
        assert view.locator("input[type=checkbox]:visible, .ticks-here").count() == 0
        assert issue(button(view, "Report a problem"))[0] == "github.com/someone/tiny/issues/new"


# ------------------------------------------------------------------ previous, next, first page

def test_previous_and_next_carry_the_titles_of_the_neighbours(site: Project) -> None:
    names = toc_files(REAL)
    titles = [read_page(REAL.text(name)).title.replace("`", "") for name in names]
    for place, name in enumerate(names):
        text = (site.html / f"{name}.html").read_text(encoding="utf-8")
        shown = [(kind, address, unescape(re.sub("<[^>]+>", "", title)).replace("\u2019", "'"))
                 for kind, address, title in re.findall(
                     r'<a class="(left-prev|right-next)"\s+href="([^"]+)".*?'
                     r'"prev-next-title">(.*?)</p>', text, re.DOTALL)]  # apostrophes are curled
        assert shown == [(kind, f"{names[other]}.html", titles[other])
                         for kind, other in (("left-prev", place - 1), ("right-next", place + 1))
                         if 0 <= other < len(names)]


def test_the_first_page_shows_a_claim_falling_over_with_its_evidence(browser: Browser,
                                                                     site: Project) -> None:
    source = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    named = re.search(r"\{book-evidence\} ([a-z0-9-]+)", source)
    assert named
    one = next(dealt for dealt in dealt_with(REAL) if dealt.claim.id == named[1])
    assert one.claim.verdict in ("wrong", "holds with limits", "outdated")
    with opened(browser, site, "index") as view:
        code = view.locator(".evidence .cell_input pre").inner_text().strip()
        decides = next(c for c in one.page.code if c.source.strip() == code)
        notebook = nbformat.read(REAL.executed_notebook(one.page.slug), as_version=4)
        ran = [c for c in notebook.cells if c.cell_type == "code"][decides.number - 1]
        said = "".join(o.text for o in ran.outputs if o.get("name") == "stdout").rstrip()
        assert said and view.locator(".evidence .cell_output pre").inner_text().rstrip() == said
        last = view.locator("blockquote.verdict").first.bounding_box()
        assert last and last["y"] + last["height"] < 800
        assert f"Verdict: {one.claim.verdict}." in view.locator("blockquote.verdict").inner_text()
        view.locator("blockquote.verdict a").click()
        view.wait_for_load_state()
        assert view.locator(f"#claim-{one.claim.id}").is_visible()


def test_the_counts_are_those_of_the_run_and_lead_to_the_claims(browser: Browser, site: Project
                                                                ) -> None:
    counts = Counter(one.claim.verdict for one in dealt_with(REAL))
    for word, number in counts.items():
        with opened(browser, site, "index") as view:
            assert view.locator(".counts a").count() == len(counts)
            view.locator(".counts a", has=view.get_by_text(word, exact=True)).click()
            view.wait_for_load_state()
            shown = view.locator(".claim-row:visible")
            assert shown.count() == number
            told = view.locator(".claim-row:visible .verdict-word").all_inner_texts()
            assert {one.strip() for one in told} == {word}


def test_the_first_page_has_three_ways_in_and_no_number_typed_by_hand(browser: Browser,
                                                                      site: Project) -> None:
    source = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    prose = re.sub(r"\{book-evidence\} [a-z0-9-]+", "", source)
    assert re.findall(r"\d+", prose) == []
    with opened(browser, site, "index") as view:
        ways = view.locator("#three-ways-in li a")
        assert ways.count() == 3
        for place in range(3):
            ways.nth(place).click()
            view.wait_for_load_state()
            assert view.locator("h1:visible").first.is_visible()
            assert not view.url.endswith("/index.html")
            view.goto((site.html / "index.html").as_uri())


def test_the_evidence_of_an_unknown_claim_is_an_error(tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    pages = {**PAGES, "index": "# Tiny\n\n```{book-evidence} gone-01\n```\n"}
    project = make_tiny(tmp_path, pages)
    pair(project)
    pretend_run(project)
    with pytest.raises(Exception, match="the site build failed"):
        build_site(project, quiet)
    assert "no page deals with claim 'gone-01'" in capsys.readouterr().err
