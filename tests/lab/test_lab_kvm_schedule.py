"""What took a KVM guest's CPU on a host over SSH: a known neighbour is found again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.known_neighbour import (
    RIGHT,
    ROLE,
    WITHIN,
    Judged,
    Measured,
    Pattern,
    disturbed,
    judged,
)
from lab.lab_inside import Inside, inside
from lab.lab_kvm import booted, kvm
from run.run_driving import assert_no_ledger_is_left, of_type, tare
from tare.agent.client import AgentClient
from tare.agent.clocktrust import ClockReading
from tare.analysis import load_run
from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.spike_cells import spike_cells
from tare.lab.options import GIB, LabOptions
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.run.probes.host_clock import alternating_readings, bounded_readings, host_agent, kept_busy
from tare.run.probes.host_trace import host_tracing

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(1500),
]

COUNTED = LabOptions("kvm", cpus=1, memory=2 * GIB, deterministic=True)
"""A lab whose time counts instructions; such a lab has one CPU."""
AT_ONE_STRETCH = kvm(neighbour_scheduling={"nice": -10})
"""Its neighbour has the CPU until it sleeps again: among equals it would have it for 3 ms."""
SECONDS = 9.0
PHASES, BLOCKS = 20, 2
STUDY = f"""
study: known-neighbour
host: lab
lab: deterministic
baseline: kvm
blocks: {{least: {BLOCKS}, most: {BLOCKS}}}
shape: {{vcpus: 1, memory: 192MiB}}
kernel: generic
arms:
  kvm: {{platform: qemu, accelerator: kvm, neighbour-scheduling: {{nice: -10}}}}
scenarios:
  neighboured:
    host-trace: true
    subject: {{cpus: pinned}}
    neighbours:
      - load: phased-load
        cpus: same
        parameters: {{phases: [{", ".join(["cpu-load"] * PHASES)}], phase: 20ms, gap: 80ms}}
workloads:
  tick: {{duration: 2500ms}}
"""
CULPRIT = Cause("preempted", f"{ROLE} (CPU 0/KVM)")


@dataclass(frozen=True)
class ByTheHost:
    """A neighbour whose host reports more about it: the two clocks are read in turn."""

    lab: Inside
    machine: QemuMachine
    host: AgentClient

    async def read(self) -> ClockReading:
        async with kept_busy(self.lab.host, self.lab.context.ledger):
            own, its = await alternating_readings(self.machine.agent, self.host)
        return min(bounded_readings(own, its), key=lambda each: each.width_ns)

    def recorded_ns(self, reading: ClockReading, done: Measured) -> float:
        return (reading.host_before_ns + reading.host_after_ns) / 2

    async def charged_s(self) -> float:
        return await self.machine.ran_s(await self.machine.vcpu_threads())


async def next_to_known_neighbour(
    folder: Path, agent_program: Path, options: QemuOptions, pattern: Pattern
) -> Judged:
    """Measure a guest next to another one of known pattern on the lab's one CPU."""
    async with inside(COUNTED, folder, agent_program, "generic") as lab:
        context = lab.context
        async with (
            host_tracing(context) as tracing,
            booted(lab, options, cpu=0) as (subject, _),
            booted(lab, options, ROLE, cpu=0) as (neighbour, _),
            host_agent(context.host, context.ledger, context.host_agent) as host,
        ):
            known = ByTheHost(lab, neighbour, host)
            done = await disturbed(tracing, subject, known, pattern, SECONDS)
    found = judged(done, pattern, CULPRIT)
    print(found)
    return found


async def test_a_neighbour_of_known_pattern_is_found_again(
    agent_program: Path, tmp_path: Path
) -> None:
    pattern = Pattern(length_ns=20_000_000, period_ns=100_000_000)
    found = await next_to_known_neighbour(tmp_path, agent_program, AT_ONE_STRETCH, pattern)
    found.require_blamed()
    found.require_total()
    found.require_charged()


async def test_short_stretches_among_equals_are_found_with_all_that_the_host_charges_for_them(
    agent_program: Path, tmp_path: Path
) -> None:
    # Shorter than what equals have at a stretch: what it takes to wake up is some percent of it,
    # which the neighbour's own stamps leave out.
    pattern = Pattern(length_ns=2_000_000, period_ns=20_000_000)
    found = await next_to_known_neighbour(tmp_path, agent_program, kvm(), pattern)
    found.require_blamed()
    found.require_charged()
    assert found.off > 0


def test_a_study_in_the_lab_reports_how_long_a_known_neighbour_had_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "known-neighbour.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder, limit_s=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = [
        each["end_s"] - each["begin_s"]
        for cell in of_type(folder, "cell_finished")
        for neighbour in cell["facts"].get("neighbours", ())
        for each in neighbour["phases"]
    ]
    cells = list(spike_cells([load_run(folder)]))
    assert [each.reason for each in cells] == [""] * BLOCKS
    assert [each.lost_events for each in cells] == [0] * BLOCKS
    spikes = [spike for each in cells for spike in each.spikes]
    long = [spike for spike in spikes if spike.excess_ns > 10_000_000]
    blamed = sum(spike.cause == CULPRIT for spike in long)
    # Between its phases it wakes every 5 ms to read the time; it causes that, but not in a phase.
    took = sum(taken for each in long for cause, taken in each.parts if cause == CULPRIT)
    off = took * 1e-9 / sum(facts) - 1
    print(f"{len(facts)} phases, {blamed} of {len(long)} long gaps blamed, total {off:+.2%}")
    assert len(facts) == PHASES * BLOCKS
    assert blamed >= RIGHT * len(facts)
    assert blamed >= RIGHT * len(long)
    assert abs(off) <= WITHIN
    assert_no_ledger_is_left(tmp_path)
