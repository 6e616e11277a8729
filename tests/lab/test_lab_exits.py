"""A known number of exits of a KVM guest in the lab is counted by reason, with the kernel's sum."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from lab.lab_inside import PATIENCE_S, SHAPE, Inside, inside
from lab.lab_kvm import booted, kvm
from tare.analysis.topics.exit_reasons import reason_of
from tare.hosts.trace.exits import Exits, exit_counters, exit_recorder, runs_on_kvm
from tare.lab.options import GIB, LabOptions
from tare.platforms.qemu.machine import QemuMachine
from tare.run.probes.exits import measure_exit_cost

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

CPUID, PORTS, MMIO, SLEEPS = 5_000, 3_000, 2_000, 300
ASKED = {"cpuid": CPUID, "port_writes": PORTS, "mmio_writes": MMIO, "sleeps": SLEEPS}
REGISTERS, INTERRUPTS = 4_000, 1_000
FEW = 20
TICKS_PER_S = 500
"""A guest's timer ticks 250 times a second (CONFIG_HZ), and each tick may set the next one."""
SENDING = ("VMMCALL", "MSR", "NPF")
"""The exits by which a vCPU interrupts another: a hypercall of KVM, the register of its interrupt
controller (x2APIC), or that controller's page."""
AGREES = 0.02


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kvm_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("exits")
    async with inside(LabOptions("kvm", memory=2 * GIB), folder, agent_program, "generic") as found:
        yield found


async def counted(
    lab: Inside, machine: QemuMachine, asked: dict[str, int]
) -> tuple[Exits, int, dict[str, int]]:
    """Execute operations; return the exits recorded, the kernel's own sum, and what was done."""
    threads = await machine.vcpu_threads()
    host, ledger = lab.host, lab.context.ledger
    async with (
        exit_counters(host, ledger, threads[0]) as counters,
        exit_recorder(host, ledger) as recorder,
    ):
        assert counters is not None
        before = (await counters.read())["exits"]
        await recorder.begin(threads)
        done = await machine.agent.run("exits", asked, deadline_s=PATIENCE_S)
        found = await recorder.end()
        after = (await counters.read())["exits"]
    assert done.value["missing"] == {}
    return found, after - before, done.value["done"]


async def test_known_numbers_of_exits_are_counted_by_their_reasons(kvm_lab: Inside) -> None:
    async with booted(kvm_lab, kvm()) as (machine, _):
        threads = await machine.vcpu_threads()
        assert await runs_on_kvm(kvm_lab.host, threads[0])
        idle, _, _ = await counted(kvm_lab, machine, {"sleeps": 1})
        found, kernel, done = await counted(kvm_lab, machine, ASKED)
    assert done == ASKED
    names = {reason_of(each.isa, each.reason).name: each for each in found.counts}
    for name, each in sorted(names.items()):
        print(f"{name}: {each.count} exits, {each.seconds / each.count * 1e6:.1f} us each")
    print(f"{found.total} recorded, {kernel} by the kernel, {idle.total} with one sleep")
    assert {each.thread for each in found.counts} == set(threads)
    assert {each.isa for each in found.counts} == {"svm"}
    assert names["CPUID"].count == CPUID
    # The guest's own devices need few ports and pages meanwhile.
    assert PORTS <= names["IOIO"].count <= PORTS + FEW
    assert MMIO <= names["NPF"].count <= MMIO + FEW
    # A loaded computer emulates some timers only after the guest has found nothing to do.
    assert names["HLT"].count >= (1 - AGREES) * SLEEPS
    assert found.dropped == 0
    assert found.total == pytest.approx(kernel, rel=AGREES)
    assert sum(each.seconds for each in found.counts) < found.seconds
    assert not kvm_lab.context.ledger.open_entries()


def by_name(found: Exits) -> dict[str, int]:
    """Return the number of exits of all vCPUs by their reason's name."""
    counts: dict[str, int] = {}
    for each in found.counts:
        name = reason_of(each.isa, each.reason).name
        counts[name] = counts.get(name, 0) + each.count
    return counts


async def test_reads_of_registers_and_interrupts_between_vcpus_are_counted(
    kvm_lab: Inside,
) -> None:
    context = replace(kvm_lab.context, needs=frozenset({"msr"}))
    able, shape = replace(kvm_lab, context=context), replace(SHAPE, vcpus=2)
    async with booted(able, kvm(), shape=shape) as (machine, _):
        found, kernel, done = await counted(able, machine, {"msr_reads": REGISTERS})
        reads = by_name(found)
        print(f"{reads} with {REGISTERS} reads of a register; {kernel} by the kernel")
        sent, _, executed = await counted(able, machine, {"ipis": INTERRUPTS})
        interrupts = by_name(sent)
        print(f"{interrupts} with {INTERRUPTS} interrupts")
    assert done == {"msr_reads": REGISTERS}
    assert executed == {"ipis": INTERRUPTS}
    # The guest's own timer is set through registers, too.
    ticks = found.seconds * 2 * TICKS_PER_S + FEW
    assert REGISTERS <= reads["MSR"] <= REGISTERS + ticks
    ticks = sent.seconds * 2 * TICKS_PER_S + FEW
    assert INTERRUPTS <= sum(interrupts.get(name, 0) for name in SENDING) <= INTERRUPTS + ticks


async def test_the_cost_of_recording_an_exit_is_measured_in_pairs(kvm_lab: Inside) -> None:
    async with booted(kvm_lab, kvm()) as (machine, _):
        threads = await machine.vcpu_threads()
        async with exit_recorder(kvm_lab.host, kvm_lab.context.ledger) as recorder:
            cost = await measure_exit_cost(machine.agent, recorder, threads)
    recording, switch = cost.recording_s * 1e6, cost.switch_s * 1e6
    print(f"recording an exit costs {recording:.2f} us, the switch {switch:.2f} us, emulated")
    assert 0 <= cost.recording_s < 1e-3
    assert 0 < cost.switch_s < 1e-3
