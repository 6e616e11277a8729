"""What goes wrong through a proxy is named, with its count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.faults import fault_warnings, faults_of
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import proxied_result, stage

TRACKED = "entries clashres found new invalid ignore delete chainlength insert insert_failed drop\n"
STATISTICS = (
    "# pxname,svname,hrsp_5xx,econ,eresp,\n"
    "clients,FRONTEND,7,,,\n"
    "origins,origin,0,5,2,\n"
    "origins,BACKEND,7,5,2,\n"
)


def seen(**more: Any) -> dict[str, int]:
    """Return the faults of a machine's account, by where and what."""
    machine = {"before": {}, "after": {}, "said": {}, **more}
    faults = faults_of({}, machine, {})
    return {f"{each['where']} {each['what']}": each["count"] for each in faults}


def test_every_kind_of_error_is_named_with_its_stage() -> None:
    result = proxied_result()
    result["stages"]["proxied-4"]["errors"] = {"reset": 3, "wrong_status": 2, "timeout": 0}
    result["stages"]["full"]["errors"] = {"no_port": 9, "no_descriptor": 4}
    assert summed(result)["faults"] == [
        {"where": "client", "stage": "proxied-4", "what": "reset", "count": 3},
        {"where": "client", "stage": "proxied-4", "what": "wrong_status", "count": 2},
        {"where": "client", "stage": "full", "what": "no_port", "count": 9},
        {"where": "client", "stage": "full", "what": "no_descriptor", "count": 4},
    ]
    assert summed(proxied_result())["faults"] == []


def test_an_origin_that_cannot_be_reached_shows_in_haproxys_own_counts() -> None:
    found = seen(said={"show stat": STATISTICS})
    assert found == {"haproxy econ": 5, "haproxy eresp": 2, "haproxy hrsp_5xx": 7}
    words = fault_warnings(faults_of({}, {"said": {"show stat": STATISTICS}}, {}))
    assert words[0] == "haproxy: 5 connections to the origin that could not be made"


def test_exhausted_ports_are_reported_with_the_number_in_time_wait() -> None:
    sockets = "TCP: inuse 6 orphan 0 tw {} alloc 9 mem 2\nUDP: inuse 1\n"
    texts = {kernel.SOCKETS: sockets.format(27_000), kernel.PORTS: "32768\t60999"}
    haproxy = {"haproxy econ": 5, "haproxy eresp": 2, "haproxy hrsp_5xx": 7}
    settings = {"show stat": STATISTICS}
    assert seen(after=texts, said=settings) == {"machine ports": 27_000, **haproxy}
    # Those on a listener's port wait too, and take none: nothing has gone wrong.
    assert seen(after=texts) == {}
    texts[kernel.SOCKETS] = sockets.format(900)
    assert seen(after=texts, said=settings) == haproxy


def test_each_address_of_the_origin_has_all_ports_and_counts_of_its_own() -> None:
    more = STATISTICS.replace("origins,BACKEND", "origins,origin-2,0,1,3,\norigins,BACKEND")
    sockets = "TCP: inuse 6 orphan 0 tw {} alloc 9 mem 2\nUDP: inuse 1\n"
    haproxy = {"haproxy econ": 6, "haproxy eresp": 5, "haproxy hrsp_5xx": 7}
    for waiting, ports in ((27_000, {}), (52_000, {"machine ports": 52_000})):
        texts = {kernel.SOCKETS: sockets.format(waiting), kernel.PORTS: "32768\t60999"}
        assert seen(after=texts, said={"show stat": more}) == {**ports, **haproxy}


def test_connection_tracking_losses_are_summed_over_all_cpus() -> None:
    row = "00000010 0 0 0 0 0 0 0 0 {} 00000001\n"
    before = {kernel.TRACKED: TRACKED + row.format("00000001") + row.format("00000000")}
    after = {kernel.TRACKED: TRACKED + row.format("0000000b") + row.format("00000010")}
    assert seen(before=before, after=after) == {"machine insert_failed": 26}


def test_connections_lost_by_a_switchs_tracking_are_reported_once_as_a_fault() -> None:
    lost = {"drop": 7, "insert_failed": 0}
    result = proxied_result(network={"tracked": {"count": 9, "most": 10, "lost": lost}})
    assert summed(result)["faults"] == [
        {"where": "switch", "stage": "", "what": "drop", "count": 7}
    ]
    # The switch's own words come with the other messages.
    assert summed(result)["warnings"] == []


def test_a_listener_whose_queue_was_full_is_named() -> None:
    (fault,) = faults_of({}, {}, {"TcpExt:ListenOverflows": 4})
    assert (fault["what"], fault["count"]) == ("ListenOverflows", 4)


@pytest.mark.fuzz
@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=100))
def test_no_text_of_kernel_or_haproxy_breaks_the_readers(one: str, other: str, ports: str) -> None:
    texts = {kernel.TRACKED: one, kernel.SOCKETS: f"TCP: {other}", kernel.PORTS: ports}
    for answers in ({"show stat": one}, {"show stat": f"# svname,econ\n{other}"}):
        for fault in faults_of({"full": stage(1.0)}, {"after": texts, "said": answers}, {}):
            assert fault["count"] > 0


@pytest.mark.parametrize(("look_s", "warned"), [(0.9, False), (4.0, True)])
def test_threads_that_were_read_slowly_are_reported(look_s: float, warned: bool) -> None:
    result = proxied_result()
    result["accounts"]["host"]["look_s"] = look_s
    warnings = [each for each in summed(result)["warnings"] if "reading the host's threads" in each]
    assert bool(warned) == bool(warnings)
    if warned:
        assert "took 4.0 s of the 10.0 s" in warnings[0]
