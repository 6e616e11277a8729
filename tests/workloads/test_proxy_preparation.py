"""The preparation of the computers around a proxy, as their kernels report it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy import preparation
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import proxied_result as proxied

BEFORE = """\
            CPU0       CPU1
  24:        100          5   PCI-MSI 65537-edge      virtio0-input.0
  25:          7          0   PCI-MSI 65538-edge      virtio0-output.0
 NMI:          0          0   Non-maskable interrupts
 ERR:          0
"""
AFTER = BEFORE.replace(" 100 ", " 950 ").replace("          5 ", "         45 ")
NETSTAT = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 {} {}\n"
SOCKSTAT = "sockets: used 100\nTCP: inuse 7 orphan 0 tw 321 alloc 9 mem 3\nUDP: inuse 2 mem 1\n"


def account(lost: int, **more: str) -> dict[str, Any]:
    shared = {
        kernel.SOCKETS: SOCKSTAT,
        "/proc/sys/net/ipv4/ip_local_port_range": "1024\t65535",
        "/proc/sys/net/core/somaxconn": "4096",
        **more,
    }
    before = {**shared, kernel.NETSTAT: NETSTAT.format(5, 5), kernel.INTERRUPTS: BEFORE}
    after = {**shared, kernel.NETSTAT: NETSTAT.format(5 + lost, 5 + lost)}
    return {"before": before, "after": {**after, kernel.INTERRUPTS: AFTER}}


def test_the_record_says_what_was_lost_and_where_interrupts_went() -> None:
    card = {"driver": "veth", "offloads": {"tso": True}}
    record = preparation.prepared({"machine": account(3), "origin": account(0)}, {"origin": card})
    assert record["offloads"] == {"origin": card}
    machine, origin = record["machine"], record["origin"]
    assert machine["lost"] == {"TcpExt:ListenOverflows": 3, "TcpExt:ListenDrops": 3}
    assert machine["interrupts"] == {"24 virtio0-input.0": {"0": 850, "1": 40}}
    assert machine["time_wait"] == 321
    assert machine["ports"] == {"count": 64_512, "lasting_per_s": 64_512 / 60}
    assert origin["settings"]["/proc/sys/net/core/somaxconn"] == "4096"
    assert "settings" not in machine


def test_where_the_host_chooses_its_frequency_the_record_says_how() -> None:
    record = preparation.prepared({"host": account(0, **{kernel.GOVERNOR: "powersave\n"})}, {})
    assert record["host"]["governor"] == "powersave"


def test_the_queues_of_the_machines_own_interface_are_recorded_for_any_name() -> None:
    record = proxied(interface="tare-1")
    queues = "/sys/class/net/tare-1/queues/rx-0/rps_cpus"
    record["accounts"]["machine"]["after"][queues] = "3\n"
    for when in ("before", "after"):
        texts = record["accounts"]["machine"][when]
        texts[kernel.DEVICES] = texts[kernel.DEVICES].replace("eth0", "tare-1")
    assert summed(record)["settings"][queues] == "3\n"
    assert queues.replace("tare-1", kernel.OWN) in kernel.FILES


def test_a_kernel_without_answers_adds_nothing_to_the_record() -> None:
    record = preparation.prepared({"client": {"before": {}, "after": {}}}, {})
    assert record["client"] == {"ports": {}, "time_wait": None, "lost": {}}


def test_the_time_that_ports_last_is_recorded_with_the_time_needed() -> None:
    record = preparation.prepared({"machine": account(0)}, {})
    assert preparation.budget(record, 4, 9000.0) == {
        "lasting_per_s": pytest.approx(4 * 64_512 / 60),
        "needed_per_s": 9000.0,
    }
    assert preparation.budget({"machine": {"ports": {}}}, 4, 1.0) == {}


@pytest.mark.parametrize(
    ("addresses", "made", "instead"),
    [
        (1, 400.0, "`origin-addresses: 2`"),
        (4, 9000.0, "`origin-addresses: 9`"),
        (8, 90_000.0, "`origin-addresses: 16`"),
        (16, 90_000.0, "`requests: keep-alive`"),
    ],
)
def test_where_the_machines_ports_ran_out_it_says_what_to_write(
    addresses: int, made: float, instead: str
) -> None:
    record = preparation.prepared({"machine": account(0)}, {})
    lasting = preparation.budget(record, addresses, made)
    (words,) = preparation.spent([{"what": preparation.PORTS}], lasting, addresses)
    assert words.endswith(instead) or f"{instead}, or" in words
    # That more was made than ports last for says nothing by itself: who closes first keeps them.
    assert preparation.spent([{"what": "econ"}], lasting, addresses) == []
    assert preparation.spent([{"what": preparation.PORTS}], {}, addresses) == []


@pytest.mark.parametrize(
    ("role", "waits", "warned"),
    [
        ("client", 58_100, True),
        ("client", 58_000, False),
        ("machine", 64_000, False),
    ],
)
def test_a_client_with_few_free_ports_is_reported_before_any_request_fails(
    role: str, waits: int, warned: bool
) -> None:
    sockets = SOCKSTAT.replace("tw 321", f"tw {waits}")
    record = preparation.prepared({role: account(0, **{kernel.SOCKETS: sockets})}, {})
    words = preparation.scarce(record)
    assert bool(words) == warned
    if warned:
        assert "58100 of the client's 64512 ports" in words[0]


@given(text=st.text(max_size=200))
def test_no_text_makes_reading_it_fail(text: str) -> None:
    assert set(preparation.ports(text)) <= {"count", "lasting_per_s"}
    preparation.waiting(text)
    preparation.waiting(f"TCP: inuse 1 tw {text}")
    assert preparation.interrupted(text, text) == {}
    preparation.interrupted(f" CPU0\n{text}", f" CPU0 CPU1\n{text}")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}-[0-9]", fullmatch=True),
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
        max_size=30,
    )
)
def test_received_packets_are_counted_for_their_cpu(came: dict[str, tuple[int, int]]) -> None:
    def table(times: int) -> str:
        rows = [
            f"{number}: {times * a + 1} {times * b + 2} chip edge {name}"
            for number, (name, (a, b)) in enumerate(came.items())
        ]
        return "\n".join(["  CPU0 CPU1", *rows])

    found = preparation.interrupted(table(1), table(2))
    grown = sorted((a + b for a, b in came.values() if a + b), reverse=True)
    assert (
        sorted((sum(each.values()) for each in found.values()), reverse=True)
        == (grown[: preparation.MOST_INTERRUPTS])
    )
