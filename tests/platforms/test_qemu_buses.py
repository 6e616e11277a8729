"""Every bus that a guest's disk may be on: guests with each, side by side, at work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux.backed_disk import lacking_backing
from tare.platforms.qemu.disk_options import BUSES
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

MIB = 1 << 20
SHAPE = Shape(2, 192 * MIB, 48 * MIB)
MAIL = {"work": "varmail", "seconds": 0.3, "files": 20, "mean_bytes": 4096, "threads": 2}
PATIENCE_S = 240.0
ARMS: dict[str, dict[str, Any]] = {
    "virtio-blk": {"disk_bus": "virtio-blk", "devices": "emulated", "disk_queues": 2},
    "virtio-scsi": {"disk_bus": "virtio-scsi", "disk_format": "qcow2", "disk_queues": 2},
    "nvme": {"disk_bus": "nvme", "disk_format": "block", "disk_queues": 2},
    "ahci": {"disk_bus": "ahci"},
    "ide": {"disk_bus": "ide", "machine": "pc", "disk_aio": "native"},
    "microvm": {"machine": "microvm", "iothread": False, "disk_aio": "io_uring"},
    "microvm-scsi": {"machine": "microvm", "disk_bus": "virtio-scsi", "cpu_features": ["-avx2"]},
}
SEVERAL_QUEUES = ("virtio-blk", "virtio-scsi", "nvme")


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "generic")
        assert ledger.open_entries() == ()


@pytest.mark.guest
@pytest.mark.acceptance
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")
async def test_each_bus_carries_the_disk_and_is_the_one_that_was_asked_for(
    context: Context,
) -> None:
    if problem := await lacking_backing(context.host, "qcow2", None):
        pytest.skip(problem[0])
    platform, found = Qemu(), {}
    for names in ([*ARMS][:4], [*ARMS][4:]):
        async with AsyncExitStack() as held:
            machines = {}
            for name in names:
                chosen = QemuOptions.model_validate(ARMS[name])
                called = f"tare-test-{os.getpid()}-{name}-subject"
                spec = MachineSpec(
                    called, SHAPE, (), context.ledger.path.parent / called, realtime=False
                )
                prepared = await platform.prepare(context, chosen, SHAPE, False)
                machines[name] = await platform.start(context, chosen, prepared, spec)
                held.push_async_callback(machines[name].stop)
            hellos = await asyncio.gather(*(each.ready(PATIENCE_S) for each in machines.values()))
            for (name, machine), hello in zip(machines.items(), hellos, strict=True):
                work = {**MAIL, "memory_bytes": SHAPE.memory}
                done = await machine.agent.run("filebench", work, deadline_s=PATIENCE_S)
                assert done.value["operations"] > 0, name
                assert (await machine.disk_moved())["written"] > 0, name
                assert await machine.forget_disk(), name
                found[name] = (hello.proof, machine.applied)
    for name, (proof, applied) in found.items():
        wanted = QemuOptions.model_validate(ARMS[name])
        assert BUSES[wanted.bus].driver in proof["scratch"]["drivers"], name
        assert applied["disk"]["bus"] == wanted.bus
        assert applied["disk"]["format"] == wanted.disk_format
        assert proof["scratch"]["queues"] == (2 if name in SEVERAL_QUEUES else 1), name
    # Two kinds of mainboard carry the same bus by different drivers.
    assert "virtio-pci" in found["virtio-scsi"][0]["scratch"]["drivers"]
    assert "virtio-mmio" in found["microvm"][0]["scratch"]["drivers"]
