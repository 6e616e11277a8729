"""What was told of the instrument before the first block, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tare.events import Calibrated
from tare.units import format_quantity


def calibration_lines(event: Calibrated, *, wrong_only: bool = False) -> Iterator[str]:
    """Return one line for each figure: Tare's own, another's and how far they are apart.

    Args:
        event: What was told of one host.
        wrong_only: Whether figures that agree are left out.
    """
    where = f" on {event.host}" if event.host else ""
    for one in event.found:
        if wrong_only and one.level == "ok":
            continue
        told = "" if one.own is None else f": {format_quantity(one.own, one.unit, digits=4)}"
        if one.reference is not None:
            told += f", {format_quantity(one.reference, one.unit, digits=4)} by {one.by}"
        mark = "✓" if one.level == "ok" else "!"
        yield f"{mark} calibrated{where}: {one.what}{told} ({one.found})"
