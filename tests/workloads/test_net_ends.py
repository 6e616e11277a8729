"""Workloads with two ends: what each end is asked, and what is read from their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.linux.network import SERVED
from tare.workloads import WORKLOADS
from tare.workloads.network.ends import End, Ends
from tare.workloads.network.stream import iperf_answer
from workloads.workload_kinds import PAIRS

NAMES = ("net-stream", "request-response", "connect-request-response", "packet-rate", "http-load")


def ends(name: str, **parameters: Any) -> Ends:
    workload = PAIRS[name]
    return workload.ends(workload.parameters.model_validate(parameters))


@pytest.mark.parametrize("name", NAMES)
def test_each_needs_a_network_and_serves_a_port_that_is_forwarded(name: str) -> None:
    assert "network" in WORKLOADS[name].needs
    both = ends(name)
    assert both.port in SERVED
    for end in (both.server, both.client):
        filled = json.dumps(end.at("192.0.2.1", both.port))
        assert "{address}" not in filled
        assert "{port}" not in filled


def test_addresses_and_ports_are_put_in_where_they_belong() -> None:
    end = End("x", {"port": "{port}", "argv": ["-p", "{port}", "{address}:{port}"], "n": 1})
    assert end.at("192.0.2.1", 80) == {
        "port": 80,
        "argv": ["-p", "80", "192.0.2.1:80"],
        "n": 1,
    }


def test_packets_go_the_way_that_is_asked_for() -> None:
    assert ends("packet-rate").serves == "machine"
    assert ends("packet-rate", direction="from-machine").serves == "peer"
    reverse = ends("net-stream", direction="from-machine", streams=4).client.params["steps"][0]
    assert "--reverse" in reverse["argv"]
    assert reverse["argv"][reverse["argv"].index("--parallel") + 1] == "4"


def test_nginx_serves_the_file_at_the_machines_address() -> None:
    served = ends("http-load", size=4096, workers=3).server.at("192.0.2.1", 8080)
    (text,) = served["files"].values()
    assert "listen 192.0.2.1:8080" in text
    assert "worker_processes 3;" in text
    assert text.count("{") == text.count("}")
    assert list(served["filled"].values()) == [4096]


def iperf3_output(bits: float = 8e9) -> str:
    end = {
        "sum_sent": {"bits_per_second": 9e9, "retransmits": 3},
        "sum_received": {"bits_per_second": bits},
        "cpu_utilization_percent": {"host_total": 10.0, "remote_total": 55.0},
    }
    return json.dumps({"start": {}, "intervals": [], "end": end})


def test_values_are_those_of_iperf3() -> None:
    workload = WORKLOADS["net-stream"]
    observed = workload.observe(workload.parameters(), {"output": iperf3_output()})
    assert observed == {"bandwidth": 1e9, "retransmits": 3.0, "machine-cpu": 0.55}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"error": "unable to connect to server: Connection refused"}', "Connection refused"),
        ("iperf3: error", "no JSON"),
        ("[1]", "no JSON object"),
    ],
)
def test_failure_of_iperf3_is_reported(text: str, words: str) -> None:
    workload = WORKLOADS["net-stream"]
    with pytest.raises(ValueError, match=words):
        workload.observe(workload.parameters(), {"output": text})


@given(text=st.text(max_size=60))
def test_any_answer_of_iperf3_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(iperf_answer(text), dict)
    except ValueError:
        return


@given(
    cut=st.integers(0, len(iperf3_output())),
    value=st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(), max_size=2),
)
def test_a_damaged_answer_is_refused(cut: int, value: object) -> None:
    workload = WORKLOADS["net-stream"]
    damaged = [
        iperf3_output()[:cut] if cut < len(iperf3_output()) else "",
        json.dumps({"end": value}),
    ]
    for text in damaged:
        with pytest.raises((ValueError, KeyError)):
            workload.observe(workload.parameters(), {"output": text})
