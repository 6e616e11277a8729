"""What took a Xen guest's CPU, by Xen's own trace: a known neighbour is found again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.known_neighbour import ROLE, Measured, Pattern, disturbed, judged, measured
from lab.lab_inside import PATIENCE_S, SHAPE, Inside, inside, require_hardware_guests
from tare.agent.clocktrust import ClockReading
from tare.analysis.topics.host_track import Cause
from tare.lab.options import GIB, MIB, LabOptions, Scheduler
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen, launch
from tare.run.probes.host_trace import HostTracing

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(1500),
]

HOG = Pattern(length_ns=20_000_000, period_ns=100_000_000)
"""Shorter than Xen's time slice, so that it has the CPU at one stretch once it is woken."""
TICK_S = 9.0
CULPRIT = Cause("preempted", f"{ROLE} (vCPU 0)")


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
class ByTheCounter:
    """A PV neighbour, whose counter is the one that Xen stamps with."""

    machine: XenMachine

    async def read(self) -> ClockReading:
        readings = [await self.machine.agent.clock() for _ in range(5)]
        return min(readings, key=lambda each: each.width_ns)

    def recorded_ns(self, reading: ClockReading, done: Measured) -> float:
        hz = float(done.outcome.value["tsc_hz"])
        return (reading.tsc - int(done.facts["origin_ticks"])) * 1e9 / hz

    async def charged_s(self) -> float | None:
        return None


def below(lab: Inside) -> HostTracing:
    """Record by what the machine itself says is below it: dom0's kernel sees no vCPU."""
    return HostTracing(lab.host, None)


async def started(lab: Inside, kind: str, role: str, **more: Any) -> XenMachine:
    options = XenOptions.model_validate({"type": kind, "scheduler": "credit", **more})
    prepared = await Xen().prepare(lab.context, options, SHAPE, True)
    machine = await launch(lab.context, options, prepared.extra["image"], lab.spec(role, cpu=0))
    await machine.ready(PATIENCE_S)
    return machine


# First, for a lab whose time counts instructions is never idle: its idle time passes at once.
async def test_rtds_grants_its_budget_and_throttled_time_is_reported_as_such(
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
            done = await measured(below(lab), machine, TICK_S)
        finally:
            await machine.stop()
    took, share = done.took(), float(done.outcome.value["stolen_share"])
    print(share, took, done.facts["events"])
    # 6 ms of each 20: the rest is taken, however idle the CPU is.
    assert 0.6 < share < 0.8
    assert took["host throttling (budget of RTDS)"] > 0.9 * sum(took.values())


@pytest.mark.parametrize("kind", ["pv", "pvh"])
async def test_a_neighbour_of_known_pattern_is_found_again(
    agent_program: Path, tmp_path: Path, kind: str
) -> None:
    if kind != "pv":
        require_hardware_guests()
    async with inside(counted("credit"), tmp_path, agent_program, "generic") as lab:
        subject = await started(lab, kind, "subject")
        try:
            neighbour = await started(lab, "pv", ROLE)
            try:
                known = ByTheCounter(neighbour)
                done = await disturbed(below(lab), subject, known, HOG, TICK_S)
            finally:
                await neighbour.stop()
        finally:
            await subject.stop()
        assert not lab.context.ledger.open_entries()
    found = judged(done, HOG, CULPRIT)
    print(f"{kind}: {found}")
    found.require_blamed()
    found.require_total()
