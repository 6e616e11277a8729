"""Numbers in other tools' descriptions: none that is no number, and none without bounds."""

from __future__ import annotations

import re

MOST = 1 << 60
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


def whole(text: str | None) -> int | None:
    """Return a whole number from 0 on; None where the text is none, or beyond all bounds."""
    text = (text or "").strip()
    if not _WHOLE.fullmatch(text) or int(text) > MOST:
        return None
    return int(text)


def bytes_of(text: str | None, unit: int | None) -> int | None:
    """Return a number of units in bytes; None where either is none."""
    number = whole(text)
    if number is None or unit is None or number * unit > MOST:
        return None
    return number * unit
