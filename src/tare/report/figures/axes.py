"""Axes in SI units: round ticks, labelled as people write quantities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tare.analysis.formatting import format_quantity
from tare.report.figures.frame import Spec, log_ticks

LOGARITHMIC_FROM = 4.0
"""Values that span more than this factor are drawn on a logarithmic axis."""


def value_axis(
    field: str, values: Iterable[float], unit: str, title: str | None, *, most: int = 6
) -> Spec:
    """Return a positional encoding of ``field``, in ``unit``, wide enough for all ``values``.

    The axis is logarithmic where all values are positive and span more than a factor of four.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low > 0 and high / low > LOGARITHMIC_FROM:
        return log_axis(field, low, high, unit, title, most=most)
    spare = 0.08 * (high - low) or abs(high) * 0.05 or 1.0
    low, high = low - spare, high + spare
    ticks = linear_ticks(low, high, most)
    scale = {"domain": [low, high], "nice": False, "zero": False}
    return _encoding(field, scale, ticks, unit, title)


def log_axis(
    field: str, low: float, high: float, unit: str, title: str | None, *, most: int = 6
) -> Spec:
    """Return a logarithmic positional encoding from ``low`` to ``high``, both > 0, and spare."""
    spare = (high / low) ** 0.06 if high > low else 1.1
    low, high = low / spare, high * spare
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return _encoding(field, scale, log_ticks(low, high, most), unit, title)


def _encoding(
    field: str, scale: Spec, ticks: Sequence[float], unit: str, title: str | None
) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "scale": scale,
        "axis": labelled(ticks, [tick_label(tick, unit) for tick in ticks], title),
    }


def labelled(ticks: Sequence[float], labels: Sequence[str], title: str | None) -> Spec:
    """Return an axis with exactly these ``ticks`` and ``labels``."""
    quoted = ",".join("'" + label.replace("\\", "").replace("'", "") + "'" for label in labels)
    places = ",".join(repr(float(tick)) for tick in ticks)
    return {
        "title": title,
        "values": list(ticks),
        "labelExpr": f"[{quoted}][indexof([{places}], datum.value)]",
        "grid": True,
        "labelOverlap": "greedy",
    }


def tick_label(value: float, unit: str) -> str:
    """Return a tick's quantity without needless zeros: ``20 ms``, ``1.5 GB/s``, ``0``."""
    if value == 0:
        return "0"
    number, _, rest = format_quantity(value, unit, digits=6).partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {rest}".strip()


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
