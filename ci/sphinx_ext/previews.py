"""What others show of a page: its description, its picture, its icon; and what they leave out.

A preview's description is the page's short answer, its picture the page's first figure, else the
site's (drawn here, once per build from nothing). sphinxext-opengraph would take a page's first
words and its own idea of a picture, so it would have to be told everything that is said here.
"""

from __future__ import annotations

import importlib.util
import io
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx
from sphinx.config import Config

from ci.project import write_atomic
from ci.sphinx_ext.incremental import snapshot

PICTURE = "preview.png"
SIZE = (1200, 630)
LENGTH = 200  # of a description
UNLISTED = ("404", "search", "genindex")
PAPER, INK, HOLDS, WRONG, LIMITS = "#ffffff", "#14212b", "#00695c", "#b00020", "#7a4f00"


def description(app: Sphinx, pagename: str, doctree: nodes.document | None) -> str:
    """Return a page's short answer, else its first paragraph, in plain words."""
    book = snapshot(app)
    answer = book.facts(pagename).get("answer", "") if pagename in book.slugs else ""
    if not answer and doctree is not None:
        first = next((one for one in doctree.findall(nodes.paragraph)
                      if isinstance(one.parent, nodes.section)), None)
        answer = first.astext() if first is not None else ""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", answer)
    return shortened(" ".join(text.split()))


def shortened(text: str) -> str:
    """Return a text that is not longer than a description, cut after a sentence or a word."""
    if len(text) <= LENGTH:
        return text
    head = text[:LENGTH]
    stop = max(head.rfind(". "), head.rfind("? "))
    return head[: stop + 1] if stop > LENGTH // 2 else head[: head.rfind(" ")] + " …"


def first_figure(app: Sphinx, doctree: nodes.document | None) -> tuple[str, str] | None:
    """Return the file and the alt text of a page's first picture that was made by its code."""
    for image in doctree.findall(nodes.image) if doctree is not None else ():
        # The address is the source's before the page has been written, the site's after.
        name = app.builder.images.get(image["uri"], image["uri"].rpartition("/")[2])
        if name in app.builder.images.values() and name.endswith((".png", ".jpg")):
            return f"{app.builder.imagedir}/{name}", str(image.get("alt", ""))
    return None


def tags(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any],
         doctree: nodes.document | None) -> None:
    """Write a page's icon, description and preview into its head."""
    resource = context["pathto"]
    lines = [
        f'<link rel="icon" href="{escape(resource("_static/favicon.svg", 1))}" '
        f'type="image/svg+xml" />',
        f'<link rel="alternate icon" href="{escape(resource("_static/favicon.ico", 1))}" '
        f'sizes="32x32" />',
    ]
    base = (app.config.html_baseurl or "").rstrip("/")
    if pagename == "404":
        lines.insert(0, any_depth(base))
    if pagename in UNLISTED:
        lines.append('<meta name="robots" content="noindex" />')
    else:
        title = app.env.titles[pagename].astext() if pagename in app.env.titles else pagename
        said = description(app, pagename, doctree) or f"{title}: {app.config.html_title}"
        lines.append(f'<meta name="description" content="{escape(said)}" />')
        named = {"title": title, "description": said, "site_name": app.config.html_title,
                 "type": "website" if pagename == app.config.root_doc else "article"}
        if base:
            picture, alt = first_figure(app, doctree) or (PICTURE, str(app.config.html_title))
            named |= {"url": f"{base}/{pagename}.html", "image": f"{base}/{picture}",
                      "image:alt": alt}
        lines += [f'<meta property="og:{name}" content="{escape(text)}" />'
                  for name, text in named.items()]
        lines.append('<meta name="twitter:card" content="summary_large_image" />')
    context["metatags"] = "\n".join([*lines, context.get("metatags", "")])


def any_depth(base: str) -> str:
    """Return what makes the links of the page for lost addresses right wherever it is shown.

    A server shows it at the address that was asked for, at any depth, so its relative links
    start at the site's root; opened as a file, or under its own name, they start beside it.
    Links within the page stay within the page.
    """
    path = urlsplit(base).path.rstrip("/") + "/"
    return (f'<base href="{escape(path)}" />\n<script>if (location.protocol === "file:" || '
            'location.pathname.endsWith("/404.html")) document.querySelector("base").href = "./";\n'
            'addEventListener("DOMContentLoaded", () => document.querySelectorAll(\'a[href^="#"]\')'
            '.forEach((a) => { a.href = location.href.split("#")[0] + a.getAttribute("href"); }));'
            "</script>")


def leave_out(app: Sphinx, config: Config) -> None:
    """Keep what is no page of the book from the sitemap."""
    config.sitemap_excludes = [*getattr(config, "sitemap_excludes", []),
                               *(f"{name}.html" for name in UNLISTED)]


def draw(title: str) -> bytes:
    """Return the site's picture: its name, and a claim's three ends."""
    scale = 2  # drawn larger, for smooth edges
    image = Image.new("RGB", (SIZE[0] * scale, SIZE[1] * scale), PAPER)
    pen = ImageDraw.Draw(image)

    def line(x: int, y: int, text: str, size: int, colour: str) -> None:
        pen.text((x * scale, y * scale), text, fill=colour, font=_font(size * scale))

    pen.rectangle((0, 0, 24 * scale, SIZE[1] * scale), fill=HOLDS)
    size = 92
    while _font(size).getlength(title) > SIZE[0] - 180 and size > 30:
        size -= 4
    line(90, 120, title, size, INK)
    line(90, 255, "PyTorch and TensorFlow,", 44, INK)
    line(90, 312, "every claim executed", 44, INK)
    x = 90
    for mark, word, colour in (("✓", "holds", HOLDS), ("≈", "with limits", LIMITS),
                               ("✗", "wrong", WRONG)):
        line(x, 455, f"{mark} {word}", 46, colour)
        x += int(_font(46).getlength(f"{mark} {word}")) + 70
    data = io.BytesIO()
    image.resize(SIZE, Image.Resampling.LANCZOS).save(data, "PNG", optimize=True)
    return data.getvalue()


def _font(size: int) -> Any:
    """Return the letters that matplotlib brings, without importing it."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec and spec.origin
    path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
    return ImageFont.truetype(str(path), size)


def write(app: Sphinx, exception: Exception | None) -> None:
    """Draw the site's picture where it is not there yet; settings that change make all anew."""
    path = Path(app.outdir) / PICTURE
    if exception is None and app.builder.format == "html" and not path.is_file():
        write_atomic(path, draw(str(app.config.html_title or app.config.project)))


def setup(app: Sphinx) -> None:
    app.connect("config-inited", leave_out, priority=950)
    app.connect("html-page-context", tags, priority=960)
    app.connect("build-finished", write)
