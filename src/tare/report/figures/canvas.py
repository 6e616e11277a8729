"""A chart placed by the pixel, for figures whose rows of labels and numbers are half of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

from tare.report.figures.frame import Spec, chart
from tare.report.palette import PAPER, TEXT, Ink
from tare.report.svg import TIP

Align = Literal["left", "center", "right"]

_ORDER = ("rect", "rule", "line-dashed", "point", "text")


class Canvas:
    """Collects marks at pixel places (origin top left) and hands over one Vega-Lite chart."""

    def __init__(self, width: float) -> None:
        self.width = width
        self._marks: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)

    def rect(self, x: float, y: float, x2: float, y2: float, ink: Ink) -> None:
        """Fill a rectangle."""
        self._marks["rect"].append({"x": x, "y": y, "x2": x2, "y2": y2, "c": ink.light})

    def rule(
        self,
        x: float,
        y: float,
        x2: float,
        y2: float,
        ink: Ink,
        *,
        size: float = 1,
        dashed: bool = False,
    ) -> None:
        """Draw a straight line."""
        layer = "line-dashed" if dashed else "rule"
        self._marks[layer].append({"x": x, "y": y, "x2": x2, "y2": y2, "c": ink.light, "w": size})

    def point(
        self,
        x: float,
        y: float,
        ink: Ink,
        shape: str,
        *,
        hollow: bool = False,
        size: float = 70,
        tip: str = "",
    ) -> None:
        """Draw a symbol of ``size`` square pixels, hollow for what is emulated."""
        fill = PAPER.light if hollow else ink.light
        self._marks["point"].append(
            {"x": x, "y": y, "c": ink.light, "f": fill, "s": shape, "z": size, "d": TIP + tip}
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        ink: Ink = TEXT,
        align: Align = "left",
        bold: bool = False,
        size: float = 12,
    ) -> None:
        """Write ``text`` with its middle at ``y``."""
        layer = f"text-{align}-{'bold' if bold else 'normal'}"
        self._marks[layer].append({"x": x, "y": y, "t": text, "c": ink.light, "z": size})

    def spec(self, height: float) -> Spec:
        """Return the chart of all marks, ``height`` pixels tall."""
        layers = [
            _LAYERS[name.split("-")[0]](name, self._marks[name], self.width, height)
            for name in sorted(self._marks, key=lambda name: _ORDER.index(_stem(name)))
        ]
        return chart(self.width, height, layers, autosize="none")


def _stem(name: str) -> str:
    return "text" if name.startswith("text") else name


def _places(width: float, height: float) -> Spec:
    return {
        "x": {
            "field": "x",
            "type": "quantitative",
            "axis": None,
            "scale": {"domain": [0, width], "nice": False, "zero": False},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "axis": None,
            "scale": {"domain": [height, 0], "nice": False, "zero": False},
        },
    }


def _given(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def _rect(_: str, values: list[dict[str, Any]], width: float, height: float) -> Spec:
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return {
        "data": {"values": values},
        "mark": {"type": "rect"},
        "encoding": {**_places(width, height), **ends, "fill": _given("c")},
    }


def _rule(name: str, values: list[dict[str, Any]], width: float, height: float) -> Spec:
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    mark: Spec = {"type": "rule"}
    if name == "line-dashed":
        mark["strokeDash"] = [4, 3]
    return {
        "data": {"values": values},
        "mark": mark,
        "encoding": {
            **_places(width, height),
            **ends,
            "stroke": _given("c"),
            "strokeWidth": {"field": "w", "type": "quantitative", "scale": None},
        },
    }


def _point(_: str, values: list[dict[str, Any]], width: float, height: float) -> Spec:
    return {
        "data": {"values": values},
        "mark": {"type": "point", "strokeWidth": 2, "opacity": 1},
        "encoding": {
            **_places(width, height),
            "stroke": _given("c"),
            "fill": _given("f"),
            "shape": _given("s"),
            "size": {"field": "z", "type": "quantitative", "scale": None},
            "description": {"field": "d", "type": "nominal"},
        },
    }


def _text(name: str, values: list[dict[str, Any]], width: float, height: float) -> Spec:
    _, align, weight = name.split("-")
    return {
        "data": {"values": values},
        "mark": {"type": "text", "align": align, "baseline": "middle", "fontWeight": weight},
        "encoding": {
            **_places(width, height),
            "text": {"field": "t", "type": "nominal"},
            "color": _given("c"),
            "size": {"field": "z", "type": "quantitative", "scale": None},
        },
    }


_LAYERS = {"rect": _rect, "rule": _rule, "line": _rule, "point": _point, "text": _text}
