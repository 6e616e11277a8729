"""Guests that boot are measured over the network that they have: QEMU, the live image, and a tap.

The server stands for Proxmox VE, and the tap for the network that it and this computer are on.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.live_guest import make_disc
from platforms.live_qemu import LiveGuests, Wire
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.test_vendor_disks import IMAGE
from platforms.vendor_served import reached, tare_within
from tare.hosts import Ledger, LocalHost
from tare.images.live.disc import TOOLS
from tare.platforms.contract import Context
from tare.platforms.linux.network import MTU, free_subnet
from tare.platforms.linux.network.parts import Parts

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
RUN_S = 1500.0
MEASURED = {
    "net-stream": {"duration": "2s", "warmup": "0s"},
    "request-response": {"duration": "2s"},
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
async def wired(folder: Path) -> AsyncIterator[tuple[str, Wire]]:
    """Hold a tap with an address of this computer's, and what a guest at it is told."""
    from contextlib import AsyncExitStack

    host = LocalHost()
    with Ledger(folder / "wire") as ledger:
        context: Any = Context(host, ledger, folder, folder)
        async with AsyncExitStack() as held:
            parts, subnet = Parts(context, held), await free_subnet([host])
            name = f"tare-{os.getpid()}w"
            await parts.tap(name, MTU)
            await parts.ip("addr", "add", f"{subnet[1]}/24", "dev", name)
            await parts.ip("link", "set", name, "up")
            yield str(subnet[1]), Wire(name, f"{subnet[2]}/24")


async def carried_out(
    server: Server, guests: LiveGuests, folder: Path, callback: str
) -> tuple[int, list[dict[str, Any]], str]:
    """Carry out a study of one arm; returns the status, the events and what was said."""
    server.plug, server.unplug = guests.plug, guests.unplug
    arm = {
        "platform": "proxmox",
        **reached(server, ROOT, server.passwords[ROOT]),
        "image": IMAGE,
        "disks": "fast",
        "kvm": False,
        "cpu": "max",
        "callback": f"{callback}:0",
        "network-way": "given",
    }
    study = {
        "study": "given",
        "baseline": "vm",
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": "1GiB"},
        "arms": {"vm": arm},
        "workloads": MEASURED,
    }
    file, out = folder / "study.yaml", folder / "out"
    file.write_text(yaml.safe_dump(study))
    try:
        status, said = await tare_within(
            RUN_S, "run", str(file), "--out", str(out), XDG_STATE_HOME=str(folder / "state")
        )
    finally:
        print(guests.said())
        await asyncio.to_thread(guests.close)
    assert (out / "events.jsonl").exists(), said
    lines = (out / "events.jsonl").read_text().splitlines()
    return status, [json.loads(line)["event"] for line in lines], said


async def test_a_guest_is_measured_over_the_network_it_has(
    server: Server, disc: Path, tmp_path: Path
) -> None:
    async with wired(tmp_path) as (here, wire):
        guests = LiveGuests(server, disc, tmp_path, [wire])
        status, events, said = await carried_out(server, guests, tmp_path, here)
    assert status == 0, said
    ended = [event for event in events if event["type"] == "cell_finished"]
    assert [event["status"] for event in ended] == ["ok"] * len(MEASURED), said
    (ready,) = [event for event in events if event["type"] == "machine_ready"]
    placed = ready["placement"]["network"]
    assert (placed["way"], placed["mtu"]) == ("given", MTU)
    assert (placed["address"], placed["peer"]) == (wire.guest.partition("/")[0], here)
    assert ready["proof"]["network"]["driver"] == "virtio_net"


async def test_a_guest_behind_translated_addresses_is_refused(
    server: Server, disc: Path, tmp_path: Path
) -> None:
    """QEMU's user-mode network is such a place: the guest is 10.0.2.15 to itself alone."""
    guests = LiveGuests(server, disc, tmp_path)
    status, events, said = await carried_out(server, guests, tmp_path, "127.0.0.1")
    assert status == 1, said
    reasons = {event["reason"] for event in events if event["type"] == "cell_finished"}
    (reason,) = reasons
    assert "its own address is 10.0.2.15, and here it is seen as 127.0.0.1" in reason
    assert "NAT" in reason
