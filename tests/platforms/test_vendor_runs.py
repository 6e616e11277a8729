"""Whole runs on servers that stand for hypervisors: create, dial back, measure, destroy."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as ProxmoxServer
from platforms.vendor_guests import Guests
from platforms.xenserver_server import USER, XenServer
from run.run_driving import TARE
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.vendors.options import ANY
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.platform import Xenserver
from tare.run.session import agent_path

RUN_S = 300.0


async def tare(*words: str, **variables: str) -> tuple[int, str]:
    """Run the command; returns its status and all it said."""
    process = await asyncio.create_subprocess_exec(
        TARE,
        *words,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), RUN_S)
    return process.returncode or 0, said.decode()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("proxmox", marks=pytest.mark.slow),
        pytest.param("xenserver", marks=pytest.mark.acceptance),
    ],
)
async def test_a_run_measures_and_holds_no_secret(tmp_path: Path, kind: str) -> None:
    pytest.importorskip({"proxmox": "proxmoxer", "xenserver": "XenAPI"}[kind])
    server: Any = {"proxmox": ProxmoxServer, "xenserver": XenServer}[kind](tmp_path)
    image = {"proxmox": "local:iso/tare-live.iso", "xenserver": "tare-live.iso"}[kind]
    word = server.passwords[ROOT] if kind == "proxmox" else server.password
    guests = Guests(agent_path(), server.powered_off)
    server.plug, server.unplug = guests.plug, guests.unplug
    arm = {"platform": kind, "address": "127.0.0.1", "port": server.port, "image": image}
    arm["ca"] = str(server.ca)
    study = {
        "study": "simulated",
        "baseline": "pv",
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": "256MiB"},
        "arms": {"pv": arm, "emulated": {**arm, "devices": "emulated"}},
        "workloads": {"numeric-sort": {"duration": 0.2}},
    }
    file, out, state = tmp_path / "study.yaml", tmp_path / "out", tmp_path / "state"
    file.write_text(yaml.safe_dump(study))
    who = {f"TARE_{kind.upper()}_USER": ROOT if kind == "proxmox" else USER}
    who |= {f"TARE_{kind.upper()}_PASSWORD": word, "XDG_STATE_HOME": str(state)}
    server.start()
    try:
        status, said = await tare("run", str(file), "--out", str(out), **who)
        assert status == 0, said
        told, reported = await tare("report", str(out), **who)
        assert told == 0, reported
    finally:
        await guests.close()
        server.stop()
    assert not (server.vms if kind == "proxmox" else server.objects["VM"])
    lines = (out / "events.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    ended = [event for event in events if event["type"] == "cell_finished"]
    assert [event["status"] for event in ended] == ["ok"] * 4, said
    # The proof has the product and its build.
    assert {"proxmox": "Proxmox VE", "xenserver": "XCP-ng"}[kind] in "".join(lines)
    planted = {word, *guests.keys, *(server.tickets if kind == "proxmox" else server.sessions)}
    assert len(guests.keys) == 4
    assert not [each for each in planted if each in said + reported]
    looked_at = [path for place in (out, state) for path in place.rglob("*") if path.is_file()]
    assert looked_at
    for path in looked_at:
        content = path.read_bytes()
        assert not [each for each in planted if each.encode() in content], path


@pytest.mark.parametrize("module", ["requests", "proxmoxer", "XenAPI"])
async def test_without_the_library_the_doctor_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    context: Any = None
    for address in (ANY, "192.0.2.1"):
        if module == "XenAPI":
            verdict = await Xenserver().check(
                context, XenserverOptions.model_validate({"address": address})
            )
        else:
            verdict = await Proxmox().check(
                context, ProxmoxOptions.model_validate({"address": address})
            )
        assert not verdict.usable
        extra = "xenserver" if module == "XenAPI" else "proxmox"
        assert verdict.hint == f"pip install 'hypertare[{extra}]'"
