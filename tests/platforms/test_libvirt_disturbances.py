"""Disturbances of a domain withhold its cell; libvirt reports how long its vCPUs waited."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.libvirt_embedded import embedded, library
from tare.events.hypervisor import hypervisor_figures
from tare.hosts.local import LocalHost
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.libvirt.disturbances import (
    OPERATIONS,
    PAUSED,
    RESUMED,
    RUNNING,
    SUSPENDED,
    DomainReport,
    Waits,
    delays_in,
    list_disturbances,
    swapped,
    waited,
)
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.run.probes.hypervisor_side import HypervisorSide
from tare.run.probes.standstill import Standstill

MIB = 1 << 20
UNPAUSED = 5
CALM = DomainReport((RUNNING, UNPAUSED), memory=256 * MIB)


def disturbances_in(look: DomainReport, memory: int = 256 * MIB) -> list[str]:
    return list(list_disturbances(look, memory))


def test_a_domain_that_just_runs_was_not_disturbed() -> None:
    assert disturbances_in(CALM) == []
    # A domain of 1.5 KiB more was asked for in whole KiB.
    assert disturbances_in(CALM, 256 * MIB + 1023) == []
    # Its start is not a disturbance, and neither is the lack of a job.
    assert (
        disturbances_in(
            DomainReport(CALM.state, job={"type": 0}, ended={"type": 3, "operation": 1}), 0
        )
        == []
    )


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (DomainReport((PAUSED, 1)), "paused by a user"),
        (DomainReport((PAUSED, 9)), "paused for a snapshot"),
        (DomainReport((PAUSED, 99)), "it is paused"),
        (DomainReport((SUSPENDED, 0)), "sleeps"),
        (DomainReport((6, 0)), "state 6"),
        (DomainReport((RUNNING, 6)), "migration was given up"),
        (DomainReport(CALM.state, ("snapshot s of 17",)), "snapshot s of 17"),
        (DomainReport(CALM.state, job={"type": 2, "operation": 5}), "a migration under way"),
        (
            DomainReport(CALM.state, job={"type": 1, "operation": 77}),
            "a job of libvirt's under way",
        ),
        (
            DomainReport(CALM.state, ended={"type": 3, "operation": 9, "time_elapsed": 31}),
            "took 31 ms",
        ),
    ],
)
def test_each_disturbance_is_reported_in_words(look: DomainReport, words: str) -> None:
    (phrase,) = disturbances_in(look, 0)
    assert words in phrase


def test_less_memory_than_it_was_given_is_a_balloon() -> None:
    (phrase,) = disturbances_in(CALM, 512 * MIB)
    assert "ballooned" in phrase and str(256 * MIB) in phrase


def test_the_numbers_are_libvirt_s() -> None:
    libvirt = library()
    assert libvirt.VIR_DOMAIN_RUNNING == RUNNING and libvirt.VIR_DOMAIN_PAUSED == PAUSED
    assert libvirt.VIR_DOMAIN_PMSUSPENDED == SUSPENDED
    assert OPERATIONS[libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP] == "a backup"
    assert OPERATIONS[libvirt.VIR_DOMAIN_JOB_OPERATION_SNAPSHOT] == "a snapshot"
    assert "saving" in RESUMED[libvirt.VIR_DOMAIN_RUNNING_SAVE_CANCELED]
    assert libvirt.VIR_DOMAIN_RUNNING_UNPAUSED == UNPAUSED and UNPAUSED not in RESUMED


def test_delays_are_those_of_vcpus() -> None:
    stats = {"vcpu.current": 2, "vcpu.0.delay": 5, "vcpu.0.wait": 7, "vcpu.11.delay": 9}
    assert delays_in(stats) == {0: 5, 11: 9}


@given(st.floats(0, 30), st.floats(0, 30))
def test_looks_enclose_the_measured_period(one: float, two: float) -> None:
    begun, ended = sorted((one, two))
    looks = [Waits(at, at + 0.5, {0: int(at * 1e8), 1: 0}) for at in (5.0, 10.0, 15.0, 20.0)]
    found = waited(looks, begun, ended)
    assert (found is None) == (begun < 5.5 or ended > 20)
    if found is not None:
        (figure,) = found.figures
        assert figure.of == (0, 1) and figure.unit == "s/s"
        # It waited 0.1 s a second, by looks that took half a second more.
        assert figure.values[0] * found.resolution_s == pytest.approx(
            0.1 * (found.resolution_s - 0.5), abs=1e-3
        )
        assert figure.values[1] == 0


def test_backward_or_missing_delay_is_not_shown() -> None:
    first, last = Waits(0, 1, {0: 7}), Waits(9, 10, {0: 3})
    assert waited([first, last], 2, 8) is None
    assert waited([first, Waits(9, 10, {})], 2, 8) is None


async def test_swapped_memory_is_reported_with_its_amount(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def status(_: LocalHost, path: str) -> bytes:
        assert path == "/proc/7/status"
        return b"VmRSS:\t 10 kB\nVmSwap:\t   %d kB\n" % kib

    monkeypatch.setattr(LocalHost, "read", status)
    kib = 12
    assert "12 KiB" in await swapped(context.host, 7)
    kib = 0
    assert await swapped(context.host, 7) == ""


# With a domain.


@pytest.fixture
def driver() -> Iterator[str]:
    with embedded() as uri:
        yield uri


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short, for sockets' names are."""
    with tempfile.TemporaryDirectory(prefix="lvl-") as named:
        yield Path(named)


async def looked(machine: Any, meanwhile: Any = None) -> HypervisorSide:
    """Return the doubts about a cell in which something is done to the machine."""
    side = HypervisorSide(machine)
    await side.open()
    if meanwhile is not None:
        await asyncio.to_thread(meanwhile)
    await side.close()
    return side


async def assert_steal_is_not_reported(machine: Any, hello: Any) -> None:
    """Check that QEMU's emulation reports no steal to its guest, and that no zero is shown."""
    assert hello.proof["hypervisor"]["signatures"] == ["TCGTCGTCGTCG"]
    assert hello.proof["hypervisor"]["tells_steal"] is False
    await machine.agent.counters_start()
    asked = {"samples": 100, "allow_untrusted_tsc": True}
    outcome = await machine.agent.run("tick", asked, deadline_s=120)
    (counters,) = (await machine.agent.counters_stop()).series
    assert outcome.value["witness"]["steal_s"] is None and "stolen_ns" not in outcome.timing
    assert outcome.timing["ended_ns"] > outcome.timing["started_ns"]
    assert "cpu.user" in counters.columns
    assert not [column for column in counters.columns if column.endswith(".steal")]


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root")
async def test_disturbance_of_a_running_domain_withholds_its_cell(
    driver: str, context: Context, folder: Path
) -> None:
    shape = Shape(vcpus=1, memory=192 * MIB, disk=32 * MIB)
    platform = Libvirt()
    options = LibvirtOptions(uri=driver, disk_format="qcow2")
    prepared = await platform.prepare(context, options, shape, realtime=False)
    name = f"tare-test-{os.getpid()}-list_disturbances"
    spec = MachineSpec(name, shape, (), folder / "m", realtime=False)
    machine = await platform.start(context, options, prepared, spec)
    opened = library().open(driver)
    try:
        await assert_steal_is_not_reported(machine, await machine.ready(300))
        domain = opened.lookupByName(name)
        calm = await looked(machine)
        assert calm.doubt == ""
        found = hypervisor_figures(calm.facts)
        assert found is not None and "libvirt" in found.source
        (figure,) = found.figures
        # It can have waited for no longer than there was time.
        assert figure.of == (0,) and 0 <= figure.values[0] <= 1 and found.resolution_s > 0

        still = Standstill(machine, look_s=0.1)
        assert not await machine.stopped()
        still.begin()
        domain.suspend()
        assert await machine.stopped()
        assert "paused by a user" in (await machine.disturbances())[0]
        await asyncio.sleep(1)
        domain.resume()
        assert "the machine was stopped for" in await still.end()
        assert not await machine.stopped()

        xml = "<domainsnapshot><name>of-a-test</name></domainsnapshot>"
        side = await looked(machine, lambda: domain.snapshotCreateXML(xml, 0))
        assert "snapshot of-a-test of " in side.doubt
        # What was there before a cell does not withhold it.
        assert (await looked(machine)).doubt == ""

        def again() -> None:
            domain.destroy()
            domain.create()

        assert "its QEMU is another one" in (await looked(machine, again)).doubt
    finally:
        await machine.stop()
        opened.close()
    # The snapshot did not keep the domain.
    assert context.ledger.open_entries() == ()
