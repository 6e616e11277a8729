"""The order of a job's work: measured steps first, then everything else concurrently."""

from __future__ import annotations

import asyncio

import pytest

from tare.run.cells.liveness import side_by_side
from tare.run.topologies.cluster.jobs import measured_of
from tare.workloads.mapreduce.job import JobStep
from workloads.workload_kinds import JOBS

STEPS = {name: work.job(work.parameters()).steps for name, work in JOBS.items()}


@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_measured_before_or_after_what_counts(name: str) -> None:
    steps = STEPS[name]
    first, after = measured_of(steps)
    assert steps[first].measured and steps[after - 1].measured
    assert not any(step.measured for step in (*steps[:first], *steps[after:]))
    # A measured step reports its job only when all have ended, so none may ask before.
    assert all(step.measured or step.script for step in steps[first:after])


def test_a_job_of_which_nothing_is_measured_has_no_such_steps() -> None:
    assert measured_of([JobStep("put", script=":")]) == (1, 1)
    assert measured_of([]) == (0, 0)


async def test_concurrent_work_is_cancelled_when_one_part_fails() -> None:
    given_up = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        await side_by_side(endless(), fails())
    assert given_up.is_set()


async def test_results_of_concurrent_work_are_in_order() -> None:
    async def later(value: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return value

    assert await side_by_side(later(1, 3), later(2, 1)) == [1, 2]
