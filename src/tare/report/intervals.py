"""The columns in which tables give an interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tare.analysis.model import Better
from tare.analysis.results import Interval, cost_ends
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.verdict import LEVEL
from tare.report.tables import Column
from tare.report.words import ratio_interval

Row = TypeVar("Row")


def interval_columns(
    interval: Callable[[Row], Interval | None],
    blocks: Callable[[Row], int | None],
    prefix: str = "",
    better: Callable[[Row], Better] = lambda _: "neither",
) -> tuple[Column[Row], ...]:
    """Return the ends of a ratio's interval for files, and its method; people read it as one.

    A few blocks that happen to be alike have a narrow interval: like an effect's verdict, an
    interval is told from as many blocks on as can reach p < 0.05.

    Args:
        interval: A row's interval; None where it has none.
        blocks: The blocks that it is made of.
        better: Which direction is an improvement in a row: people read the interval of a cost.
        prefix: What the names of the columns in files begin with, where a table has several.
    """

    def told(row: Row) -> Interval | None:
        return interval(row) if (blocks(row) or 0) >= least_blocks(LEVEL) else None

    def end(which: str) -> Callable[[Row], float | str | None]:
        return lambda row: getattr(told(row), which, None)

    def read(row: Row) -> str:
        found = told(row)
        return ratio_interval(cost_ends(found.low, found.high, better(row)) if found else None)

    return (
        Column(f"{prefix}low", end("low")),
        Column(f"{prefix}high", end("high")),
        Column(f"{prefix}method", end("method"), "Interval", read),
    )
