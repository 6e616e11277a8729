"""Adapt a drawn figure to the page: theme colours, less markup, and unique ids."""

from __future__ import annotations

import re
from html import escape

from tare.report.figures.palette import variable_of_colour

TIP = "\u2063"
"""Marks the start of a description to show as a tooltip; no other text of Tare contains it."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u2063]")
_ROOT = re.compile(r"<svg[^>]*?\swidth=\"([\d.]+)\" height=\"([\d.]+)\" viewBox=\"([^\"]+)\"[^>]*>")
_BACKGROUND = re.compile(r"^<rect width=\"[^\"]*\" height=\"[^\"]*\" fill=\"[^\"]*\"/>")
_TIPPED = re.compile(rf"<(path|line|rect)\b([^>]*?)\saria-label=\"{TIP}([^\"]*)\"([^>]*?)/>")
_LEADING = re.compile(
    r"<(path|rect) data-to=\"(\w+)(?:@([\d.]+))?\"([^>]*?)(/>|><title>[^<]*</title></\1>)"
)
_ARIA = re.compile(r"\s(?:aria-label|role)=\"[^\"]*\"")
_FONT = re.compile(r"\sfont-family=\"[^\"]*\"")
_PAINT = re.compile(r"=\"(#[0-9a-fA-F]{6})\"")


def legible(text: str) -> str:
    """Return outside ``text`` with control characters, which XML forbids, shown as ``�``."""
    return text if text.isprintable() else _CONTROL.sub("\ufffd", text)


def inline_svg(svg: str, *, name: str, title: str, description: str) -> str:
    """Return ``svg`` for use inside the page.

    Colours become CSS variables, and the font is the page's. Marks described with :data:`TIP` get a
    native tooltip. The picture has a title and a description for screen readers.

    Args:
        svg: A figure as `tare.report.figures.vector` writes it.
        name: A name of letters, digits and hyphens, unique within the page.
        title: The figure's title.
        description: A description of the figure in words.
    """
    root = _ROOT.search(svg)
    if root is None:
        raise ValueError("this is not a figure of a report")
    width, _, view_box = root.groups()
    body = _BACKGROUND.sub("", svg[root.end() :].removesuffix("</svg>"))
    body = _TIPPED.sub(r"<\1\2\4><title>\3</title></\1>", body)
    # Keyboard users reach the same targets from the tables' rows, so marks are not tab stops.
    body = _LEADING.sub(_linked, body)
    for noise in (_ARIA, _FONT):
        body = noise.sub("", body)
    body = _PAINT.sub(_themed, body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" role="img" viewBox="{view_box}" '
        f'style="max-width:{width}px" fill="none" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{body}</svg>'
    )


def _linked(match: re.Match[str]) -> str:
    """Return a mark as a link to an effect's row; scripts lead to its block, if it has one."""
    kind, effect, block, attributes, rest = match.groups()
    at = f' data-at="{block}"' if block else ""
    return f'<a href="#{effect}"{at} tabindex="-1"><{kind}{attributes}{rest}</a>'


_VARIABLES = variable_of_colour()


def _themed(match: re.Match[str]) -> str:
    colour = match[1]
    return f'="{_VARIABLES.get(colour.lower(), colour)}"'
