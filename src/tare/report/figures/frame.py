"""Types of drawings and figures, and helpers for their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.report.page.words import short
from tare.units import format_number

FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"

Mark = dict[str, Any]
"""One line, area, symbol or text: ``x`` and ``y`` in pixels, the colour ``c``, and more."""


@dataclass(frozen=True)
class Spec:
    """A drawing, as plain data.

    Args:
        width: The width in pixels, without padding.
        height: The height in pixels, without padding.
        marks: The marks to draw, by kind.
    """

    width: float
    height: float
    marks: Mapping[str, Sequence[Mark]]


@dataclass(frozen=True)
class Figure:
    """A figure to be drawn.

    Args:
        name: A name unique within the report; it becomes file name and element id.
        title: The figure's title.
        description: A description in words, for readers who use a screen reader.
        spec: The drawing for paper and wide screens.
        narrow: The drawing for phones; None if ``spec`` is readable there too.
        emulated: Whether any data comes from an emulated arm.
        panels: The number of panels with axes of their own.
        emulated_as: The style of emulated arms' marks, in words.
    """

    name: str
    title: str
    description: str
    spec: Spec
    narrow: Spec | None = None
    emulated: bool = False
    panels: int = 1
    emulated_as: str = "hollow or dashed"


Captioned = tuple[Figure, str]
"""A figure and the text below it."""


def ratio_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round ratios between ``low`` and ``high``, both > 0, with 1 if it is inside.

    Over wide ranges they are 1, 2 or 5 times a power of ten. Over narrow ranges, where a
    logarithmic
    axis is nearly linear, they are evenly spaced round numbers.
    """
    if high / low > 3:
        candidates: list[list[float]] = []
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            ticks = [d * 10.0**e for e in exponents for d in digits]
            candidates.append([t for t in ticks if low <= t <= high])
        for ticks in candidates:
            if len(ticks) <= most:
                return ticks
        every = math.ceil(len(exponents) / most)
        decades = [10.0**e for e in exponents if e % every == 0]
        return [tick for tick in decades if low <= tick <= high]
    for step in _steps():
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first + 1 <= most:
            return [round(i * step, 6) for i in range(first, last + 1)]
    return [1.0]


def _steps() -> Sequence[float]:
    return [digit * 10.0**exponent for exponent in range(-4, 1) for digit in (1, 2, 5)]


def log_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Return round values between ``low`` and ``high``, both > 0, for a logarithmic axis."""
    return ratio_ticks(low, high, most)


def times(ratio: float) -> str:
    """Return a tick's ratio for reading: ``1×``, ``1.05×``, ``200×``."""
    return f"{format_number(ratio, 6)}×"


SMALL_LETTER = 5.2
"""The width of a letter of the smallest size, in pixels."""

LEAST_LETTERS = 4
"""A name that would be cut to fewer characters is not drawn."""


def name_within(name: str, left: float, right: float, taken: float) -> str:
    """Return as much of a name as fits above a range of an axis in small letters; may be empty.

    Args:
        name: The name.
        left: The start of the range, in pixels.
        right: The end of the range, in pixels.
        taken: The end of the previous name, in pixels; ranges may overlap.
    """
    letters = int((right - left) / SMALL_LETTER)
    if len(name) > letters < LEAST_LETTERS:
        return ""
    text = short(name, max(1, letters))
    begins = (left + right - len(text) * SMALL_LETTER) / 2
    return text if begins >= taken else ""
