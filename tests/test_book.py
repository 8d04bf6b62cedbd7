"""The real book, as it was run and built: what a reader downloads, follows and opens."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from ci.check import prose
from ci.claims import load_claims, load_topics
from ci.cli import BUILT
from ci.pages import VERDICTS, claims, notebook_slugs, read_page, toc_files
from ci.project import Project, load_yaml
from ci.record import read_record
from tests.conftest import ROOT, ci

PROJECT = Project(ROOT)
SLUGS = notebook_slugs(PROJECT)
TOPICS = [slug for slug in SLUGS if slug in load_topics(PROJECT)]


class Html(HTMLParser):
    """What the tests ask of a page: its addresses, links, images and scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "img":
            self.images.append(values)
        for name in ("src", "href"):
            if values.get(name) and tag in ("script", "link", "img", "iframe", "source"):
                if tag == "link" and values.get("rel") == "canonical":
                    continue
                self.loads.append(str(values[name]))


@pytest.fixture(scope="module")
def pages(site: Project) -> dict[str, Html]:
    return {path.name: Html(path) for path in site.html.glob("*.html")}


def test_every_page_of_the_contents_is_there(pages: dict[str, Html]) -> None:
    assert {f"{slug}.html" for slug in toc_files(PROJECT)} <= set(pages)
    assert len(TOPICS) >= 3


def test_every_internal_link_leads_somewhere(site: Project, pages: dict[str, Html]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = unquote(parts.path) or name
            anchor = unquote(parts.fragment)
            there = not anchor or target not in pages or anchor in pages[target].ids | {"top"}
            if not (site.html / target).exists() or not there:
                broken.append((name, link))
    assert broken == []


def test_pages_load_nothing_from_elsewhere(pages: dict[str, Html]) -> None:
    assert [(name, load) for name, page in pages.items() for load in page.loads
            if urlsplit(load).netloc] == []


def test_no_alt_text_is_a_file_name(pages: dict[str, Html]) -> None:
    figures = 0
    for name, page in pages.items():
        for image in page.images:
            alt = (image.get("alt") or "").strip()
            assert alt, (name, image)
            assert not re.search(r"\.(png|svg|jpe?g)$|^[0-9a-f]{20,}", alt), (name, alt)
            figures += 1
    assert figures >= len(TOPICS)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_colab_address_is_a_valid_notebook_without_outputs(site: Project, slug: str) -> None:
    text = (site.html / f"{slug}.html").read_text(encoding="utf-8")
    address = re.search(r'href="(https://colab\.research\.google\.com/github/[^"]+)"', text)
    assert address
    repository = load_yaml(ROOT / "_config.yml")["repository"]
    where = repository["url"].removeprefix("https://github.com/")
    start = f"https://colab.research.google.com/github/{where}/blob/{repository['branch']}/"
    assert address[1].startswith(start)
    path = ROOT / address[1].removeprefix(start)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.nbformat == 4 and notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        assert cell.cell_type in ("code", "markdown")
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None


@pytest.mark.parametrize("slug", SLUGS)
def test_colab_shows_no_raw_myst(slug: str) -> None:
    """Prose and links of the notebook itself: what Colab shows is plain Markdown."""
    page = read_page(PROJECT.text(slug))
    assert list(prose(page)) == []
    notebook = nbformat.read(PROJECT.notebook(slug), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            plain = re.sub(r"(?<![`}])`[^`\n]+`", "", cell.source)  # `{epoch}` is code, not a role
            assert not re.search(r"^```\{|^:::|\{[a-z]+\}`", plain, re.M)
            for target in re.findall(r"\]\((\.\./[^)#]+)", cell.source):
                assert (ROOT / "notebooks" / target).resolve().is_file(), target
        if cell.source.startswith("# @title"):
            assert cell.metadata.cellView == "form"


@pytest.mark.parametrize("slug", SLUGS)
def test_the_download_is_the_executed_notebook(site: Project, pages: dict[str, Html],
                                               slug: str) -> None:
    assert f"_sources/{slug}.ipynb" in pages[f"{slug}.html"].links
    path = site.html / "_sources" / f"{slug}.ipynb"
    assert path.read_bytes() == PROJECT.executed_notebook(slug).read_bytes()
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    assert sum(bool(c.outputs) for c in code) > len(code) / 3


@pytest.mark.parametrize("slug", SLUGS)
def test_outputs_are_quiet_and_short(site: Project, slug: str) -> None:
    notebook = nbformat.read(PROJECT.executed_notebook(slug), as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", (slug, output.text)
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            folded = {"hide-cell", "hide-output"} & set(cell.metadata.get("tags", []))
            assert folded or len(text.splitlines()) <= 25, (slug, cell.source)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_record_says_what_ran(site: Project, slug: str) -> None:
    record = read_record(site, slug)
    page = read_page(PROJECT.text(slug))
    assert record is not None and record.ok
    assert record.cells == len(page.code)
    assert sum(record.claims.values()) == len(claims(page)[0])
    assert record.versions["torch"] and record.versions["tensorflow"]


def test_every_claim_of_the_topics_stands_on_the_claims_page(site: Project) -> None:
    text = (site.html / "claims.html").read_text(encoding="utf-8")
    page = Html(site.html / "claims.html")
    for claim in load_claims(PROJECT).values():
        if claim.topic in SLUGS:
            assert f"{claim.topic}.html#claim-{claim.id}" in page.links
    assert "no cell" not in re.sub(r'verdict-not-checkable-here.*?</tr>', "", text, flags=re.S)


def test_every_question_has_its_page_and_cells(site: Project) -> None:
    page = Html(site.html / "questions.html")
    text = (site.html / "questions.html").read_text(encoding="utf-8")
    for topic in load_topics(PROJECT).values():
        assert topic.zh in text
        if topic.slug in SLUGS:
            assert f"{topic.slug}.html#short-answer" in page.links
            assert any(link.startswith(f"{topic.slug}.html#cell-") for link in page.links)
    assert text.count('lang="zh"') == len(load_topics(PROJECT)) == 27


def test_verdict_words_are_known_everywhere() -> None:
    for slug in SLUGS:
        for claim in claims(read_page(PROJECT.text(slug)))[0]:
            assert claim.verdict in VERDICTS


def test_the_repository_address_stands_in_one_file() -> None:
    url = load_yaml(ROOT / "_config.yml")["repository"]["url"]
    files = [p for folder in ("book", "ci", "notebooks", "tests") for p in
             (ROOT / folder).rglob("*") if p.suffix in (".md", ".py", ".ipynb", ".yml", ".js")]
    files += [p for p in ROOT.iterdir() if p.is_file() and p.name != "_config.yml"]
    named = [p for p in files if url in p.read_text(encoding="utf-8", errors="ignore")]
    assert named == []


@pytest.mark.skipif(bool(os.environ.get(BUILT)), reason="other machines ran the pages")
def test_the_second_book_executes_nothing(site: Project) -> None:
    done = ci(site, "book")
    assert done.returncode == 0
    assert "0 executed" in done.stdout and "site: unchanged" in done.stdout
    assert f"first page: {(site.html / 'index.html').as_uri()}" in done.stdout
