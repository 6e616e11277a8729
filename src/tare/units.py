"""Parse durations, sizes, rates and shares from text, and format quantities for reading."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s]*)\s*")

DURATION_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
"""Seconds per unit, in the spellings a study may use."""

SIZE_UNITS = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
"""Bytes per unit, in the spellings a study may use."""

_DURATION_HELP = "write seconds as a number, or a number with ns, us, ms, s, min or h, like '68us'"
_SIZE_HELP = (
    "write bytes as a whole number, or a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, "
    "like '512MiB'"
)


def parse_duration(value: object) -> float:
    """Return the seconds that ``value`` means.

    Args:
        value: Seconds as a number, or text such as ``"68us"``, ``"1ms"``, ``"2 min"``, ``"1h"``.

    Raises:
        ValueError: It is not a duration, is negative, or is not finite; names the accepted units.
    """
    seconds = _parse(value, DURATION_UNITS, _DURATION_HELP)
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative; {_DURATION_HELP}")
    return seconds


def parse_size(value: object) -> int:
    """Return the bytes that ``value`` means.

    Args:
        value: Bytes as a whole number, or text such as ``"512MiB"`` or ``"2GB"``.

    Raises:
        ValueError: It is not a size, is negative, or is not a whole number of bytes; names the
            units.
    """
    size = _parse(value, SIZE_UNITS, _SIZE_HELP)
    if size < 0:
        raise ValueError(f"a size cannot be negative; {_SIZE_HELP}")
    if size != int(size):
        raise ValueError(f"a size is a whole number of bytes; {_SIZE_HELP}")
    return int(size)


def _parse(value: object, units: dict[str, Any], help_text: str) -> float:
    if value is None:
        raise ValueError(f"has no value; {help_text}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{_shown(value)} is not a quantity; {help_text}")
    if isinstance(value, int):
        if abs(value) > 2**63 - 1:
            raise ValueError(f"too large a number; {help_text}")
        return value
    number = _parse_text(value, units, help_text) if isinstance(value, str) else value
    if not math.isfinite(number) or abs(number) > 2**63 - 1:
        raise ValueError(f"{_shown(value)} is not a usable number; {help_text}")
    return number


def _parse_text(text: str, units: dict[str, Any], help_text: str) -> float:
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"{_shown(text)} is not a quantity; {help_text}")
    number, unit = match.groups()
    if unit and unit not in units:
        near = _closest_unit(unit, units)
        meant = f"; did you mean '{number}{near}'?" if near else ""
        raise ValueError(f"{_shown(text)}: unknown unit {_shown(unit)}; {help_text}{meant}")
    # Dividing by the exact inverse keeps "68us" equal to the literal 68e-6.
    scale = units[unit] if unit else 1
    if scale < 1:
        return float(number) / round(1 / scale)
    return float(number) * scale


def _closest_unit(unit: str, units: Iterable[str]) -> str:
    """Return the likely intended unit: ``MiB`` for ``mib`` and ``M``; empty if unclear."""
    folded = unit.casefold()
    same = [each for each in units if each.casefold() == folded]
    longer = [each for each in units if each.casefold().startswith(folded)]
    binary = [each for each in longer if each.endswith("iB")]
    shorter = sorted((each for each in units if len(each) > 1 and unit.startswith(each)), key=len)
    return next((each[-1] for each in (same, binary, shorter) if each), "") or (
        longer[0] if len(longer) == 1 else ""
    )


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "x-quantity": "duration",
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9._eE+-]+\s*(ns|us|µs|ms|s|sec|min|h)?\s*$"},
            ],
        }
    ),
]
"""Seconds as a float; accepts ``0.5``, ``"68us"``, ``"1ms"``, ``"2 min"``, ``"1h"``."""

Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "x-quantity": "size",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9._eE+-]+\s*(B|[kKMGT]i?B)?\s*$"},
            ],
        }
    ),
]
"""Bytes as an int; accepts ``1048576``, ``"512MiB"``, ``"2GB"``."""

Confidence = Annotated[float, Field(ge=0.5, le=0.999)]
"""The confidence level of intervals. Near 0 they have no width, and at 1 they are infinite."""


RATE_UNITS = {
    "bit": 1,
    "kbit": 1000,
    "Mbit": 1000**2,
    "Gbit": 1000**3,
    "Tbit": 1000**4,
}
"""Bits per second per unit, in the spellings a study may use."""

_RATE_HELP = "write a speed with kbit, Mbit or Gbit (each per second), like '1Gbit'"


def parse_rate(value: object) -> float:
    """Return the bits per second that ``value`` means.

    Args:
        value: Bits per second as a number, or text such as ``"1Gbit"`` or ``"100 Mbit"``.

    Raises:
        ValueError: It is not a speed, is not above 0, or is not finite; names the accepted units.
    """
    rate = _parse(value, RATE_UNITS, _RATE_HELP)
    if rate <= 0:
        raise ValueError(f"a speed is above 0; {_RATE_HELP}")
    return rate


Rate = Annotated[
    float,
    BeforeValidator(parse_rate),
    WithJsonSchema(
        {
            "x-quantity": "rate",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9._eE+-]+\s*([kMGT]?bit)?\s*$"},
            ],
        }
    ),
]
"""Bits per second as a float; accepts ``1e9``, ``"1Gbit"``, ``"100 Mbit"``."""


_SHARE_HELP = "write a number of CPUs, like 0.5, or a share of one CPU, like '50 %'"


def parse_share(value: object) -> float:
    """Return the number of CPUs that ``value`` means.

    Args:
        value: CPUs as a number, or text such as ``"50 %"`` (of one CPU) or ``"1.5"``.

    Raises:
        ValueError: It is not a share, is negative, or is not finite; names the accepted forms.
    """
    share = _parse(value, {"%": 0.01}, _SHARE_HELP)
    if share < 0:
        raise ValueError(f"a share cannot be negative; {_SHARE_HELP}")
    return share


Share = Annotated[
    float,
    BeforeValidator(parse_share),
    WithJsonSchema(
        {
            "x-quantity": "share of CPUs",
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9._eE+-]+\s*%?\s*$"},
            ],
        }
    ),
]
"""CPUs as a float; accepts ``0.5``, ``"50 %"`` of one CPU, ``"150%"``."""


_LEAST_POWER, _MOST_POWER = -6, 6
_PREFIXES = {
    -6: "a", -5: "f", -4: "p", -3: "n", -2: "µ", -1: "m",
    0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E",
}  # fmt: skip
MOST_PLAIN = 1e15
"""Numbers from here on have an exponent; those below its inverse are shown as a limit."""
_PLACES = 15
_DAY_S, _DAYS_FROM_S = 86400.0, 72 * 3600.0


def format_number(value: float, digits: int = 3, *, trim: bool = True, sign: bool = False) -> str:
    """Return a number without an exponent, like ``1,230``, ``12.4`` or ``0.0000123``.

    Args:
        value: The number. From 1e15 on, it is shown with an exponent.
        digits: The number of significant digits.
        trim: Whether to leave out trailing zeros after the point, as in ``12``.
        sign: Whether a number above 0 has a plus sign.
    """
    if not math.isfinite(value):
        return str(value)
    plus = "+" if sign else ""
    if value == 0:
        return f"{plus}0"
    # Rounding first lets 999.96 become 1,000 and not 1.00e+03.
    rounded = float(f"{value:.{digits - 1}e}")
    if abs(rounded) >= MOST_PLAIN:
        return f"{rounded:{plus}.{digits - 1}e}"
    if abs(rounded) < 1 / MOST_PLAIN:
        least = f"{1 / MOST_PLAIN:.{_PLACES}f}"
        return f"less than {least}" if value > 0 else f"above -{least}"
    places = max(digits - 1 - math.floor(math.log10(abs(rounded)) + 1e-12), 0)
    text = f"{rounded:{plus},.{places}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def format_percent(share: float, digits: int = 2, *, trim: bool = True, sign: bool = False) -> str:
    """Return a share as per cent: 0.0213 is ``2.1 %``, and 9.03 is ``903 %``."""
    if not math.isfinite(share):
        return f"{share} %"
    if abs(share) >= 0.995:
        # Whole per cents are easier to read; two digits of 1,234 % would be 1,200 %.
        digits = max(digits, len(str(int(abs(100 * share)))) if abs(share) < 1e13 else digits)
    return f"{format_number(100 * share, digits, trim=trim, sign=sign)} %"


def format_quantity(value: float, unit: str, *, digits: int = 3, trim: bool = False) -> str:
    """Return ``value`` with an SI prefix and ``digits`` significant digits, like ``12.4 GB/s``.

    A rate of counted things has no prefix, like ``1,000/s``: ``1.00 k/s`` reads as kilobytes. Times
    from 1,000 s on have no prefix either, because kiloseconds are not in use.

    Args:
        value: The value in ``unit``, without an SI prefix.
        unit: ``s``, ``B/s``, ``1/s``, ``1`` (dimensionless, shown without unit) and the like.
        digits: The number of significant digits.
        trim: Whether to leave out trailing zeros after the point, as in ``1.5 GB/s`` and
            ``1,000/s``.
    """
    if not math.isfinite(value):
        return with_unit(str(value), unit)
    if unit in ("1", "") or unit.startswith("1/") or (unit == "s" and abs(value) >= 999.5):
        number, prefix = _counted(value, digits), ""
        trim = trim or (value == 0 and unit.startswith("1/"))
    else:
        number, power = _scaled(value, digits)
        prefix = _PREFIXES[power]
    if trim and "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return with_unit(number, unit, prefix)


def with_unit(number: str, unit: str, prefix: str = "") -> str:
    """Return a number with its unit: ``5 s``, ``5/s`` for the unit ``1/s``, ``5`` without unit."""
    if unit in ("1", ""):
        return number
    return f"{number}{unit[1:]}" if unit.startswith("1/") else f"{number} {prefix}{unit}"


def _counted(value: float, digits: int) -> str:
    """Return a number without a prefix, as for ratios and rates of counted things."""
    if value == 0:
        return f"{0:.{digits - 1}f}"
    return format_number(value, digits, trim=False)


def _scaled(value: float, digits: int) -> tuple[str, int]:
    if value == 0:
        return "0", 0
    # Rounding first lets 999.96 become 1.00 k and not 1000.
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)) + 1e-12)
    power = min(max(exponent // 3, _LEAST_POWER), _MOST_POWER)
    if 1 <= abs(rounded) < 1000:
        power = 0
    return format_number(rounded / 1000.0**power, digits, trim=False), power


def format_duration(seconds: float) -> str:
    """Return a duration for reading: ``68 µs``, ``3.1 ms``, ``12.5 s``, ``4 min 05 s``.

    From three days on, it is in days: ``3 d 04 h``.

    Args:
        seconds: The duration in seconds; may be negative.
    """
    if not math.isfinite(seconds):
        return f"{seconds} s"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 59.95:
        text = format_quantity(seconds, "s")
        number, _, unit = text.rpartition(" ")
        number = number.rstrip("0").rstrip(".") if "." in number else number
        return f"{sign}{number} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest:02d} s" if rest else f"{sign}{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < _DAYS_FROM_S:
        return f"{sign}{hours} h {minutes:02d} min" if minutes else f"{sign}{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    if seconds >= MOST_PLAIN:
        return f"{sign}{format_number(seconds / _DAY_S)} d"
    return f"{sign}{days:,} d {hours:02d} h" if hours else f"{sign}{days:,} d"


_BINARY = {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "PiB": 1 << 50,
    "EiB": 1 << 60,
}


def format_size(size: float) -> str:
    """Return a size in binary units with four significant digits: ``512 MiB``, ``1.25 PiB``.

    Args:
        size: The size in bytes; may be negative.
    """
    if not math.isfinite(size):
        return f"{size} B"
    scale, unit = 1, "B"
    for name, bytes_of_unit in _BINARY.items():
        if abs(size) >= bytes_of_unit:
            scale, unit = bytes_of_unit, name
    return f"{format_number(size / scale, 4).replace(',', '')} {unit}"


def shape_words(shape: Mapping[str, Any]) -> str:
    """Return a shape in words: ``4 vCPUs, 8 GiB of memory and a disk of 1 GiB``.

    Args:
        shape: The shape as stored: ``vcpus``, and ``memory`` and ``disk`` in bytes. Values that
            are not numbers, as in a damaged run folder, are left out.
    """
    stored = (shape.get(name) for name in ("vcpus", "memory", "disk"))
    vcpus, memory, disk = (each if isinstance(each, int | float) else 0 for each in stored)
    words = [f"{vcpus} vCPU{'' if vcpus == 1 else 's'}"] if vcpus else []
    words += [f"{format_size(memory)} of memory"] if memory else []
    words += [f"a disk of {format_size(disk)}"] if disk else []
    *first, last = words or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last


def parameter_words(parameters: Mapping[str, Any]) -> str:
    """Return parameters for reading, as ``samples=1000, metrics=(rate, loss)``."""
    return ", ".join(f"{name}={value_words(value)}" for name, value in parameters.items())


def value_words(value: Any) -> str:
    """Return a parameter's value for reading. A mapping is shown as its keys only."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return (
            f"{value:.0f}" if value.is_integer() and abs(value) < 2**53 else format_number(value, 6)
        )
    if isinstance(value, Mapping):
        return f"({', '.join(map(str, value))})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_words, value))}]"
    return str(value)
