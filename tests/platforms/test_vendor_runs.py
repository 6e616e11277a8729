"""Whole runs on servers that stand for hypervisors: create, dial back, measure, destroy."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms.hyperv_host import IMAGE as HYPERV_IMAGE
from platforms.hyperv_host import USER as HYPERV_USER
from platforms.ovirt_server import USER as OVIRT_USER
from platforms.ovirt_server import OvirtServer
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as ProxmoxServer
from platforms.vendor_guests import Guests
from platforms.vendor_served import tare
from platforms.xenserver_server import USER, XenServer
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.libvirt.connection import INSTALL as LIBVIRT
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.platform import Ovirt
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.vendors.options import ANY
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.platform import Xenserver
from tare.run.lifecycle.session import agent_path

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def hyperv_server(folder: Path) -> Any:
    # It needs a library of its own.
    from platforms.hyperv_server import HypervServer

    return HypervServer(folder)


@dataclass(frozen=True)
class Product:
    """A server that simulates a product, Tare's account there, and what is left afterwards."""

    module: str
    server: Callable[[Path], Any]
    image: str
    user: str
    words: str
    password: Callable[[Any], str]
    left: Callable[[Any], object]
    secrets: Callable[[Any], set[str]]


PRODUCTS = {
    "proxmox": Product(
        "proxmoxer",
        ProxmoxServer,
        "local:iso/tare-live.iso",
        ROOT,
        "Proxmox VE",
        lambda server: str(server.passwords[ROOT]),
        lambda server: server.vms,
        lambda server: set(server.tickets),
    ),
    "xenserver": Product(
        "XenAPI",
        XenServer,
        "tare-live.iso",
        USER,
        "XCP-ng",
        lambda server: str(server.password),
        lambda server: server.objects["VM"],
        lambda server: set(server.sessions),
    ),
    "ovirt": Product(
        "ovirtsdk4",
        OvirtServer,
        "tare-live.iso",
        OVIRT_USER,
        "oVirt Engine",
        lambda server: str(server.password),
        lambda server: server.left,
        lambda server: set(server.tokens),
    ),
    "hyperv": Product(
        "psrpcore",
        hyperv_server,
        HYPERV_IMAGE,
        HYPERV_USER,
        "Windows Server",
        lambda server: str(server.password),
        lambda server: server.left,
        lambda server: set(server.shells),
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("proxmox", marks=[pytest.mark.slow, pytest.mark.boots]),
        pytest.param("xenserver", marks=pytest.mark.acceptance),
        pytest.param("ovirt", marks=pytest.mark.acceptance),
        pytest.param("hyperv", marks=pytest.mark.acceptance),
    ],
)
async def test_a_run_measures_and_holds_no_secret(tmp_path: Path, kind: str) -> None:
    product = PRODUCTS[kind]
    pytest.importorskip(product.module)
    server = product.server(tmp_path)
    word = product.password(server)
    guests = Guests(agent_path(), server.powered_off)
    server.plug, server.unplug = guests.plug, guests.unplug
    arm = {"platform": kind, "address": "127.0.0.1", "port": server.port, "ca": str(server.ca)}
    arm["image"] = product.image
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
    who = {f"TARE_{kind.upper()}_USER": product.user}
    who |= {f"TARE_{kind.upper()}_PASSWORD": word, "XDG_STATE_HOME": str(state)}
    server.start()
    try:
        status, output = await tare("run", str(file), "--out", str(out), **who)
        assert status == 0, output
        code, reported = await tare("report", str(out), **who)
        assert code == 0, reported
    finally:
        await guests.close()
        server.stop()
    assert not product.left(server)
    lines = (out / "events.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    ended = [event for event in events if event["type"] == "cell_finished"]
    assert [event["status"] for event in ended] == ["ok"] * 4, output
    # The proof has the product and its build.
    assert product.words in "".join(lines)
    planted = {word, *guests.keys, *product.secrets(server)}
    assert len(guests.keys) == 4
    assert not [each for each in planted if each in output + reported]
    looked_at = [path for place in (out, state) for path in place.rglob("*") if path.is_file()]
    assert looked_at
    for path in looked_at:
        content = path.read_bytes()
        assert not [each for each in planted if each.encode() in content], path


LIBRARIES = {
    "requests": (Proxmox, ProxmoxOptions, "proxmox"),
    "proxmoxer": (Proxmox, ProxmoxOptions, "proxmox"),
    "XenAPI": (Xenserver, XenserverOptions, "xenserver"),
    "ovirtsdk4": (Ovirt, OvirtOptions, "ovirt"),
    "pypsrp": (Hyperv, HypervOptions, "hyperv"),
}


@pytest.mark.parametrize("module", LIBRARIES)
async def test_without_the_library_the_doctor_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    context: Any = None
    platform: Any
    kind: Any
    platform, kind, extra = LIBRARIES[module]
    for address in (ANY, "192.0.2.1"):
        verdict = await platform().check(context, kind.model_validate({"address": address}))
        assert not verdict.usable
        install, _, build = verdict.hint.partition(" (it is built with: ")
        assert install == f"pip install 'hypertare[{extra}]'"
        assert bool(build) == (extra == "ovirt")


BUILT = {"libvirt": LIBVIRT, "ovirt": f"{OvirtSession.built_with})"}
"""Hints of libraries that are built where they are installed."""


@pytest.mark.parametrize("name", BUILT)
def test_hint_names_the_packages_of_the_guide(name: str) -> None:
    guide = " ".join((GUIDES / f"{name}.md").read_text(encoding="utf-8").split())
    command = re.search(r"`apt-get install --no-remove ([^`]+)`, then `pip install", guide)
    assert command
    hint = BUILT[name].rpartition("--no-remove ")[2].removesuffix(")")
    assert sorted(hint.split()) == sorted(command[1].split())
    # The extension is compiled against Python's headers.
    assert {"gcc", "python3-dev"} <= set(hint.split())
