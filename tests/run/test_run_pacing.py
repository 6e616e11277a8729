"""Blocks that are spread over time begin no sooner than the study says."""

from __future__ import annotations

import time

from tare.run.lifecycle.pacing import Pace


async def test_a_block_waits_for_the_one_before() -> None:
    pace = Pace(0.4, lambda: False)
    began = time.monotonic()
    await pace.wait()
    await pace.wait()
    await pace.wait()
    assert time.monotonic() - began >= 0.8


async def test_nobody_waits_for_a_run_that_is_to_end() -> None:
    pace = Pace(3600.0, lambda: True)
    await pace.wait()
    await pace.wait()


async def test_without_a_time_blocks_follow_at_once() -> None:
    pace = Pace(None, lambda: False)
    for _ in range(1000):
        await pace.wait()
