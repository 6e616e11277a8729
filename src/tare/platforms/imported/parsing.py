"""Parse numbers in other tools' descriptions, within bounds, and values of JSON and YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 1 << 60
MOST_CPUS = 4096
UNITS = {
    "b": 1,
    "bytes": 1,
    "KB": 10**3,
    "k": 1 << 10,
    "KiB": 1 << 10,
    "MB": 10**6,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "GB": 10**9,
    "G": 1 << 30,
    "GiB": 1 << 30,
    "TB": 10**12,
    "T": 1 << 40,
    "TiB": 1 << 40,
}
"""Libvirt's units of memory (libvirt.org, "Domain XML format", memory allocation)."""
_WHOLE = re.compile(r"[0-9]{1,19}")
_FRACTION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_CPUS = re.compile(r"(?P<out>\^?)(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?")


def parse_whole_number(text: str | None) -> int | None:
    """Parse a whole number from 0 up; None if the text is not one, or the number is too large."""
    text = (text or "").strip()
    if not _WHOLE.fullmatch(text) or int(text) > MOST:
        return None
    return int(text)


def bytes_of(text: str | None, unit: int | None) -> int | None:
    """Convert a number of units to bytes; None if the text or the unit is not valid."""
    number = parse_whole_number(text)
    if number is None or unit is None or number * unit > MOST:
        return None
    return number * unit


def fraction(text: str | None) -> float | None:
    """Parse a number from 0 up that may have decimals; None if the text is not one."""
    text = (text or "").strip()
    return float(text) if _FRACTION.fullmatch(text) else None


def cpu_set(text: str | None) -> tuple[int, ...] | None:
    """Return the CPUs of a list such as ``0-3,^2,8``, ascending; None if the text is not a list.

    Args:
        text: The list in the syntax of taskset(1), or of libvirt, where ``^`` removes a CPU.
    """
    named: set[int] = set()
    parts = (text or "").replace(" ", "").split(",")
    if len(parts) > MOST_CPUS:
        return None
    for part in parts:
        found = _CPUS.fullmatch(part)
        if found is None:
            return None
        first = int(found["first"])
        last = int(found["last"] or first)
        if not first <= last < MOST_CPUS:
            return None
        if found["out"]:
            named -= set(range(first, last + 1))
        else:
            named |= set(range(first, last + 1))
    return tuple(sorted(named)) or None


MOST_LEAVES = 5_000
DEEPEST = 60


def leaves(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value with its place, such as ``drives.0.path``.

    Raises:
        ValueError: There are too many values; YAML aliases can create them from a short text.
    """
    count = 0
    stack: list[tuple[str, object, int]] = [(place, value, 0)]
    while stack:
        name, held, depth = stack.pop()
        count += 1
        if count > MOST_LEAVES or depth > DEEPEST:
            raise ValueError("is too large for a description")
        inner: list[tuple[str, object]] = []
        if isinstance(held, dict):
            inner = [(str(key), each) for key, each in held.items()]
        elif isinstance(held, list):
            inner = [(str(key), each) for key, each in enumerate(held)]
        else:
            yield name, text_of(held)
            continue
        if not inner:
            yield name, ""
        for key, each in reversed(inner):
            stack.append((f"{name}.{key}" if name else key, each, depth + 1))


def text_of(value: object) -> str:
    """Convert a value to text; true and false become ``on`` and ``off``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)
