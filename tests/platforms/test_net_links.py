"""Networks on paper: addresses that clash with nothing, and what machines are told."""

from __future__ import annotations

import ipaddress
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, MachineFault
from tare.images.build import GuestImage
from tare.platforms.base import Shape
from tare.platforms.network import Link, choose_subnet, chosen_way, networks_in
from tare.platforms.oci_bundle import ContainerSpec, configuration
from tare.platforms.qemu_command import Places, command
from tare.platforms.qemu_options import QemuOptions
from tare.run.peers import require_network

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


def test_routes_and_addresses_are_read_but_the_default_route_takes_nothing() -> None:
    routes = [{"dst": "default"}, {"dst": "10.1.0.0/16"}, {"dst": "192.0.2.7"}]
    addresses = [{"addr_info": [{"local": "172.16.0.2", "prefixlen": 24}]}]
    found = [str(network) for network in networks_in(routes) + networks_in(addresses)]
    assert found == ["10.1.0.0/16", "192.0.2.7/32", "172.16.0.0/24"]


@given(told=plain_json)
def test_whatever_ip_says_is_read_or_left(told: Any) -> None:
    assert all(network.prefixlen > 0 for network in networks_in(told))


def test_a_machine_is_told_its_address_and_mtu() -> None:
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
    places = Places(Path("/q"), Path("/a"), Path("/c"), Path("/e"))
    shape = Shape(1, 1 << 28)
    argv = command(QemuOptions(), image, "tare-x", shape, places, append=(), link=link)
    assert argv[argv.index("-netdev") + 1] == words
    told = argv[argv.index("-append") + 1].split()
    assert [word for word in told if word.startswith("tare.net=")] == (
        [f"tare.net={link.word}"] if link else []
    )


def test_machines_of_one_network_are_told_apart_by_their_interfaces() -> None:
    macs = {Link("tap", f"10.7.{third}.{last}", 24).mac for third in (8, 9) for last in (10, 11)}
    assert len(macs) == 4 and all(mac.startswith("52:54:00:07:") for mac in macs)
    kernel = Path("/k")
    image = GuestImage(kernel, kernel, Path("/i"), "d", "6", True, 0.0)
    places = Places(Path("/q"), Path("/a"), Path("/c"), Path("/e"))
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
        chosen_way(object(), frozenset())


def test_a_network_that_did_not_come_up_is_a_machines_fault() -> None:
    require_network("tare-x", {"network": {"driver": "veth", "error": None}})
    with pytest.raises(MachineFault, match="eth0 has no link"):
        require_network("tare-x", {"network": {"error": "eth0 has no link after 5 s"}})
    with pytest.raises(MachineFault, match="says nothing"):
        require_network("tare-x", {})
