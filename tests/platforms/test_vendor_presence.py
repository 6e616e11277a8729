"""Whether a maker's host is up, and since when, is asked of its API: a computer may be swapped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platforms.hyperv_host import USER as HYPERV_USER
from platforms.ovirt_server import USER as OVIRT_USER
from platforms.ovirt_server import OvirtServer
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as ProxmoxServer
from platforms.test_vendor_runs import hyperv_server
from platforms.vendor_served import reached
from platforms.vsphere_simulated import Simulator, simulator, types
from platforms.xenserver_server import USER as XEN_USER
from platforms.xenserver_server import XenServer
from tare.platforms.contract import Context, Platform, PlatformOptions
from tare.platforms.hyperv.command import PsObject
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.ovirt.platform import Ovirt
from tare.platforms.proxmox.platform import Proxmox
from tare.platforms.vendors.platform import VendorPlatform
from tare.platforms.vsphere.inventory import find_all
from tare.platforms.vsphere.platform import Vsphere
from tare.platforms.xenserver.platform import Xenserver
from tare.registry import installed

BOOTED = 1_800_000_000.0
Act = Callable[[Any], object]


@dataclass(frozen=True)
class Product:
    """A server that simulates a product, and what can happen to its host.

    Args:
        module: The maker's library.
        platform: The driver.
        server: Makes the server.
        user: The user that may log in.
        password: Their password.
        downs: What makes the host start no machine, by the words of the reason.
        forget: Makes the server not report since when the host runs.
    """

    module: str
    platform: Platform[Any]
    server: Callable[[Path], Any]
    user: str
    password: Callable[[Any], str]
    downs: dict[str, Act]
    forget: Act

    def options(self, server: Any) -> PlatformOptions:
        way = reached(server, self.user, self.password(server))
        found: PlatformOptions = self.platform.options.model_validate(way)
        return found


def host_of(server: Any) -> Any:
    return server.there["hosts"][0]


def xen_host(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.objects["host"][server.host]
    return found


PRODUCTS = {
    "proxmox": Product(
        "proxmoxer",
        Proxmox(),
        ProxmoxServer,
        ROOT,
        lambda server: str(server.passwords[ROOT]),
        {
            "pve is offline": lambda server: setattr(server, "state", "offline"),
            "pve is unknown": lambda server: setattr(server, "state", "unknown"),
        },
        lambda server: setattr(server, "booted", None),
    ),
    "xenserver": Product(
        "XenAPI",
        Xenserver(),
        XenServer,
        XEN_USER,
        lambda server: str(server.password),
        {
            "xen1 does not answer the coordinator of its pool": lambda server: server.objects[
                "host_metrics"
            ][server.host_metrics].update(live=False),
            "xen1 is disabled, and starts no VM": lambda server: xen_host(server).update(
                enabled=False
            ),
        },
        lambda server: xen_host(server).update(other_config={}),
    ),
    "ovirt": Product(
        "ovirtsdk4",
        Ovirt(),
        OvirtServer,
        OVIRT_USER,
        lambda server: str(server.password),
        {
            "the host node1 is down": lambda server: setattr(
                host_of(server), "status", server.types.HostStatus.DOWN
            ),
            "the host node1 is non responsive": lambda server: setattr(
                host_of(server), "status", server.types.HostStatus.NON_RESPONSIVE
            ),
        },
        lambda server: setattr(server, "booted", 0),
    ),
    "hyperv": Product(
        "psrpcore",
        Hyperv(),
        hyperv_server,
        HYPERV_USER,
        lambda server: str(server.password),
        {
            "You do not have the required permission": lambda server: setattr(
                server.host, "may_hyperv", False
            )
        },
        lambda server: setattr(server.host, "may_wmi", False),
    ),
}


@pytest.fixture(params=list(PRODUCTS))
def product(request: pytest.FixtureRequest) -> Product:
    found = PRODUCTS[request.param]
    pytest.importorskip(found.module)
    return found


@pytest.fixture
def server(product: Product, tmp_path: Path) -> Iterator[Any]:
    made = product.server(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def test_host_that_is_up_reports_since_when(
    product: Product, server: Any, context: Context
) -> None:
    if product.module == "proxmoxer":
        server.booted = BOOTED
    found = await product.platform.presence(context, product.options(server))
    assert not found.absent and not found.boot
    assert found.since == pytest.approx(BOOTED, abs=2)


async def test_a_host_that_starts_no_machine_is_not_up(
    product: Product, tmp_path: Path, context: Context
) -> None:
    for place, (words, act) in enumerate(product.downs.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        server = product.server(folder)
        act(server)
        server.start()
        try:
            found = await product.platform.presence(context, product.options(server))
            verdict = await product.platform.check(context, product.options(server))
        finally:
            server.stop()
        assert words in found.absent and found.since is None
        # It may be up soon: a study in sessions waits for it, and does not leave the arm out.
        assert not verdict.usable and words in verdict.reason and not verdict.lasting


async def test_unreported_facts_are_not_made_up(
    product: Product, server: Any, context: Context
) -> None:
    product.forget(server)
    found = await product.platform.presence(context, product.options(server))
    assert (found.absent, found.boot, found.since) == ("", "", None)


async def test_a_server_that_does_not_answer_is_not_up(
    product: Product, server: Any, context: Context
) -> None:
    options = product.options(server)
    server.stop()
    assert (await product.platform.presence(context, options)).absent


def test_each_maker_s_platform_asks_for_itself() -> None:
    ours = [each for each in installed().platforms.values() if isinstance(each, VendorPlatform)]
    assert len(ours) == 6
    default = VendorPlatform.host_presence
    assert not [each.name for each in ours if type(each).host_presence is default]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-15T10:00:00.5000000+02:00", BOOTED + 0.5),
        ("2027-01-15T08:00:00Z", BOOTED),
        ("2027-01-15T08:00:00", None),
        ("", None),
    ],
)
def test_a_time_without_a_zone_is_ignored(text: str, seconds: float | None) -> None:
    assert PsObject({"LastBootUpTime": text}).moment("LastBootUpTime") == seconds


# vSphere, by govmomi's simulator


@pytest.fixture(params=[False, True], ids=["vcenter", "esxi"])
def simulated(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    with simulator(esx=request.param) as there:
        yield there


async def done(task: Any) -> None:
    """Wait for the end of what somebody else began."""
    async with asyncio.timeout(20):
        while await asyncio.to_thread(lambda: task.info.state) not in ("success", "error"):
            await asyncio.sleep(0.05)
    assert task.info.state == "success", task.info.error


async def test_an_esxi_host_is_up_while_it_is_connected(
    simulated: Simulator, context: Context
) -> None:
    options = simulated.options()
    found = await Vsphere().presence(context, options)
    assert not found.absent
    assert found.since is not None and abs(found.since - time.time()) < 60
    with simulated.client() as client:
        hosts = find_all(client, types().vim.HostSystem)
        (host,) = [each for each in hosts if options.host in (None, each.name)]
        await done(host.EnterMaintenanceMode_Task(timeout=0))
        found = await Vsphere().presence(context, options)
        assert found.absent == f"{host.name} is in maintenance mode, and starts no machine"
        await done(host.ExitMaintenanceMode_Task(timeout=0))
        assert not (await Vsphere().presence(context, options)).absent
        await done(host.DisconnectHost_Task())
        found = await Vsphere().presence(context, options)
        assert found.absent == f"{host.name} is disconnected from vCenter"


async def test_an_unknown_host_is_not_up(simulated: Simulator, context: Context) -> None:
    found = await Vsphere().presence(context, simulated.options(host="esx9"))
    assert "there is no ESXi host named esx9" in found.absent
