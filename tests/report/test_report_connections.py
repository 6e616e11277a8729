"""How machines were connected, as the report says it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.report.sections.provenance import connection_words, memory_words

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["network", "nic", "way", "switch", "link", "bits_per_s", "model", "queues", "vhost"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("network", "nic", "words"),
    [
        ({"way": "bridge"}, None, "bridge"),
        (
            {"way": "tap", "switch": "bridge"},
            {"model": "virtio", "vhost": True, "queues": 2, "offloads": True},
            "tap; virtio with vhost, 2 queues",
        ),
        (
            {
                "way": "tap",
                "switch": "openvswitch",
                "conntrack": True,
                "link": {"bits_per_s": 1e9},
            },
            {"model": "virtio", "vhost": False, "queues": 1, "offloads": False},
            "tap; virtio, no offloads; Open vSwitch, tracked; a link of 1.00 Gbit/s",
        ),
        ({"way": "vif", "switch": "routed"}, {"model": "rtl8139"}, "vif; rtl8139; routed"),
    ],
)
def test_connection_is_described(network: Any, nic: Any, words: str) -> None:
    placement = {"network": network, **({} if nic is None else {"nic": nic})}
    assert connection_words(placement) == words
    assert connection_words({"nic": nic}) == ""


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({"kept_to": 1 << 30, "swap": "off"}, "kept to 1 GiB, page cache included"),
        ({"kept_to": None, "reason": "no groups"}, "all the host’s: no groups"),
        ({}, ""),
        (None, ""),
        (True, ""),
    ],
)
def test_the_memory_limit_of_a_machine_is_reported(memory: Any, words: str) -> None:
    assert memory_words({"memory": memory}) == words
    assert memory_words({}) == ""


@given(placement=st.dictionaries(st.sampled_from(["network", "nic"]), plain))
def test_no_record_makes_it_fail(placement: dict[str, Any]) -> None:
    assert isinstance(connection_words(placement), str)


def test_an_existing_network_is_reported_as_shared() -> None:
    words = connection_words({"network": {"way": "given", "mtu": 9000, "address": "192.0.2.9"}})
    shared = "the host’s own network, which others share"
    assert words == f"given ({shared}, packets of up to 9000 bytes)"
    assert connection_words({"network": {"way": "given", "mtu": True}}).endswith("share)")
