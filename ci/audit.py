"""The site's speed, access and manners, measured on the built site and printed in one table.

The site is served as a static host would serve it (gzip, ten minutes in the browser's store). In a
real browser each page is opened as on a phone, counted, scrolled to its end and given to axe in
both themes; Lighthouse then grades a few pages with its phone settings. A goal that is missed is a
line under the table, and exit status 1.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import mimetypes
import os
import shutil
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ci.node import npm_tool
from ci.project import BookError, Project, load_yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, Response, Route

LIGHTHOUSE = "12.2.3"  # the one place that names its version
GRADED = ("index", "data-parallel-vs-ddp", "claims")  # the first, a long one, one of many rows
GOALS = {"performance": 99, "accessibility": 100, "best-practices": 100, "seo": 100}
WIRE = 250_000  # bytes of the first view
WORDS = 600_000  # bytes of the page that searches, which loads the words of the whole book
SHIFT = 0.0  # cumulative layout shift
THEMES = ("light", "dark")
PHONE = {"width": 412, "height": 823}  # Lighthouse's phone
# Without these the browser itself looks for its maker's servers.
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")
PACKED = (".html", ".css", ".js", ".json", ".svg", ".xml", ".txt", ".md", ".ipynb", ".wasm")
WATCH_SHIFTS = """() => {
  window.bookShifts = [];
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.bookShifts.push(
      [one.value, one.sources.map(s => s.node && (s.node.outerHTML || '').slice(0, 120))]);
  }).observe({type: 'layout-shift', buffered: true});
}"""
TO_THE_END = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 700) {
    scrollTo({top: y, behavior: 'instant'});
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 15)));
  }
  await Promise.all([...document.images].filter(one => one.checkVisibility()).map(
    one => one.complete || one.decode().catch(() => 0)));
}"""

# A page has thousands of code's tokens, in a dozen of colours: of each kind some are enough.
THIN = """() => {
  const counts = new Map();
  for (const one of document.querySelectorAll('.highlight pre span')) {
    const box = one.closest('.cell_input, .output, details') ?? document.body;
    const kind = `${one.className} ${box.className}`;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    if (counts.get(kind) > 8) one.replaceWith(...one.childNodes);
  }
}"""


@dataclass
class Seen:
    """What one page did in the browser, and the grades that Lighthouse gave it."""

    page: str
    first: int = 0  # bytes over the wire until the page was there
    requests: int = 0
    whole: int = 0  # bytes after scrolling to the end
    shift: float = 0.0
    shifted: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    axe: dict[str, list[str]] = field(default_factory=dict)  # findings by theme
    grades: dict[str, int] = field(default_factory=dict)


# ------------------------------------------------------------------ the site, served

@cache
def _packed(path: Path, stamp: int) -> bytes:
    return gzip.compress(path.read_bytes(), 6, mtime=0)


class _Host(http.server.BaseHTTPRequestHandler):
    """Serves files as a static host does; a folder is its index, what is missing is 404.html."""

    protocol_version = "HTTP/1.1"
    folder: Path
    below: str

    def do_GET(self) -> None:
        asked = unquote(urlsplit(self.path).path)
        # What is asked for above the site's own path is missing.
        path = (self.folder / asked.removeprefix(self.below) if asked.startswith(self.below)
                else self.folder.parent).resolve()
        if path.is_dir() and asked.startswith(self.below):
            path /= "index.html"
        found = path.is_file() and self.folder in path.parents
        if not found:
            path = self.folder / "404.html"
        data = path.read_bytes() if path.is_file() else b"not found"
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if "text" in kind else kind)
        self.send_header("Cache-Control", "max-age=600")
        if path.suffix in PACKED and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = (_packed(path, path.stat().st_mtime_ns) if path.is_file()
                    else gzip.compress(data))
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the table says it all."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of browsers that close a connection early."""


@contextlib.contextmanager
def served(folder: Path, below: str = "/") -> Iterator[str]:
    """Serve a folder on a free port of this machine; yield its address, with a slash at the end.

    Args:
        folder: the site.
        below: the path that it stands below, as it does on the host that publishes it.
    """
    host = type("Host", (_Host,), {"folder": folder.resolve(), "below": below})
    with _Server(("127.0.0.1", 0), host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{below}"
        finally:
            server.shutdown()


# ------------------------------------------------------------------ in the browser

def chromium() -> str | None:
    """Return the browser of the machine, None for the one that Playwright installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start the browser.

    Raises:
        BookError: there is none.
    """
    from playwright.sync_api import Error, sync_playwright  # wanted by this verb only

    with sync_playwright() as play:
        try:
            started = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        except Error as error:
            raise BookError("Chromium", str(error).splitlines()[0], "Install it by `apt-get "
                            "install chromium` or `.venv/bin/playwright install chromium`"
                            ) from None
        try:
            yield started
        finally:
            started.close()


def visit(browser: Browser, base: str, name: str) -> Seen:
    """Open one page as on a phone for the first time, scroll to its end, count."""
    seen = Seen(name)
    context = browser.new_context(viewport=PHONE, device_scale_factor=2)  # type: ignore[arg-type]
    with contextlib.closing(context):
        page = context.new_page()
        _refuse_others(page, base, seen)
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        wire: list[int] = []
        asked: list[str] = []
        session.on("Network.loadingFinished", lambda one: wire.append(one["encodedDataLength"]))
        page.on("request", lambda one: asked.append(one.url))
        page.add_init_script(f"({WATCH_SHIFTS})()")
        page.goto(f"{base}{name}.html", wait_until="networkidle")
        seen.first, seen.requests = int(sum(wire)), sum(
            url.startswith("http") for url in asked)
        page.evaluate(TO_THE_END)
        page.wait_for_load_state("networkidle")
        seen.whole = int(sum(wire))
        shifts = page.evaluate("window.bookShifts")
        seen.shift = round(sum(value for value, _ in shifts), 4)
        seen.shifted = [str(source) for _, sources in shifts for source in sources]
    return seen


def _refuse_others(page: Page, base: str, seen: Seen) -> None:
    """Let no request leave the site, and note those that would."""
    def route(route: Route) -> None:
        url = route.request.url
        if url.startswith((base, "data:", "blob:")):
            route.fallback()
        else:
            seen.outside.append(url)
            route.abort()

    def failed(request: Request) -> None:
        if request.url not in seen.outside:
            seen.failed.append(request.url)

    def answered(response: Response) -> None:
        if response.status >= 400:
            seen.failed.append(f"{response.status} {response.url}")

    page.route("**/*", route)
    page.on("requestfailed", failed)
    page.on("pageerror", lambda error: seen.failed.append(str(error)))
    page.on("response", answered)


def axe(page: Page) -> list[str]:
    """Return what axe finds on an open page, one line for each element."""
    from axe_playwright_python.sync_playwright import Axe  # brings axe itself, for the tests too

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {' '.join(map(str, node['target']))}: "
            + " ".join(node["html"].split())[:120] for one in found for node in one["nodes"]]


def examine(browser: Browser, base: str, name: str, width: int = 1280) -> dict[str, list[str]]:
    """Open one page and all that is folded in it, and return what axe finds in each theme."""
    context = browser.new_context(viewport={"width": width, "height": 900},
                                  color_scheme="light", reduced_motion="reduce")
    with contextlib.closing(context):
        page = context.new_page()
        page.goto(f"{base}{name}.html")
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.evaluate(THIN)
        page.wait_for_timeout(300)  # boxes that scroll have been made reachable
        found = {"light": axe(page)}
        page.emulate_media(color_scheme="dark")
        if page.locator("html[data-theme]").count():
            page.wait_for_selector("html[data-theme=dark]")
        return {**found, "dark": axe(page)}


# ------------------------------------------------------------------ Lighthouse

def lighthouse(project: Project, say: Callable[[str], None]) -> Path:
    """Return the command, installed under ``_build`` if it is not there.

    Raises:
        BookError: there is no node, or npm could not install it.
    """
    place = npm_tool(project, ".audit", "lighthouse", LIGHTHOUSE,
                     "leave it out: `python -m ci audit --no-lighthouse`", say)
    return place.parent / ".bin" / "lighthouse"


def grade(command: Path, address: str, runs: int) -> tuple[dict[str, int], list[str]]:
    """Return a page's grades, the middle ones of several runs, and what cost points.

    Raises:
        BookError: Lighthouse failed.
    """
    grades: dict[str, list[int]] = {name: [] for name in GOALS}
    lost: list[str] = []
    for _ in range(runs):
        done = subprocess.run(
            [str(command), address, "--output=json", "--quiet",
             f"--only-categories={','.join(GOALS)}",
             f"--chrome-flags=--headless=new {' '.join(FLAGS)}"],
            env={**os.environ, **({"CHROME_PATH": path} if (path := chromium()) else {})},
            capture_output=True, text=True, check=False)
        try:
            report = json.loads(done.stdout)
            for name, all_of_it in report["categories"].items():
                grades[name].append(round(100 * all_of_it["score"]))
        except (ValueError, KeyError, TypeError):
            raise BookError(address, "Lighthouse gave no report: "
                            + (done.stderr.strip().splitlines() or ["no word"])[-1],
                            "Try again, or use `python -m ci audit --no-lighthouse`") from None
        lost = [f"{part}: {audit['title']}" + (f" ({audit['displayValue']})"
                                               if audit.get("displayValue") else "")
                for part, all_of_it in report["categories"].items()
                for one in all_of_it["auditRefs"] if one["weight"]
                and (audit := report["audits"][one["id"]])["score"] is not None
                and audit["score"] < (0.9 if part == "performance" else 1)]
    return {name: int(statistics.median(found)) for name, found in grades.items()}, lost


# ------------------------------------------------------------------ all of it

def pages_of(html: Path) -> list[str]:
    """Return the names of the site's pages, less those that only lead to another one."""
    return [path.stem for path in sorted(html.glob("*.html"))
            if 'http-equiv="refresh"' not in path.read_text(encoding="utf-8")[:2000]]


def path_of(project: Project) -> str:
    """Return the path that the site is published below, with slashes around it."""
    config = load_yaml(project.root / "_config.yml") or {}
    path = urlsplit(str((config.get("html") or {}).get("baseurl") or "")).path
    return f"/{path.strip('/')}/".replace("//", "/")


def audit(project: Project, runs: int = 3, graded: bool = True,
          say: Callable[[str], None] = print) -> list[str]:
    """Measure the built site, print the table, and return the goals that were missed.

    Raises:
        BookError: there is no site, no browser, or no Lighthouse where it is wanted.
    """
    names = pages_of(project.html) if project.html.is_dir() else []
    if "index" not in names:
        raise BookError(project.relative(project.html), "there is no site",
                        "Build it by `python -m ci book`")
    command = lighthouse(project, say) if graded else None
    seen: list[Seen] = []
    with served(project.html, path_of(project)) as base:
        with browser() as started:
            for name in names:
                one = visit(started, base, name)
                one.axe = examine(started, base, name)
                seen.append(one)
        lost = []
        for one in seen:
            if command and one.page in GRADED:
                one.grades, why = grade(command, f"{base}{one.page}.html", runs)
                lost += [f"{one.page}: {line}" for line in why]
    for line in table(seen):
        say(line)
    missing = missed(seen)
    for line in [*missing, *(lost if missing else [])]:
        say(line)
    say("audit: " + (f"{len(missing)} goals missed" if missing else "all goals met"))
    return missing


def table(seen: Iterable[Seen]) -> list[str]:
    """Return what was measured as lines of text; kB are thousands of bytes over the wire."""
    rows = [["page", "requests", "first kB", "whole kB", "shift", "axe light", "axe dark",
             *(name[:13] for name in GOALS)]]
    for one in seen:
        rows.append([
            one.page, str(one.requests), f"{one.first / 1000:.1f}", f"{one.whole / 1000:.1f}",
            f"{one.shift:g}", *(str(len(one.axe.get(theme, []))) for theme in THEMES),
            *(str(one.grades.get(name, "-")) for name in GOALS)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) if at == 0 else text.rjust(width)
                      for at, (text, width) in enumerate(zip(row, widths, strict=True)))
            for row in rows]


def missed(seen: Iterable[Seen]) -> list[str]:
    """Return the goals that pages missed, one line each."""
    lines = []
    for one in seen:
        allowed = WORDS if one.page == "search" else WIRE
        if one.first > allowed:
            lines.append(f"{one.page}: {one.first} bytes for the first view, {allowed} allowed")
        if one.shift > SHIFT:
            lines.append(f"{one.page}: the layout shifts by {one.shift:g}: "
                         + "; ".join(one.shifted[:3]))
        lines += [f"{one.page}: asks another host: {url}" for url in one.outside]
        lines += [f"{one.page}: fails: {what}" for what in one.failed]
        lines += [f"{one.page}: axe, {theme}: {what}"
                  for theme, found in one.axe.items() for what in found]
        lines += [f"{one.page}: {name} {grade}, {GOALS[name]} wanted"
                  for name, grade in one.grades.items() if grade < GOALS[name]]
    return lines
