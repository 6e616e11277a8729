"""Whole runs over the network that agents dial back over; a local agent plays each guest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms.proxmox_server import Proxmox as Server
from platforms.test_proxmox_conformance import ALLOWED, TOKEN
from platforms.vendor_guests import Guests
from platforms.vendor_served import reached, tare
from run.run_ports import ports_held
from tare.run.lifecycle.session import agent_path

pytest.importorskip("proxmoxer")
pytestmark = [pytest.mark.slow, pytest.mark.acceptance]
SCENARIOS = {
    "alone": {},
    "beside": {"neighbours": [{"load": "net-load"}]},
    "between-two": {"machines": {"peer": {}}},
    "linked": {"link": "1Gbit"},
}
HERE = "127.0.0.1"


async def test_machines_of_one_cell_meet_on_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    # Without a right to create networks.
    server.rights[TOKEN] = ALLOWED
    guests = Guests(agent_path(), server.powered_off)
    server.plug, server.unplug = guests.plug, guests.unplug
    arm: dict[str, Any] = {
        "platform": "proxmox",
        **reached(server, TOKEN, server.tokens[TOKEN]),
        "pool": "tare",
        "image": "local:iso/tare-live.iso",
    }
    study = {
        "study": "given",
        "baseline": "vm",
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": "256MiB"},
        "arms": {"vm": {**arm, "network-way": "given"}, "none": arm},
        "scenarios": SCENARIOS,
        "workloads": {"request-response": {"duration": "1s"}},
    }
    file, out = tmp_path / "study.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump(study))
    server.start()
    try:
        async with ports_held():
            status, output = await tare(
                "run", str(file), "--out", str(out), XDG_STATE_HOME=str(tmp_path / "state")
            )
    finally:
        await guests.close()
        server.stop()
    assert status == 0, output
    assert not server.vms
    lines = (out / "events.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    ended = [event for event in events if event["type"] == "cell_finished"]
    assert [event["status"] for event in ended] == ["ok"] * 6, output
    ways = [
        (event["placement"]["role"], event["placement"]["network"]["way"])
        for event in events
        if event["type"] == "machine_ready"
    ]
    assert set(ways) == {("subject", "given"), ("neighbour-1", "given"), ("peer", "given")}
    # A guest is set to report its network only if that is asked for.
    assert all(each.get("given") is True for each in guests.configurations.values())
    skipped = {
        (event["arm"], event["scenario"]): event["reason"]
        for event in events
        if event["type"] == "skipped"
    }
    assert "which `network-way: given` is not" in skipped["vm", "linked"]
    assert "lacks the right SDN.Allocate on /sdn" in skipped["none", None]
    assert "`network-way: given` uses yours" in skipped["none", None]
