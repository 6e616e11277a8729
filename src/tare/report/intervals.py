"""The columns in which tables give an interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tare.analysis.results import Interval
from tare.report.tables import Column
from tare.report.words import ratio_interval

Row = TypeVar("Row")


def interval_columns(interval: Callable[[Row], Interval | None]) -> tuple[Column[Row], ...]:
    """Return the ends of a ratio's interval for files, and its method; people read it as one.

    Args:
        interval: A row's interval; None where it has none.
    """

    def end(which: str) -> Callable[[Row], float | str | None]:
        return lambda row: getattr(interval(row), which, None)

    def read(row: Row) -> str:
        found = interval(row)
        return ratio_interval((found.low, found.high) if found else None)

    return (
        Column("low", end("low")),
        Column("high", end("high")),
        Column("method", end("method"), "Interval", read),
    )
