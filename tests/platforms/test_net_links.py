"""Networks on paper: addresses that clash with nothing, and what machines get."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, MachineFault
from tare.hosts import Completed, LocalHost
from tare.images.guest_image import GuestImage
from tare.platforms.contract import Shape
from tare.platforms.linux.network import (
    Link,
    choose_subnet,
    chosen_way,
    free_subnet,
    networks_in,
    tracking,
)
from tare.platforms.linux.network.subnets import Addresses
from tare.platforms.oci.bundle import ContainerSpec, configuration
from tare.platforms.qemu.command import MachinePaths, command
from tare.platforms.qemu.options import QemuOptions
from tare.run.topologies.peers import require_network
from tare.study.model.platform_options import PlatformOptions

TAP = Link("tap", "10.7.8.11", 24, "tare-abcdef01", "10.7.8.2")
USER = Link("user", "10.0.2.15", 24, forwards={8080: 40001})

networks = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 32)).map(
    lambda it: ipaddress.IPv4Network(it, strict=False)
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["dst", "addr_info", "local", "prefixlen"]) | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(taken=st.lists(networks, max_size=8), seed=st.integers(0, 99))
def test_a_chosen_network_is_private_and_free(
    taken: list[ipaddress.IPv4Network], seed: int
) -> None:
    try:
        subnet = choose_subnet(taken, random.Random(seed))
    except MachineFault:
        assert any(network.prefixlen < 12 for network in taken)
        return
    assert subnet.is_private
    assert subnet.prefixlen == 24
    assert not any(subnet.overlaps(other) for other in taken)


class Routed(LocalHost):
    """A host that lists these routes."""

    def __init__(self, routes: Sequence[ipaddress.IPv4Network]) -> None:
        super().__init__()
        self._listed = json.dumps([{"dst": str(route)} for route in routes]).encode()

    async def run(self, argv: Sequence[str], **how: Any) -> Completed:
        return Completed(0, self._listed if "route" in argv else b"", b"")


@given(routes=st.lists(st.lists(networks, max_size=4), min_size=1, max_size=4))
def test_a_network_over_several_hosts_is_free_on_each(
    routes: list[list[ipaddress.IPv4Network]],
) -> None:
    hosts = [Routed(taken) for taken in routes]
    try:
        subnet = asyncio.run(free_subnet(hosts))
    except MachineFault:
        assert any(network.prefixlen < 12 for taken in routes for network in taken)
        return
    assert subnet.prefixlen == 24
    assert not any(subnet.overlaps(network) for taken in routes for network in taken)


@given(hosts=st.integers(1, 40))
def test_no_two_have_the_same_address(hosts: int) -> None:
    addresses = Addresses(ipaddress.IPv4Network("10.7.8.0/24"), hosts)
    given_out = [give(host) for host in range(hosts) for give in (addresses.bridge, addresses.peer)]
    with pytest.raises(MachineFault, match="no address left"):
        for number in range(256):
            given_out.append(addresses.machine(number))
    assert len(set(given_out)) == len(given_out) >= 240
    assert all(ipaddress.IPv4Address(one) in addresses.subnet for one in given_out)
    assert not {"10.7.8.0", "10.7.8.255"} & set(given_out)


def test_a_network_on_one_host_gives_the_addresses_it_always_gave() -> None:
    addresses = Addresses(ipaddress.IPv4Network("10.7.8.0/24"))
    assert (addresses.bridge(0), addresses.peer(0)) == ("10.7.8.1", "10.7.8.2")
    assert (addresses.machine(0), addresses.machine(1)) == ("10.7.8.10", "10.7.8.11")


def test_routes_and_addresses_are_read_but_the_default_route_takes_nothing() -> None:
    routes = [{"dst": "default"}, {"dst": "10.1.0.0/16"}, {"dst": "192.0.2.7"}]
    addresses = [{"addr_info": [{"local": "172.16.0.2", "prefixlen": 24}]}]
    found = [str(network) for network in networks_in(routes) + networks_in(addresses)]
    assert found == ["10.1.0.0/16", "192.0.2.7/32", "172.16.0.0/24"]


@pytest.mark.fuzz
@given(listed=plain_json)
def test_any_output_of_ip_is_read_or_ignored(listed: Any) -> None:
    assert all(network.prefixlen > 0 for network in networks_in(listed))


def test_machine_gets_its_address_and_mtu() -> None:
    assert TAP.word == "10.7.8.11/24,mtu=1500"
    assert TAP.reach(8080) == ("10.7.8.11", 8080)
    assert USER.reach(8080) == ("127.0.0.1", 40001)
    assert Link("loopback", "127.0.0.1", 8).variable == {"TARE_NET": "127.0.0.1/8"}


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (TAP, "tap,id=net,ifname=tare-abcdef01,script=no,downscript=no"),
        (
            USER,
            "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:40001-10.0.2.15:8080,"
            "hostfwd=udp:127.0.0.1:40001-10.0.2.15:8080",
        ),
        (None, "hubport,id=net,hubid=0"),
    ],
)
def test_qemu_connects_its_interface(link: Link | None, words: str) -> None:
    kernel = Path("/k")
    image = GuestImage(kernel, kernel, Path("/i"), "d", "6", True, 0.0)
    places = MachinePaths(Path("/q"), Path("/a"), Path("/c"), Path("/e"))
    shape = Shape(1, 1 << 28)
    argv = command(QemuOptions(), image, "tare-x", shape, places, append=(), link=link)
    assert argv[argv.index("-netdev") + 1] == words
    arguments = argv[argv.index("-append") + 1].split()
    assert [word for word in arguments if word.startswith("tare.net=")] == (
        [f"tare.net={link.word}"] if link else []
    )


def test_interfaces_of_one_network_have_different_addresses() -> None:
    macs = {Link("tap", f"10.7.{third}.{last}", 24).mac for third in (8, 9) for last in (10, 11)}
    assert len(macs) == 4 and all(mac.startswith("52:54:00:07:") for mac in macs)
    kernel = Path("/k")
    image = GuestImage(kernel, kernel, Path("/i"), "d", "6", True, 0.0)
    places = MachinePaths(Path("/q"), Path("/a"), Path("/c"), Path("/e"))
    for devices in ("paravirtual", "emulated"):
        options = QemuOptions.model_validate({"devices": devices})
        shape = Shape(1, 1 << 28)
        words = command(options, image, "tare-x", shape, places, append=(), link=TAP)
        assert [word for word in words if word.endswith(",mac=52:54:00:07:08:0b")]


def test_a_container_joins_the_namespace_that_was_made_for_it() -> None:
    def network(netns: str) -> dict[str, Any]:
        spec = ContainerSpec("tare-x", "/r", (0,), 1 << 26, netns=netns)
        spaces = configuration(spec)["linux"]["namespaces"]
        (found,) = [space for space in spaces if space["type"] == "network"]
        return dict(found)

    assert network("") == {"type": "network"}
    assert network("/run/netns/tare-1") == {"type": "network", "path": "/run/netns/tare-1"}


def test_the_first_way_on_offer_is_taken_unless_the_arm_asks() -> None:
    both = frozenset({"tap", "user"})
    assert chosen_way(QemuOptions(), both) == "tap"
    assert chosen_way(QemuOptions(), frozenset({"user"})) == "user"
    assert chosen_way(QemuOptions(network="user"), both) == "user"
    with pytest.raises(InputError, match="network: tap"):
        chosen_way(QemuOptions(network="tap"), frozenset({"user"}))
    with pytest.raises(InputError, match="no way"):
        chosen_way(PlatformOptions(), frozenset())


def test_a_network_that_did_not_come_up_is_a_machines_fault() -> None:
    require_network("tare-x", {"network": {"driver": "veth", "error": None}})
    with pytest.raises(MachineFault, match="eth0 has no link"):
        require_network("tare-x", {"network": {"error": "eth0 has no link after 5 s"}})
    with pytest.raises(MachineFault, match="does not report"):
        require_network("tare-x", {})


SHOWN = """\
7
262144
entries  clashres found insert insert_failed drop early_drop
00000007  00000000 00000000 00000000 00000002 0000000a 00000000
00000007  00000000 00000000 00000000 00000000 00000010 00000000
"""


def test_tracked_and_lost_connections_are_reported_for_a_cell() -> None:
    now = tracking.read(SHOWN)
    assert (now.count, now.most, now.lost) == (7, 262144, {"drop": 26, "insert_failed": 2})
    before = tracking.read(SHOWN.replace("0000000a", "00000000"))
    network = {"tracked": now.since(before)}
    assert network["tracked"]["lost"] == {"drop": 10, "insert_failed": 0}
    assert tracking.warnings(network) == [
        "the switch's conntrack lost 10 packets (drop); its table has 7 of 262144 connections"
    ]
    assert tracking.warnings({"switch": "bridge"}) == []
    # A kernel without the statistics reports the rest.
    assert tracking.read("3\n100\n") == tracking.Tracked(3, 100, {})


@pytest.mark.fuzz
@given(text=st.text(max_size=120))
def test_any_content_of_connection_tracking_files_is_read_or_ignored(text: str) -> None:
    for shown in (text, f"1\n2\nentries drop\n{text}"):
        found = tracking.read(shown)
        assert found.count >= 0
        assert all(number >= 0 for number in found.lost.values())
