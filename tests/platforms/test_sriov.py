"""Virtual functions: which are free, why there is none, and that each is given back."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from platforms.sriov_host import CARD, DRIVER, OTHER, VFIO, SriovHost
from tare.errors import MachineFault
from tare.hosts import Entry, Ledger, LocalHost
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.undoing import NotOwn
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux.network.functions import (
    Card,
    Function,
    Taken,
    functions_of,
    lacking,
    next_taken,
    read,
    taken,
)
from tare.platforms.linux.network.host_network import BuiltNetwork, Common, Network
from tare.platforms.linux.network.joint import JoinedBridges
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.subnets import Addresses
from tare.platforms.linux.network.switches import NetworkSwitch
from tare.platforms.linux.sriov import FUNCTION, bound_to_vfio, rebind
from tare.platforms.network import Link
from tare.platforms.qemu.nic import device, lacking_way, link_of, record, take_function
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.study.model.platform_options import Switching

FIRST, SECOND, THIRD = (f"0000:03:10.{number}" for number in range(3))


def options(**more: object) -> QemuOptions:
    asked = {"accelerator": "kvm", "network": "sriov", "switch": "routed", **more}
    return QemuOptions.model_validate(asked)


@pytest.fixture
def host(tmp_path: Path) -> SriovHost:
    return SriovHost(tmp_path / "host")


async def why(host: SriovHost, **more: object) -> tuple[str, str]:
    found = await lacking_way(host, options(**more))
    assert found is not None
    return found[0].removeprefix("`network: sriov`: "), found[1]


async def pair(host: SriovHost, wanted: str | None = None) -> tuple[str, str]:
    chosen = await next_taken(host, wanted, ())
    return chosen.own.address, chosen.port.address


async def test_two_free_functions_are_all_that_is_needed(host: SriovHost) -> None:
    host.card("ens1f0", functions=2)
    assert await lacking_way(host, options()) is None
    assert await pair(host) == (FIRST, SECOND)
    (card,) = (await functions_of(host)).cards
    assert (card.interface, card.address, card.most) == ("ens1f0", CARD, 8)
    first, _ = card.functions
    assert (first.driver, first.group, first.interface, first.mtu) == (
        DRIVER,
        "20",
        "ens1f0v0",
        1500,
    )
    assert not first.used and not first.group_peers


async def test_missing_host_support_is_one_line_with_a_remedy(host: SriovHost) -> None:
    assert await why(host) == (
        "no network card of the host offers virtual functions",
        "use `network: tap`",
    )
    host.card("ens1f0")
    assert await why(host) == (
        "ens1f0 has none yet, and Tare makes none",
        "echo 2 > /sys/class/net/ens1f0/device/sriov_numvfs",
    )
    lacks, instead = await why(host, nic_function="eno9")
    assert lacks.startswith("eno9 is neither a network card with virtual functions")
    assert instead == f"name one of ens1f0 ({CARD})"


async def test_without_an_iommu_or_vfio_nothing_is_given(host: SriovHost) -> None:
    host.card("ens1f0", functions=2)
    groups = {one: host.device(one) / "iommu_group" for one in (FIRST, SECOND)}
    kept = {one: link.readlink() for one, link in groups.items()}
    for link in groups.values():
        link.unlink()
    lacks, instead = await why(host)
    assert lacks == "the host's IOMMU is off" and "intel_iommu=on" in instead
    for one, link in groups.items():
        link.symlink_to(kept[one])
    shutil.rmtree(host.sys / "bus/pci/drivers" / VFIO)
    assert await why(host) == ("the host's kernel has no vfio-pci", "modprobe vfio-pci")


async def test_a_function_that_somebody_uses_is_not_taken(host: SriovHost) -> None:
    host.card("ens1f0", functions=4)
    (host.device(FIRST) / "net/ens1f0v0/flags").write_text("0x1003\n")
    (host.device(SECOND) / "driver_override").write_text("vfio-pci\n")
    assert await pair(host) == (THIRD, "0000:03:10.3")
    (host.device(THIRD) / "net/ens1f0v2/master").symlink_to(host.sys / "class/net/ens1f0")
    lacks, _ = await why(host)
    assert lacks.startswith("a machine needs two free ones of one card, and ens1f0 has 1 of 4 (")
    assert f"{FIRST}: ens1f0v0 is up" in lacks
    assert f"{SECOND}: kept for vfio-pci" in lacks
    assert f"{THIRD}: ens1f0v2 is part of ens1f0" in lacks


async def test_a_function_that_shares_its_iommu_group_serves_only_as_the_hosts_end(
    host: SriovHost,
) -> None:
    host.card("ens1f0", functions=2)
    group = (host.device(FIRST) / "iommu_group").readlink()
    (group / "devices" / CARD).symlink_to(host.device(CARD))
    assert await pair(host) == (SECOND, FIRST)
    lacks, _ = await why(host, nic_function=FIRST)
    assert f"shares its IOMMU group with {CARD}" in lacks


async def test_a_card_or_a_function_may_be_named(host: SriovHost) -> None:
    host.card("ens1f0", functions=3)
    host.card("ens1f1", OTHER, functions=2)
    assert await pair(host, SECOND) == (SECOND, FIRST)
    assert await pair(host, "ens1f0v2") == (THIRD, FIRST)
    assert await pair(host, OTHER) == ("0000:03:11.0", "0000:03:11.1")
    assert await pair(host, "ens1f1") == await pair(host, OTHER)
    first = await next_taken(host, "ens1f0", ())
    with pytest.raises(MachineFault, match="are other machines' \\(2\\)"):
        await next_taken(host, "ens1f0", {first.own.address, first.port.address})


async def test_an_interface_with_a_jumbo_mtu_is_not_the_hosts_end(host: SriovHost) -> None:
    host.card("ens1f0", functions=2)
    (host.device(SECOND) / "net/ens1f0v1/mtu").write_text("9000\n")
    assert await pair(host) == (SECOND, FIRST)


@given(
    st.lists(
        st.builds(
            Function,
            number=st.integers(0, 9),
            address=st.sampled_from([FIRST, SECOND, THIRD]),
            driver=st.sampled_from(["", DRIVER, VFIO]),
            override=st.sampled_from(["", VFIO]),
            group=st.sampled_from(["", "7"]),
            group_peers=st.sampled_from([(), (CARD,)]),
            interface=st.sampled_from(["", "a", "b"]),
            up=st.booleans(),
            mtu=st.sampled_from([1500, 9000]),
            joined=st.sampled_from(["", "br0"]),
        ),
        max_size=5,
        unique_by=lambda one: one.address,
    ),
    st.sets(st.sampled_from([FIRST, SECOND, THIRD])),
    st.sampled_from([None, "ens", FIRST, "a"]),
)
def test_functions_in_use_are_never_taken(
    functions: list[Function], reserved: set[str], wanted: str | None
) -> None:
    chosen = taken([Card("ens", CARD, 8, tuple(functions))], wanted, reserved)
    if chosen is None:
        return
    own, port = chosen.own, chosen.port
    assert own.address != port.address
    for one in (own, port):
        assert one.address not in reserved
        assert not (one.up or one.joined or one.override or one.driver == VFIO)
    assert own.group and not own.group_peers
    assert port.interface and port.mtu == 1500
    if wanted in (FIRST, "a") and any(wanted in (f.address, f.interface) for f in functions):
        assert wanted in (own.address, own.interface) or reserved


@given(st.text(alphabet="card|function0123456789abcdef.:\n xyz/", max_size=300))
def test_no_text_of_a_hosts_makes_reading_it_fail(text: str) -> None:
    found = read(text)
    lacking(found, None)
    lacking(found, "ens1f0")


async def test_a_function_is_lent_and_the_host_is_as_it_was(
    host: SriovHost, tmp_path: Path
) -> None:
    host.card("ens1f0", functions=2)
    before = host.state()
    function = (await next_taken(host, None, ())).own
    with Ledger(tmp_path / "ledger") as ledger:
        async with bound_to_vfio(host, ledger, function) as group:
            assert group == Path("/dev/vfio/20") and await host.exists(group)
            assert host.driver(FIRST) == VFIO and host.driver(SECOND) == DRIVER
            (entry,) = ledger.open_entries()
            assert (entry.kind, entry.details) == (FUNCTION, {"address": FIRST, "driver": DRIVER})
            # Nobody takes it once more.
            with pytest.raises(MachineFault, match="taken for vfio-pci meanwhile"):
                async with bound_to_vfio(host, ledger, function):
                    pass
            assert host.driver(FIRST) == VFIO
        assert ledger.open_entries() == ()
    assert host.state() == before
    # No count of functions was touched, nor any device but this.
    assert {Path(path).name for path, _ in host.written} == {
        "driver_override",
        "unbind",
        "drivers_probe",
    }
    assert all(FIRST in path or FIRST in data.decode() for path, data in host.written)


async def test_one_without_a_driver_stays_without(host: SriovHost, tmp_path: Path) -> None:
    host.card("ens1f0", functions=2)
    (host.device(FIRST) / "driver").unlink()
    before = host.state()
    (card,) = (await functions_of(host)).cards
    with Ledger(tmp_path / "ledger") as ledger:
        async with bound_to_vfio(host, ledger, card.functions[0]):
            assert host.driver(FIRST) == VFIO
    assert host.state() == before


async def test_a_function_that_vfio_refuses_is_returned_at_once(tmp_path: Path) -> None:
    host = SriovHost(tmp_path / "host", takes=False)
    host.card("ens1f0", functions=2)
    before = host.state()
    function = (await next_taken(host, None, ())).own
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(MachineFault, match="cannot be bound to vfio-pci: no driver has it"):
            async with bound_to_vfio(host, ledger, function):
                raise AssertionError
        assert ledger.open_entries() == ()
    assert host.state() == before


@pytest.mark.parametrize("steps", range(4))
async def test_a_killed_runs_function_is_given_back_from_the_ledger(
    host: SriovHost, tmp_path: Path, steps: int
) -> None:
    """Killed after any step: it was written down before the first."""
    host.card("ens1f0", functions=2)
    before = host.state()
    with Ledger(tmp_path / "ledger", boot=host.boot_id) as ledger:
        ledger.record(FUNCTION, address=FIRST, driver=DRIVER)
        todo = [
            (f"/sys/bus/pci/devices/{FIRST}/driver_override", b"vfio-pci"),
            (f"/sys/bus/pci/drivers/{DRIVER}/unbind", FIRST.encode()),
            ("/sys/bus/pci/drivers_probe", FIRST.encode()),
        ]
        for path, data in todo[:steps]:
            await host.write(path, data)
        done = await clean(host, ledger, Qemu.undoers)
        assert done == ([f"Gave {FIRST} back to {DRIVER}."] if steps else [])
        assert ledger.open_entries() == ()
        assert await clean(host, ledger, Qemu.undoers) == []
    assert host.state() == before


async def test_a_function_used_by_others_meanwhile_is_kept(host: SriovHost) -> None:
    host.card("ens1f0", functions=1)
    entry = Entry(0, FUNCTION, host.boot_id(), {"address": FIRST, "driver": DRIVER})
    override = host.device(FIRST) / "driver_override"
    override.write_text("pci-stub\n")
    assert "kept for pci-stub" in await rebind(host, entry)
    assert host.written == []
    # After another boot, or without the function, nothing is left to undo.
    override.write_text("vfio-pci\n")
    assert await rebind(host, Entry(0, FUNCTION, "earlier", entry.details)) == ""
    gone = {"address": "0000:03:10.7", "driver": DRIVER}
    assert await rebind(host, Entry(0, FUNCTION, host.boot_id(), gone)) == ""
    for address, driver in (("../../x", DRIVER), (FIRST, "../x")):
        strange = Entry(0, FUNCTION, host.boot_id(), {"address": address, "driver": driver})
        with pytest.raises(NotOwn):
            await rebind(host, strange)
    assert host.written == []


async def test_function_that_its_driver_does_not_take_back_is_reported(host: SriovHost) -> None:
    host.card("ens1f0", functions=1)
    entry = Entry(0, FUNCTION, host.boot_id(), {"address": FIRST, "driver": "ixgbevf"})
    (host.device(FIRST) / "driver_override").write_text("vfio-pci\n")
    with pytest.raises(MachineFault, match="is with igbvf, and was with ixgbevf"):
        await rebind(host, entry)


def test_qemu_gets_the_function_and_nothing_else_carries_packets() -> None:
    own = Function(0, FIRST, DRIVER, group="20", interface="ens1f0v0")
    link = Link("sriov", "10.1.2.10", 24, "ens1f0v1", function=own)
    assert device(options(), link) == f"vfio-pci,host={FIRST},rombar=0"
    assert record(options(), False, link) == {
        "model": "a virtual function",
        "function": FIRST,
        "host_driver": DRIVER,
        "routed_by": "ens1f0v1",
    }
    # Whatever the function writes to is the guest's memory, which so has to stay where it is.
    assert options().locks_memory and not options(network="tap").locks_memory
    assert "virtual-function" in options().needs
    assert any(write.kind == FUNCTION for write in Qemu().writes(options()))
    assert "a virtual function" in Qemu().describe(options())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"switch": "bridge"}, "`network: sriov` needs `switch: routed`"),
        ({"switch": "openvswitch"}, "`network: sriov` needs `switch: routed`"),
        ({"machine": "microvm"}, "needs PCI"),
        ({"nic": "e1000e"}, "nic is of cards of QEMU's"),
        ({"nic_queues": 2}, "nic-queues is of cards of QEMU's"),
        ({"vhost": "on"}, "vhost is of cards of QEMU's"),
        ({"network": "tap", "nic_function": "ens1f0"}, "nic-function needs `network: sriov`"),
        ({"nic_function": "../ens1f0"}, "nic_function"),
    ],
)
def test_settings_that_no_function_supports_are_refused(
    asked: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        options(**asked)


@pytest.mark.skipif(os.geteuid() != 0, reason="interfaces and namespaces need root")
async def test_the_hosts_end_comes_back_as_it_was(tmp_path: Path) -> None:
    """A pair of interfaces stands for a function's: it is moved alike."""
    host = LocalHost()
    with Ledger(tmp_path / "ledger", boot=host.boot_id) as ledger:
        context = Context(host, ledger, tmp_path, tmp_path)
        async with AsyncExitStack() as held:
            parts, token = Parts(context, held), f"tare-{os.getpid() % 10**6}"
            await parts.interface(f"{token}a", 1500, "veth", "peer", "name", f"{token}b")
            before = await parts.run("ip", "-o", "link", "show", f"{token}b")
            async with AsyncExitStack() as inner:
                own = Parts(context, inner)
                await own.namespace(f"{token}-switch")
                await own.lend(f"{token}b", f"{token}-switch")
                assert not await host.exists(f"/sys/class/net/{token}b")
                there = Parts(context, inner, f"{token}-switch")
                await there.ip("link", "set", f"{token}b", "up")
            assert await parts.run("ip", "-o", "link", "show", f"{token}b") == before


def test_a_pair_names_its_card() -> None:
    one, two = Function(0, FIRST, group="1"), Function(1, SECOND, interface="v1", mtu=1500)
    card = Card("ens1f0", CARD, 8, (one, two))
    assert taken([card], None, ()) == Taken(card, one, two)


class Wired:
    """Parts and switch of a network on paper: they note what they are asked for."""

    def __init__(self) -> None:
        self.within = "tare-x-switch"
        self.done: list[tuple[str, ...]] = []
        self.parts = self

    async def lend(self, interface: str, namespace: str) -> None:
        self.done.append(("lend", interface, namespace))

    async def attach(self, interface: str, address: str = "") -> None:
        self.done.append(("attach", interface, address))


def network(host: SriovHost, wired: Wired) -> Network:
    addresses = Addresses(ipaddress.IPv4Network("10.1.2.0/24"))
    switch = cast(NetworkSwitch, wired)
    laid = BuiltNetwork(
        {}, addresses, JoinedBridges("bridge", 1500), "10.1.2.2", {host.name: switch}, switch
    )

    async def lay() -> BuiltNetwork:
        return laid

    common = Common("tare-x", True, host.name, lay, Switching("routed"))
    return Network(host.name, cast(Parts, wired), common)


async def test_machines_of_one_network_take_functions_of_their_own(host: SriovHost) -> None:
    host.card("ens1f0", functions=4)
    wired = Wired()
    joined = network(host, wired)
    one, two = await asyncio.gather(*(joined.function(host, name, None) for name in ("a", "b")))
    assert one.function is not None and two.function is not None
    taken = {one.function.address, two.function.address}
    assert len(taken) == 2
    ports = {words[1] for words in wired.done if words[0] == "lend"}
    assert ports == {one.interface, two.interface}
    routed = {f"0000:03:10.{name[-1]}" for name in ports}
    assert len(ports) == 2 and not taken & routed
    assert ("attach", one.interface, one.address) in wired.done
    assert joined.links["a"] is one and one.way == "sriov" and one.within == ""
    with pytest.raises(MachineFault, match="all free virtual functions are other machines'"):
        await joined.function(host, "c", None)


async def test_a_machine_has_its_function_until_it_has_ended(
    host: SriovHost, tmp_path: Path
) -> None:
    host.card("ens1f0", functions=2)
    before = host.state()
    shape = Shape(vcpus=1, memory=1 << 28)
    spec = MachineSpec("tare-x", shape, (), tmp_path, False, "subject")
    spec = replace(spec, way="sriov", network=network(host, Wired()))
    with Ledger(tmp_path / "ledger") as ledger:
        context = Context(host, ledger, tmp_path, tmp_path)
        async with AsyncExitStack() as held:
            has = await take_function(context, held, spec, options())
            assert (has.own, has.devices) == ((Path("/dev/vfio/20"),), (Path("/dev/vfio/vfio"),))
            link = await link_of(spec, options(), 1_900_000_001, has)
            assert link is has.link is not None
            assert host.driver(FIRST) == VFIO
        assert host.state() == before
        # Whatever has another way takes none.
        async with AsyncExitStack() as held:
            other = await take_function(
                context, held, replace(spec, way="tap"), options(network="tap")
            )
            assert other.link is None and not other.own
    assert len(host.written) == 6
