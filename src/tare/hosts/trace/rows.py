"""Rows of the series ``host-sched``, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

Row = tuple[int, int, int, int, int, int]
"""Time, CPU, kind, who, other, how it left; see :mod:`tare.events.host_schedule`."""


def as_columns(rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
    """Return rows as columns in order of time; see :mod:`tare.events.host_schedule`."""
    # Loaded only here: most commands record no trace.
    import numpy as np

    ordered = sorted(rows, key=lambda row: row[0])
    names = ("time_ns", "cpu", "kind", "who", "other", "runnable")
    types = ("u8", "u2", "u1", "u4", "u4", "u1")
    values = list(zip(*ordered, strict=True)) or [()] * len(names)
    return {
        name: np.array(column, dtype=kind)
        for name, kind, column in zip(names, types, values, strict=True)
    }
