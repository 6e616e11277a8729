"""Libvirt's domains under KVM in a lab: its own daemon, reached by its socket over SSH."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from lab import lab_libvirt
from lab.lab_inside import OWN, PATIENCE_S, SHAPE, Inside, inside
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Capabilities, Context
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import Machines

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    pytest.importorskip("libvirt")
    options = LabOptions("kvm", cpus=2, memory=2 * GIB, packages=lab_libvirt.PACKAGES)
    folder = tmp_path_factory.mktemp("libvirt")
    async with inside(options, folder, agent_program, "generic") as found:
        await lab_libvirt.serve(found)
        yield found


class Domains(PlatformCases):
    platform = Libvirt()
    options: ClassVar[LibvirtOptions] = LibvirtOptions(accelerator="kvm")
    patience_s = PATIENCE_S
    killed_words = "its QEMU was killed"

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, lab: Inside) -> Context:
        return lab.context

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls, lab: Inside) -> SecondHost:
        """This computer, where QEMU emulates its guest itself."""
        return SecondHost(lab.here, Qemu(), QemuOptions(accelerator="tcg"))

    @classmethod
    def cpus(cls, context: Context, able: Capabilities) -> tuple[int, ...]:
        return (OWN,)


class TestKvm(Domains):
    async def test_kvm_carries_it(self, machines: Machines) -> None:
        hello = (await machines.subject()).hello
        assert hello.proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]
        assert {disk["driver"] for disk in hello.proof["disks"]} == {"virtio_blk"}


async def test_huge_pages_of_the_host_carry_a_domains_memory(lab: Inside) -> None:
    platform, options = Libvirt(), LibvirtOptions(accelerator="kvm", hugepages=True)
    none = await platform.check(lab.context, options)
    assert not none.usable
    assert "huge" in none.reason
    # Memory is in pieces by now, so what is free has to be moved together first.
    await lab.sh(
        "echo 3 >/proc/sys/vm/drop_caches; echo 1 >/proc/sys/vm/compact_memory; "
        f"echo {(SHAPE.memory >> 21) + 8} >{HUGE}/nr_hugepages"
    )
    free = int(await lab.sh(f"cat {HUGE}/free_hugepages"))
    verdict = await platform.check(lab.context, options)
    assert verdict.usable, verdict.reason
    prepared = await platform.prepare(lab.context, options, SHAPE, False)
    machine = await platform.start(lab.context, options, prepared, lab.spec())
    try:
        await machine.ready(PATIENCE_S)
        assert machine.applied["memory"]["bytes_in_huge_pages"] >= SHAPE.memory
        assert free - int(await lab.sh(f"cat {HUGE}/free_hugepages")) == SHAPE.memory >> 21
    finally:
        await machine.stop()
    assert int(await lab.sh(f"cat {HUGE}/free_hugepages")) == free
    await lab.sh(f"echo 0 >{HUGE}/nr_hugepages")
    assert not lab.context.ledger.open_entries()
