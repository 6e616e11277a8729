"""Blocks that are spread over time start no earlier than the study requests."""

from __future__ import annotations

import time

from tare.run.lifecycle.block_schedule import Pace


async def test_a_block_waits_for_the_one_before() -> None:
    pace = Pace(0.4, lambda: False)
    began = time.monotonic()
    await pace.wait()
    await pace.wait()
    await pace.wait()
    assert time.monotonic() - began >= 0.8


async def test_a_stopping_run_does_not_wait() -> None:
    pace = Pace(3600.0, lambda: True)
    await pace.wait()
    await pace.wait()


async def test_without_an_interval_blocks_start_at_once() -> None:
    pace = Pace(None, lambda: False)
    for _ in range(1000):
        await pace.wait()
