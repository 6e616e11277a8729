"""Drawings as SVG: whole, safe, where they were put, and the same each time."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.report.figures.axes import Axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.drawing import draw
from tare.report.figures.frame import Figure
from tare.report.figures.palette import BASELINE, INKS, SHAPES, TIE
from tare.report.figures.plot import GAP, Plot, fitted, width_of
from tare.report.figures.svg import inline_svg, legible
from tare.report.figures.vector import PADDING, SYMBOLS, svg_of, symbol

SVG = "{http://www.w3.org/2000/svg}"
PLACES = st.floats(-2000, 2000)
TEXTS = st.text(max_size=20).map(legible)


@st.composite
def canvases(draw_: st.DrawFn) -> Canvas:
    canvas = Canvas(draw_(st.floats(1, 2000)))
    for _ in range(draw_(st.integers(0, 6))):
        kind = draw_(st.sampled_from(("rect", "rule", "path", "point", "text")))
        ink = draw_(st.sampled_from(INKS))
        x, y, x2, y2 = (draw_(PLACES) for _ in range(4))
        if kind == "rect":
            canvas.rect(x, y, x2, y2, ink)
        elif kind == "rule":
            canvas.rule(x, y, x2, y2, ink, dashed=draw_(st.booleans()), above=draw_(st.booleans()))
        elif kind == "path":
            canvas.path([(x, y), (x2, y2)], ink, dash=draw_(st.sampled_from(("", "5,3"))))
        elif kind == "point":
            shape = draw_(st.sampled_from(SYMBOLS))
            canvas.point(x, y, ink, shape, hollow=draw_(st.booleans()), tip=draw_(TEXTS))
        else:
            canvas.text(x, y, draw_(TEXTS), ink=ink, upwards=draw_(st.booleans()))
    return canvas


@given(canvases(), st.floats(1, 2000))
def test_every_drawing_is_whole_xml_and_stays_so_within_a_page(
    canvas: Canvas, height: float
) -> None:
    spec = canvas.spec(height)
    text = svg_of(spec)
    root = ElementTree.fromstring(text)
    assert float(root.attrib["width"]) >= spec.width + 2 * PADDING
    assert float(root.attrib["height"]) >= spec.height + 2 * PADDING
    marks = root.findall(f"{SVG}g/*")
    assert len(marks) == sum(map(len, spec.marks.values()))
    written = [mark.text or "" for mark in marks if mark.tag == f"{SVG}text"]
    asked = [mark["t"].replace("\r\n", "\n") for mark in spec.marks.get("text", ())]
    assert written == [each.replace("\r", "\n") for each in asked]
    assert svg_of(spec) == text
    inner = ElementTree.fromstring(inline_svg(text, name="n", title="t", description="d"))
    assert len(inner.findall(f"{SVG}g/*")) == len(marks)


@pytest.mark.parametrize("text", ['a role="img"', 'fill="#fffffe" b', ' font-family="x"', "<b>"])
def test_text_is_never_parsed_as_part_of_the_drawing(text: str) -> None:
    canvas = Canvas(10)
    canvas.text(1, 1, text)
    canvas.point(1, 1, TIE, "circle", tip=text)
    drawing = inline_svg(svg_of(canvas.spec(10)), name="n", title="t", description="d")
    root = ElementTree.fromstring(drawing)
    assert [each.text for each in root.iter(f"{SVG}text")] == [text]
    assert [each.text for each in root.iter(f"{SVG}title")] == ["t", text]


@given(PLACES, PLACES, PLACES, PLACES)
def test_marks_are_where_they_were_put(x: float, y: float, x2: float, y2: float) -> None:
    canvas = Canvas(10)
    canvas.rect(x, y, x2, y2, TIE)
    canvas.rule(x, y, x2, y2, TIE)
    canvas.point(x, y, TIE, "circle")
    rect, line, point = ElementTree.fromstring(svg_of(canvas.spec(10))).findall(f"{SVG}g/*")
    got = [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
    assert got == pytest.approx([min(x, x2), min(y, y2), abs(x - x2), abs(y - y2)], abs=0.0101)
    got = [float(line.attrib[name]) for name in ("x1", "y1", "x2", "y2")]
    assert got == pytest.approx([x, y, x2, y2], abs=0.0051)
    place = re.fullmatch(r"translate\((.+),(.+)\)", point.attrib["transform"])
    assert place is not None
    assert [float(each) for each in place.groups()] == pytest.approx([x, y], abs=0.0051)


def test_a_marks_tooltip_is_drawn_over_the_marks_below() -> None:
    canvas = Canvas(10)
    canvas.text(1, 1, "text")
    canvas.point(1, 1, TIE, "circle")
    canvas.rule(1, 1, 2, 2, TIE, above=True)
    canvas.rule(1, 1, 2, 2, TIE)
    canvas.rect(1, 1, 2, 2, TIE)
    tags = [mark.tag for mark in ElementTree.fromstring(svg_of(canvas.spec(10)))[1]]
    assert tags == [f"{SVG}{tag}" for tag in ("rect", "line", "path", "line", "text")]


def test_there_is_an_outline_for_each_shape_that_arms_have_and_each_is_another() -> None:
    outlines = {symbol(shape, 30) for shape in (*SHAPES, "triangle-left", "triangle-right")}
    assert len(outlines) == len(SYMBOLS) == len(SHAPES) + 2
    with pytest.raises(KeyError):
        symbol("heart", 30)


@given(st.text(max_size=60), st.floats(0, 400))
def test_a_text_is_cut_to_its_room(text: str, room: float) -> None:
    cut = fitted(text, room)
    assert cut == text if width_of(text) <= room else cut == "…" or width_of(cut) <= room
    assert cut == text or text.startswith(cut.removesuffix("…").rstrip())


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12, unique=True))
def test_labels_without_a_gap_are_left_out_but_never_the_first(ticks: list[float]) -> None:
    ticks.sort()
    canvas = Canvas(300)
    axis = Axis(0, 100, tuple(ticks), tuple(f"{tick:.3g} ms" for tick in ticks))
    Plot(canvas, 20, 10, 250, 50).across(axis, "title")
    *labels, title = canvas.spec(100).marks["text"]
    assert title["t"] == "title" and labels[0]["t"] == axis.labels[0]
    for one, other in pairwise(labels):
        apart = (width_of(one["t"]) + width_of(other["t"])) / 2
        assert other["x"] - one["x"] >= apart + GAP * 0.999


def test_png_and_pdf_are_the_drawing_in_its_size(tmp_path: Path) -> None:
    canvas = Canvas(92)
    canvas.rect(0, 0, 92, 42, BASELINE)
    draw([Figure("f", "t", "d", canvas.spec(42))], tmp_path, ("png", "pdf"))
    png = (tmp_path / "f.png").read_bytes()
    assert png.startswith(b"\x89PNG") and struct.unpack(">II", png[16:24]) == (200, 100)
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
