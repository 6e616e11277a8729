"""What took a Xen guest's CPU is told by Xen's own trace: a known neighbour is found again.

In labs whose time counts instructions: this computer's load then changes nothing, and what a
neighbour takes beside its pattern, to wake up and to fall asleep, is as short as on real hosts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.lab_inside import PATIENCE_S, SHAPE, Inside, inside, require_hardware_guests
from tare.agent.barrier import Barrier
from tare.agent.client import Outcome
from tare.agent.clocktrust import ClockReading
from tare.analysis.host_track import Cause
from tare.analysis.spike_cells import SpikeCell, match_cell
from tare.lab.options import GIB, MIB, LabOptions, Scheduler
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen, launch
from tare.run.xen_trace import XenTrace
from tare.workloads import WORKLOADS, MachineFacts, fitted

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(1500),
]

HOG = {"period_ns": 100_000_000, "length_ns": 20_000_000, "priority": 98}
"""Shorter than Xen's time slice, so that it has the CPU at one stretch once it is woken."""
TICK_S = {"pv": 9.0, "pvh": 20.0}
"""In 9 s a PV guest meets 59 stretches of its neighbour's, a PVH guest was seen to meet 27."""
CULPRIT = Cause("preempted", "neighbour-1 (vCPU 0)")


def counted(scheduler: Scheduler) -> LabOptions:
    """Return a lab with a Xen whose time counts instructions; such a lab has one CPU."""
    return LabOptions(
        "xen",
        cpus=1,
        memory=3 * GIB,
        dom0_memory=768 * MIB,
        scheduler=scheduler,
        deterministic=True,
    )


@dataclass(frozen=True)
class Disturbed:
    """What one measurement beside a known neighbour gave; injected times by the host's clock."""

    cell: SpikeCell
    facts: Mapping[str, Any]
    injected: tuple[tuple[int, int], ...]


async def measured(
    subject: XenMachine, neighbour: XenMachine | None, tick_s: float
) -> tuple[SpikeCell, Mapping[str, Any], Outcome, Outcome | None]:
    below = subject.traced_below()
    assert below is not None
    side = XenTrace(below, subject, {"neighbour-1": neighbour} if neighbour else {})
    await side.open()
    barrier = Barrier(2 if neighbour else 1, side.begin)
    tick = WORKLOADS["tick"]
    asked = tick.parameters.model_validate({"duration": tick_s, "log": 1_000_000})
    facts = MachineFacts(
        emulated=True, memory=SHAPE.memory, last_level_cache=1 << 20, caches=1 << 20
    )
    request = fitted(tick, tick.request(asked), facts)
    running = [subject.agent.run("tick", request, barrier=barrier, deadline_s=PATIENCE_S)]
    if neighbour is not None:
        # A second less, so that it ends before what it disturbs does.
        count = round((tick_s - 1.0) * 1e9 / HOG["period_ns"])
        load = {**HOG, "count": count}
        running.append(neighbour.agent.run("hog", load, barrier=barrier, deadline_s=PATIENCE_S))
    try:
        outcome, *others = await asyncio.gather(*running)
        record = await side.end(outcome)
    except BaseException:
        await side.abandon()
        raise
    assert record.facts["recorded"], record.facts
    assert record.series is not None
    kept = json.loads(json.dumps(record.facts))
    gaps = next((each.columns for each in outcome.series if each.name == "gaps"), None)
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "")
    cell = match_cell({**whose, "block": 1, "emulated": True}, kept, record.series.columns, gaps)
    assert cell.matched is not None, cell.reason
    return cell, kept, outcome, others[0] if others else None


def taken_by(cell: SpikeCell) -> dict[str, int]:
    """Return the nanoseconds that each cause took of a cell, over all its gaps."""
    took: dict[str, int] = {}
    for spike in cell.spikes:
        for cause, taken in spike.parts:
            took[str(cause)] = took.get(str(cause), 0) + taken
    return took


async def tightest(machine: XenMachine) -> ClockReading:
    readings = [await machine.agent.clock() for _ in range(5)]
    return min(readings, key=lambda each: each.host_after_ns - each.host_before_ns)


async def disturbed(subject: XenMachine, neighbour: XenMachine, tick_s: float) -> Disturbed:
    first = await tightest(neighbour)
    cell, kept, outcome, hog = await measured(subject, neighbour, tick_s)
    assert hog is not None
    # A PV guest's counter is the host's, so the hog's own stamps can be placed without Xen's trace:
    # between two readings of its clock with its counter, before and after it all.
    last = await tightest(neighbour)
    hz, origin = float(outcome.value["tsc_hz"]), int(kept["origin_ticks"])
    rate = (last.tsc - first.tsc) / (last.guest_ns - first.guest_ns)

    def placed(at_ns: int) -> int:
        return round((first.tsc + (at_ns - first.guest_ns) * rate - origin) * 1e9 / hz)

    runs = next(each.columns for each in hog.series if each.name == "runs")
    stamps = zip(runs["begin_ns"].tolist(), runs["end_ns"].tolist(), strict=True)
    last_ns = cell.first_ns + round(float(outcome.value["seconds"]) * 1e9)
    whole = [
        (placed(begin), placed(end))
        for begin, end in stamps
        if placed(begin) > cell.first_ns and placed(end) < last_ns
    ]
    return Disturbed(cell, kept, tuple(whole))


async def started(lab: Inside, kind: str, role: str, **more: Any) -> XenMachine:
    options = XenOptions.model_validate({"type": kind, "scheduler": "credit", **more})
    prepared = await Xen().prepare(lab.context, options, SHAPE, True)
    machine = await launch(lab.context, options, prepared.extra["image"], lab.spec(role, cpu=0))
    await machine.ready(PATIENCE_S)
    return machine


# First, for a lab whose time counts instructions is never idle: its idle time passes at once.
async def test_rtds_grants_its_budget_and_what_it_holds_back_is_told_as_that(
    agent_program: Path, tmp_path: Path
) -> None:
    async with inside(counted("rtds"), tmp_path, agent_program, "generic") as lab:
        assert lab.lab.image.built is not None
        verdict = await Xen().check(lab.context, XenOptions(type="pv", scheduler="rtds"))
        assert verdict.usable, verdict.reason
        assert "reservation" in verdict.capabilities.knobs
        wanted = {"scheduler": "rtds", "scheduling": {"reservation": 0.3, "period": 0.02}}
        machine = await started(lab, "pv", "subject", **wanted, extra_time=False)
        try:
            shown = await lab.sh(f"xl sched-rtds -d {machine.id} -v all")
            assert shown.split()[-3:] == ["20000", "6000", "no"]
            granted = machine.applied["scheduling"]["granted"]
            assert granted == {"period_us": 20_000, "budget_us": 6_000, "extra_time": False}
            cell, facts, outcome, _ = await measured(machine, None, TICK_S["pv"])
        finally:
            await machine.stop()
    took = taken_by(cell)
    print(outcome.value["stolen_share"], took, facts["events"])
    # 6 ms of each 20: the rest is taken, however idle the CPU is.
    assert 0.6 < outcome.value["stolen_share"] < 0.8
    assert took["host throttling (budget of RTDS)"] > 0.9 * sum(took.values())


@pytest.mark.parametrize("kind", ["pv", "pvh"])
async def test_a_neighbour_of_known_pattern_is_found_again(
    agent_program: Path, tmp_path: Path, kind: str
) -> None:
    if kind != "pv":
        require_hardware_guests()
    # Each in a lab of its own: after a PV pair, a PVH subject's neighbour began seconds late.
    async with inside(counted("credit"), tmp_path, agent_program, "generic") as lab:
        subject = await started(lab, kind, "subject")
        try:
            neighbour = await started(lab, "pv", "neighbour-1")
            try:
                done = await disturbed(subject, neighbour, TICK_S[kind])
            finally:
                await neighbour.stop()
        finally:
            await subject.stop()
        assert not lab.context.ledger.open_entries()
    theirs = {
        spike.number: sum(taken for cause, taken in spike.parts if cause == CULPRIT)
        for spike in done.cell.spikes
    }
    assert done.cell.matched is not None
    length = HOG["length_ns"]
    found_ns = sum(theirs.values())
    injected_ns = sum(end - begin for begin, end in done.injected)
    # Right is a run of which most is told as the neighbour's, in the gap that holds its middle.
    right = sum(
        any(
            spike.begin_ns <= (begin + end) // 2 <= spike.end_ns
            and theirs[spike.number] >= (end - begin) / 2
            for spike in done.cell.spikes
        )
        for begin, end in done.injected
    )
    long = [spike for spike in done.cell.spikes if spike.excess_ns > length / 2]
    blamed = sum(spike.cause == CULPRIT for spike in long)
    print(
        f"{kind}: {len(done.injected)} injected, {right} right, {blamed} of {len(long)} long gaps, "
        f"total {found_ns / injected_ns - 1:+.1%}, clocks within {done.cell.matched.error_ns} ns, "
        f"{done.facts['events']} events, {done.facts['lost']} lost; {taken_by(done.cell)}"
    )
    assert done.facts["lost"] == 0
    assert len(done.injected) >= 50
    assert right >= 0.95 * len(done.injected)
    assert abs(found_ns / injected_ns - 1) <= 0.05
