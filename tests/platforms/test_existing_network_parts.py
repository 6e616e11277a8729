"""The network that a machine has: who may ask for it, and when it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, MachineFault
from tare.hosts import Completed, LocalHost
from tare.hosts.address_pair import AddressPair, from_sshd, of_transport
from tare.platforms.existing_network import (
    LONGEST,
    longest_packet,
    own_address,
    require_direct,
    source_towards,
)
from tare.platforms.linux.network import chosen_way, offered_network, with_network
from tare.platforms.vendors.isolated_network import without_isolated
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.preflight.unmet_needs import lacking, lacking_loads, unmet
from tare.study.model.platform_options import GIVEN, ISOLATED
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS

ARMS: Mapping[str, dict[str, Any]] = {
    "ssh": {"ssh": "vm.example"},
    "bare-live": {"medium": "tare-cfg.img"},
    "vsphere": {"address": "esx.example", "datastore": "d", "boot": "[d] t.iso"},
    "hyperv": {"address": "hv.example", "image": "D:\\t.iso"},
    "proxmox": {"address": "pve.example", "image": "local:iso/t.iso"},
    "xenserver": {"address": "xen.example", "image": "t.iso"},
    "ovirt": {"address": "ovirt.example", "image": "t.iso"},
    "incus": {"image": "t", "callback": "192.0.2.7:0"},
}
"""Arms of the platforms whose machines Tare makes no network for."""
PLACED = ("vsphere", "hyperv", "proxmox", "xenserver", "ovirt")
addresses = st.ip_addresses(v=4).map(str)


def study_of(platform: str, scenario: str = "{}", **more: Any) -> bytes:
    where = {"callback": "192.0.2.7:0"} if platform in PLACED else {}
    words = {"platform": platform, **ARMS[platform], **where, **more}
    arm = ", ".join(f"{key}: {value!r}" for key, value in words.items())
    return (
        "study: given\nbaseline: bare\nshape: {memory: 4GiB}\n"
        f"arms: {{bare: {{platform: bare}}, vm: {{{arm}}}}}\n"
        f"scenarios: {{one: {scenario}}}\n"
        "workloads: {tick: {}, request-response: {}, http-load: {}, proxy: {}}\n"
    ).encode()


async def able(platform: str, **more: Any) -> tuple[Any, Any]:
    """Return a study of an arm, and what the arm's platform can do at best, networks included."""
    study = parse_study(study_of(platform, **more), "given.yaml", build_catalog())
    stated = installed().platforms[platform].stated(study.arms["vm"].options)
    context: Any = None
    offered = await offered_network(context, stated.network)
    return study, with_network(stated.capabilities, *offered)


@pytest.mark.parametrize("platform", ARMS)
async def test_missing_network_way_names_what_to_write(platform: str) -> None:
    study, offered = await able(platform)
    if ISOLATED in offered.network:
        assert (
            not {"request-response", "http-load"} & lacking(WORKLOADS, study, "vm", offered).keys()
        )
        assert any("an isolated network that Tare creates" in note for note in offered.notes)
        return
    assert not offered.network and GIVEN in offered.no_network
    found = lacking(WORKLOADS, study, "vm", offered)
    for name in ("request-response", "http-load"):
        assert found[name].startswith(f"{name} needs a network: Tare makes none ")
        assert "; `network-way: given` measures over the network that " in found[name]
    assert any("over the network are skipped" in note for note in offered.notes)


@pytest.mark.parametrize("platform", ARMS)
async def test_the_existing_network_is_offered_on_request_without_claims_about_it(
    platform: str,
) -> None:
    study, offered = await able(platform, **{"network-way": GIVEN})
    assert chosen_way(study.arms["vm"].options, offered.network) == GIVEN
    assert not offered.no_network
    assert any("Tare isolates nothing there" in note for note in offered.notes)
    between = unmet(study, "vm", offered, frozenset({"network", "bridged"}))
    if offered.neighbours:
        # Client and origin of a proxy are further machines on the same network.
        assert not lacking(WORKLOADS, study, "vm", offered) and not between
    else:
        assert set(lacking(WORKLOADS, study, "vm", offered)) == {"proxy"}
        assert "further machines, as client and origin" in between


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("{link: 1Gbit}", "its link needs a network of Tare's own"),
        ("{cluster: {slaves: 1, memory: 2GiB}}", ""),
        ("{machines: {peer: {}}}", ""),
        ("{neighbours: [{load: net-load}]}", ""),
    ],
)
async def test_workloads_that_the_existing_network_cannot_carry_are_skipped_with_the_reason(
    scenario: str, words: str
) -> None:
    study, offered = await able("proxmox", scenario=scenario, **{"network-way": GIVEN})
    reason = lacking_loads(WORKLOADS, study, "vm", offered).get("one", "")
    assert reason.startswith(words) and bool(reason) == bool(words)


async def test_a_container_of_incus_has_an_isolated_network_and_no_given_one() -> None:
    text = study_of("bare-live").decode()
    arm = "{platform: incus, type: container%s}"
    medium = "{platform: 'bare-live', medium: 'tare-cfg.img'}"
    assert medium in text

    def parsed(more: str) -> Any:
        return parse_study(text.replace(medium, arm % more).encode(), "c.yaml", build_catalog())

    study = parsed("")
    options = study.arms["vm"].options
    stated = installed().platforms["incus"].stated(options)
    context: Any = None
    able = with_network(stated.capabilities, *await offered_network(context, stated.network))
    assert able.network == frozenset({ISOLATED})
    assert "request-response" not in lacking(WORKLOADS, study, "vm", able)
    why = "the project is restricted"
    refused = without_isolated(stated.capabilities, options, why, given=False)
    found = lacking(WORKLOADS, study, "vm", refused)["request-response"]
    assert found.endswith(f"Tare cannot create an isolated one there: {why}")
    with pytest.raises(InputError, match="`network-way` is of VMs"):
        parsed(", network-way: given")


@pytest.mark.parametrize("platform", sorted(set(ARMS) - {"bare-live"}))
def test_given_as_a_network_name_names_what_to_write(platform: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_study(study_of(platform, network=GIVEN), "given.yaml", build_catalog())
    assert "write `network-way: given`" in f"{caught.value.message} {caught.value.hint}"


def test_another_way_is_refused() -> None:
    with pytest.raises(InputError, match="network-way"):
        parse_study(study_of("ssh", **{"network-way": "tap"}), "given.yaml", build_catalog())


@given(seen=st.builds(AddressPair, addresses, addresses), inside=st.data())
def test_network_is_direct_if_both_sides_see_the_same_addresses(
    seen: AddressPair, inside: st.DataObject
) -> None:
    there = inside.draw(st.sampled_from(["", seen.there]) | addresses)
    here = inside.draw(st.sampled_from(["", seen.here]) | addresses)
    try:
        require_direct("tare-x", seen, AddressPair(there, here))
    except MachineFault as fault:
        assert (there not in ("", seen.there)) or (here not in ("", seen.here))
        both = (there, seen.there) if there not in ("", seen.there) else (here, seen.here)
        assert all(f" {address}" in fault.message for address in both)
        assert "NAT" in fault.message and fault.hint
    else:
        assert there in ("", seen.there) and here in ("", seen.here)


@given(other=st.ip_addresses(v=6).map(str) | st.text(max_size=9), way=st.booleans())
def test_addresses_other_than_ipv4_are_refused(other: str, way: bool) -> None:
    pair = AddressPair(other, "192.0.2.1") if way else AddressPair("192.0.2.1", other)
    with pytest.raises(MachineFault, match="IPv4 only"):
        require_direct("tare-x", pair, AddressPair())


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.dictionaries(st.sampled_from(["mtu", "error", "address", "name"]), inner),
    max_leaves=8,
)


@given(about=plain)
def test_no_proof_is_believed_without_an_mtu(about: Any) -> None:
    proof = {"network": about}
    assert isinstance(own_address(proof), str)
    try:
        mtu = longest_packet("tare-x", proof)
    except MachineFault as fault:
        assert "tare-x" in fault.message
    else:
        assert not about.get("error") and 0 < mtu <= about["mtu"] and mtu <= LONGEST


def test_agent_without_network_report_is_refused_with_a_hint() -> None:
    with pytest.raises(MachineFault, match="does not report its network") as caught:
        longest_packet("tare-x", {})
    assert "tare image live" in caught.value.hint
    assert longest_packet("tare-x", {"network": {"mtu": 65_536, "error": None}}) == LONGEST


@given(variable=st.text(max_size=40))
def test_no_word_of_an_ssh_server_makes_it_fail(variable: str) -> None:
    assert isinstance(from_sshd(variable), AddressPair)


def test_both_ends_of_a_connection_name_the_same_pair() -> None:
    assert from_sshd("192.0.2.1 5000 192.0.2.9 22") == AddressPair("192.0.2.9", "192.0.2.1")
    known = {"peername": ("192.0.2.9", 22), "sockname": ("192.0.2.1", 5000)}
    assert of_transport(known.get) == AddressPair("192.0.2.9", "192.0.2.1")
    assert of_transport(lambda _: None) == from_sshd("") == AddressPair()


@dataclass
class Routes(LocalHost):
    """A host whose routes are what a test wants."""

    output: bytes
    status: int = 0
    name: str = "kvm1"

    async def run(self, argv: Any, **_: Any) -> Completed:
        assert argv[:4] == ["ip", "-4", "-o", "route"]
        return Completed(self.status, self.output, b"")


async def test_a_host_speaks_by_the_address_of_its_route() -> None:
    route = b"192.0.2.9 via 10.0.0.1 dev eth0 src 10.0.0.7 uid 0 \\    cache \n"
    assert await source_towards(Routes(route), "192.0.2.9") == "10.0.0.7"
    for output, status in ((b"", 2), (b"192.0.2.9 dev eth0 src\n", 0), (b"src nowhere", 0)):
        with pytest.raises(MachineFault, match="has no way to 192"):
            await source_towards(Routes(output, status), "192.0.2.9")
