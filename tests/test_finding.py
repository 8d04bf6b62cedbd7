"""Finding a page and showing it to machines: search, the API index, addresses, previews, feed."""

from __future__ import annotations

import html
import http.server
import json
import re
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from ci.audit import FLAGS
from ci.check import check
from ci.pages import asserting_functions, claims, toc_files
from ci.project import Project
from ci.site import site as build_site
from ci.sphinx_ext.api_names import api_of
from ci.sphinx_ext.previews import shortened
from ci.synthetic import pretend_run
from tests.conftest import CONFIG, ROOT, Make, cell, chromium_path, page, parsed, quiet

PROJECT = Project(ROOT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        yield context.new_page()


def go(tab: Page, site: Project, name: str) -> None:
    tab.goto((site.html / name).as_uri())


def found(tab: Page, query: str) -> list[str]:
    """Open the dialog, type a query, and return the addresses found, within the site."""
    if not tab.locator("dialog.book-search[open]").count():
        tab.keyboard.press("Control+k")
        tab.wait_for_selector("dialog.book-search[open]")
    tab.locator("dialog.book-search input").fill("")
    tab.keyboard.type(query)
    return listed(tab)


def listed(tab: Page) -> list[str]:
    tab.wait_for_selector(".book-search-status:has-text('result')")
    tab.wait_for_timeout(60)  # the last letter's results
    return [str(link.get_attribute("href")).rsplit("/", 1)[1]
            for link in tab.locator(".book-search-list li a.book-hit").all()]


# ------------------------------------------------------------------ search

QUERIES = [
    # an API name, with dots and underscores, in full and as cells write it
    ("nn.init.kaiming_normal_", "init-schemes", "#cell-"),
    ("torch.nn.init.kaiming_normal_", "init-schemes", "#cell-"),
    ("xavier_uniform_", "init-schemes", ""),
    ("F.relu", "init-schemes", "#cell-"),
    ("torch.nn.functional.relu", "init-schemes", "#cell-"),
    ("tf.data.Dataset.prefetch", "tfdata-pipelines", "#"),
    ("tf.data.Dataset.interleave", "tfdata-map-vs-interleave", ""),
    ("DistributedDataParallel", "data-parallel-vs-ddp", ""),
    ("kaiming_nor", "init-schemes", ""),  # not typed to its end
    # a claim by its words, or by its name
    ("Xavier keeps the variance equal", "init-schemes", "#claim-init-schemes-08"),
    ("keeps variance inputs outputs equal", "init-schemes", "#claim-init-schemes-08"),
    ("init-schemes-08", "init-schemes", "#claim-init-schemes-08"),
    # questions, English and Chinese; Chinese words that no question holds
    ("What is the difference between DataParallel and DDP?", "data-parallel-vs-ddp", ""),
    ("How does the tf.data API help with complex data pipelines?", "tfdata-pipelines", ""),
    ("数据并行", "data-parallel-vs-ddp", ""),
    ("如何帮助管理复杂的数据管道", "tfdata-pipelines", ""),
    ("初始化方法的选择重要吗", "init-schemes", ""),
    ("权重初始化", "init-schemes", ""),
    # spelling, endings, slips
    ("initialization", "init-schemes", ""),
    ("averaging gradients in two processes", "data-parallel-vs-ddp", ""),
    ("prefech", "tfdata-pipelines", ""),
    ("kaimnig", "init-schemes", ""),
    # an error that a page shows
    ("InvalidArgumentError", "assertions-and-logging", "#cell-"),
]


def test_what_is_looked_for_comes_first(tab: Page, site: Project) -> None:
    """The page itself is the first line, the best place on it the second."""
    go(tab, site, "index.html")
    for query, slug, part in QUERIES:
        first, *rest = found(tab, query)
        assert first == f"{slug}.html", f"{query}: {first} {rest[:3]}"
        if part:
            assert rest[0].startswith(f"{slug}.html{part}"), f"{query}: {rest[:3]}"


def test_a_name_that_only_a_waiting_question_holds(tab: Page, site: Project) -> None:
    if "gradient-clipping" in toc_files(PROJECT):
        slug = "gradient-clipping.html"
    else:
        slug = "questions.html"
    go(tab, site, "index.html")
    assert found(tab, "clip_grad_norm_")[0] == slug
    assert "clip_grad_norm_" in tab.locator(".book-search-list mark").all_inner_texts()[-1]


def test_excerpts_show_the_words_marked(tab: Page, site: Project) -> None:
    go(tab, site, "index.html")
    found(tab, "nn.init.kaiming_normal_")
    line = tab.locator(".book-search-list .book-hit-cell code").first
    assert "kaiming_normal_" in line.locator("mark").first.inner_text()
    assert line.inner_text() != line.locator("mark").first.inner_text()  # with what is around it
    found(tab, "torch.nn.init.kaiming_normal_")  # as no cell writes it: its end is marked
    assert line.locator("mark").first.inner_text() == "nn.init.kaiming_normal_"
    found(tab, "variance inputs outputs equal")
    claim = tab.locator(".book-search-list .book-hit-claim").first
    assert "holds with limits" in claim.inner_text()
    marks = claim.locator("mark").all_inner_texts()
    assert {"variance", "inputs", "outputs", "equal"} <= set(marks)
    found(tab, "数据管道")
    asked = tab.locator(".book-hit-asked").first
    assert "数据管道" in asked.locator("mark").all_inner_texts()
    assert asked.get_attribute("lang") == "zh"


def test_what_is_typed_is_text_and_never_markup(tab: Page, site: Project) -> None:
    go(tab, site, "index.html")
    tab.keyboard.press("Control+k")
    tab.locator("dialog.book-search input").fill("<img src=x onerror=alert(1)> qqqq")
    tab.wait_for_timeout(300)
    assert tab.locator("dialog.book-search img").count() == 0
    tab.locator("dialog.book-search input").fill("qqqqq")
    tab.wait_for_selector(".book-search-status:has-text('Nothing found')")


def test_every_link_leads_to_what_it_says(tab: Page, site: Project) -> None:
    """Each address that the index can offer exists; some are followed by hand."""
    text = (site.html / "search-index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("window.bookSearchIndex=").rstrip(";\n"))
    assert [one["page"] for one in index["pages"]][: len(toc_files(PROJECT))] == toc_files(PROJECT)
    for one in index["pages"]:
        ids = set(re.findall(r'\bid="([^"]+)"',
                             (site.html / f"{one['page']}.html").read_text(encoding="utf-8")))
        missing = [entry[1] for entry in one["entries"] if entry[1] and entry[1] not in ids]
        assert not missing, f"{one['page']}: {missing}"
        if one["code"]:
            assert {"s", "c", "x", "f"} == {entry[0] for entry in one["entries"]}
            assert all(entry[2] for entry in one["entries"] if entry[0] == "c")  # its verdict
    for query in ("shuffle buffer", "数据并行"):
        go(tab, site, "index.html")
        for address in found(tab, query)[:4]:
            go(tab, site, "index.html")
            found(tab, query)
            tab.locator(f'.book-search-list a[href$="/{address}"]').first.click()
            tab.wait_for_url(f"**/{address}")
            if "#" in address:
                assert tab.locator(f"[id='{address.split('#')[1]}']").is_visible()
                box = tab.locator(f"[id='{address.split('#')[1]}']").bounding_box()
                assert box and -5 <= box["y"] < 800


def test_no_page_carries_the_index_before_someone_searches(tab: Page, site: Project) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    go(tab, site, "init-schemes.html")
    tab.mouse.wheel(0, 3000)
    tab.wait_for_timeout(300)
    heavy = re.compile(r"search-index|minisearch|finder|searchindex|searchtools")
    assert [url for url in asked if heavy.search(url)] == []
    found(tab, "prefetch")
    assert len([url for url in asked if heavy.search(url)]) == 3
    assert all(url.startswith(("file:", "data:")) for url in asked)


def test_search_by_keyboard_alone(tab: Page, site: Project) -> None:
    go(tab, site, "init-schemes.html")
    addresses = found(tab, "tf.data shuffle")
    focused = "document.activeElement.href ?? document.activeElement.tagName"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(focused).endswith(addresses[1])
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(focused) == "INPUT"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.type("s")  # goes on typing
    assert tab.locator("dialog.book-search input").input_value() == "tf.data shuffles"
    for _ in range(40):  # Tab stays in the dialog, and reaches the last link
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement === document.body ||"
                            "document.querySelector('dialog.book-search')"
                            ".contains(document.activeElement)")
    tab.keyboard.press("Escape")
    assert tab.locator("dialog[open]").count() == 0
    button = tab.locator("button.search-button, .search-button__button").locator("visible=true")
    button.first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("dialog.book-search[open]")
    assert tab.locator("dialog[open]").count() == 1  # not the theme's as well
    tab.keyboard.press("Control+a")
    tab.keyboard.type("DistributedDataParallel")
    listed(tab)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/data-parallel-vs-ddp.html")


def test_search_on_a_phone(browser: Browser, site: Project) -> None:
    with browser.new_context(viewport={"width": 360, "height": 700}, has_touch=True,
                             is_mobile=True) as context:
        tab = context.new_page()
        go(tab, site, "index.html")
        tab.locator("button.search-button, .search-button__button").locator(
            "visible=true").first.tap()
        tab.wait_for_selector("dialog.book-search[open]")
        tab.keyboard.type("nn.init.kaiming_normal_")
        addresses = listed(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        wide = tab.evaluate("[...document.querySelectorAll('dialog.book-search *')]"
                            ".filter(e => e.getBoundingClientRect().right > 361).length")
        assert wide == 0
        for link in tab.locator(".book-search-list a").all()[:4]:
            box = link.bounding_box()
            assert box and box["height"] >= 24
        tab.locator(".book-search-list a").nth(1).tap()
        tab.wait_for_url(f"**/{addresses[1]}")


def test_the_search_page_can_be_sent(tab: Page, site: Project) -> None:
    tab.goto((site.html / "search.html").as_uri() + "?q=tf.data.Dataset.prefetch")
    assert listed(tab)[0] == "tfdata-pipelines.html"
    assert tab.locator("h1").count() == 1
    tab.locator("main .book-search-form input, article .book-search-form input").fill("kaiming")
    tab.wait_for_timeout(300)
    assert listed(tab)[0] == "init-schemes.html"
    assert "?q=kaiming" in tab.url
    go(tab, site, "index.html")
    found(tab, "shuffle")
    tab.locator("a.book-hit-all").click()
    tab.wait_for_url("**/search.html?q=shuffle")
    assert listed(tab)[0] == "tfdata-pipelines.html"


# ------------------------------------------------------------------ addresses

def test_headings_claims_figures_and_cells_link_to_themselves(tab: Page, site: Project) -> None:
    """Each is seen under the pointer, and when the keyboard reaches it."""
    go(tab, site, "init-schemes.html")
    tab.mouse.move(0, 0)
    shown = "e => getComputedStyle(e).visibility === 'visible' && getComputedStyle(e).opacity > 0"
    for thing in ("article h2", "blockquote.claim", "article figure", ".cell[id]"):
        total, linked = tab.locator(thing).count(), tab.locator(f"{thing} a.headerlink").count()
        assert linked >= total > 0, thing
        link = tab.locator(f"{thing} a.headerlink").nth(1)
        assert not link.evaluate(shown), thing
        tab.locator(thing).nth(1).hover()
        assert link.evaluate(shown), thing
        tab.mouse.move(0, 0)
        link.focus()
        tab.keyboard.press("Shift+Tab")
        tab.keyboard.press("Tab")
        assert link.evaluate("e => e === document.activeElement"), thing
        assert link.evaluate(shown), thing
        tab.keyboard.press("Enter")
        target = tab.url.split("#")[1]
        assert link.get_attribute("href") == f"#{target}"
        assert tab.locator(f"[id='{target}']").count() == 1
    rows = tab.locator("tr[id^=claim-]")
    assert tab.locator("tr[id^=claim-] a.self-link").count() == rows.count() > 0


TWO = page("# Two and two", "## Short answer\n\nFour, `always`.",
           cell("import torch.nn.functional as F\n\nF.relu(0)"))


def built(make: Make, **pages: str) -> Project:
    config = CONFIG.replace("html: {", "html: {baseurl: 'https://example.org/tiny/', ").replace(
        "sphinx:\n", "sphinx:\n  extra_extensions: [sphinx_sitemap]\n")
    project = make(pages or {"two": TWO}, config=config)
    pretend_run(project)
    return project


def test_a_renamed_page_leads_on(tiny: Make, tab: Page) -> None:
    project = built(tiny)
    renamed = project.book / "_data" / "renamed.yml"
    build_site(project, quiet)
    renamed.write_text("one: two\n")
    build_site(project, quiet)  # nothing else has changed
    assert not [one for one in check(project) if "renamed" in one.file]
    text = (project.html / "one.html").read_text(encoding="utf-8")
    assert '<link rel="canonical" href="https://example.org/tiny/two.html">' in text
    assert 'http-equiv="refresh" content="0; url=two.html"' in text
    assert "one.html" not in (project.html / "sitemap.xml").read_text(encoding="utf-8")
    tab.goto((project.html / "one.html").as_uri() + "#cell-1")
    tab.wait_for_url("**/two.html#cell-1")
    renamed.write_text("# none\n")
    build_site(project, quiet)
    assert not (project.html / "one.html").exists()


@pytest.mark.parametrize(("line", "complaint"), [
    ("one: three", "one leads to three, which is no page"),
    ("two: index", "two is the name of a page"),
    ("- one", "not a list of old and new names"),
])
def test_a_wrong_old_name_is_found(tiny: Make, line: str, complaint: str) -> None:
    project = tiny({"two": TWO})
    (project.book / "_data" / "renamed.yml").write_text(f"# old: new\n{line}\n")
    told = [one for one in check(project) if one.file == "book/_data/renamed.yml"]
    assert len(told) == 1 and complaint in str(told[0])
    if "list" not in complaint:
        assert told[0].line == 2


# ------------------------------------------------------------------ the API index

def test_names_are_read_from_the_code() -> None:
    one = parsed(page(
        "# One",
        cell("import torch\nimport tensorflow as tf\nfrom torch import nn\n"
             "import torch.nn.functional as F\nimport numpy as np\nimport math\n"
             "from torch.nn.utils import clip_grad_norm_ as clip"),
        cell("def step(x):\n    return F.relu(nn.Linear(1, 1)(x))\n\nmath.sqrt(2)\nx.item()"),
        "> **Claim `one-01`.** Two and two make four.",
        cell("clip([], 1.0)\nnn.Linear(2, 2)\nassert np.add(2, 2) == 4"),
        "> **Verdict: holds.** It does.",
        cell("Dataset = tf.data.Dataset\nd = Dataset.range(3).map(abs)\nfor x in d.batch(2): pass\n"
             "d = []\nd.append(1)\ntf.keras.layers.Dense(1)"),
        cell("script = '''\nimport torch.distributed as dist\ndist.barrier()\n'''"),
        cell("# @title Solution\ntorch.zeros(1)"),
    ))
    names = api_of(one, claims(one)[0], asserting_functions(one))
    assert names == [
        ["keras.layers.Dense", 4, 0, ""],
        ["np.add", 3, 3, "one-01"],
        ["tf.data.Dataset", 4, 0, ""],
        ["tf.data.Dataset.batch", 4, 0, ""],
        ["tf.data.Dataset.map", 4, 0, ""],
        ["tf.data.Dataset.range", 4, 0, ""],
        ["torch.distributed.barrier", 5, 0, ""],
        ["torch.nn.functional.relu", 2, 0, ""],
        ["torch.nn.Linear", 2, 3, "one-01"],
        ["torch.nn.utils.clip_grad_norm_", 3, 3, "one-01"],
    ]


def test_the_api_index_follows_the_pages(tiny: Make) -> None:
    pages = {"two": TWO, "api": "# API\n\n```{book-api} torch\n```\n\n```{book-api} np\n```\n"}
    project = built(tiny, **pages)
    build_site(project, quiet)
    text = (project.html / "api.html").read_text(encoding="utf-8")
    assert "torch.nn.functional.relu" in text and 'href="two.html#cell-1"' in text
    assert "No page uses one yet." in text
    project = built(tiny, two=TWO.replace("F.relu(0)", "F.gelu(0)"), api=pages["api"])
    build_site(project, quiet)
    text = (project.html / "api.html").read_text(encoding="utf-8")
    assert "torch.nn.functional.gelu" in text and "relu" not in text
    report = json.loads((project.build / ".stage" / "_build" / "report.json").read_text())
    assert "api" in report["read"]


def test_the_api_index_of_the_book(tab: Page, site: Project) -> None:
    go(tab, site, "api.html")
    row = tab.locator(".api-table tr:has-text('torch.nn.init.xavier_uniform_')")
    row.locator("a", has_text="cell").first.click()
    tab.wait_for_url("**/init-schemes.html#cell-*")
    assert "xavier_uniform_" in tab.locator(".cell:target").inner_text()


# ------------------------------------------------------------------ what machines read

def head(project: Project, name: str) -> dict[str, str]:
    """Return the named values of a page's head."""
    text = (project.html / f"{name}.html").read_text(encoding="utf-8")
    return dict(re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', text))


def test_previews_of_the_book(site: Project) -> None:
    pictures = set()
    for slug in toc_files(PROJECT):
        said = head(site, slug)
        assert 20 < len(html.unescape(said["description"])) <= 202, slug
        assert said["og:title"] and said["og:url"].endswith(f"/{slug}.html")
        file = site.html / said["og:image"].removeprefix("https://proof-by-running.github.io/book/")
        width, height = Image.open(file).size
        assert width >= 300 and height >= 150, slug
        assert said["og:image:alt"]
        pictures.add(said["og:image"])
    assert head(site, "init-schemes")["description"].startswith("An initialiser sets")
    assert "_images/" in head(site, "init-schemes")["og:image"]
    assert head(site, "status")["og:image"].endswith("/book/preview.png")
    assert len(pictures) > 3
    sitemap = (site.html / "sitemap.xml").read_text(encoding="utf-8")
    assert "404" not in sitemap and "search" not in sitemap and "init-schemes" in sitemap
    assert head(site, "search")["robots"] == "noindex"


def test_the_icons_are_there(tab: Page, site: Project) -> None:
    go(tab, site, "index.html")
    icons = tab.eval_on_selector_all("link[rel~=icon]", "all => all.map(one => one.href)")
    assert [one.rsplit(".", 1)[1] for one in icons] == ["svg", "ico"]
    assert Image.open(icons[1].removeprefix("file://")).size[0] >= 32
    colours = set()
    for theme in ("light", "dark"):
        tab.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        tab.goto(icons[0])
        colours.add(tab.evaluate("getComputedStyle(document.querySelector('rect')).fill"))
    assert len(colours) == 2


@pytest.mark.parametrize(("text", "short"), [
    ("Short.", "Short."),
    ("First sentence that is long enough to be worth keeping, and that goes on for a good while "
     "yet, up to here. " + "More words that do not fit. " * 5,
     "First sentence that is long enough to be worth keeping, and that goes on for a good while "
     "yet, up to here. More words that do not fit. More words that do not fit. "
     "More words that do not fit."),
    ("word " * 60, ("word " * 40).strip() + " …"),
])
def test_a_description_ends_where_a_sentence_does(text: str, short: str) -> None:
    assert shortened(text.strip()) == short


ATOM = "{http://www.w3.org/2005/Atom}"


def test_the_feed_tells_the_commits_that_changed_pages(tiny: Make) -> None:
    project = built(tiny)

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(project.root), "-c", "user.name=T", "-c",
                        "user.email=t@example.org", *arguments], check=True, capture_output=True)

    git("init", "-q")
    (project.root / ".gitignore").write_text("_build\n")
    git("add", ".")
    git("commit", "-qm", "The <first> pages")
    (project.root / "other").write_text("no page")
    git("add", ".")
    git("commit", "-qm", "No page")
    build_site(project, quiet)
    entries = ET.parse(project.html / "feed.xml").findall(f"{ATOM}entry")
    assert [one.findtext(f"{ATOM}title") for one in entries] == ["The <first> pages"]
    link = entries[0].find(f"{ATOM}link")
    assert link is not None and link.get("href") == "https://example.org/tiny/index.html"
    assert "two.html" in str(entries[0].findtext(f"{ATOM}content"))
    assert 'type="application/atom+xml"' in (project.html / "two.html").read_text()
    git("commit", "-q", "--amend", "-m", "No page either")
    stamp = (project.html / "index.html").stat().st_mtime_ns
    build_site(project, quiet)
    assert (project.html / "index.html").stat().st_mtime_ns == stamp  # the same changes: no build
    project.text("index").write_text("# Tiny\n\nAnother book.\n")
    build_site(project, quiet)
    git("commit", "-qam", "Second")
    build_site(project, quiet)  # the text has been built before; the history is new
    assert b"Second" in (project.html / "feed.xml").read_bytes()
    shutil.rmtree(project.root / ".git")
    build_site(project, quiet)  # an unpacked archive
    assert not (project.html / "feed.xml").exists()
    assert "atom+xml" not in (project.html / "two.html").read_text()


class Lost(http.server.SimpleHTTPRequestHandler):
    """Serves the site below /book/ and its 404.html for what is not there, at any depth."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        data = (Path(self.directory) / "book" / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("script", [True, False])
def test_a_lost_address_leads_back_at_any_depth(
        browser: Browser, site: Project, tmp_path: Path, script: bool) -> None:
    (tmp_path / "book").symlink_to(site.html)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             partial(Lost, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    start = f"http://127.0.0.1:{server.server_port}/book"
    try:
        with browser.new_context(java_script_enabled=script) as context:
            tab = context.new_page()
            wrong: list[str] = []
            tab.on("response", lambda one: wrong.append(one.url) if one.status != 200 else None)
            lost = f"{start}/a/b/init-schemas.html"
            tab.goto(lost)
            assert wrong == [lost]  # styles and scripts came
            if script:
                assert tab.locator(".book-search-form input").last.input_value() == "init schemas"
                assert listed(tab)[0] == "init-schemes.html"
                tab.locator(".book-search-list a").first.click()
                tab.wait_for_url(f"{start}/init-schemes.html")
                tab.goto(lost)
                assert tab.locator("a[href$='#main-content']").first.get_attribute(
                    "href") == f"{lost}#main-content"
            else:
                assert not tab.locator("article .book-search-form").is_visible()
                tab.locator("article noscript a").first.click()
                tab.wait_for_url(f"{start}/questions.html")
            tab.goto(f"{start}/404.html")
            tab.locator("text=the first page").first.click()
            tab.wait_for_url(f"{start}/index.html")
    finally:
        server.shutdown()
        server.server_close()


def test_the_lost_page_opens_from_a_folder(tab: Page, site: Project) -> None:
    go(tab, site, "404.html")
    tab.locator(".book-search-form input").last.fill("kaiming")
    assert listed(tab)[0] == "init-schemes.html"
    tab.locator("text=the first page").first.click()
    tab.wait_for_url("**/index.html")
