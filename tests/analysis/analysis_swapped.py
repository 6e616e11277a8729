"""Runs in sessions with chosen values: none of them was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tare.analysis.data.load import run_data
from tare.analysis.data.rundata import RunData
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    Fold,
    Observed,
    PlatformChecked,
    Record,
    RunStarted,
    SessionFinished,
    SessionStarted,
)
from tare.study.planning.blocks import Blocks
from tare.study.planning.session_plan import Agenda, Session, Sessions, agenda

ARMS = {"a": ("bare", "again"), "b": ("vm",)}
STUDY = {
    "title": "t",
    "baseline": "bare",
    "confidence": 0.95,
    "margin": 0.02,
    "aa": ["bare", "again"],
    "arms": {arm: {"platform": "bare"} for arms in ARMS.values() for arm in arms},
    "sessions": {
        "computer": "rack-3",
        "boots": {boot: {"arms": list(arms), "takes": 600.0} for boot, arms in ARMS.items()},
    },
}
Log = Callable[[str, int, float], float]
"""The logarithm of an arm's value in a block, at a time."""


def planned(rounds: int, blocks: int) -> Agenda:
    boots = {name: {"arms": list(arms)} for name, arms in ARMS.items()}
    sessions = Sessions.model_validate({"blocks": blocks, "boots": boots})
    most = rounds * blocks
    return agenda(sessions, Blocks.model_validate({"least": most, "most": most}))


def events_of(
    order: Sequence[Session], log: Log, booted: Callable[[Session], str] = lambda _: ""
) -> Iterator[Event]:
    """Yield what happens in a run whose sessions are measured in an order."""
    yield RunStarted(
        run="r", study=STUDY, study_path="s", study_sha256="0", seed=1, host={}, versions={}
    )
    for arms in ARMS.values():
        for arm in arms:
            yield PlatformChecked(arm=arm, platform="bare", options={}, usable=True)
    whole: set[tuple[str, int]] = set()
    left = sorted(each.number for each in order)
    for place, session in enumerate(order):
        yield SessionStarted(
            session=session.number,
            boot=session.boot,
            round=session.round,
            first=session.first,
            last=session.last,
            planned=left[0],
            cells=dict.fromkeys(ARMS[session.boot], 1),
            booted=booted(session),
        )
        left.remove(session.number)
        for block in session.blocks:
            yield BlockStarted(block=block, order=())
            for arm in ARMS[session.boot]:
                yield from _cell(arm, block, math.exp(log(arm, session.number, float(place))))
            whole.add((session.boot, block))
            if all((boot, block) in whole for boot in ARMS):
                yield BlockFinished(block=block)
        yield SessionFinished(session=session.number)


def _cell(arm: str, block: int, value: float) -> Iterator[Event]:
    cell = f"b{block:03d}/{arm}/alone/w"
    yield CellStarted(
        cell=cell, block=block, arm=arm, scenario="alone", workload="w", parameters={}
    )
    yield Observed(cell=cell, metric="m", unit="s", better="lower", headline=True, value=value)
    yield CellFinished(cell=cell, status="ok", measured_s=60.0)


def fold_of(events: Iterator[Event]) -> Fold:
    fold = Fold()
    for place, event in enumerate(events):
        fold.take(Record(seq=place, time=float(place), event=event))
    return fold


def swapped(
    rounds: int,
    blocks: int,
    log: Log,
    order: Callable[[Sequence[Session]], Sequence[Session]] = lambda sessions: sessions,
    booted: Callable[[Session], str] = lambda _: "",
) -> RunData:
    """Return a run in sessions of two boots, A-B-B-A: ``a`` has the baseline, ``b`` another arm."""
    sessions = order(planned(rounds, blocks).sessions)
    return run_data(Path("none"), fold_of(events_of(sessions, log, booted)))
