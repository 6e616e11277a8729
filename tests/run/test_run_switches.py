"""Other switches than a bridge, a link of a stated speed, and connections that are tracked."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlines import patient
from run.test_run_networks import BRIEFLY_S, PATIENCE_S, SHAPE, ends_of, parts, run_ends
from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.images.cache import default_cache
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Platform
from tare.platforms.linux.network import chosen_way, lacking_switch
from tare.platforms.linux.network.shaping import AROUND_FRAME, HEADER, queue
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.nic import lacking_way
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.run.topologies.peers import Peer, connected, require_network, started_origin, started_peer
from tare.study.model.platform_options import Switching
from tare.workloads.network.proxy import kernel_text as kernel

rooted = [
    pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root"),
    pytest.mark.skipif(not shutil.which("tc"), reason="iproute2 is not installed"),
]
container = [
    pytest.mark.container,
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
]
SLOW_LINK = 20e6
ANSWER = 64 << 10
ROUTED = {"switch": "routed"}


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "generic")
        assert ledger.open_entries() == ()


@asynccontextmanager
async def pair(
    context: Context, platform: Platform[Any], options: Any, link: float | None = None
) -> AsyncIterator[tuple[Machine, Peer, MachineSpec]]:
    """Hold a machine of a platform, and a peer that it is connected with as the options ask."""
    async with AsyncExitStack() as held:
        joining = connected([context], platform, options, several=True, link=link)
        joined = await held.enter_async_context(joining)
        name = f"tare-test-{os.getpid()}-subject"
        workdir = context.ledger.path.parent / name
        spec = MachineSpec(name, SHAPE, (), workdir, False, network=joined.network, way=joined.way)
        prepared = await platform.prepare(context, options, SHAPE, False)
        machine = await platform.start(context, options, prepared, spec)
        held.push_async_callback(machine.stop)
        require_network(name, (await machine.ready(PATIENCE_S)).proof)
        peer = await held.enter_async_context(started_peer(context, joined.network, spec))
        await peer.prove(machine)
        yield machine, peer, spec


async def output_of(context: Context, *words: str) -> str:
    done = await context.host.run(words, timeout_s=patient(20))
    assert done.ok, done.words()
    return done.stdout.decode()


async def received(context: Context, peer: Peer) -> tuple[int, int]:
    """Return the bytes and packets that have come to the peer, as its kernel was handed them."""
    shown = await output_of(context, *peer.network.around_peer, "cat", "/proc/net/dev")
    return kernel.device(shown, "eth0")[:2]


def token_of(peer: Peer) -> str:
    return peer.network.around_peer[-1].removesuffix("-peer")


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        pytest.param(
            Bare(),
            BareOptions.model_validate(ROUTED),
            id="bare",
            marks=[*rooted, pytest.mark.acceptance],
        ),
        pytest.param(
            Oci(),
            OciOptions.model_validate({**ROUTED, "conntrack": True}),
            id="oci-conntrack",
            marks=[*rooted, *container],
        ),
        pytest.param(
            Qemu(),
            QemuOptions.model_validate({**ROUTED, "conntrack": True}),
            id="qemu-conntrack",
            marks=[*rooted, pytest.mark.guest, pytest.mark.acceptance],
        ),
    ],
)
async def test_a_router_passes_packets_on_and_the_hosts_own_network_stays_as_it_is(
    context: Context, platform: Platform[Any], options: Any
) -> None:
    if (lacks := await lacking_switch(context.host, options.wanted_switch)) is not None:
        pytest.skip(lacks[0])
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    async with pair(context, platform, options) as (machine, peer, spec):
        asked = ends_of("connect-request-response", duration=BRIEFLY_S)
        outcome = await run_ends(peer, machine, asked)
        assert outcome.value["exchanges"] > 0
        token = token_of(peer)
        inside = ("nsenter", f"--net=/run/netns/{token}-switch")
        address = peer.network.links[spec.name].address
        assert f"{address} dev" in await output_of(context, *inside, "ip", "route")
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding
        tracked = int(
            await output_of(context, *inside, "cat", "/proc/sys/net/netfilter/nf_conntrack_count")
        )
        assert (tracked > 0) == options.conntrack
        seen = await peer.network.tracked()
        assert (seen is not None) == options.conntrack
        if seen is not None:
            assert 0 < seen.count < seen.most
            assert seen.since(seen)["lost"].get("drop", 0) == 0
        facts = peer.network.facts
        assert (facts["switch"], facts["conntrack"]) == ("routed", options.conntrack)
        # One more that is outside knows where the machine is before anything is asked.
        async with started_origin(context, peer.network, spec) as origin:
            assert origin.applied["network"]["offloads"]
            namespace = peer.network.links[origin.name].interface
            known = await output_of(context, "ip", "-n", namespace, "neigh")
            if platform.name != "bare":
                assert address in known
    assert not await parts(LocalHost(context.agent), token)


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        pytest.param(Bare(), BareOptions(), id="bare", marks=rooted),
        pytest.param(
            Oci(),
            OciOptions.model_validate(ROUTED),
            id="oci-routed",
            marks=[*rooted, *container, pytest.mark.acceptance],
        ),
        pytest.param(
            Qemu(),
            QemuOptions.model_validate({"network": "macvtap"}),
            id="qemu-macvtap",
            marks=[*rooted, pytest.mark.guest, pytest.mark.acceptance],
        ),
    ],
)
async def test_nothing_is_faster_than_the_link_and_packets_are_cut_before_they_are_counted(
    context: Context, platform: Platform[Any], options: Any
) -> None:
    if isinstance(options, QemuOptions) and (lacks := await lacking_way(context.host, options)):
        pytest.skip(lacks[0])
    async with pair(context, platform, options, SLOW_LINK) as (machine, peer, _):
        before = await received(context, peer)
        big = {"request": 1, "response": ANSWER, "duration": 2 * BRIEFLY_S}
        outcome = await run_ends(peer, machine, ends_of("request-response", **big))
        rate = outcome.value["exchanges_per_s"] * ANSWER * 8
        # A full packet has 1538 bytes on the wire; 1448 of them are the answer's.
        assert 0 < rate < SLOW_LINK * 1448 / (1500 + HEADER + AROUND_FRAME) * 1.1
        after = await received(context, peer)
        data, packets = (last - first for first, last in zip(before, after, strict=True))
        assert data > ANSWER
        assert data / packets <= 1500 + HEADER
        assert peer.network.facts["link"]["bits_per_s"] == SLOW_LINK


@pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root")
async def test_a_killed_run_leaves_neither_a_router_nor_a_link(context: Context) -> None:
    host = LocalHost(context.agent)
    options = OciOptions.model_validate(ROUTED)
    joining = connected([context], Oci(), options, several=True, link=SLOW_LINK)
    async with joining as joined:
        link = await joined.network.namespace("tare-x")
        token = link.interface.rpartition("-")[0]
        made = await parts(host, token)
        assert {f"{token}-switch", f"{token}o", f"{token}c"} <= made, made
        settings = await clean(host, context.ledger, {})
        assert await parts(host, token) == set()
        assert any(f"{token}-switch" in sentence for sentence in settings)


@pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root")
async def test_a_network_that_breaks_off_half_made_is_removed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.platforms.linux.network.shaping._PEAK", "no-speed")
    host = LocalHost(context.agent)
    before = await parts(host, "tare-")
    joining = connected([context], Bare(), BareOptions(), several=True, link=SLOW_LINK)
    async with joining as joined:
        with pytest.raises(MachineFault, match="no network can be made: `tc "):
            await joined.network.here("tare-x")
        left = [e.details["name"] for e in context.ledger.open_entries()]
        assert left == []
    assert not {name for name in await parts(host, "tare-") - before if name in left}


@given(rate=st.floats(1e5, 1e12), mtu=st.integers(1280, 9000))
def test_a_queue_takes_one_packet_of_full_size_at_least_and_counts_none_that_is_longer(
    rate: float, mtu: int
) -> None:
    words = queue(rate, mtu)
    settings = dict(zip(words[1::2], words[2::2], strict=True))
    longest = mtu + HEADER + AROUND_FRAME
    assert int(settings["mtu"]) == longest
    assert int(settings["burst"]) >= 2 * longest
    assert settings["overhead"] == str(AROUND_FRAME)
    assert float(settings["rate"].removesuffix("bit")) == pytest.approx(rate, abs=0.5)


def test_a_switch_that_is_asked_for_is_never_left_out() -> None:
    with pytest.raises(InputError, match="switch: routed"):
        chosen_way(BareOptions.model_validate(ROUTED), frozenset({"loopback"}))
    offered = frozenset({"tap", "user"})
    assert chosen_way(QemuOptions.model_validate(ROUTED), offered) == "tap"
    with pytest.raises(ValueError, match="a bridge looks at no connections"):
        OciOptions.model_validate({"conntrack": True})
    with pytest.raises(ValueError, match="needs a tap"):
        QemuOptions.model_validate({"network": "user", **ROUTED})


class Without(LocalHost):
    """A host on which some programs and files are missing."""

    def __init__(self, *missing: str) -> None:
        super().__init__()
        self._missing = missing

    async def run(self, argv: Any, **how: Any) -> Any:
        if argv[-1] in self._missing or "ovs-vsctl" in argv:
            return replace(await super().run(["false"]), stdout=b"ovsdb-server")
        return await super().run(argv, **how)


async def test_a_host_without_open_vswitch_says_so_and_what_to_install() -> None:
    lacks = await lacking_switch(Without(), Switching("openvswitch"))
    assert lacks is not None
    assert "the host has no ovsdb-server" in lacks[0]
    assert "openvswitch-switch" in lacks[1]
    assert await lacking_switch(Without(), Switching()) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root")
@pytest.mark.parametrize("after_s", [0.02, 0.15, 0.4])
async def test_stopped_at_any_moment_a_router_with_a_link_leaves_nothing(
    context: Context, after_s: float
) -> None:
    host, options = LocalHost(context.agent), OciOptions.model_validate(ROUTED)
    tokens: list[str] = []

    async def made() -> None:
        joining = connected([context], Oci(), options, several=True, link=SLOW_LINK)
        async with joining as joined:
            await joined.network.namespace("tare-x")
            await joined.network.outside("tare-y")
            await joined.network.here("tare-z")
            await asyncio.sleep(60)

    making = asyncio.create_task(made())
    await asyncio.sleep(after_s)
    tokens += [str(entry.details["name"]) for entry in context.ledger.open_entries()]
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert context.ledger.open_entries() == ()
    for name in tokens:
        assert not await parts(host, name), name
