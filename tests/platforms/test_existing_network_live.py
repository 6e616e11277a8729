"""Guests that boot are measured over the network that they have: QEMU, the live image, and a tap.

The server stands for Proxmox VE, and the tap for the network that it and this computer are on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.live_guest import make_disc
from platforms.live_qemu import LiveGuests, Wire
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.test_vendor_disks import IMAGE
from platforms.vendor_served import reached
from tare.agent.barrier import Barrier
from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.images.live.disc import TOOLS
from tare.images.toolbox.toolbox import prepare_toolbox
from tare.platforms.contract import Context, Machine, MachineSpec, Shape, ToolboxFiles
from tare.platforms.linux.network import MTU, free_subnet
from tare.platforms.linux.network.parts import Parts
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.run.topologies.peers import Connection, connected, require_network, started_peer
from workloads.workload_kinds import PAIRS

pytest.importorskip("proxmoxer")
pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.geteuid() != 0, reason="taps need root"),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in (*TOOLS, "qemu-system-x86_64")),
        reason="xorriso, mtools or QEMU is not installed",
    ),
]
BOOT_S = 600.0
MEASURED: Mapping[str, Mapping[str, Any]] = {
    "request-response": {"duration": "2s"},
    "packet-rate": {"duration": "1s", "direction": "from-machine"},
    "net-stream": {"duration": "2s", "warmup": "0s"},
    "http-load": {"rate": 20, "duration": "2s"},
}


@pytest.fixture(scope="module")
def disc(agent_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_disc(agent_program, tmp_path_factory.mktemp("disc") / "tare.iso", "base")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.storages["local"]["volumes"][IMAGE] = b"live"
    server.start()
    try:
        yield server
        assert server.vms == {}
    finally:
        server.stop()


@asynccontextmanager
async def wired(context: Context) -> AsyncIterator[tuple[str, Wire]]:
    """Hold a tap with an address of this computer's, and the settings of a guest at it."""
    async with AsyncExitStack() as held:
        parts, subnet = Parts(context, held), await free_subnet([context.host])
        name = f"tare-{os.getpid()}w"
        await parts.tap(name, MTU)
        await parts.ip("addr", "add", f"{subnet[1]}/24", "dev", name)
        await parts.ip("link", "set", name, "up")
        yield str(subnet[1]), Wire(name, f"{subnet[2]}/24")


@asynccontextmanager
async def begun(
    context: Context, server: Server, guests: LiveGuests, callback: str
) -> AsyncIterator[tuple[Machine, MachineSpec, Connection]]:
    """Hold a machine that boots, and the network that it is to be measured over."""
    server.plug, server.unplug = guests.plug, guests.unplug
    platform, options = (
        Proxmox(),
        ProxmoxOptions.model_validate(
            {
                **reached(server, ROOT, server.passwords[ROOT]),
                "image": IMAGE,
                "disks": "fast",
                "kvm": False,
                "cpu": "max",
                "callback": f"{callback}:0",
                "network_way": "given",
            }
        ),
    )
    joining = connected([context], platform, options, several=False)
    async with AsyncExitStack() as held:
        joined = await held.enter_async_context(joining)
        name = f"tare-test-{os.getpid()}-subject"
        workdir = context.ledger.path.parent / name
        shape = Shape(1, 1 << 30)
        spec = MachineSpec(name, shape, (), workdir, False, network=joined.network, way=joined.way)
        prepared = await platform.prepare(context, options, shape, False)
        held.push_async_callback(asyncio.to_thread, guests.close)
        machine = await platform.start(context, options, prepared, spec)
        held.push_async_callback(machine.stop)
        yield machine, spec, joined


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
        assert ledger.open_entries() == ()


async def test_a_guest_is_measured_over_the_network_it_has(
    server: Server, disc: Path, tmp_path: Path, context: Context
) -> None:
    host, agent, cache = context.host, context.agent, context.cache
    box = await prepare_toolbox(host, "base", agent=agent, cache=cache, say=print)
    toolbox = ToolboxFiles(image=box.image, digest=box.digest, tree=box.tree)
    async with wired(context) as (here, wire):
        guests = LiveGuests(server, disc, tmp_path, [wire])
        async with begun(context, server, guests, here) as (machine, spec, joined):
            proof = (await machine.ready(BOOT_S)).proof
            print(guests.console_words())
            require_network(spec.name, proof)
            assert proof["network"]["driver"] == "virtio_net"
            link = joined.network.links[spec.name]
            assert (link.way, link.mtu, link.peer) == ("given", MTU, here)
            assert link.address == wire.guest.partition("/")[0]
            like = replace(spec, toolbox=toolbox)
            async with started_peer(context, joined.network, like) as peer:
                await peer.prove(machine, (2.0, 10.0))
                for name, parameters in MEASURED.items():
                    workload = PAIRS[name]
                    asked = workload.parameters.model_validate(parameters)
                    ends = workload.ends(asked)
                    outcome = await peer.run(
                        ends,
                        machine,
                        barrier=Barrier(1),
                        deadline_s=BOOT_S,
                        on_progress=lambda *_: None,
                    )
                    print(name, workload.observe(asked, outcome.value))


async def test_a_guest_behind_translated_addresses_is_refused(
    server: Server, disc: Path, tmp_path: Path, context: Context
) -> None:
    """QEMU's user-mode network is such a place: the guest is 10.0.2.15 to itself alone."""
    guests = LiveGuests(server, disc, tmp_path)
    async with begun(context, server, guests, "127.0.0.1") as (machine, _, _):
        with pytest.raises(MachineFault, match="NAT") as caught:
            await machine.ready(BOOT_S)
        print(guests.console_words())
    words = "its own address is 10.0.2.15, and here it is seen as 127.0.0.1"
    assert words in caught.value.message
