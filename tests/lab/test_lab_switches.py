"""Switches of KVM guests that this computer lacks, on a lab of two nodes that has LVM.

QEMU's own guests and those of libvirt have the same ones, so they are turned for both.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lab import lab_libvirt
from lab.lab_inside import OWN, PATIENCE_S, SHAPE, Inside, inside
from tare.agent.client import Hello
from tare.errors import MachineFault
from tare.hosts import clean
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Machine, Platform, PlatformOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.platforms.qemu.halt_polling import SETTING
from tare.platforms.qemu.platform import Qemu

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

GROUP = "spare"
DISK = 64 << 20
MAIL = {
    "work": "varmail",
    "seconds": 0.3,
    "files": 40,
    "mean_bytes": 4096,
    "threads": 2,
    "memory_bytes": SHAPE.memory,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    pytest.importorskip("libvirt")
    packages = ("lvm2", *lab_libvirt.PACKAGES)
    options = LabOptions("kvm", cpus=2, memory=2 * GIB, nodes=2, packages=packages)
    folder = tmp_path_factory.mktemp("switches")
    async with inside(options, folder, agent_program, "generic") as found:
        await lab_libvirt.serve(found)
        yield found


@pytest.fixture(params=[Qemu(), Libvirt()], ids=lambda platform: platform.name)
def platform(request: pytest.FixtureRequest) -> Platform[Any]:
    """Whose guests a switch is turned for."""
    found: Platform[Any] = request.param
    return found


def kvm(platform: Platform[Any], **options: Any) -> PlatformOptions:
    model: type[PlatformOptions] = platform.options
    return model.model_validate({"accelerator": "kvm", **options})


def lvm(platform: Platform[Any]) -> PlatformOptions:
    return kvm(platform, disk_format="lvm", disk_volume_group=GROUP)


@asynccontextmanager
async def booted(
    lab: Inside, platform: Platform[Any], options: PlatformOptions, disk: int = 0
) -> AsyncIterator[tuple[Machine, Hello]]:
    shape = replace(SHAPE, disk=disk)
    prepared = await platform.prepare(lab.context, options, shape, False)

    async def begun() -> tuple[Machine, Hello]:
        machine = await platform.start(lab.context, options, prepared, lab.spec(shape=shape))
        try:
            return machine, await machine.ready(PATIENCE_S)
        except BaseException:
            await machine.stop()
            raise

    try:
        machine, hello = await begun()
    except MachineFault as fault:
        # As a run does: one guest in some 25 falls at its boot there (`tare help lab`).
        if not fault.transient:
            raise
        machine, hello = await begun()
    try:
        yield machine, hello
    finally:
        await machine.stop()


async def vcpu_of(machine: Machine) -> int:
    """Return its one vCPU's thread, by which the lab's kernel reports its process, too."""
    (thread,) = await machine.vcpu_threads()
    return thread


def pages_by_node(maps: str, at_least: int) -> dict[int, int]:
    """Return the pages of each node in the mappings of so many pages, as numa_maps has them.

    Programs and libraries are files: they are in the memory of the node that read them first.
    """
    found: dict[int, int] = {}
    for line in (each for each in maps.splitlines() if " file=" not in each):
        held = {int(node): int(pages) for node, pages in re.findall(r" N(\d+)=(\d+)", line)}
        if sum(held.values()) >= at_least:
            for node, pages in held.items():
                found[node] = found.get(node, 0) + pages
    return found


async def test_the_lab_has_the_nodes_that_were_asked_for(lab: Inside) -> None:
    assert lab.host.topology().nodes == {0: 0, 1: 1}
    assert (await lab.sh("cat /sys/devices/system/node/online")).strip() == "0-1"
    output = await lab.sh("cat /sys/devices/system/node/*/meminfo")
    totals = re.findall(r"MemTotal:\s+(\d+) kB", output)
    assert len(totals) == 2
    # The kernel keeps some of each node's half for itself.
    assert all(3 * GIB // 4 < int(kib) << 10 <= GIB for kib in totals)


@pytest.mark.parametrize("node", [0, 1])
async def test_a_guests_memory_is_on_the_node_that_was_asked_for(
    lab: Inside, platform: Platform[Any], node: int
) -> None:
    # Libvirt's has no such option: of its guest's memory the host has what the guest has touched.
    whole = "prealloc" in type(kvm(platform)).model_fields
    options = kvm(platform, numa_node=node, **({"prealloc": True} if whole else {}))
    verdict = await platform.check(lab.context, options)
    assert verdict.usable, verdict.reason
    async with booted(lab, platform, options) as (machine, _):
        assert machine.applied["memory"]["numa_node"] == node
        maps = (await lab.host.read(f"/proc/{await vcpu_of(machine)}/numa_maps")).decode()
        # Its vCPU is on the CPU of node 1 in either case: near memory, and far.
        assert lab.host.topology().node(OWN) == 1
        pages = pages_by_node(maps, at_least=SHAPE.memory // 8 >> 12)
        assert pages.keys() == {node}
        assert pages[node] << 12 >= (SHAPE.memory if whole else SHAPE.memory // 8)


async def test_a_node_that_is_not_there_is_refused_with_those_that_are(
    lab: Inside, platform: Platform[Any]
) -> None:
    verdict = await platform.check(lab.context, kvm(platform, numa_node=2))
    assert not verdict.usable
    assert (verdict.reason, verdict.hint) == ("`numa-node`: the host has no node 2", "it has 0, 1")


async def test_halt_polling_is_set_while_a_guest_lives_and_given_back(
    lab: Inside, platform: Platform[Any]
) -> None:
    async def polls() -> int:
        return int(await lab.host.read(SETTING))

    before = await polls()
    assert before != 31_000
    options = kvm(platform, halt_poll=31e-6)
    verdict = await platform.check(lab.context, options)
    assert verdict.usable, verdict.reason
    async with booted(lab, platform, options) as (machine, _):
        assert await polls() == 31_000
        assert machine.applied["halt_poll"] == {"ns": 31_000, "before_ns": before}
    assert await polls() == before
    assert not lab.context.ledger.open_entries()


@pytest_asyncio.fixture(loop_scope="module")
async def group(lab: Inside) -> AsyncIterator[str]:
    """A volume group on a spare disk of the lab's; nothing of Tare's is left in it."""
    await lab.sh(
        "modprobe dm_mod && truncate -s 256M /var/tmp/spare && "
        f"vgcreate {GROUP} $(losetup --find --show /var/tmp/spare)"
    )
    try:
        yield GROUP
        assert await volumes(lab) == []
    finally:
        await lab.sh(f"vgremove --yes {GROUP}; losetup -D; rm /var/tmp/spare")


async def volumes(lab: Inside) -> list[str]:
    return (await lab.sh(f"lvs --noheadings -o lv_name {GROUP}")).split()


async def test_a_host_without_a_volume_group_is_reported(
    lab: Inside, platform: Platform[Any]
) -> None:
    verdict = await platform.check(lab.context, lvm(platform))
    assert not verdict.usable
    assert re.search("no device-mapper|no volume group spare", verdict.reason)


async def test_a_guests_disk_is_a_logical_volume_that_goes_with_it(
    lab: Inside, platform: Platform[Any], group: str
) -> None:
    verdict = await platform.check(lab.context, lvm(platform))
    assert verdict.usable, verdict.reason
    async with booted(lab, platform, lvm(platform), DISK) as (machine, hello):
        (volume,) = await volumes(lab)
        assert volume.startswith("tare-test-")
        assert hello.proof["scratch"]["file_system"] == "ext4"
        disk = machine.applied["disk"]
        assert (disk["format"], disk["bytes"]) == ("lvm", DISK)
        work = await machine.agent.run("filebench", MAIL, deadline_s=PATIENCE_S)
        assert work.value["operations"] > 0
        # The device-mapper has seen what the guest wrote, in sectors of 512 bytes.
        assert int(await lab.sh("awk '{ print $7 }' /sys/block/dm-0/stat")) > 0
    assert not lab.context.ledger.open_entries()


async def test_the_volume_of_a_tare_that_was_killed_goes_by_its_ledger(
    lab: Inside, platform: Platform[Any], group: str
) -> None:
    async with booted(lab, platform, lvm(platform), DISK) as (machine, _):
        thread = await vcpu_of(machine)
        output = await clean(lab.host, lab.context.ledger, platform.undoers)
        assert any(line.startswith(f"Removed the logical volume {group}/tare-") for line in output)
        assert await volumes(lab) == []
        assert not await lab.host.exists(f"/proc/{thread}")
    assert not lab.context.ledger.open_entries()
