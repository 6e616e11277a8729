"""Work before the first cell is done once, and no cell starts before its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tare.run.lifecycle import early_work
from tare.run.lifecycle.early_work import BeforeCells


async def test_every_waiter_gets_the_libraries_of_one_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, loads, calibrations = threading.Event(), [], []

    def load() -> None:
        loads.append(threading.current_thread())
        go.wait(60)

    async def calibrate() -> None:
        calibrations.append(len(loads))

    monkeypatch.setattr(early_work, "_load", load)
    work = BeforeCells(calibrate)
    work.begin()
    work.begin()
    waiting = [asyncio.ensure_future(work.done()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    go.set()
    await asyncio.gather(*waiting)
    await work.done()
    await work.abandon()
    assert len(loads) == 1 and loads[0] is not threading.main_thread()
    assert calibrations == [0]


async def test_work_that_is_abandoned_cleans_up_before_the_run_ends() -> None:
    removed = []

    async def calibrate() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            removed.append("folder")

    work = BeforeCells(calibrate)
    work.begin()
    await asyncio.sleep(0)
    await work.abandon()
    assert removed == ["folder"]


async def test_a_fault_of_the_work_reaches_the_waiting_cell() -> None:
    async def calibrate() -> None:
        raise OSError("the event log cannot be written")

    with pytest.raises(OSError, match="event log"):
        await BeforeCells(calibrate).done()
