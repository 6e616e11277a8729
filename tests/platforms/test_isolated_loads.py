"""Whole runs with a load over networks that a driver created at its product's simulator.

Local agents play the guests. Each has the cards of its VM, in a network namespace of its own, on
bridges that stand for the simulated networks. So HAProxy, its client and its origin really send
packets over the network that the driver created.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.toolbox_small import real_toolbox
from platforms.guest_networks import Card, GuestNetworks
from platforms.hyperv_host import IMAGE as HYPERV_IMAGE
from platforms.hyperv_host import USER as HYPERV_USER
from platforms.ovirt_server import USER as OVIRT_USER
from platforms.ovirt_server import OvirtServer
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as ProxmoxServer
from platforms.vendor_guests import Guests
from platforms.vendor_served import reached, tare_within
from platforms.vsphere_simulated import booting, simulator
from platforms.xenserver_server import USER as XEN_USER
from platforms.xenserver_server import XenServer
from run.run_driving import Running, assert_no_ledger_is_left
from run.run_driving import events as events_in
from tare.hosts import LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.extended import extended_toolbox
from tare.images.toolbox.toolbox import prepare_toolbox
from tare.run.lifecycle.session import agent_path
from tare.workloads.additions import Additions

RUN_S, CLUSTER_S = 540.0, 1500.0
HAPROXY = Additions(packages=frozenset({"haproxy"}))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@dataclass(frozen=True)
class Product:
    """A server that simulates a product, and how it reports networks and cards.

    Args:
        module: The library that Tare needs for it.
        server: Makes the server in a folder.
        account: Returns Tare's account there, and its password.
        chosen: The image that its machines boot, and where their disks are.
        cards: Returns the cards of a VM.
        networks: Returns the networks that were created there.
        machines: Returns the VMs there.
        models: The models of a para-virtual and of an emulated card, in the server's words.
    """

    module: str
    server: Callable[[Path], Any]
    account: Callable[[Any], tuple[str, str]]
    chosen: dict[str, str]
    cards: Callable[[Any, Any], Sequence[Card]]
    networks: Callable[[Any], Sequence[str]]
    machines: Callable[[Any], Sequence[Any]]
    models: tuple[str, str]


def hyperv_server(folder: Path) -> Any:
    # It needs a library of its own.
    from platforms.hyperv_server import HypervServer

    return HypervServer(folder)


def proxmox_cards(server: Any, vm: Any) -> list[Card]:
    config, found = server.vms[vm]["config"], []
    for key in sorted(each for each in config if each.startswith("net")):
        model, _, rest = str(config[key]).partition(",")
        model, _, mac = model.partition("=")
        bridge = rest.removeprefix("bridge=").partition(",")[0]
        found.append(Card(bridge if bridge in server.applied[-1] else "", model, mac.lower()))
    return found


def xen_cards(server: Any, vm: Any) -> list[Card]:
    objects = server.objects
    own = [vif for vif in objects["VIF"].values() if vif["VM"] == vm]
    # A guest has netfront and this one: its kernel chooses, and the agent's proof shows which.
    model = str(objects["VM"][vm]["platform"]["nic_type"])
    return [
        Card(
            "" if vif["network"] == server.network else named(objects["network"], vif["network"]),
            model,
            vif["MAC"],
        )
        for vif in sorted(own, key=lambda vif: int(vif["device"]))
    ]


def named(networks: Any, reference: str) -> str:
    return str(networks[reference]["name_label"])


def ovirt_cards(server: Any, vm: Any) -> list[Card]:
    names = {each.id: each.name for each in server.there["vnicprofiles"]}
    found = []
    for card in server.cards[vm]:
        network = names[card.vnic_profile.id]
        mac = "" if card.mac is None else str(card.mac.address)
        own = "" if network == "ovirtmgmt" else network
        found.append(Card(own, str(card.interface), mac))
    return found


def hyperv_cards(server: Any, vm: Any) -> list[Card]:
    made = {each.name for each in server.host.made}
    return [
        Card(
            str(card.switch) if card.switch in made else "",
            "legacy" if card.legacy else "synthetic",
            ":".join(card.mac[at : at + 2] for at in range(0, 12, 2)).lower() if card.mac else "",
        )
        for card in server.host.vms[vm].cards
    ]


PRODUCTS = {
    "proxmox": Product(
        "proxmoxer",
        ProxmoxServer,
        lambda server: (ROOT, str(server.passwords[ROOT])),
        {"image": "local:iso/tare-live.iso", "disks": "fast"},
        proxmox_cards,
        lambda server: [*server.zones, *server.vnets],
        lambda server: list(server.vms),
        ("virtio", "e1000"),
    ),
    "xenserver": Product(
        "XenAPI",
        XenServer,
        lambda server: (XEN_USER, str(server.password)),
        {"image": "tare-live.iso"},
        xen_cards,
        lambda server: [key for key in server.objects["network"] if key != server.network],
        lambda server: list(server.objects["VM"]),
        ("rtl8139", "rtl8139"),
    ),
    "ovirt": Product(
        "ovirtsdk4",
        OvirtServer,
        lambda server: (OVIRT_USER, str(server.password)),
        {"image": "tare-live.iso"},
        ovirt_cards,
        lambda server: list(server.networks),
        lambda server: list(server.left),
        ("virtio", "e1000"),
    ),
    "hyperv": Product(
        "psrpcore",
        hyperv_server,
        lambda server: (HYPERV_USER, str(server.password)),
        {"image": HYPERV_IMAGE},
        hyperv_cards,
        lambda server: [each.name for each in server.host.made],
        lambda server: list(server.left),
        ("synthetic", "legacy"),
    ),
}


@dataclass(frozen=True)
class There:
    """A simulated product that runs.

    Args:
        arm: How an arm reaches it.
        networks: Returns the networks that were created there.
        machines: Returns the VMs there.
        models: As :class:`Product` has them.
    """

    arm: dict[str, Any]
    networks: Callable[[], Sequence[str]]
    machines: Callable[[], Sequence[Any]]
    models: tuple[str, str]


@asynccontextmanager
async def simulated(kind: str, folder: Path, networks: GuestNetworks) -> AsyncIterator[There]:
    """Hold a simulated product whose guests have the network cards of their VMs."""
    await networks.open()
    try:
        making = (
            simulated_vsphere(networks) if kind == "vsphere" else served(kind, folder, networks)
        )
        async with making as there:
            yield there
    finally:
        await networks.close()


@asynccontextmanager
async def served(kind: str, folder: Path, networks: GuestNetworks) -> AsyncIterator[There]:
    product = PRODUCTS[kind]
    pytest.importorskip(product.module)
    server = product.server(folder)
    guests = Guests(
        agent_path(), server.powered_off, networks, lambda vm: product.cards(server, vm)
    )
    server.plug, server.unplug = guests.plug, guests.unplug
    server.start()
    try:
        yield There(
            {**reached(server, *product.account(server)), **product.chosen},
            lambda: product.networks(server),
            lambda: product.machines(server),
            product.models,
        )
    finally:
        await guests.close()
        server.stop()


@asynccontextmanager
async def simulated_vsphere(networks: GuestNetworks) -> AsyncIterator[There]:
    with simulator() as running:
        arm = running.options().model_dump(mode="json", exclude_defaults=True, by_alias=True)
        arm = {key.replace("_", "-"): value for key, value in arm.items()}
        async with booting(running, agent_path(), networks):
            # One list has both, and the files on datastores.
            yield There(arm, running.left, list, ("VirtualVmxnet3", "VirtualE1000e"))


async def load_balancers_toolbox() -> Path:
    """Return the tree of the toolbox that load balancers need, as studies build it."""
    agent = agent_path()
    base = await real_toolbox(agent)
    made = await extended_toolbox(
        LocalHost(agent), base, HAPROXY, agent=agent, cache=default_cache(), say=print
    )
    return made.tree


def words_of(
    study: str, arms: str, there: There, networks: GuestNetworks, folder: Path, **changes: str
) -> list[str]:
    """Return the words of a run of a shipped study on arms of one product alone."""
    baseline = arms.partition(",")[0]
    kind = baseline.removesuffix("-em")
    hosts = folder / "hosts.yaml"
    arm = {**there.arm, "callback": networks.callback}
    hosts.write_text(yaml.safe_dump({"hypervisors": {kind: arm}}))
    keys = {"baseline": baseline, **{f"workloads.{key}": value for key, value in changes.items()}}
    return [
        *("run", study, "--hosts", str(hosts), "--out", str(folder / "out")),
        *("--arm", arms, "--blocks", "1"),
        *(word for key, value in keys.items() for word in ("--set", f"{key}={value}")),
    ]


DFSIO = {"dfsio.size": "16MiB", "dfsio.files": "1"}
SCENARIOS = {
    "load-balancer-short": ("proxied", "proxy"),
    "mapreduce-smoke": ("one-slave", "dfsio"),
}
"""One scenario and one workload of each study."""
PROXY = {"proxy.size": "4KiB", "proxy.step": "500ms", "proxy.origin-addresses": "2"}


def load_words(kind: str, there: There, networks: GuestNetworks, folder: Path) -> list[str]:
    """Return the words of a run of a load balancer on the arms of one product."""
    arms = f"{kind},{kind}-em"
    return words_of("load-balancer-short", arms, there, networks, folder, **PROXY)


KINDS = ["proxmox", "xenserver", "ovirt", "hyperv", "vsphere"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_load_balancer_on_an_isolated_network(tmp_path: Path, kind: str) -> None:
    out, state = tmp_path / "out", str(tmp_path / "state")
    networks = GuestNetworks(await load_balancers_toolbox())
    async with simulated(kind, tmp_path, networks) as there:
        words = load_words(kind, there, networks, tmp_path)
        status, output = await tare_within(RUN_S, *words, XDG_STATE_HOME=state)
        assert status == 0, output
        assert not there.networks() and not there.machines() and not networks.left
    assert_no_ledger_is_left(tmp_path)
    events = events_in(out)
    require_networks(kind, events, networks, there.models, ("subject", "peer", "origin"))
    for event in events:
        if event["type"] == "cell_finished" and f"/{kind}" in event["cell"]:
            require_load(event, events)


def require_networks(
    kind: str,
    events: list[dict[str, Any]],
    networks: GuestNetworks,
    models: tuple[str, str],
    wanted_roles: Collection[str],
    batches: int = 2,
) -> None:
    """Check that each batch had a network of its own, with the cards that its arm asks for."""
    arms = {
        each["machine"]: (each["arm"], each["role"])
        for each in events
        if each["type"] == "machine_starting" and each["arm"] in (kind, f"{kind}-em")
    }
    assert len(networks.plugged) == len(arms) == batches * len(wanted_roles)
    started = zip(arms.values(), networks.plugged, strict=True)
    of_batches = []
    for arm, batch in itertools.groupby(started, key=lambda each: each[0][0]):
        roles, plugged = zip(*batch, strict=True)
        assert sorted(role for _, role in roles) == sorted(wanted_roles)
        (network,) = {each.cards[1].network for each in plugged}
        assert network and all(each.cards[0].network == "" for each in plugged)
        wanted = models[arm.endswith("-em")]
        assert {card.model for each in plugged for card in each.cards} == {wanted}
        assert len({each.cards[1].mac for each in plugged}) == len(wanted_roles)
        of_batches.append(network)
    assert len(set(of_batches)) == batches
    for each in events:
        if each["type"] == "machine_ready" and each["machine"] in arms:
            about = each["proof"]["network"]
            assert (about["name"], about["error"]) == ("eth1", None)
            assert each["placement"]["network"]["way"] == "isolated"


def require_load(cell: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Check that a cell's packets went over its network, and that its figures are its own."""
    assert cell["status"] == "ok", cell["reason"]
    values = {
        each["metric"]: each["value"]
        for each in events
        if each["type"] == "observation" and each["cell"] == cell["cell"]
    }
    (requests,) = (values[each] for each in ("requests", "requests-at-least") if each in values)
    assert requests > 0 and values["direct"] > 0 and values["failed-share"] == 0
    # A request and its answer are several packets each; those over the other card are few.
    assert values["packets-in"] > requests and values["packets-out"] > requests
    about = cell["facts"]["proxy"]
    assert about["direct"] and not about["straight"]
    first, second = about["origins"]
    assert first.endswith(":8081") and second == first.replace(":8081", ":8082")
    # The computer that this test runs on is not the hypervisor: its CPUs are nobody's here.
    assert {each["where"] for each in about["account"]["spent"]} == {"inside"}
    assert "owned-share" not in values and "owned" not in about["account"]
    on_its_cpus = [each for each in about["limits"] if "the machine’s own CPUs" in each]
    unpinned = "client and origin may run on the machine’s own CPUs, as its platform cannot bind"
    assert [each.startswith(unpinned) for each in on_its_cpus] == [True] * (
        "hyperv" in cell["cell"]
    )


async def hadoops_toolbox() -> Path:
    """Return the tree of the toolbox with Hadoop, as studies build it."""
    agent = agent_path()
    made = await prepare_toolbox(
        LocalHost(agent), "hadoop", agent=agent, cache=default_cache(), say=print
    )
    return made.tree


@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches Hadoop")
@pytest.mark.parametrize("devices", ["paravirtual", "emulated"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_on_an_isolated_network(tmp_path: Path, kind: str, devices: str) -> None:
    arm = kind if devices == "paravirtual" else f"{kind}-em"
    out, state, scratch = tmp_path / "out", str(tmp_path / "state"), tmp_path / "scratch"
    scratch.mkdir()
    networks = GuestNetworks(await hadoops_toolbox(), scratch)
    async with simulated(kind, tmp_path, networks) as there:
        words = words_of("mapreduce-smoke", arm, there, networks, tmp_path, **DFSIO)
        words += ["--scenario", "one-slave", "--workload", "dfsio"]
        status, output = await tare_within(CLUSTER_S, *words, XDG_STATE_HOME=state)
        assert status == 0, output
        assert not there.networks() and not there.machines() and not networks.left
    assert_no_ledger_is_left(tmp_path)
    events = events_in(out)
    require_networks(kind, events, networks, there.models, ("subject", "slave-1"), batches=1)
    (cell,) = (each for each in events if each["type"] == "cell_finished")
    assert cell["status"] == "ok", cell["reason"]


@pytest.mark.parametrize("kind", ["proxmox", "ovirt"])
async def test_a_load_balancer_behind_a_link_of_an_isolated_network(
    tmp_path: Path, kind: str
) -> None:
    networks = GuestNetworks(await load_balancers_toolbox())
    changes = {key.replace("proxy.", "proxy-linked."): value for key, value in PROXY.items()}
    short = {"duration": "1s", "warmup": "200ms", "most-connections": "64"}
    changes |= {f"proxy-linked.{key}": value for key, value in short.items()}
    async with simulated(kind, tmp_path, networks) as there:
        words = words_of("load-balancer", kind, there, networks, tmp_path, **changes)
        words += ["--scenario", "linked", "--workload", "proxy-linked"]
        status, output = await tare_within(RUN_S, *words, XDG_STATE_HOME=str(tmp_path / "state"))
        assert status == 0, output
    events = events_in(tmp_path / "out")
    require_networks(kind, events, networks, there.models, ("subject", "peer", "origin"), 1)
    (cell,) = (each for each in events if each["type"] == "cell_finished")
    require_load(cell, events)
    link = {"bits_per_s": 1e9, "by": "hypervisor"}
    assert cell["facts"]["proxy"]["network"]["link"] == link
    ready = [each for each in events if each["type"] == "machine_ready"]
    assert [each["placement"]["network"]["link"] for each in ready] == [link] * 3


PARTS = ("net-stream", "request-response", "connect-request-response", "packet-rate", "http-load")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_network_parts_of_components_on_an_isolated_network(
    tmp_path: Path, kind: str
) -> None:
    networks = GuestNetworks(await load_balancers_toolbox())
    short = {f"{part}.duration": "1s" for part in PARTS}
    async with simulated(kind, tmp_path, networks) as there:
        words = words_of("components", f"{kind},{kind}-em", there, networks, tmp_path, **short)
        words += ["--scenario", "one-cpu", "--workload", ",".join(PARTS)]
        words += ["--set", "shape.memory=1GiB"]
        status, output = await tare_within(RUN_S, *words, XDG_STATE_HOME=str(tmp_path / "state"))
        assert status == 0, output
        assert not there.networks() and not there.machines() and not networks.left
    assert_no_ledger_is_left(tmp_path)
    events = events_in(tmp_path / "out")
    # The emulated arm of this study has vSphere's default card.
    models = ("VirtualVmxnet3", "VirtualE1000") if kind == "vsphere" else there.models
    require_networks(kind, events, networks, models, ("subject", "peer"))
    cells = [each for each in events if each["type"] == "cell_finished"]
    assert {each["cell"].split("/")[3].partition("[")[0] for each in cells} == set(PARTS)
    for cell in cells:
        assert cell["status"] == "ok", cell["reason"]


LOADED = "[{load: net-load}]"


async def test_a_neighbour_loads_the_isolated_network_of_a_load_balancer(tmp_path: Path) -> None:
    networks = GuestNetworks(await load_balancers_toolbox())
    roles = ("subject", "neighbour-1", "peer", "origin")
    cell = await loaded_cell("proxmox", tmp_path, networks, "load-balancer-short", PROXY, roles)
    require_loaded(cell)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches Hadoop")
async def test_a_neighbour_loads_the_isolated_network_of_a_cluster(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    networks = GuestNetworks(await hadoops_toolbox(), scratch)
    roles = ("subject", "neighbour-1", "slave-1", "peer")
    cell = await loaded_cell("proxmox", tmp_path, networks, "mapreduce-smoke", DFSIO, roles)
    require_loaded(cell)


async def loaded_cell(
    kind: str,
    folder: Path,
    networks: GuestNetworks,
    study: str,
    changes: dict[str, str],
    roles: Collection[str],
) -> dict[str, Any]:
    """Run one scenario of a shipped study with a neighbour that loads the network."""
    (scenario, workload) = SCENARIOS[study]
    async with simulated(kind, folder, networks) as there:
        words = words_of(study, kind, there, networks, folder, **changes)
        words += ["--scenario", scenario, "--workload", workload]
        words += ["--set", f"scenarios.{scenario}.neighbours={LOADED}"]
        status, output = await tare_within(CLUSTER_S, *words, XDG_STATE_HOME=str(folder / "state"))
        assert status == 0, output
        assert not there.networks() and not there.machines() and not networks.left
    assert_no_ledger_is_left(folder)
    events = events_in(folder / "out")
    require_networks(kind, events, networks, there.models, roles, batches=1)
    (cell,) = (each for each in events if each["type"] == "cell_finished")
    return cell


def require_loaded(cell: dict[str, Any]) -> None:
    """Check that the neighbour of a cell moved packets during it."""
    assert cell["status"] == "ok", cell["reason"]
    (load,) = cell["facts"]["neighbours"]
    assert load["load"] == "net-load" and all(value > 0 for value in load["values"].values())


def measures(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "cell_started")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["interrupted", "killed"])
async def test_a_run_that_ends_early_leaves_neither_machine_nor_network(
    tmp_path: Path, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    networks = GuestNetworks(await load_balancers_toolbox())
    async with simulated(kind, tmp_path, networks) as there:
        words = load_words(kind, there, networks, tmp_path)
        with Running(tmp_path / "out", *words) as running:
            await asyncio.to_thread(running.wait_for, measures, RUN_S)
            assert there.networks() and len(networks.plugged) == 3
            if way == "killed":
                running.process.kill()
                await asyncio.to_thread(running.process.wait)
                assert there.networks()
                status, output = await tare_within(RUN_S, "clean")
                assert status == 0, output
                removed = [line for line in output.splitlines() if ": Removed " in line]
                of_machines = [bool(re.search("subject|peer|origin", line)) for line in removed]
                # Machines first: products keep a network that one is attached to.
                assert set(of_machines) == {True, False}, output
                assert of_machines == sorted(of_machines, reverse=True), output
            else:
                for _ in range(2):
                    running.process.send_signal(signal.SIGINT)
                    await asyncio.sleep(0.5)
                await asyncio.to_thread(running.end)
                # What takes longer than some seconds is removed by a process of its own.
                async with asyncio.timeout(RUN_S):
                    while list((tmp_path / "state" / "tare" / "ledgers").glob("*.jsonl")):
                        await asyncio.sleep(0.5)
        assert not there.networks() and not there.machines()
    assert_no_ledger_is_left(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_machine_that_dies_under_load_leaves_neither_machine_nor_network(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    networks = GuestNetworks(await load_balancers_toolbox())
    async with simulated(kind, tmp_path, networks) as there:
        words = words_of("load-balancer-short", kind, there, networks, tmp_path, **PROXY)
        with Running(tmp_path / "out", *words) as running:
            await asyncio.to_thread(running.wait_for, measures, RUN_S)
            assert there.networks() and len(networks.plugged) == 3
            # The origin was started last.
            await networks.kill(2)
            status, output = await asyncio.to_thread(running.end, RUN_S)
        assert not there.networks() and not there.machines() and not networks.left
    assert_no_ledger_is_left(tmp_path)
    events = events_in(tmp_path / "out")
    (cell,) = (each for each in events if each["type"] == "cell_finished")
    assert (status, cell["status"]) == (1, "failed"), output
    assert "-origin: " in cell["reason"]
