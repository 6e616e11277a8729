"""Guests of Xen in a lab: what they are, how Xen schedules them, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lab.lab_inside import OWN, PATIENCE_S, SHAPE, Inside, inside, require_hardware_guests
from tare.analysis.topics.exit_reasons import reason_of
from tare.errors import MachineFault
from tare.hosts.ledger.cleanup import clean
from tare.hosts.trace.exits import ExitCount
from tare.lab.options import GIB, MIB, LabOptions
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Capabilities, Context, Shape
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen, host_cpus, launch
from tare.platforms.xen.scheduling import pool_of
from tare.platforms.xen.settings import scheduler_parameters
from tare.platforms.xen.trace.exits import XenExitRecorder
from tare.run.lifecycle.undoers import all_undoers
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import RunningMachine

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

TICK = {"seconds": 2.0, "threshold_ns": 100_000, "allow_untrusted_tsc": True}
NEVER_BOOTS = ("console=hvc0", "panic=-1", "rdinit=/nothing", "root=/dev/nothing")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def xen_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("xen")
    options = LabOptions("xen", memory=3 * GIB, dom0_memory=768 * MIB, scheduler="credit")
    async with inside(options, folder, agent_program, "generic") as found:
        yield found


def options(**given: Any) -> XenOptions:
    return XenOptions.model_validate({"type": "pv", "scheduler": "credit", **given})


class XenCases(PlatformCases):
    platform = Xen()
    patience_s = PATIENCE_S
    killed_words = "destroyed from outside"

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, xen_lab: Inside) -> Context:
        return xen_lab.context

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls, xen_lab: Inside) -> SecondHost:
        """This computer, which has no Xen: a process stands for the machine there."""
        return SecondHost(xen_lab.here, Bare(), BareOptions())

    @classmethod
    def cpus(cls, context: Context, able: Capabilities) -> tuple[int, ...]:
        return (OWN,)

    async def kill(self, running: RunningMachine) -> None:
        assert isinstance(running.machine, XenMachine)
        await xen.asked(running.context.host, "destroy", str(running.machine.id))


class TestPv(XenCases):
    options = XenOptions(type="pv", scheduler="credit")


@pytest.fixture(scope="class")
def hardware_guests() -> None:
    require_hardware_guests()


@pytest.mark.acceptance
@pytest.mark.usefixtures("hardware_guests")
class TestPvh(XenCases):
    options = XenOptions(type="pvh", scheduler="credit")


@pytest.mark.acceptance
@pytest.mark.usefixtures("hardware_guests")
class TestHvm(XenCases):
    options = XenOptions(type="hvm", scheduler="credit")


async def begun(
    lab: Inside,
    chosen: XenOptions,
    role: str = "subject",
    shape: Shape = SHAPE,
    append: tuple[str, ...] | None = None,
) -> XenMachine:
    prepared = await Xen().prepare(lab.context, chosen, shape, True)
    spec = lab.spec(role, shape)
    return await launch(lab.context, chosen, prepared.extra["image"], spec, append=append)


@asynccontextmanager
async def booted(
    lab: Inside, chosen: XenOptions, role: str = "subject", shape: Shape = SHAPE
) -> AsyncIterator[XenMachine]:
    machine = await begun(lab, chosen, role, shape)
    try:
        await machine.ready(PATIENCE_S)
        yield machine
    finally:
        await machine.stop()


async def test_the_lab_has_a_toolstack_that_answers(xen_lab: Inside) -> None:
    assert "Domain-0" in await xen_lab.sh("xl list")
    info = await xen_lab.sh("xl info")
    assert "xen_scheduler          : credit\n" in info
    assert "hvm" in info


async def test_features_that_the_lab_lacks_are_reported_with_the_reason(xen_lab: Inside) -> None:
    context = xen_lab.context
    for kind in ("pv", "pvh", "hvm"):
        verdict = await Xen().check(context, options(type=kind))
        assert verdict.usable, verdict.reason
        assert verdict.emulated
        assert {"slice", "weight", "cap"} <= verdict.capabilities.knobs
    other = await Xen().check(context, options(scheduler="credit2"))
    assert "runs the scheduler credit, not credit2" in other.reason
    assert "sched=credit2" in other.hint
    no_pool = await Xen().check(context, options(cpupool="fast"))
    assert "no CPU pool fast" in no_pool.reason
    # dom0's kernel sees one CPU; Xen has two.
    assert (await host_cpus(context.host)).online == (0, 1)


async def test_a_missing_toolstack_is_reported_at_once(xen_lab: Inside) -> None:
    tool = (await xen_lab.sh("command -v xenstore-read")).strip()
    await xen_lab.sh(f"mv {tool} {tool}.away")
    try:
        verdict = await Xen().check(xen_lab.context, options())
    finally:
        await xen_lab.sh(f"mv {tool}.away {tool}")
    assert not verdict.usable
    assert "tools are not installed" in verdict.reason
    assert "xen-system-amd64" in verdict.hint


async def test_a_pv_guest_is_pinned_weighed_and_has_a_disk_of_its_own(xen_lab: Inside) -> None:
    shape = replace(SHAPE, disk=64 << 20)
    pool = await pool_of(xen_lab.host, options())
    assert pool is not None
    before_all = await scheduler_parameters(xen_lab.host, "credit", pool.name)
    chosen = options(scheduling={"weight": 200, "cap": "50 %", "slice": "1ms"})
    async with booted(xen_lab, chosen, shape=shape) as machine:
        hello = await machine.agent.hello(PATIENCE_S)
        assert hello.role == "init"
        assert hello.proof["scratch"]["file_system"] == "ext4"
        assert hello.proof["scratch"]["device"] == "xvde"
        assert machine.applied["disk"]["bytes"] == 64 << 20
        applied = machine.applied["scheduling"]
        assert applied["vcpus"] == {"0": str(OWN)}
        assert (applied["weight"], applied["cap_percent"]) == (512, 50)
        assert (applied["now"]["tslice"], applied["now"]["ratelimit"]) == ("1000", "500")
        shown = await xen_lab.sh(f"xl sched-credit -d {machine.id}")
        assert shown.split()[-2:] == ["512", "50"]
        before = await machine.host_cost()
        tick = await machine.agent.run("tick", TICK, deadline_s=PATIENCE_S)
        after = await machine.host_cost()
        # Kept from its CPU by the cap: the guest measured that, and Xen reported it to its kernel.
        assert tick.value["stolen_share"] > 0.2
        assert tick.timing["stolen_ns"] > 0.2e9
        assert after["cpu_s"] > before["cpu_s"]
        assert after["dom0_cpu_s"] >= before["dom0_cpu_s"] > 0
    assert not xen_lab.context.ledger.open_entries()
    assert await scheduler_parameters(xen_lab.host, "credit", pool.name) == before_all
    assert "loop" not in await xen_lab.sh("losetup --list --noheadings -O NAME")


async def test_a_guest_in_a_pool_of_its_own_goes_by_the_scheduler_of_that_pool(
    xen_lab: Inside,
) -> None:
    created = "xl cpupool-create 'name=\"own\"' 'sched=\"credit2\"' 'cpus=[\"1\"]'"
    await xen_lab.sh(f"xl cpupool-cpu-remove Pool-0 1 && {created}")
    try:
        chosen = options(
            cpupool="own", scheduler="credit2", scheduling={"weight": 200}, ratelimit="2ms"
        )
        verdict = await Xen().check(xen_lab.context, chosen)
        assert verdict.usable, verdict.reason
        async with booted(xen_lab, chosen) as machine:
            applied = machine.applied["scheduling"]
            assert (applied["scheduler"], applied["pool"]) == ("credit2", "own")
            assert (applied["weight"], applied["now"]["ratelimit"]) == (512, "2000")
            listed = await xen_lab.sh("xl list -c")
            (own,) = [line for line in listed.splitlines() if machine.name in line]
            assert own.split()[-1] == "own"
            done = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=PATIENCE_S)
            assert done.value["iterations_per_s"] > 0
        left = await scheduler_parameters(xen_lab.host, "credit2", "own")
        assert left["ratelimit"] != "2000"
    finally:
        await xen_lab.sh("xl cpupool-destroy own && xl cpupool-cpu-add Pool-0 1")
    assert not xen_lab.context.ledger.open_entries()


# It takes minutes.
@pytest.mark.acceptance
@pytest.mark.usefixtures("hardware_guests")
@pytest.mark.parametrize(("devices", "disk"), [("paravirtual", "xvde"), ("emulated", "sda")])
async def test_an_hvm_guest_boots_with_either_kind_of_devices(
    xen_lab: Inside, devices: str, disk: str
) -> None:
    shape = replace(SHAPE, disk=64 << 20)
    async with booted(xen_lab, options(type="hvm", devices=devices), shape=shape) as machine:
        hello = await machine.agent.hello(PATIENCE_S)
        assert "XenVMMXenVMM" in hello.proof["hypervisor"]["signatures"]
        assert hello.proof["scratch"]["device"] == disk
        done = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=PATIENCE_S)
        assert done.value["iterations_per_s"] > 0
    assert not xen_lab.context.ledger.open_entries()


async def test_more_memory_than_xen_has_is_refused_in_its_words(xen_lab: Inside) -> None:
    with pytest.raises(MachineFault, match="Xen did not build the domain") as fault:
        await begun(xen_lab, options(), shape=Shape(1, 8 * GIB))
    assert "MiB free, and the machine wants 8192" in fault.value.message
    assert not xen_lab.context.ledger.open_entries()


async def test_a_kernel_panic_at_boot_is_reported_with_the_last_console_lines(
    xen_lab: Inside,
) -> None:
    machine = await begun(xen_lab, options(), append=NEVER_BOOTS)
    try:
        with pytest.raises(MachineFault, match=r"panicked|crashed|restarted itself") as fault:
            await machine.ready(PATIENCE_S)
        assert any("panic" in line for line in fault.value.console_tail)
    finally:
        await machine.stop()
    assert not xen_lab.context.ledger.open_entries()


@pytest.mark.acceptance
async def test_a_domain_that_survives_its_destruction_stays_on_record(xen_lab: Inside) -> None:
    machine = await begun(xen_lab, options())
    # Everything is Xen's own but this one command, which does as if it had obeyed.
    tool, stub = "/usr/local/sbin/xl", 'case "$1" in destroy) ;; *) exec /usr/sbin/xl "$@";; esac'
    await xen_lab.sh(
        f"mkdir -p /usr/local/sbin && printf '#!/bin/sh\n%s\n' '{stub}' >{tool} && chmod +x {tool}"
    )
    try:
        with pytest.raises(MachineFault, match="survives its destruction") as fault:
            await machine.stop()
        assert f"xl destroy {machine.id}" in fault.value.hint
    finally:
        await xen_lab.sh(f"rm {tool}")
    ledger = xen_lab.context.ledger
    assert "domain" in [entry.kind for entry in ledger.open_entries()]
    messages = await clean(xen_lab.host, ledger, all_undoers())
    assert any(f"Destroyed domain {machine.name}" in sentence for sentence in messages), messages
    assert not ledger.open_entries()
    assert await xen.find_domain(xen_lab.host, machine.name, machine.uuid) is None


async def test_a_refusal_by_xen_is_reported_with_its_own_message(xen_lab: Inside) -> None:
    with pytest.raises(MachineFault, match=r"[Cc]ap out of range"):
        async with booted(xen_lab, options(scheduling={"cap": 2.0})):
            pass
    assert not xen_lab.context.ledger.open_entries()


async def counted_exits(lab: Inside, kind: str, asked: dict[str, int]) -> dict[str, ExitCount]:
    """Execute a known number of operations in a guest; return what Xen's trace has of them."""
    async with booted(lab, options(type=kind)) as machine:
        below = machine.traced_below()
        assert below is not None
        recorder = XenExitRecorder(below)
        await recorder.begin(below.ids)
        try:
            done = await machine.agent.run("exits", asked, deadline_s=PATIENCE_S)
            found = await recorder.end()
        finally:
            await recorder.abandon()
    assert (done.value["done"], found.dropped) == (asked, 0)
    names = {reason_of(each.isa, each.reason).name: each for each in found.counts}
    print(kind, {name: each.count for name, each in names.items()})
    return names


async def test_exits_of_a_pvh_guest_are_counted_by_reason_with_their_time(xen_lab: Inside) -> None:
    require_hardware_guests()
    names = await counted_exits(xen_lab, "pvh", {"cpuid": 3_000, "port_writes": 1_000})
    assert names["CPUID"].count == 3_000
    assert names["CPUID"].seconds > 0
    # Xen lets guests write to this port themselves.
    assert "IOIO" not in names


async def test_hypercalls_of_a_pv_guest_are_counted(xen_lab: Inside) -> None:
    names = await counted_exits(xen_lab, "pv", {"sleeps": 200})
    assert names["hypercall_sched_op"].count >= 190
