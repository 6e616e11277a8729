"""Networks over two hosts: joined by the best way that works, used, found broken, and removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosts.hosts_namespaces import parts_in, sshd_inside, two_hosts
from tare.errors import MachineFault
from tare.hosts import clean
from tare.hosts.ssh.host import SshHost
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Platform, Shape
from tare.platforms.linux.network import Link, SpanningNetwork, spanning_network
from tare.platforms.linux.network.tunnel import length_of_whole_frames
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.testing.hosts import NamespaceHost

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root")
needs_ip = pytest.mark.skipif(not shutil.which("ip"), reason="iproute2 is not installed")
rooted = [needs_root, needs_ip]
container = [
    pytest.mark.container,
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
]
SHAPE = Shape(1, 192 << 20)
PATIENCE_S = 120.0

Part = tuple[Platform[Any], Any, str]
BARE: Part = (Bare(), BareOptions(), "bridge")
OCI: Part = (Oci(), OciOptions(), "veth")
QEMU: Part = (Qemu(), QemuOptions(), "tap")


@given(frames=st.lists(st.binary(max_size=99), max_size=9), rest=st.binary(max_size=1))
def test_frames_are_copied_whole(frames: list[bytes], rest: bytes) -> None:
    lengths = [len(frame).to_bytes(2, "little") for frame in frames]
    held = b"".join(length + frame for length, frame in zip(lengths, frames, strict=True))
    assert length_of_whole_frames(held + rest) == len(held)
    if frames:
        assert length_of_whole_frames(held[:-1]) == len(held) - len(frames[-1]) - 2


@asynccontextmanager
async def machines_on(
    contexts: Sequence[Context], network: SpanningNetwork, chosen: Sequence[Part]
) -> AsyncIterator[list[Machine]]:
    """Hold one machine on each host, all on one network."""
    async with AsyncExitStack() as held:
        started = []
        for number, (context, part) in enumerate(zip(contexts, chosen, strict=True)):
            platform, options, way = part
            name = f"tare-test-{os.getpid()}-{number}"
            workdir = context.ledger.path.parent / name
            joined = network.on(context.host.name)
            spec = MachineSpec(name, SHAPE, (), workdir, False, network=joined, way=way)
            prepared = await platform.prepare(context, options, SHAPE, False)
            machine = await platform.start(context, options, prepared, spec)
            held.push_async_callback(machine.stop)
            about = (await machine.ready(PATIENCE_S)).proof["network"]
            assert about["error"] is None, about
            started.append(machine)
        yield started


async def exchange(client: Machine, server: Machine, to: Link) -> None:
    """Let packets of the network's full size go from one machine to the other and back."""
    sizes = {"request_bytes": 64 << 10, "response_bytes": 64 << 10}
    at = {"address": to.address, "port": 7100, **sizes}
    asked = {"probe_bytes": to.mtu, "seconds": 1.0, "warmup_s": 0.0, "timeout_s": 30.0}
    serving = await server.agent.start_load("net-server", at)
    try:
        outcome = await client.agent.run("request-response", {**at, **asked}, deadline_s=60)
        assert outcome.value["exchanges"] > 0
    finally:
        await serving.stop(30)


@pytest.mark.parametrize(
    ("wire_mtu", "joined", "mtu", "chosen"),
    [
        pytest.param(1500, "vxlan", 1450, (BARE, BARE), id="vxlan-bare", marks=rooted),
        pytest.param(1550, "vxlan", 1500, (OCI, OCI), id="vxlan-oci", marks=rooted + container),
        pytest.param(0, "tunnel", 1500, (BARE, OCI), id="tunnel-oci", marks=rooted + container),
        pytest.param(
            *(1500, "vxlan", 1450, (QEMU, OCI)),
            id="vxlan-qemu",
            marks=[*rooted, *container, pytest.mark.guest, pytest.mark.slow, pytest.mark.boots],
        ),
        pytest.param(
            *(0, "tunnel", 1500, (OCI, QEMU)),
            id="tunnel-qemu",
            marks=[*rooted, *container, pytest.mark.guest, pytest.mark.slow, pytest.mark.boots],
        ),
    ],
)
async def test_machines_on_two_hosts_exchange_packets_of_full_size(
    tmp_path: Path,
    agent_program: Path,
    wire_mtu: int,
    joined: str,
    mtu: int,
    chosen: tuple[Part, Part],
) -> None:
    with two_hosts(tmp_path, agent_program, mtu=wire_mtu) as contexts:
        async with (
            spanning_network(contexts, rooted=True) as network,
            machines_on(contexts, network, chosen) as machines,
        ):
            assert (network.facts["joined"], network.facts["mtu"]) == (joined, mtu)
            if joined == "tunnel":
                assert "host-a reaches no address of host-b" in network.facts["refused"]["vxlan"]
            first, second = machines
            links = network.links
            assert links[first.name].address != links[second.name].address
            await exchange(first, second, links[second.name])
            await exchange(second, first, links[first.name])
            assert not network.lost.done()


async def reaches(context: Context, around: Sequence[str], to: str, size: int) -> bool:
    """Return whether a packet gets from where ``around`` leads to an address and back."""
    words = [*around, str(context.host_agent), "reach", f"{to}:9", str(size)]
    return (await context.host.run(words, timeout_s=60)).ok


def within(link: Link) -> list[str]:
    """Return what comes before a command so that it runs in a machine's namespace."""
    return ["nsenter", f"--net=/run/netns/{link.interface}"]


@pytest.mark.parametrize(
    ("wire_mtu", "joined"),
    [pytest.param(1500, "vxlan", marks=rooted), pytest.param(0, "tunnel", marks=rooted)],
)
async def test_a_host_over_ssh_and_the_peer_on_either_host(
    tmp_path: Path, agent_program: Path, wire_mtu: int, joined: str
) -> None:
    with two_hosts(tmp_path, agent_program, mtu=wire_mtu) as (first, second):
        folder = tmp_path / "sshd"
        folder.mkdir()
        with sshd_inside(second, folder) as server:
            async with SshHost(server.options(), agent_program) as host:
                contexts = [first, replace(second, host=host)]
                for at in contexts:
                    peer_on = at.host.name
                    async with spanning_network(contexts, True, peer_on=peer_on) as network:
                        here = await network.on("host-a").namespace("here")
                        there = await network.on(host.name).namespace("there")
                        assert network.facts["joined"] == joined
                        outside = network.on(peer_on).around_peer
                        for link in (here, there):
                            assert await reaches(at, outside, link.address, link.mtu)
                        assert await reaches(first, within(here), here.peer, here.mtu)
                        assert await reaches(first, within(here), there.address, here.mtu)
                        assert await reaches(contexts[1], within(there), here.address, here.mtu)
                        assert not await reaches(first, within(here), "192.0.2.2", 100)
                        (other,) = (it.host.name for it in contexts if it is not at)
                        with pytest.raises(ValueError, match="the peer is on"):
                            _ = network.on(other).around_peer


@needs_root
@needs_ip
async def test_hosts_that_share_a_network_stack_share_a_bridge(
    tmp_path: Path, agent_program: Path
) -> None:
    with two_hosts(tmp_path, agent_program, mtu=0) as (first, second):
        assert isinstance(first.host, NamespaceHost)
        again = replace(second, host=first.host.under_another_name("host-b"))
        async with spanning_network([first, again], rooted=True) as network:
            here = await network.on("host-a").namespace("here")
            there = await network.on("host-b").namespace("there")
            assert (network.facts["joined"], network.facts["mtu"]) == ("bridge", 1500)
            assert await reaches(first, within(here), there.address, 1500)
            assert {entry.kind for entry in second.ledger.open_entries()} == {"netns", "link"}


@pytest.mark.parametrize(
    "wire_mtu", [pytest.param(1500, marks=rooted), pytest.param(0, marks=rooted)]
)
async def test_stopped_at_any_moment_it_leaves_nothing(
    tmp_path: Path, agent_program: Path, wire_mtu: int
) -> None:
    async def use(contexts: Sequence[Context]) -> None:
        async with spanning_network(contexts, rooted=True) as network:
            await network.on("host-b").namespace("machine")
            await asyncio.sleep(60)

    with two_hosts(tmp_path, agent_program, mtu=wire_mtu) as contexts:
        for moment in range(8):
            using = asyncio.create_task(use(contexts))
            await asyncio.wait([using], timeout=0.15 * moment)
            using.cancel()
            await asyncio.wait([using])
            assert using.cancelled()
            for context in contexts:
                assert context.ledger.open_entries() == (), moment
                assert await parts_in(context.host) == set(), moment


@pytest.mark.parametrize(
    "wire_mtu", [pytest.param(1500, marks=rooted), pytest.param(0, marks=rooted)]
)
async def test_a_killed_run_is_cleaned_on_all_hosts(
    tmp_path: Path, agent_program: Path, wire_mtu: int
) -> None:
    with two_hosts(tmp_path, agent_program, mtu=wire_mtu) as contexts:
        async with spanning_network(contexts, rooted=True) as network:
            for context in contexts:
                await network.on(context.host.name).namespace(context.host.name)
            for context in contexts:
                assert await parts_in(context.host) != set()
                # As `tare clean` does it, from what the ledger says.
                await clean(context.host, context.ledger, {})
            for context in contexts:
                assert await parts_in(context.host) == set()
                assert context.ledger.open_entries() == ()


@needs_root
@needs_ip
async def test_broken_tunnel_is_reported(tmp_path: Path, agent_program: Path) -> None:
    with two_hosts(tmp_path, agent_program, mtu=0) as contexts:
        async with spanning_network(contexts, rooted=True) as network:
            await network.on("host-a").here("machine")
            (end,) = (e for e in contexts[1].ledger.open_entries() if e.kind == "process")
            os.kill(int(end.details["pid"]), 9)
            fault = await asyncio.wait_for(network.lost, 60)
            assert "the network's tunnel to host-b has ended" in fault.message
            assert fault.transient


@needs_root
@needs_ip
async def test_where_no_way_works_each_says_why(tmp_path: Path, agent_program: Path) -> None:
    with two_hosts(tmp_path, agent_program) as contexts:
        deaf = [replace(context, agent=Path("/bin/false")) for context in contexts]
        async with spanning_network(deaf, rooted=True) as network:
            with pytest.raises(MachineFault) as raised:
                await network.on("host-a").here("machine")
            assert "vxlan: host-a reaches no address of host-b (192.0.2.2)" in str(raised.value)
            assert "tunnel: packets of 1500 bytes do not get from host-a" in str(raised.value)
            # What had been made for it is gone at once.
            for context in contexts:
                assert await parts_in(context.host) == set()
            assert network.facts == {}


@needs_root
@needs_ip
async def test_machines_on_two_hosts_need_bridges(tmp_path: Path, agent_program: Path) -> None:
    wanted = pytest.raises(MachineFault, match="host-a and host-b cannot be on one network")
    with two_hosts(tmp_path, agent_program, mtu=0) as contexts, wanted:
        async with spanning_network(contexts, rooted=False):
            pass
