"""Figures in pages: light in bytes, and of a size that is known before they have come.

A plot has few colours. With 256 of them it takes a third of the bytes and looks the same; where it
would not (a photograph, a fine colour scale), it stays as it was drawn.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from ci.project import write_atomic

FAR = 64  # of 255: how far one channel of one pixel may move; edges between two colours do
MEAN = 0.5  # and all of them on average
IMAGE = re.compile(r"<img\s[^>]*?/?>")
UNITS = {"": 1.0, "px": 1.0, "pt": 4 / 3, "in": 96.0}


def lighter(data: bytes) -> bytes:
    """Return a PNG picture in fewer bytes, or as it is if that would be seen or gain nothing."""
    from PIL import Image, ImageChops, ImageStat, UnidentifiedImageError  # wanted seldom

    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.format != "PNG" or opened.mode not in ("RGB", "RGBA"):
                return data
            picture = opened.convert("RGBA")
            density = opened.info.get("dpi")
    except (UnidentifiedImageError, OSError, ValueError):
        return data
    if picture.getchannel("A").getextrema() != (255, 255):
        return data
    whole = picture.convert("RGB")
    few = whole.quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE)
    moved = ImageChops.difference(few.convert("RGB"), whole)
    change = ImageStat.Stat(moved)
    seen = max(high for _, high in change.extrema) > FAR or max(change.mean) > MEAN
    found = [data]
    for one in [whole] if seen else [whole, few]:
        out = io.BytesIO()
        one.save(out, "PNG", optimize=True, **({"dpi": density} if density else {}))
        found.append(out.getvalue())
    return min(found, key=len)


def lighten(app: Sphinx, env: BuildEnvironment) -> None:
    """Make the figures of the pages just read lighter, where myst-nb has put them."""
    made = Path(env.mystnb_config.output_folder)  # type: ignore[attr-defined]
    read = set(app.book_read)  # type: ignore[attr-defined]
    for name, (pages, _) in env.images.items():
        path = (Path(env.srcdir) / name).resolve()
        if path.suffix == ".png" and made.resolve() in path.parents and read & set(pages):
            data = path.read_bytes()
            if (less := lighter(data)) is not data:
                write_atomic(path, less)


def size(path: Path) -> tuple[int, int] | None:
    """Return a picture's width and height in CSS pixels, None if they are not known."""
    try:
        if path.suffix == ".png":
            head = path.read_bytes()[:24]
            return struct.unpack(">II", head[16:24]) if head[1:4] == b"PNG" else None
        if path.suffix == ".svg":
            root = ElementTree.parse(path).getroot()
            sides = [re.fullmatch(r"([\d.]+)\s*(\w*)", root.get(side, ""))
                     for side in ("width", "height")]
            wide, high = (round(float(one[1]) * UNITS[one[2]]) for one in sides if one)
            return wide, high
    except (OSError, struct.error, ElementTree.ParseError, ValueError, KeyError):
        pass
    return None


def prepared(html: str, images: dict[str, Any]) -> str:
    """Return a page whose pictures have a size and wait until they are near the screen.

    Args:
        html: the page.
        images: the files of the pictures by their names under ``_images``.
    """
    first = html.find("<h2")

    def prepare(match: re.Match[str]) -> str:
        tag = match[0]
        source = re.search(r'src="(?:[^"]*/)?_images/([^"/]+)"', tag)
        extra = ""
        if source and not re.search(r"\s(width|height)=", tag) and (
                sides := size(Path(images.get(source[1], "")))):
            extra += f' width="{sides[0]}" height="{sides[1]}"'
        # What stands above the first heading is seen at once.
        if "loading=" not in tag and not (source and match.start() < first):
            extra += ' loading="lazy"'
        if "decoding=" not in tag:
            extra += ' decoding="async"'
        return re.sub(r"\s*/?>$", f"{extra}>", tag)

    return IMAGE.sub(prepare, html)


def setup(app: Sphinx) -> None:
    app.connect("env-updated", lighten)
