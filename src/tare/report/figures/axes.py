"""Axes in SI units, with round ticks and labels in readable units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.report.figures.frame import log_ticks
from tare.units import format_quantity

LOGARITHMIC_FROM = 4.0
"""Values that span more than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Axis:
    """The range of an axis, with its ticks.

    Args:
        low: The value at the start of the axis.
        high: The value at the end, above ``low``.
        ticks: The values at which it has labels.
        labels: The labels' texts.
        logarithmic: Whether equal lengths are equal factors. ``low`` is then above zero.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the position of ``value`` along the axis: 0 at ``low``, 1 at ``high``."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def value_axis(values: Iterable[float], unit: str, *, most: int = 6) -> Axis:
    """Return an axis in ``unit``, wide enough for all ``values``.

    It is logarithmic if all values are positive and span more than a factor of four.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low > 0 and high / low > LOGARITHMIC_FROM:
        return log_axis(low, high, unit, most=most)
    return linear_axis((low, high), unit, most=most)


def linear_axis(values: Iterable[float], unit: str, *, most: int = 6) -> Axis:
    """Return a linear axis in ``unit``, wide enough for all ``values``; at least one value."""
    ends = list(values)
    low, high = min(ends), max(ends)
    spare = 0.08 * (high - low) or abs(high) * 0.05 or 1.0
    low, high = low - spare, high + spare
    return _labelled(low, high, linear_ticks(low, high, most), unit)


def log_axis(low: float, high: float, unit: str, *, most: int = 6) -> Axis:
    """Return a logarithmic axis in ``unit``, slightly wider than ``low`` to ``high``, both > 0."""
    spare = (high / low) ** 0.06 if high > low else 1.1
    low, high = low / spare, high * spare
    # Ratio ticks are round near 1. Within a factor of three, a range far from 1 may have none.
    ticks = log_ticks(low, high, most) if high / low > 3 else linear_ticks(low, high, most)
    return _labelled(low, high, ticks, unit, logarithmic=True)


def _labelled(
    low: float, high: float, ticks: Sequence[float], unit: str, *, logarithmic: bool = False
) -> Axis:
    labels = tuple(tick_label(tick, unit) for tick in ticks)
    return Axis(low, high, tuple(ticks), labels, logarithmic)


def tick_label(value: float, unit: str) -> str:
    """Return a tick's quantity without needless zeros: ``20 ms``, ``1.5 GB/s``, ``0``."""
    if value == 0:
        return "0"
    return format_quantity(value, unit, digits=6, trim=True)


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return evenly spaced round values between ``low`` and ``high``, at most ``most``."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    exponent = math.floor(math.log10(span / most))
    for digits in (1, 2, 2.5, 5, 10, 20):
        step = digits * 10.0**exponent
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first + 1 <= most:
            return [float(f"{i * step:.10g}") for i in range(first, last + 1)]
    return [low, high]
