"""Read numbers with units as programs print them: ``12.4 MiB/s``, ``3us``, ``1,234``, ``45 %``."""

from __future__ import annotations

import re
from typing import Literal, get_args

from tare.units import DURATION_UNITS, RATE_UNITS, SIZE_UNITS
from tare.workloads.values import finite, shortened

Unit = Literal[
    "s", "ms", "us", "µs", "ns", "min", "h",
    "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
    "B/s", "kB/s", "KB/s", "MB/s", "GB/s", "TB/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s",
    "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s",
    "1/s", "1", "%",
]  # fmt: skip
"""Units that a study may name for a figure."""
SI = ("s", "B", "B/s", "1/s", "1")
"""The units that a metric can have."""

_BITS = 8
_NUMBER = re.compile(
    r"([+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9_]+|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"[ \t\N{NO-BREAK SPACE}]*(.*)",
    re.DOTALL,
)
_SECONDS = re.compile(r"(?:/ *s(?:ec(?:ond)?s?)?|ps)$")
_LONG = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "usec": "us",
         "nsec": "ns", "minutes": "min", "minute": "min", "hours": "h", "hour": "h",
         "byte": "B", "bytes": "B"}  # fmt: skip
_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def scale_of(unit: str) -> tuple[str, float]:
    """Return the metric's unit for a unit that a study names, and the factor to convert to it.

    Raises:
        ValueError: The unit is unknown.
    """
    if unit in SI:
        return unit, 1.0
    known = _known(unit)
    if known is None:
        raise ValueError(f"the unit {shortened(unit)} is not known; known: {', '.join(units())}")
    return known


def units() -> tuple[str, ...]:
    """Return the units that a study can use."""
    return get_args(Unit)


def figure(text: str, name: str, unit: str, scale: float = 1.0) -> float:
    """Return the number in a text, in the unit of its metric.

    Args:
        text: A part of the program's output: a number, with or without a unit.
        name: The number's description, for messages.
        unit: The study's unit for the figure, used if the text has none.
        scale: A further factor for a number without a unit.

    Raises:
        ValueError: The text is not a finite number, or has another kind of unit.
    """
    base, factor = scale_of(unit)
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        number = finite(text, name)
        return finite(number * factor * scale, f"{name} times {scale}")
    number, suffix = finite(found[1].replace(",", ""), name), found[2].strip()
    if not suffix:
        return finite(number * factor * scale, f"{name} times {scale}")
    own = _suffix(suffix, base)
    if own is None:
        raise ValueError(
            f"{name} is {shortened(text.strip())}, and {shortened(suffix)} is not a known unit of "
            f"{base}; put the parentheses around the number only, or write one of: "
            f"{', '.join(units())}"
        )
    if own[0] != base:
        raise ValueError(
            f"{name} is {shortened(text.strip())}, which is in {own[0]}, and its metric is in "
            f"{base}: correct `unit`"
        )
    if scale != 1:
        raise ValueError(
            f"{name} is {shortened(text.strip())}, which has its own unit: remove `scale`, or put "
            "the parentheses around the number only"
        )
    return finite(number * own[1], name)


def _suffix(suffix: str, base: str) -> tuple[str, float] | None:
    """Return the metric's unit for a number's suffix, and the factor; None if it is unknown."""
    if base in ("1", "1/s") and (counted := _counted(suffix, base)) is not None:
        return counted
    if base == "B/s" and _known(suffix) is None:
        # `12 MB/sec`, `94.1 Mbits/sec`, `940 Mbps`.
        per = _SECONDS.search(suffix)
        return None if per is None else _known(f"{suffix[: per.start()].strip()}/s")
    return _known(suffix)


def _counted(suffix: str, base: str) -> tuple[str, float] | None:
    """Return unit and factor of the suffix of a count: ``k``, ``ops/s``, ``k req/sec``."""
    rate = _SECONDS.search(suffix)
    if rate is None:
        return (base, _COUNTS[suffix]) if suffix in _COUNTS else None
    counted = suffix[: rate.start()].strip()
    if _known(f"{counted}/s") is not None:
        return None
    prefix, _, _ = counted.partition(" ")
    return "1/s", _COUNTS.get(prefix, 1.0)


def _known(suffix: str) -> tuple[str, float] | None:
    word = _LONG.get(suffix.lower(), suffix)
    if word == "%":
        return "1", 0.01
    if word in DURATION_UNITS:
        return "s", DURATION_UNITS[word]
    if word in SIZE_UNITS:
        return "B", float(SIZE_UNITS[word])
    if not word.endswith("/s"):
        return None
    of = word.removesuffix("/s").strip()
    if of in SIZE_UNITS:
        return "B/s", float(SIZE_UNITS[of])
    bits = re.sub(r"(?:b|bits)$", "bit", of)
    return ("B/s", RATE_UNITS[bits] / _BITS) if bits in RATE_UNITS else None
