"""Formulas as MathML, made at build time by latex2mathml: no script, no font from elsewhere."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
TEXT = re.compile(r"<mtext>[^<]*")
ESCAPED = re.compile(r"\\([_%$#{}])")  # `\text{fan\_in}`: the library leaves the backslash standing
# The library sets `x \log x` as one word, and infinity as an operator, with space on both sides.
FUNCTION = re.compile(r"(?<=</mi>|</mn>)(?=<mi>[a-z]{2,}</mi>)|(?<=[a-z]{2}</mi>)(?=<m[in]>)")
SPACE = '<mspace width="0.17em"></mspace>'
INFINITY = re.compile(r"<mo>(&#x0221E;)</mo>")


def mathml(node: nodes.Element, display: str) -> str:
    """Return the formula of a math node as MathML; warn, with its place, when it is not TeX."""
    try:
        made = INFINITY.sub(r"<mi>\1</mi>", str(convert(node.astext(), display=display)))
        return TEXT.sub(lambda text: ESCAPED.sub(r"\1", text[0]), FUNCTION.sub(SPACE, made))
    except Exception as error:  # the library raises many kinds; the build must name the place
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(mathml(node, "block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
