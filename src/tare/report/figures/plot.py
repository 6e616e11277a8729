"""A framed part of a canvas with axes, in the common look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tare.report.figures.axes import Axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.palette import AXIS, RULE, SOFT
from tare.report.page.words import EMULATED, short

TICK = 5
LABEL = 15
"""Pixels from an axis down to the middle of its labels; letters are 12 pixels tall."""
TITLE = 34
"""Pixels from an axis down to the middle of its title."""
SIZE = 12
GAP = 8
"""The least number of pixels between two labels; some fonts are wider than Arial."""

_WIDE, _NARROW = frozenset("MWmw@%&—…"), frozenset(" ijltfr.,:;'|!I()[]/-·")


@dataclass(frozen=True)
class Plot:
    """A rectangle of the canvas, in pixels, in which values are placed by two axes."""

    canvas: Canvas
    left: float
    top: float
    width: float
    height: float

    def x(self, axis: Axis, value: float) -> float:
        """Return the pixel column of a value."""
        return self.left + axis.share(value) * self.width

    def y(self, axis: Axis, value: float) -> float:
        """Return the pixel row of a value; greater values are further up."""
        return self.top + (1 - axis.share(value)) * self.height

    def frame(self) -> None:
        """Draw the plot's border."""
        left, top = self.left + 0.5, self.top + 0.5
        right, bottom = left + self.width, top + self.height
        for ends in (
            (left, top, right, top),
            (right, top, right, bottom),
            (right, bottom, left, bottom),
            (left, bottom, left, top),
        ):
            self.canvas.rule(*ends, RULE)

    def across_grid(self, axis: Axis) -> None:
        """Draw a vertical line at each tick of the horizontal axis."""
        top = self.top + 0.5
        for tick in axis.ticks:
            x = _sharp(self.x(axis, tick))
            self.canvas.rule(x, top, x, top + self.height, RULE)

    def across(self, axis: Axis, title: str = "") -> None:
        """Draw the horizontal axis, with labels below; labels that would touch are left out."""
        bottom, left = self.top + self.height + 0.5, self.left + 0.5
        for tick in axis.ticks:
            x = _sharp(self.x(axis, tick))
            self.canvas.rule(x, bottom, x, bottom + TICK, AXIS)
        self.canvas.rule(left, bottom, left + self.width, bottom, AXIS)
        places = (self.x(axis, tick) for tick in axis.ticks)
        for x, label in apart(zip(places, axis.labels, strict=True)):
            self.canvas.text(x + 0.5, bottom + LABEL, label, ink=SOFT, align="center")
        if title:
            middle = left + self.width / 2
            self.canvas.text(middle, bottom + TITLE, title, ink=SOFT, align="center")

    def up(self, axis: Axis) -> None:
        """Draw the vertical axis, with a horizontal line and a label at each tick."""
        left, top = self.left + 0.5, self.top + 0.5
        self.canvas.rule(left, top, left, top + self.height, AXIS)
        for tick, label in zip(axis.ticks, axis.labels, strict=True):
            y = self.y(axis, tick)
            self.canvas.rule(left, _sharp(y), left + self.width, _sharp(y), RULE)
            self.canvas.rule(left - TICK, _sharp(y), left, _sharp(y), AXIS)
            self.canvas.text(left - 2 * TICK, y + 0.5, label, ink=SOFT, align="right")


def _sharp(place: float) -> float:
    """Return the nearest position at which a line of one pixel is drawn without blur."""
    return round(place) + 0.5


def apart(labels: Iterable[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yield labels that do not touch earlier ones, each with its middle in pixels."""
    placed: list[tuple[float, float]] = []
    for x, label in labels:
        half = width_of(label) / 2
        if all(abs(x - other) > half + others + GAP for other, others in placed):
            yield x, label
            placed.append((x, half))


def below_tick(canvas: Canvas, x: float, y: float, label: str) -> None:
    """Write a label below its tick, moved left if the picture's right edge would cut it."""
    inside = canvas.width - width_of(label, 10) / 2
    canvas.text(min(x, inside), y, label, ink=SOFT, size=10, align="center")


def width_of(text: str, size: float = SIZE) -> float:
    """Return the approximate width of ``text`` in Arial, in pixels; errors are towards wider."""
    tenths = sum(9 if c in _WIDE else 3 if c in _NARROW else 7 if c.isupper() else 6 for c in text)
    return tenths / 10 * size


def fitted(text: str, room: float, size: float = SIZE) -> str:
    """Return ``text``, cut to what fits into ``room`` pixels."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(f"{text}…", size) > room:
        text = text[:-1]
    return f"{text.rstrip()}…"


def arm_labels(
    arms: Sequence[str], emulated: frozenset[str] | set[str], most: int = 26
) -> dict[str, str]:
    """Return each arm's label in figures; labels differ even if long names had to be cut."""
    labels: dict[str, str] = {}
    for arm in arms:
        mark = f" ({EMULATED})" if arm in emulated else ""
        label = short(arm, most) + mark
        number = 2
        while label in labels.values():
            label = f"{short(arm, most - 3)} {number}{mark}"
            number += 1
        labels[arm] = label
    return labels
