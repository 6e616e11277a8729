"""Every network card that an arm may have: guests with each, side by side on one network."""

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
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.run.topologies.peers import connected, require_network, started_peer

DRIVERS = {
    "virtio": "virtio_net",
    "e1000": "e1000",
    "e1000e": "e1000e",
    "rtl8139": "8139cp",
    "vmxnet3": "vmxnet3",
    "tulip": "tulip",
}
SHAPE = Shape(2, 192 << 20)
PATIENCE_S = 180.0


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "generic")
        assert ledger.open_entries() == ()


@pytest.mark.guest
@pytest.mark.acceptance
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="bridges and taps need root")
async def test_each_card_carries_packets_of_full_size_and_is_the_one_that_was_asked_for(
    context: Context,
) -> None:
    arms: dict[str, dict[str, Any]] = {card: {"nic": card} for card in DRIVERS}
    arms["virtio-queues"] = {"nic": "virtio", "nic_queues": 2}
    arms["virtio-plain"] = {"nic": "virtio", "nic_offloads": False}
    found: dict[str, Any] = {}
    platform = Qemu()
    for names in ([*arms][:4], [*arms][4:]):
        async with AsyncExitStack() as held:
            first = QemuOptions()
            joining = connected([context], platform, first, several=True)
            joined = await held.enter_async_context(joining)
            peers = []
            for name in names:
                chosen = QemuOptions.model_validate(arms[name])
                called = f"tare-test-{os.getpid()}-{name}-subject"
                workdir = context.ledger.path.parent / called
                spec = MachineSpec(
                    called, SHAPE, (), workdir, False, network=joined.network, way=joined.way
                )
                prepared = await platform.prepare(context, chosen, SHAPE, False)
                machine = await platform.start(context, chosen, prepared, spec)
                held.push_async_callback(machine.stop)
                peers.append((name, machine, spec))
            hellos = await asyncio.gather(*(each.ready(PATIENCE_S) for _, each, _ in peers))
            peer = await held.enter_async_context(
                started_peer(context, joined.network, peers[0][2])
            )
            for (name, machine, spec), hello in zip(peers, hellos, strict=True):
                require_network(spec.name, hello.proof)
                await peer.prove(machine, (1.0, 5.0, 15.0))
                found[name] = hello.proof["network"]
                assert machine.applied["nic"]["model"] == chosen_card(arms[name])
    for name, about in found.items():
        assert about["driver"] == DRIVERS[chosen_card(arms[name])], name
    # Two queues in each direction, where the others have one.
    assert found["virtio-queues"]["queues"] == 2 * found["virtio"]["queues"]
    for which in ("send_checksum", "segmentation"):
        assert found["virtio"]["offloads"][which]
        assert not found["virtio-plain"]["offloads"][which]


def chosen_card(asked: dict[str, Any]) -> str:
    return str(asked["nic"])
