"""Write a drawing as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from html import escape

from tare.report.figures.frame import FONT, Mark, Spec
from tare.report.figures.palette import PAPER

PADDING = 4
"""Pixels left free on each side."""

_ANCHORS = {"left": "start", "center": "middle", "right": "end"}
_HALF_ROOT_OF_3 = math.sqrt(3) / 2


def svg_of(spec: Spec) -> str:
    """Return ``spec`` as a complete SVG document; equal drawings give equal text.

    Marks cover one another in the order of `_STROKES`. Marks of one kind are in drawing order.
    """
    width, height = (_number(math.ceil(side) + 2 * PADDING) for side in (spec.width, spec.height))
    strokes = "".join(
        "".join(map(stroke, spec.marks[kind]))
        for kind, stroke in _STROKES.items()
        if kind in spec.marks
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="{PAPER.light}"/>'
        f'<g stroke-miterlimit="10" font-family="{FONT}" '
        f'transform="translate({PADDING},{PADDING})">{strokes}</g></svg>'
    )


def _number(value: float) -> str:
    """Return a length in pixels with at most two decimals, in as few characters as possible."""
    text = f"{value:.2f}"
    if text.endswith("0"):
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _look(mark: Mark) -> str:
    look = f' stroke="{mark["c"]}" stroke-width="{_number(mark["w"])}"'
    if mark["k"]:
        look += f' stroke-dasharray="{mark["k"]}"'
    return look


def _opacity(mark: Mark) -> str:
    return "" if mark["o"] == 1 else f' opacity="{_number(mark["o"])}"'


def _links(mark: Mark) -> str:
    return f' data-to="{mark["l"]}"' if mark["l"] else ""


def _rect(mark: Mark) -> str:
    return f'<rect{_links(mark)} {_sides(mark)} fill="{mark["c"]}"/>'


def _area(mark: Mark) -> str:
    return f'<rect{_links(mark)} {_sides(mark)} fill="none" pointer-events="all"/>'


def _sides(mark: Mark) -> str:
    left, right = sorted((mark["x"], mark["x2"]))
    top, bottom = sorted((mark["y"], mark["y2"]))
    return (
        f'x="{_number(left)}" y="{_number(top)}" width="{_number(right - left)}" '
        f'height="{_number(bottom - top)}"'
    )


def _rule(mark: Mark) -> str:
    places = " ".join(
        f'{name}="{_number(mark[key])}"'
        for name, key in (("x1", "x"), ("y1", "y"), ("x2", "x2"), ("y2", "y2"))
    )
    return f"<line {places}{_look(mark)}{_opacity(mark)}/>"


def _path(mark: Mark) -> str:
    places = "L".join(f"{_number(x)},{_number(y)}" for x, y in mark["p"])
    return f'<path{_links(mark)} d="M{places}" fill="none"{_look(mark)}/>'


def _point(mark: Mark) -> str:
    label = f' role="img" aria-label="{escape(mark["d"])}"' if mark["d"] else ""
    place = f"{_number(mark['x'])},{_number(mark['y'])}"
    return (
        f'<path{_links(mark)}{label} transform="translate({place})" '
        f'd="{symbol(mark["s"], mark["z"])}" fill="{mark["f"]}" stroke="{mark["c"]}" '
        f'stroke-width="{_number(mark["w"])}"{_opacity(mark)}/>'
    )


def _text(mark: Mark) -> str:
    x, y = mark["x"], mark["y"]
    # Letters reach three tenths of their size below their middle.
    down = math.floor(0.3 * mark["z"] + 0.5)
    if mark["u"]:
        place = f"translate({_number(x + down)},{_number(y)}) rotate(-90)"
    else:
        place = f"translate({_number(x)},{_number(y + down)})"
    weight = ' font-weight="bold"' if mark["b"] else ""
    return (
        f'<text text-anchor="{_ANCHORS[mark["a"]]}" transform="{place}" '
        f'font-size="{_number(mark["z"])}px"{weight} fill="{mark["c"]}">'
        f"{escape(mark['t'])}</text>"
    )


_STROKES: dict[str, Callable[[Mark], str]] = {
    "rect": _rect,
    "rule": _rule,
    "rule-dashed": _rule,
    "path": _path,
    "point": _point,
    "rule-above": _rule,
    "text": _text,
    "area": _area,
}


@lru_cache(maxsize=256)
def symbol(shape: str, size: float) -> str:
    """Return the outline of a symbol centred on the origin.

    Args:
        shape: One of `SYMBOLS`.
        size: The area of the square symbol in square pixels. The other symbols have the same width.

    Raises:
        KeyError: There is no such shape.
    """
    r = math.sqrt(size) / 2
    if shape == "circle":
        n = _number(r)
        return f"M{n},0A{n},{n},0,1,1,-{n},0A{n},{n},0,1,1,{n},0"
    return "M" + "L".join(f"{_number(x * r)},{_number(y * r)}" for x, y in _CORNERS[shape]) + "Z"


_H = _HALF_ROOT_OF_3
_ARM = 1 / 2.5
_CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "diamond": ((-1, 0), (0, -1), (1, 0), (0, 1)),
    "triangle-up": ((0, -_H), (-1, _H), (1, _H)),
    "triangle-down": ((0, _H), (-1, -_H), (1, -_H)),
    "triangle-right": ((_H, 0), (-_H, -1), (-_H, 1)),
    "triangle-left": ((-_H, 0), (_H, -1), (_H, 1)),
    "cross": (
        (-1, -_ARM),
        (-1, _ARM),
        (-_ARM, _ARM),
        (-_ARM, 1),
        (_ARM, 1),
        (_ARM, _ARM),
        (1, _ARM),
        (1, -_ARM),
        (_ARM, -_ARM),
        (_ARM, -1),
        (-_ARM, -1),
        (-_ARM, -_ARM),
    ),
}
SYMBOLS = ("circle", *_CORNERS)
