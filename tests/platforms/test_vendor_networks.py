"""Networks that Tare creates at a vendor's server: created, found, removed, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pypsrp")
pytest.importorskip("psrpcore")
pytest.importorskip("XenAPI")

from platforms.hyperv_host import Card, Vm, VmSwitch
from platforms.hyperv_served import nothing_left, served
from platforms.hyperv_served import options_of as hyperv_options
from platforms.hyperv_server import HypervServer
from platforms.test_xenserver_parts import options_of as xen_options
from platforms.vendor_served import spec_of
from platforms.vsphere_simulated import Simulator, simulator, types
from platforms.xenserver_server import XenServer
from tare.errors import MachineFault
from tare.hosts import clean
from tare.platforms.contract import Context, MachineSpec, created, remove_resource
from tare.platforms.hyperv.network import HypervSwitchResource
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.platform import VendorPlatform, VmRequest
from tare.platforms.vendors.session import RequestRefused, opened
from tare.platforms.vsphere.network import VsphereSwitchResource
from tare.platforms.vsphere.platform import Vsphere
from tare.platforms.vsphere.session import VsphereSession
from tare.platforms.xenserver.network import XenNetworkResource, vif_record
from tare.platforms.xenserver.platform import Xenserver
from tare.platforms.xenserver.pool import Pool
from tare.platforms.xenserver.session import XenSession

NAME = "tare-t-net"
CARD = IsolatedNic(NAME, "52:54:00:0a:01:02", "10.10.1.2/24", 1500)
LIMITED = replace(CARD, rate=1e9)
hyperv = served


@pytest.fixture
def xen(tmp_path: Path) -> Iterator[XenServer]:
    made = XenServer(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module", params=[False, True], ids=["vcenter", "esxi"])
def vsphere(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    with simulator(esx=request.param) as running:
        yield running


async def with_card(
    platform: VendorPlatform[Any, Any],
    session: Any,
    context: Context,
    options: Any,
    spec: MachineSpec,
    held: AsyncExitStack,
    card: IsolatedNic = CARD,
) -> VirtualMachine:
    """Create a machine with a second card on the network :data:`NAME`."""
    request = VmRequest(
        options, spec, {"name": spec.name}, context.ledger, held, context.agent, isolated=card
    )
    return await platform.make(session, request)


# Hyper-V.


def switches(server: HypervServer) -> list[tuple[str, str]]:
    return [(each.name, each.kind) for each in server.host.made]


async def test_hyper_v_creates_a_private_switch_and_removes_it(
    server: HypervServer, context: Context
) -> None:
    way = hyperv_options(server).connection()
    async with opened(HypervSession(way)) as session:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        assert not await switch.exists()
        async with created(context.ledger, switch):
            assert switches(server) == [(NAME, "Private")]
            assert await switch.exists()
            (entry,) = context.ledger.open_entries()
            assert (entry.kind, entry.details["name"]) == ("hyperv-switch", NAME)
        assert switches(server) == [] and not context.ledger.open_entries()


async def test_hyper_v_leaves_switches_of_others_that_have_the_name(
    server: HypervServer, context: Context
) -> None:
    server.host.made.append(VmSwitch(NAME, "Internal", "somebody's"))
    way = hyperv_options(server).connection()
    async with opened(HypervSession(way)) as session:
        assert not await remove_resource(HypervSwitchResource(session, {**way, "name": NAME}))
    assert switches(server) == [(NAME, "Internal")]


async def test_hyper_v_waits_until_the_last_vm_is_off(server: HypervServer) -> None:
    way = hyperv_options(server).connection()
    async with opened(HypervSession(way)) as session:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        await switch.create()
        vm = Vm("somebody's", 1, 1 << 28, "D:\\x", cards=[Card(False, NAME)], state="Running")
        server.host.vms[vm.id] = vm
        with pytest.raises(RequestRefused, match="ObjectInUse") as refused:
            await switch.remove()
        assert switch.passes(refused.value)
        vm.state = "Off"
        assert await remove_resource(switch)
    assert switches(server) == []


async def test_hyper_v_refuses_accounts_that_are_not_administrators(
    server: HypervServer, context: Context
) -> None:
    way = hyperv_options(server).connection()
    server.host.may_hyperv = False
    async with opened(HypervSession(way)) as session:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        with pytest.raises(RequestRefused, match="AccessDenied") as refused:
            async with created(context.ledger, switch):
                pass
        assert "tare help hyper-v" in refused.value.hint
        # Whether the switch exists is not visible to this account, so its entry stays open.
        server.host.may_hyperv = True
    assert await clean(context.host, context.ledger, Hyperv.undoers) == []
    assert switches(server) == [] and not context.ledger.open_entries()


async def test_clean_removes_a_switch_that_a_killed_run_left(
    server: HypervServer, context: Context
) -> None:
    way = hyperv_options(server).connection()
    async with opened(HypervSession(way)) as session:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        context.ledger.record(switch.kind, **switch.details)
        await switch.create()
    removed = await clean(context.host, context.ledger, Hyperv.undoers)
    assert removed == [f"Removed the virtual switch {NAME}."]
    assert switches(server) == [] and not context.ledger.open_entries()


@pytest.mark.parametrize("devices", ["paravirtual", "emulated"])
async def test_a_second_card_of_hyper_v_is_on_the_isolated_switch(
    server: HypervServer, context: Context, tmp_path: Path, devices: str
) -> None:
    options = hyperv_options(server, devices=devices)
    way = options.connection()
    async with opened(HypervSession(way)) as session, AsyncExitStack() as held:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        await held.enter_async_context(created(context.ledger, switch))
        spec = spec_of(tmp_path)
        vm = await with_card(Hyperv(), session, context, options, spec, held)
        (there,) = server.host.vms.values()
        legacy = devices == "emulated"
        assert [(card.legacy, card.switch, card.mac) for card in there.cards] == [
            (legacy, "External", ""),
            (legacy, NAME, "5254000A0102"),
        ]
        await vm.power_on()
        # Hyper-V reports cards in any order.
        there.cards.reverse()
        await vm.applied()
        there.cards[0].switch = "External"
        with pytest.raises(MachineFault, match="the card on the isolated network was to be 5254"):
            await vm.power_on()
        there.cards.pop()
        with pytest.raises(MachineFault, match="to have 2 network card"):
            await vm.power_on()
        there.state = "Off"
    assert switches(server) == [] and nothing_left(server, context)


async def test_hyper_v_limits_what_the_card_on_the_isolated_switch_sends(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    options = hyperv_options(server)
    assert Hyperv().stated(options).capabilities.limits_cards
    emulated = Hyperv().stated(hyperv_options(server, devices="emulated"))
    assert not emulated.capabilities.limits_cards
    way = options.connection()
    async with opened(HypervSession(way)) as session, AsyncExitStack() as held:
        switch = HypervSwitchResource(session, {**way, "name": NAME})
        await held.enter_async_context(created(context.ledger, switch))
        await with_card(Hyperv(), session, context, options, spec_of(tmp_path), held, LIMITED)
        (there,) = server.host.vms.values()
        assert [(card.switch, card.most) for card in there.cards] == [
            ("External", 0),
            (NAME, 1_000_000_000),
        ]
    assert nothing_left(server, context)


# XenServer and XCP-ng.


def networks(server: XenServer) -> list[str]:
    return [each["name_label"] for each in server.objects["network"].values()][1:]


async def test_xenapi_creates_a_network_without_a_pif_and_removes_it(
    xen: XenServer, context: Context
) -> None:
    way = xen_options(xen).connection()
    async with opened(XenSession(way)) as session:
        network = XenNetworkResource(session, {**way, "name": NAME})
        assert not await network.exists()
        async with created(context.ledger, network):
            assert networks(xen) == [NAME] and await network.exists()
            assert not [each for each in xen.asked if each.startswith("PIF.")]
            (entry,) = context.ledger.open_entries()
            assert (entry.kind, entry.details["name"]) == ("xenserver-network", NAME)
        assert networks(xen) == [] and not context.ledger.open_entries()


async def test_xenapi_keeps_a_network_while_a_vm_is_attached(xen: XenServer) -> None:
    way = xen_options(xen).connection()
    async with opened(XenSession(way)) as session:
        network, pool = XenNetworkResource(session, {**way, "name": NAME}), Pool(session)
        await network.create()
        (reference,) = await pool.own("network", NAME)
        vm = xen.add("VM", power_state="Running")
        vif = vif_record(vm, reference, "1", "52:54:00:01:02:03")
        await pool.ask(lambda api: api.VIF.create(vif))
        with pytest.raises(RequestRefused, match="NETWORK_CONTAINS_VIF") as refused:
            await network.remove()
        assert network.passes(refused.value)
        xen.objects["VM"][vm]["power_state"] = "Halted"
        assert await remove_resource(network)
    assert networks(xen) == []


async def test_xenapi_refuses_roles_that_may_not_create_networks(
    xen: XenServer, context: Context
) -> None:
    way, xen.role = xen_options(xen).connection(), "vm-operator"
    async with opened(XenSession(way)) as session:
        network = XenNetworkResource(session, {**way, "name": NAME})
        with pytest.raises(
            RequestRefused, match=r"RBAC_PERMISSION_DENIED \(network.create"
        ) as refused:
            async with created(context.ledger, network):
                pass
        assert "role-name=vm-power-admin" in refused.value.hint
    assert networks(xen) == [] and not context.ledger.open_entries()


async def test_clean_removes_a_network_that_a_killed_run_left_and_no_other(
    xen: XenServer, context: Context
) -> None:
    way = xen_options(xen).connection()
    xen.add("network", name_label=NAME, other_config={})
    async with opened(XenSession(way)) as session:
        network = XenNetworkResource(session, {**way, "name": NAME})
        context.ledger.record(network.kind, **network.details)
        await network.create()
    assert networks(xen) == [NAME, NAME]
    removed = await clean(context.host, context.ledger, Xenserver.undoers)
    assert removed == [f"Removed the network {NAME}."] and networks(xen) == [NAME]
    assert not context.ledger.open_entries()


async def test_a_second_card_of_xenapi_is_on_the_isolated_network(
    xen: XenServer, context: Context, tmp_path: Path
) -> None:
    options = xen_options(xen)
    way = options.connection()
    async with opened(XenSession(way)) as session, AsyncExitStack() as held:
        network = XenNetworkResource(session, {**way, "name": NAME})
        await held.enter_async_context(created(context.ledger, network))
        await with_card(Xenserver(), session, context, options, spec_of(tmp_path), held)
        cards = {vif["device"]: vif for vif in xen.objects["VIF"].values()}
        assert sorted(cards) == ["0", "1"]
        assert cards["0"]["network"] == xen.network and cards["0"]["MAC"] == ""
        own = xen.objects["network"][cards["1"]["network"]]
        assert own["name_label"] == NAME and cards["1"]["MAC"] == CARD.mac
        assert {vif["qos_algorithm_type"] for vif in cards.values()} == {""}
        limited = vif_record("vm", "network", "1", CARD.mac, LIMITED.rate)
        # KiB per second.
        assert limited["qos_algorithm_type"] == "ratelimit"
        assert limited["qos_algorithm_params"] == {"kbps": "122070"}
    assert networks(xen) == [] and not context.ledger.open_entries()


# VSphere.


def details_of(there: Simulator) -> dict[str, Any]:
    options = there.options()
    return {
        "name": NAME,
        "options": {**options.model_dump(mode="json"), **options.connection()},
    }


def port_groups(there: Simulator) -> list[tuple[str, str]]:
    """Return the host's standard switches and their port groups, Tare's own only."""
    with there.client() as client:
        (host,) = [h for h in there.hosts(client) if h.name == (there.options().host or h.name)]
        found = host.configManager.networkSystem.networkInfo
        own = [("switch", each.name) for each in found.vswitch if each.name == NAME]
        return own + [
            ("group of " + each.spec.vswitchName, each.spec.name)
            for each in found.portgroup
            if each.spec.name == NAME
        ]


async def test_vsphere_creates_a_switch_without_an_uplink_and_removes_it(
    vsphere: Simulator, context: Context
) -> None:
    details = details_of(vsphere)
    async with opened(VsphereSession(details["options"])) as session:
        switch = VsphereSwitchResource(session, details)
        assert not await switch.exists()
        async with created(context.ledger, switch):
            assert port_groups(vsphere) == [("switch", NAME), (f"group of {NAME}", NAME)]
            assert await switch.exists()
            (entry,) = context.ledger.open_entries()
            assert (entry.kind, entry.details["name"]) == ("vsphere-switch", NAME)
        assert port_groups(vsphere) == [] and not context.ledger.open_entries()


async def test_vsphere_limits_what_vms_send_over_a_port_group(
    vsphere: Simulator, context: Context
) -> None:
    details = {**details_of(vsphere), "rate": 1e9}
    async with opened(VsphereSession(details["options"])) as session, AsyncExitStack() as held:
        switch = VsphereSwitchResource(session, details)
        await held.enter_async_context(created(context.ledger, switch))
        with vsphere.client() as client:
            (shaping,) = (
                group.spec.policy.shapingPolicy
                for host in vsphere.hosts(client)
                for group in host.configManager.networkSystem.networkInfo.portgroup
                if group.spec.name == NAME
            )
        assert shaping.enabled
        assert (shaping.averageBandwidth, shaping.peakBandwidth) == (10**9, 10**9)
        assert shaping.burstSize == 125_000
    assert port_groups(vsphere) == []


@pytest.mark.parametrize(
    ("method", "fault", "words"),
    [
        ("AddVirtualSwitch", "RestrictedVersion", "free ESXi"),
        ("AddVirtualSwitch", "NoNetworkPermission", "lacks Host.Config.Network"),
        ("AddPortGroup", "NoNetworkPermission", "lacks Host.Config.Network"),
    ],
)
async def test_vsphere_refuses_what_licence_or_rights_forbid(
    vsphere: Simulator, context: Context, method: str, fault: str, words: str
) -> None:
    details = details_of(vsphere)
    vsphere.refuse(method, fault)
    async with opened(VsphereSession(details["options"])) as session:
        with pytest.raises(RequestRefused, match=words):
            async with created(context.ledger, VsphereSwitchResource(session, details)):
                pass
    vsphere.order(do="allow")
    assert port_groups(vsphere) == [] and not context.ledger.open_entries()


async def test_clean_removes_what_is_left_of_a_switch_of_vsphere(
    vsphere: Simulator, context: Context
) -> None:
    details = details_of(vsphere)
    async with opened(VsphereSession(details["options"])) as session:
        switch = VsphereSwitchResource(session, details)
        context.ledger.record(switch.kind, **switch.details)
        vsphere.refuse("AddPortGroup", "NoNetworkPermission")
        with pytest.raises(MachineFault):
            await switch.create()
    vsphere.order(do="allow")
    assert port_groups(vsphere) == [("switch", NAME)]
    removed = await clean(context.host, context.ledger, Vsphere.undoers)
    assert len(removed) == 1 and removed[0].startswith(f"Removed the standard switch {NAME} ")
    assert port_groups(vsphere) == [] and not context.ledger.open_entries()


@pytest.mark.parametrize(
    ("arm", "kind"),
    [
        ({}, "VirtualVmxnet3"),
        ({"devices": "emulated"}, "VirtualE1000"),
        ({"devices": "emulated", "nic": "e1000e"}, "VirtualE1000e"),
    ],
)
async def test_a_second_card_of_vsphere_is_on_the_isolated_port_group(
    vsphere: Simulator, context: Context, tmp_path: Path, arm: dict[str, Any], kind: str
) -> None:
    options, details = vsphere.options(**arm), details_of(vsphere)
    async with opened(VsphereSession(details["options"])) as session, AsyncExitStack() as held:
        switch = VsphereSwitchResource(session, details)
        await held.enter_async_context(created(context.ledger, switch))
        await with_card(Vsphere(), session, context, options, spec_of(tmp_path), held)
        with vsphere.client() as client:
            (vm,) = vsphere.machines(client)
            cards = [
                (type(each).__name__.rpartition(".")[2], each.backing.deviceName, each.macAddress)
                for each in vm.config.hardware.device
                if isinstance(each, types().vim.vm.device.VirtualEthernetCard)
            ]
        assert [card[:2] for card in cards] == [(kind, "VM Network"), (kind, NAME)]
        assert cards[1][2] == CARD.mac and cards[0][2] != CARD.mac
    assert port_groups(vsphere) == [] and vsphere.left() == []
    assert not context.ledger.open_entries()
