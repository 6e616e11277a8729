"""The isolated network at Proxmox VE: created before machines, and removed after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.test_proxmox_conformance import ALLOWED, IMAGE, TOKEN
from platforms.vendor_served import reached, spec_of
from tare.errors import MachineFault
from tare.hosts import clean
from tare.platforms.contract import Context
from tare.platforms.proxmox.network import vnet_of
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.proxmox.vm import differing, settings
from tare.platforms.vendors.isolated_network import IsolatedNic

pytest.importorskip("proxmoxer")

NAME = "tare-0123abcd"
NIC = IsolatedNic(NAME, "52:54:00:0a:02:0b", "10.10.2.11/24", 1500)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: Server, user: str = ROOT, **more: Any) -> ProxmoxOptions:
    word = server.passwords.get(user) or server.tokens[user]
    return ProxmoxOptions.model_validate(
        {**reached(server, user, word), "image": IMAGE, "pool": "tare", **more}
    )


async def test_a_zone_with_a_vnet_is_created_applied_and_removed(
    server: Server, context: Context
) -> None:
    options = options_of(server)
    async with Proxmox().isolated_network(context, options, NAME):
        assert server.zones == {"t0123abc": {"zone": "t0123abc", "type": "simple"}}
        assert server.vnets["t0123abc"]["alias"] == NAME
        assert server.applied == [frozenset({"t0123abc"})]
        (entry,) = context.ledger.open_entries()
        assert entry.kind == "proxmox-network" and entry.details["name"] == NAME
    assert not server.zones and not server.vnets and server.applied[-1] == frozenset()
    assert not context.ledger.open_entries()


@pytest.mark.parametrize("half", [False, True])
async def test_clean_removes_the_network_of_a_killed_run(
    server: Server, context: Context, half: bool
) -> None:
    options = options_of(server)
    context.ledger.record("proxmox-network", **options.connection(), name=NAME)
    zone = vnet_of(NAME)
    server.zones[zone] = {"zone": zone, "type": "simple"}
    if not half:
        server.vnets[zone] = {"vnet": zone, "zone": zone, "alias": NAME}
    await clean(context.host, context.ledger, Proxmox.undoers)
    assert not server.zones and not server.vnets and not context.ledger.open_entries()


async def test_a_vnet_with_another_alias_is_left(server: Server, context: Context) -> None:
    options = options_of(server)
    context.ledger.record("proxmox-network", **options.connection(), name=NAME)
    zone = vnet_of(NAME)
    server.zones[zone] = {"zone": zone, "type": "simple"}
    server.vnets[zone] = {"vnet": zone, "zone": zone, "alias": "mine"}
    await clean(context.host, context.ledger, Proxmox.undoers)
    assert zone in server.zones and zone in server.vnets


async def test_a_network_that_cannot_be_applied_is_removed(
    server: Server, context: Context
) -> None:
    server.fails["reloadnetworkall"] = "the network is locked for now"
    with pytest.raises(MachineFault, match="apply the VNet t0123abc"):
        async with Proxmox().isolated_network(context, options_of(server), NAME):
            pass
    assert not server.zones and not server.vnets and not context.ledger.open_entries()


@pytest.mark.parametrize(("path", "right"), [("/sdn", "SDN.Allocate"), ("/sdn/zones", "SDN.Use")])
async def test_without_a_right_the_reason_for_no_network_is_given(
    server: Server, context: Context, path: str, right: str
) -> None:
    enough = {"/sdn": {"SDN.Allocate"}, "/sdn/zones": {"SDN.Use"}}
    server.rights[TOKEN] = {**ALLOWED, **enough, path: enough[path] - {right}}
    verdict = await Proxmox().check(context, options_of(server, TOKEN))
    assert verdict.usable, verdict.reason
    missing = f"the account lacks the right {right} on {path}"
    assert missing in verdict.capabilities.no_network
    assert "`network-way: given` uses yours" in verdict.capabilities.no_network
    given = await Proxmox().check(context, options_of(server, TOKEN, network_way="given"))
    assert given.usable and not given.capabilities.no_network
    server.rights[TOKEN] = {**ALLOWED, **enough}
    verdict = await Proxmox().check(context, options_of(server, TOKEN))
    assert verdict.usable and not verdict.capabilities.no_network


@pytest.mark.parametrize(
    ("more", "model"),
    [({}, "virtio"), ({"devices": "emulated", "nic": "rtl8139"}, "rtl8139")],
)
def test_the_second_card_has_the_arms_model_and_the_mac(
    server: Server, tmp_path: Path, more: dict[str, Any], model: str
) -> None:
    options, spec = options_of(server, **more), spec_of(tmp_path)
    wanted = settings(options, spec, "u", "c", None, NIC)
    assert wanted["net1"] == f"{model}=52:54:00:0A:02:0B,bridge=t0123abc"
    assert wanted["net0"] == f"{model},bridge=vmbr0"
    assert differing(wanted, wanted) == ""
    # A gigabit per second is 119.209 MiB per second.
    limited = settings(options, spec, "u", "c", None, replace(NIC, rate=1e9))
    assert limited["net1"] == f"{wanted['net1']},rate=119.209"
    assert differing(limited, wanted).startswith("net1 was to be")
    other = {**wanted, "net1": wanted["net1"].replace("t0123abc", "vmbr0")}
    assert differing(wanted, other).startswith("net1 was to be")
    assert "net1" not in settings(options, replace(spec), "u", "c")
