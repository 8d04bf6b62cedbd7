"""The book away from its server: read offline from a folder, taught from its notebooks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from ci.archive import TIME, WITHHELD, course, release, zip_site
from ci.pages import notebook_slugs, read_page
from ci.pair import pair
from ci.project import BookError, Project, load_toml, load_yaml
from ci.record import read_record
from ci.site import site as build_site
from ci.synthetic import pretend_run
from tests.conftest import ROOT, Make, cell, chromium_path, page, quiet

CITATION = """\
cff-version: 1.2.0
title: "Tiny: a book"
authors: [{name: The authors}, {given-names: Ada, family-names: Byron}]
license: [CC-BY-4.0, MIT]
version: 2.5.1
date-released: "2031-04-05"
"""
FOLDED = "cellView: form\ntags: [hide-cell]"
LESSON = page(
    "# A lesson",
    "## At a glance\n\nRead [this](../notebooks/one.ipynb) first.",
    "## Set-up\n\n<details>\n<summary>Answer</summary>\n\nNot of an exercise.\n\n</details>",
    cell("import math\n\nprint(math.pi)"),
    "## Exercises\n\n### Exercise 1: double\n\nDouble it.\n\n"
    "<details>\n<summary>Hint</summary>\n\nAdd.\n\n</details>",
    cell("# @title Checker for exercise 1\ndef check_1(f):\n    return f(2) == 4", FOLDED),
    "Change this.",
    cell("def double(x):\n    return x\n\n\nprint(check_1(double))"),
    "The secret is to multiply.",
    cell("# @title Solution to exercise 1\ndef solution_1(x):\n    return 2 * x\n\n\n"
         "assert check_1(solution_1)", FOLDED),
    "### Exercise 2: guess\n\nWhat comes?",
    cell("print(7 * 6)"),
    "<details>\n<summary>Answer</summary>\n\nForty-two.\n\n</details>",
    "## Further reading\n\nNone.",
)


def made(project: Project) -> Project:
    """Return a tiny book with what a release needs, as if it had been run."""
    (project.root / "CITATION.cff").write_text(CITATION, encoding="utf-8")
    (project.root / "LICENSE").write_text("do as you like\n", encoding="utf-8")
    pretend_run(project)
    return project


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def notebooks(path: Path) -> dict[str, nbformat.NotebookNode]:
    with zipfile.ZipFile(path) as archive:
        return {Path(name).stem: nbformat.reads(archive.read(name).decode(), as_version=4)
                for name in archive.namelist() if name.endswith(".ipynb")}


def readme(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(n for n in archive.namelist() if "README" in n)).decode()


def require_checksum(path: Path) -> None:
    told = path.with_name(f"{path.name}.sha256").read_text(encoding="utf-8")
    assert told == f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


# ------------------------------------------------------------------ the site in one archive

def test_the_site_is_packed_the_same_each_time_and_only_if_current(tiny: Make) -> None:
    project = made(tiny({"one": page("# One", cell("print(1)"))}))
    with pytest.raises(BookError, match="not the site of the texts"):
        zip_site(project, quiet)
    build_site(project, quiet)
    path = zip_site(project, quiet)
    assert path.name == "tiny-2.5.1.zip"
    require_checksum(path)
    assert names(path) == sorted(names(path))
    inside = {f"tiny-2.5.1/html/{p.relative_to(project.html).as_posix()}"
              for p in project.html.rglob("*") if p.is_file()}
    assert set(names(path)) - inside == {
        f"tiny-2.5.1/{name}" for name in ("README.txt", "LICENSE", "CITATION.cff")}
    assert inside <= set(names(path))
    assert "html/index.html" in readme(path) and "CC-BY-4.0" in readme(path)
    with zipfile.ZipFile(path) as archive:
        assert {one.date_time for one in archive.infolist()} == {TIME}
    before = path.read_bytes()
    for file in project.html.rglob("*"):
        os.utime(file, (1e9, 1e9))
    assert zip_site(project, quiet).read_bytes() == before

    text = project.text("one")
    for edited in (text, project.root / "CITATION.cff", project.record("one")):
        kept = edited.read_text(encoding="utf-8")
        edited.write_text(kept.replace("One", "Won").replace("2031", "2032").replace(
            '"peak_mib": 1.0', '"peak_mib": 2.0'), encoding="utf-8")
        assert edited.read_text(encoding="utf-8") != kept
        with pytest.raises(BookError, match="Run `python -m ci site`"):
            zip_site(project, quiet)
        edited.write_text(kept, encoding="utf-8")
    zip_site(project, quiet)
    text.write_text(text.read_text(encoding="utf-8").replace("print(1)", "print(2)"))
    with pytest.raises(BookError, match="Run `python -m ci run one`"):
        zip_site(project, quiet)


def test_the_version_is_the_same_in_both_files() -> None:
    version = load_yaml(ROOT / "CITATION.cff")["version"]
    assert load_toml(ROOT / "pyproject.toml")["project"]["version"] == version
    assert release(Project(ROOT)) == f"proof-by-running-{version}"


def test_the_archive_is_read_searched_and_walked_without_a_network(
        site: Project, tmp_path: Path) -> None:
    archive = zip_site(site, quiet)
    folder = tmp_path / "Bücher für alle"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    html = folder / archive.stem / "html"
    refused: list[str] = []
    failed: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        tab = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
        tab.route(re.compile("^(?!file:|data:|blob:)"), lambda route: (
            refused.append(route.request.url), route.abort())[1])
        reader = tab.new_page()
        # Broken off is what still loads, such as the tab's icon, when the reader follows a link.
        reader.on("requestfailed", lambda request: failed.append(request.url) if not (
            request.failure == "net::ERR_ABORTED" and there(request.url)) else None)
        reader.on("pageerror", lambda error: failed.append(str(error)))

        def here() -> str:
            """Return the name of the page that is open, with its anchor."""
            assert reader.url.startswith(html.as_uri()), reader.url
            return reader.url.removeprefix(html.as_uri()).lstrip("/").partition("?")[0]

        reader.goto((html / "index.html").as_uri())
        slug = notebook_slugs(site)[0]
        follow(reader, f".bd-article a[href^='{slug}.html']")
        assert here().partition("#")[0] == f"{slug}.html"
        assert reader.locator(".cell_output").count()
        reader.mouse.wheel(0, 100_000)  # what a lazy picture asks for
        reader.wait_for_timeout(300)
        assert reader.evaluate("[...document.images].every(i => !i.complete || i.naturalWidth)")

        follow(reader, "a.right-next")
        assert here() != f"{slug}.html"
        reader.goto((html / "claims.html").as_uri())
        follow(reader, ".claim-row a")
        assert "#claim-" in here() and reader.locator(f"#{here().partition('#')[2]}").is_visible()

        search(reader, "Kaiming")
        assert "Kaiming" in reader.inner_text("main")
        assert here().partition("#")[0] == "init-schemes.html"
        browser.close()
    assert refused == []
    assert failed == []


def there(address: str) -> bool:
    return Path(unquote(urlsplit(address).path)).is_file()


def follow(reader: Page, link: str) -> None:
    reader.locator(link).first.click()
    reader.wait_for_load_state()


def search(reader: Page, words: str) -> None:
    """Search as a reader does: find the field, type, follow the first result."""
    field = reader.locator("input[type=search]:visible")
    if not field.count():
        reader.get_by_role("button", name=re.compile("search", re.I)).first.click()
    before = reader.url
    field.first.press_sequentially(words, delay=20)
    found = reader.locator(", ".join(
        f"{box} a[href*='.html']:visible" for box in (
            "#search-results", "dialog[open]", "[class*=search-result]", "[id*=search-result]",
            "[role=listbox]")))
    with contextlib.suppress(PlaywrightTimeout):  # a search that answers while one types
        found.first.wait_for(timeout=3000)
    if not found.count():
        field.first.press("Enter")
    found.first.wait_for()
    found.first.click()
    reader.wait_for_url(lambda url: url != before and "search.html" not in url)
    reader.wait_for_load_state()


# ------------------------------------------------------------------ the notebooks for a course

def sources(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(one.source for one in notebook.cells)


def test_a_notebook_without_solutions_keeps_its_exercises_and_runs(tiny: Make) -> None:
    project = made(tiny({"one": page("# One", cell("print(1)")), "lesson": LESSON}))
    without, solved = course(project, quiet)
    assert without.name == "tiny-2.5.1-notebooks.zip"
    for path in (without, solved):
        require_checksum(path)
        assert {name.partition("/")[2] for name in names(path)} == {
            "README.md", "LICENSE", "CITATION.cff", "requirements.txt", "notebooks/one.ipynb",
            "notebooks/lesson.ipynb"}
    before = without.read_bytes(), solved.read_bytes()
    again = course(project, quiet)
    assert (again[0].read_bytes(), again[1].read_bytes()) == before

    whole, lesson = notebooks(solved)["lesson"], notebooks(without)["lesson"]
    assert nbformat.writes(whole) + "\n" == project.notebook("lesson").read_text(encoding="utf-8")
    nbformat.validate(lesson)
    text = sources(lesson)
    for secret in ("Solution to", "solution_1", "multiply", "Forty-two"):
        assert secret in sources(whole) and secret not in text
    for kept in ("Double it.", "Add.", "Checker for exercise 1", "def double", "What comes?",
                 "print(7 * 6)", "Not of an exercise.", "Further reading"):
        assert kept in text
    assert text.count(WITHHELD) == 2
    assert not [out for one in lesson.cells for out in one.get("outputs", [])]

    NotebookClient(lesson, timeout=60, kernel_name="python3").execute()
    code = [one for one in lesson.cells if one.cell_type == "code"]
    assert len(code) == 4 and code[-1].outputs[0].text == "42\n"


def test_a_cell_that_needs_a_solution_is_refused(tiny: Make) -> None:
    late = LESSON.replace("## Further reading\n", "## Further reading\n\n"
                          "```{code-cell}\nprint(solution_1(3))\n```\n\n")
    project = made(tiny({"lesson": late}))
    with pytest.raises(BookError, match=r"lesson\.md:\d+: .*solution_1.* solutions are left out"):
        course(project, quiet)


def test_stale_notebooks_and_pages_without_a_run_are_refused(tiny: Make) -> None:
    project = made(tiny({"lesson": LESSON}))
    text = project.text("lesson")
    text.write_text(LESSON.replace("7 * 6", "6 * 7"), encoding="utf-8")
    with pytest.raises(BookError, match="not in step with its text"):
        course(project, quiet)
    pair(project)
    with pytest.raises(BookError, match="Run `python -m ci run lesson`"):
        course(project, quiet)


def test_the_real_notebooks_without_solutions_are_whole(site: Project) -> None:
    without, solved = course(site, quiet)  # no cell needs a name that a solution defines
    slugs = notebook_slugs(site)
    assert set(notebooks(without)) == set(notebooks(solved)) == set(slugs)
    told = readme(without)
    rows = re.findall(r"^\| \d+ \| \[[^|]*\]\(notebooks/([\w-]+)\.ipynb\) \| ", told, re.M)
    assert rows == slugs
    for slug in slugs:
        record, text = read_record(site, slug), sources(notebooks(without)[slug])
        assert record and f"| {record.seconds:.0f} | {record.peak_mib:.0f} |" in told
        assert "# @title Solution" not in text and "<summary>Answer" not in text
        exercises = len(re.findall(r"^### Exercise \d", text, re.M))
        assert exercises >= 2 and text.count(WITHHELD) >= exercises
        assert text.count("# @title Checker") == sum(
            one.source.startswith("# @title Checker") for one in read_page(site.text(slug)).code)
        for target in re.findall(r"\]\(\.\./(notebooks/[^)#]+)", text):
            assert f"{without.stem}/{target}" in names(without)


# ------------------------------------------------------------------ the page for teachers

def test_the_plan_and_the_citation_follow_what_they_are_made_of(tiny: Make) -> None:
    project = tiny({
        "one": page("# One", cell("print(1)")), "lesson": LESSON,
        "teach": "# Teach\n\n```{book-plan}\n```\n\n```{book-citation}\n```\n"})
    made(project)
    lines: list[str] = []

    def shown() -> str:
        text = (project.html / "teach.html").read_text(encoding="utf-8")
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))

    build_site(project, quiet)
    assert re.search("Needs: Python *; after one", shown())
    assert "2 pages, 2 minutes of reading, 2 exercises." in shown()
    assert re.search(r"The authors and Ada Byron \(2031\)\. Tiny: a book *, version 2\.5\.1\.",
                     shown())
    assert "{The authors} and {Ada Byron}" in shown()

    record = project.record("lesson")
    record.write_text(record.read_text().replace('"peak_mib": 1.0', '"peak_mib": 773.0'))
    build_site(project, lines.append)
    assert re.search("MiB of memory: *773", shown())
    assert lines[-1].startswith("site: 4 pages, 1 read")
    citation = project.root / "CITATION.cff"
    citation.write_text(CITATION.replace("2.5.1", "2.6.0"))
    build_site(project, lines.append)
    assert "version 2.6.0." in shown() and lines[-1].startswith("site: 4 pages, 1 read")


def test_the_teachers_page_holds_every_page_of_the_book(site: Project) -> None:
    text = (site.html / "teach.html").read_text(encoding="utf-8")
    table = text[text.index("plan-table"):text.index("</table>", text.index("plan-table"))]
    for slug in notebook_slugs(site):
        record = read_record(site, slug)
        assert f'href="{slug}.html"' in table
        assert record and f"{record.peak_mib:.0f}" in table
    assert load_yaml(ROOT / "CITATION.cff")["title"] in text
