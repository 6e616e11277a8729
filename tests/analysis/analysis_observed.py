"""A run with other observations than it made."""

from __future__ import annotations

from collections.abc import Callable

from tare.analysis.data.rundata import RunData
from tare.events.results import CellResult, FinishedCell, Observation


def observed_as(
    run: RunData, change: Callable[[CellResult, Observation], Observation]
) -> tuple[FinishedCell, ...]:
    """The cells of ``run`` that count, each observation as ``change`` makes it."""
    return tuple(
        FinishedCell(
            done.result, tuple(change(done.result, seen) for seen in done.observed), done.saved
        )
        for done in run.counted
    )
