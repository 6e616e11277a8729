"""Real networks on this host: made, used, found wrong, lost, and removed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlines import patient
from tare.agent.barrier import Barrier
from tare.agent.client import Outcome
from tare.errors import MachineFault, WorkloadFault
from tare.hosts import Ledger, LocalHost, clean
from tare.images.cache import default_cache
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, Machine, MachineSpec, Platform, Shape
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.run.topologies.peers import Peer, connected, require_network, started_peer
from tare.workloads import WORKLOADS
from tare.workloads.network.ends import End, Ends
from workloads.workload_kinds import PAIRS

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root"),
    pytest.mark.skipif(not shutil.which("ip"), reason="iproute2 is not installed"),
]
SHAPE = Shape(1, 192 << 20)
PATIENCE_S = 120.0
BRIEFLY_S = 1.0
"""A first packet may need some tenths of it: on a busy computer, or in QEMU's own network stack."""


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program, "rt")
        assert ledger.open_entries() == ()


@asynccontextmanager
async def pair(
    context: Context, platform: Platform[Any], options: Any
) -> AsyncIterator[tuple[Machine, Peer]]:
    """Hold a machine of a platform, and a peer that it is connected with."""
    async with AsyncExitStack() as held:
        joined = await held.enter_async_context(
            connected([context], platform, options, several=False)
        )
        name = f"tare-test-{os.getpid()}-subject"
        workdir = context.ledger.path.parent / name
        spec = MachineSpec(name, SHAPE, (), workdir, False, network=joined.network, way=joined.way)
        prepared = await platform.prepare(context, options, SHAPE, False)
        machine = await platform.start(context, options, prepared, spec)
        held.push_async_callback(machine.stop)
        require_network(name, (await machine.ready(PATIENCE_S)).proof)
        yield machine, await held.enter_async_context(started_peer(context, joined.network, spec))


async def run_ends(peer: Peer, machine: Machine, ends: Ends) -> Outcome:
    return await peer.run(
        ends, machine, barrier=Barrier(1), deadline_s=PATIENCE_S, on_progress=lambda *_: None
    )


def ends_of(name: str, **parameters: Any) -> Ends:
    workload = PAIRS[name]
    return workload.ends(workload.parameters.model_validate(parameters))


async def parts(host: LocalHost, token: str) -> set[str]:
    """Return the interfaces and namespaces of this process's kernel that are of one network."""
    links = await host.run(["ip", "-o", "link"], timeout_s=patient(20))
    spaces = await host.run(["ip", "netns"], timeout_s=patient(20))
    words = (links.stdout + spaces.stdout).decode().replace("@", " ").replace(":", " ").split()
    return {word for word in words if word.startswith(token)}


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        pytest.param(Bare(), BareOptions(), id="bare"),
        pytest.param(
            Oci(),
            OciOptions(),
            id="oci",
            marks=[
                pytest.mark.container,
                pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
            ],
        ),
        *(
            pytest.param(
                Qemu(),
                QemuOptions.model_validate(chosen),
                id=f"qemu-{'-'.join(chosen.values())}",
                marks=[pytest.mark.guest, pytest.mark.slow, pytest.mark.boots],
            )
            for chosen in (
                {"devices": "paravirtual"},
                {"devices": "emulated"},
                {"devices": "paravirtual", "network": "user"},
            )
        ),
    ],
)
async def test_both_ends_find_each_other(
    context: Context, platform: Platform[Any], options: Any
) -> None:
    async with pair(context, platform, options) as (machine, peer):
        await peer.prove(machine)
        for name in ("request-response", "connect-request-response", "packet-rate"):
            workload = WORKLOADS[name]
            outcome = await run_ends(peer, machine, ends_of(name, duration=BRIEFLY_S))
            observed = workload.observe(workload.parameters(), outcome.value)
            assert all(value > 0 for value in observed.values()), (name, outcome.value)
        sent = ends_of("packet-rate", duration=BRIEFLY_S, direction="from-machine")
        if peer.network.links[machine.name].way == "user":
            with pytest.raises(WorkloadFault, match="network: tap"):
                await run_ends(peer, machine, sent)
        else:
            outcome = await run_ends(peer, machine, sent)
            assert 0 < outcome.value["server"]["packets"] <= outcome.value["sent"]


async def test_a_way_that_is_too_narrow_is_found_before_anything_is_measured(
    context: Context,
) -> None:
    async with pair(context, Bare(), BareOptions()) as (machine, peer):
        narrow = [*peer.network.around_peer, "ip", "link", "set", "eth0", "mtu", "1400"]
        assert (await context.host.run(narrow, timeout_s=patient(20))).ok
        with pytest.raises(WorkloadFault, match=r"1500 bytes.*MTU"):
            await peer.prove(machine)


async def test_interface_that_differs_from_the_request_is_reported(context: Context) -> None:
    async with connected([context], Bare(), BareOptions(), several=False) as joined:
        link = await joined.network.here("tare-x")
        agent = [str(context.agent), "serve"]
        wrong = {**link.variable, "TARE_NET": f"{link.address}/24,mtu=9000"}
        output = await context.host.run(agent, input=b"", env=wrong, timeout_s=patient(20))
        assert b"has an MTU of 1500, not 9000" in output.stdout


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
async def test_a_guest_whose_network_does_not_come_up_says_why(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.platforms.linux.network.host_network.MTU", 70_000)
    options = QemuOptions(network="user")
    with pytest.raises(MachineFault, match="network did not come up: eth0: MTU 70000"):
        async with pair(context, Qemu(), options):
            pass


async def test_a_client_that_finds_no_server_fails_with_both_words(context: Context) -> None:
    deaf = Ends(
        port=7100,
        server=End("net-server", {"address": "{address}", "port": 7101}),
        client=End(
            "request-response", {"address": "{address}", "port": "{port}", "patience_s": 0.1}
        ),
    )
    async with pair(context, Bare(), BareOptions()) as (machine, peer):
        with pytest.raises(WorkloadFault, match=r"cannot connect to .*:7100"):
            await run_ends(peer, machine, deaf)
        # The server that was there in vain is stopped, and the next cell works.
        outcome = await run_ends(peer, machine, ends_of("request-response", duration=BRIEFLY_S))
        assert outcome.value["exchanges"] > 0


async def test_server_that_cannot_serve_is_reported(context: Context) -> None:
    taken = Ends(7100, End("net-server", {"address": "192.0.2.1", "port": 1}), End("hog"))
    async with pair(context, Bare(), BareOptions()) as (machine, peer):
        with pytest.raises(WorkloadFault, match=r"cannot serve at 192\.0\.2\.1:1"):
            await run_ends(peer, machine, taken)


async def test_dead_peer_is_reported(context: Context) -> None:
    async with pair(context, Bare(), BareOptions()) as (machine, peer):
        entries = [e for e in context.ledger.open_entries() if e.kind == "process"]
        running = asyncio.ensure_future(
            run_ends(peer, machine, ends_of("request-response", duration=30))
        )
        await asyncio.sleep(0.5)
        os.kill(int(entries[-1].details["pid"]), 9)
        with pytest.raises(MachineFault):
            await running
        assert "peer" in str((await peer.machine.died).message)


async def test_a_killed_run_leaves_nothing_once_cleaned(context: Context) -> None:
    host = LocalHost(context.agent)
    async with connected([context], Oci(), OciOptions(), several=False) as joined:
        link = await joined.network.namespace("tare-x")
        token = link.interface.rpartition("-")[0]
        made = await parts(host, token)
        assert len(made) == 5, made
        # As `tare clean` does it, from what the ledger says.
        messages = await clean(host, context.ledger, {})
        assert await parts(host, token) == set()
        assert any("Removed network namespace" in sentence for sentence in messages)
        assert any("Removed network interface" in sentence for sentence in messages)
    context.ledger.record("link", name="eth0")
    assert "Left link" in (await clean(host, context.ledger, {}))[0]
