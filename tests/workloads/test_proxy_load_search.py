"""The loads through a proxy, their order, and the configuration of its servers."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads import WORKLOADS
from tare.workloads.network.ends import Stage
from tare.workloads.network.proxy.haproxy import haproxy
from tare.workloads.network.proxy.load_search import (
    FULL,
    expected_s,
    fewest_for,
    following,
    next_connections,
    rounds_of,
    stage_in_round,
    steps_of,
)
from tare.workloads.network.proxy.parameters import ProxyParameters
from workloads.workload_kinds import PROXIED
from workloads.workloads_results import result_of

WORKLOAD = PROXIED["proxy"]


def carried_out(
    parameters: ProxyParameters, capacity: float, straight: bool = False
) -> dict[str, Stage]:
    """Return all stages, with a proxy and an origin that make 10/s a connection up to a limit."""
    done: dict[str, Any] = {}
    stages: dict[str, Stage] = {}
    while (stage := following(parameters, done, straight)) is not None:
        assert stage.name not in done
        most = capacity if stage.to == "machine" else 4 * capacity
        rate = min(most, 10.0 * stage.client.params["connections"])
        done[stage.name] = {"requests_per_s": rate}
        stages[stage.name] = stage
    return stages


@given(
    capacity=st.floats(1, 1e5),
    most=st.integers(4, 4096),
    offered=st.none() | st.just(7.0),
    straight=st.booleans(),
    rounds=st.integers(1, 4),
)
def test_every_load_search_ends_with_the_loads_that_count(
    capacity: float, most: int, offered: float | None, straight: bool, rounds: int
) -> None:
    parameters = ProxyParameters(most_connections=most, offered=offered, rounds=rounds)
    names = list(stages := carried_out(parameters, capacity, straight))
    assert names[0] == ("straight-4" if straight else "direct-4")
    fulls = [stage_in_round(FULL, nth) for nth in range(1, rounds + 1)]
    assert names[-1] == fulls[-1]
    assert [name for name in names if stages[name].account] == fulls == rounds_of(FULL, names)
    assert len({stages[name].probe_name for name in fulls}) == rounds
    again = names[names.index(FULL) + 1 :]
    assert len(again) == (rounds - 1) * (1 if offered is None else 2)
    kinds = [name.partition("-")[0] for name in names if name not in again]
    assert kinds == sorted(
        kinds, key=("straight", "direct", "proxied", "at", "offered", "full").index
    )
    assert ("offered" in names) == (offered is not None)
    tried = [int(name.partition("-")[2]) for name in names if name.startswith("proxied")]
    assert all(one < other <= most for one, other in pairwise(tried))
    full = stages[FULL]
    assert full.client.params["connections"] in tried
    assert full.probe is not None
    reached = min(capacity, 10.0 * full.client.params["connections"])
    assert stages["at-50"].client.params["rate"] == pytest.approx(reached / 2)


def test_response_times_at_shares_may_be_left_out() -> None:
    parameters = ProxyParameters(at_shares=False, offered=7.0)
    names = list(carried_out(parameters, 100.0))
    assert [name for name in names if name.startswith("at-")] == []
    metrics = {each.name for each in WORKLOAD.metrics_for(parameters)}
    assert not {name for name in metrics if name.startswith(("response-50", "response-70"))}
    assert "response-offered-median" in metrics


@pytest.mark.parametrize(
    ("capacity", "least", "room"),
    [
        # 1024 requests take 102 ms each, at which 100 a second are 10 at once.
        (1e6, 100.0, 103),
        # Two a second, the fewest, of 4 that take 0.4 s each.
        (10.0, 2.0, 4),
        # Two a second, of 8 that take 0.1 s each.
        (80.0, 2.0, 4),
    ],
)
def test_no_probe_waits_for_a_connection_of_its_own(
    capacity: float, least: float, room: int
) -> None:
    full = carried_out(ProxyParameters(most_connections=1024), capacity)[FULL]
    assert full.probe is not None
    assert full.probe.params["rate"] == pytest.approx(least, rel=0.03)
    assert full.probe.params["connections"] == room


@given(st.lists(st.floats(0, 1e6), max_size=12))
def test_more_is_tried_as_long_as_the_rate_rises(values: list[float]) -> None:
    rates: dict[int, float] = {}
    for rate in values:
        tried = next_connections(rates, 64)
        if tried is None:
            break
        assert tried not in rates
        rates[tried] = rate
    if rates:
        best, fewest = max(rates.values()), fewest_for(rates)
        assert fewest <= min(tried for tried, rate in rates.items() if rate == best)
        assert rates[fewest] * 1.05 >= best
        assert all(rate < best / 1.04 for tried, rate in rates.items() if tried < fewest)


def test_a_plateau_is_loaded_with_its_fewest_connections_whichever_step_was_highest() -> None:
    assert fewest_for({4: 50.0, 8: 100.0, 16: 101.0, 32: 99.0}) == 8
    assert fewest_for({4: 50.0, 8: 99.0, 16: 98.0, 32: 103.0}) == 8
    assert fewest_for({4: 50.0, 8: 90.0, 16: 100.0}) == 16


def test_a_single_step_without_a_rise_does_not_end_it() -> None:
    assert next_connections({4: 100.0, 8: 101.0}, 256) == 16
    assert next_connections({4: 100.0, 8: 101.0, 16: 102.0}, 256) is None
    assert next_connections({4: 100.0, 8: 101.0, 16: 150.0}, 256) == 32
    assert next_connections({4: 100.0, 8: 300.0}, 8) is None


def test_time_series_of_open_loops_are_kept_and_those_of_the_search_are_not() -> None:
    stages = carried_out(ProxyParameters(offered=7.0), 100.0)
    assert [name for name in stages if stages[name].kept] == ["at-50", "at-70", "at-90", "offered"]


@pytest.mark.parametrize(("most", "taken"), [(64, 4096), (16_384, 2 * 16_384 + 64)])
def test_the_origin_takes_as_many_connections_as_are_made_to_it(most: int, taken: int) -> None:
    ends = WORKLOAD.ends(ProxyParameters(most_connections=most))
    assert ends is not None
    assert ends.through is not None
    (text,) = ends.through.origin.params["files"].values()
    assert f"worker_connections {taken};" in text
    assert f"worker_rlimit_nofile {2 * taken + 64};" in text


def test_steps_are_distinguished_by_their_path() -> None:
    done = {"direct-4": {"requests_per_s": 1.0}, "proxied-8": {"requests_per_s": 2.0}, "full": {}}
    assert steps_of("direct", done) == {4: 1.0}
    assert steps_of("proxied", done) == {8: 2.0}


def test_the_plan_knows_about_how_long_it_takes() -> None:
    parameters = ProxyParameters(step=1.0, duration=5.0, warmup=0.5)
    stages = carried_out(parameters, 100.0).values()
    took = sum(s.client.params["seconds"] + s.client.params["warmup_s"] for s in stages)
    assert took / 2 < expected_s(parameters) < took * 2


def test_haproxys_configuration_names_both_of_its_sides() -> None:
    parameters = ProxyParameters(haproxy_threads=3, timeout=2.0)
    served = WORKLOAD.ends(parameters)
    assert served is not None
    server = served.server.at("192.0.2.1", 8080, ["192.0.2.9"])
    (text,) = server["files"].values()
    assert "bind 192.0.2.1:8080" in text
    assert "server origin 192.0.2.9:8081" in text
    assert "nbthread 3" in text
    assert "option httpclose" in text
    assert "{" not in text
    assert server["port"] == 8080
    kept = WORKLOAD.ends(ProxyParameters(requests="keep-alive"))
    assert kept is not None
    assert "http-reuse always" in kept.server.params["files"]["/tmp/tare-haproxy/haproxy.cfg"]


def test_an_origin_of_several_addresses_is_asked_at_each_in_turn() -> None:
    served = WORKLOAD.ends(ProxyParameters(origin_addresses=3))
    assert served is not None
    assert served.through is not None
    assert served.through.origin_addresses == 3
    server = served.server.at("192.0.2.1", 8080, ["192.0.2.9", "192.0.2.10", "192.0.2.11"])
    (text,) = server["files"].values()
    assert re.findall(r"server (\S+) (\S+):8081", text) == [
        ("origin", "192.0.2.9"),
        ("origin-2", "192.0.2.10"),
        ("origin-3", "192.0.2.11"),
    ]
    assert "{" not in text


def test_an_origin_that_is_a_machine_is_asked_at_several_ports_of_its_only_address() -> None:
    served = WORKLOAD.ends(ProxyParameters(origin_addresses=3))
    assert served is not None and served.through is not None
    address = "192.0.2.9"
    origins = [f"{address}:{port}" for port in (8081, 8082, 8083)]
    settings = served.server.at("192.0.2.1", 8080, origins)
    (text,) = settings["files"].values()
    assert re.findall(r"server \S+ (\S+) maxconn", text) == origins
    # It listens there, and the client asks it directly at the first one.
    (listening,) = served.through.origin.at(address, 8081)["files"].values()
    assert re.findall(r"listen (\S+) backlog", listening) == origins
    direct = carried_out(ProxyParameters(), 9.0)["direct-4"].client.at("192.0.2.1", 8080, origins)
    assert (direct["address"], direct["port"]) == (address, 8081)


def test_the_direct_path_leads_to_the_origin_and_the_other_to_the_proxy() -> None:
    stages = carried_out(ProxyParameters(size=0), 100.0)
    direct = stages["direct-4"].client.at("192.0.2.1", 8080, ["192.0.2.9"])
    proxied = stages["proxied-4"].client.at("192.0.2.1", 8080, ["192.0.2.9"])
    assert (direct["address"], direct["port"]) == ("192.0.2.9", 8081)
    assert (proxied["address"], proxied["port"]) == ("192.0.2.1", 8080)
    assert direct["expected_bytes"] == proxied["expected_bytes"] == 0
    assert direct["version"] == "1.0"


def test_the_straight_path_leads_to_the_origin_past_all_switching() -> None:
    stages = carried_out(ProxyParameters(size=0), 100.0, straight=True)
    straight = stages["straight-4"].client.at("192.0.2.1", 8080, ["192.0.2.9"], "169.254.1.2")
    assert (straight["address"], straight["port"]) == ("169.254.1.2", 8081)
    assert not any(stage.to == "straight" for stage in carried_out(ProxyParameters(), 9.0).values())


def test_tls_is_ended_at_the_proxy_and_its_client_knows_the_certificate() -> None:
    parameters = ProxyParameters(tls="ecdsa-p256", tls_cipher="chacha20-poly1305")
    ends = WORKLOAD.ends(parameters)
    assert ends is not None
    assert ends.through is not None
    files = ends.server.params["files"]
    text = files["/tmp/tare-haproxy/haproxy.cfg"]
    assert "ssl crt /tmp/tare-haproxy/site.pem ssl-min-ver TLSv1.3" in text
    assert "ciphersuites TLS_CHACHA20_POLY1305_SHA256 alpn http/1.1 no-tls-tickets" in text
    assert "tune.ssl.cachesize 0" in text
    certificate = x509.load_pem_x509_certificate(files["/tmp/tare-haproxy/site.pem"].encode())
    digest = certificate.fingerprint(hashes.SHA256()).hex()
    done: dict[str, Any] = {}
    while (stage := ends.through.following(done, True)) is not None:
        done[stage.name] = {"requests_per_s": 10.0}
        for each in (stage.client, stage.probe):
            tls = None if each is None else each.params.get("tls")
            if each is not None:
                assert (tls is not None) == (stage.to == "machine")
            assert tls is None or tls == {
                "certificate": digest,
                "suite": "chacha20-poly1305",
                "resumption": False,
            }
    again = WORKLOAD.ends(parameters)
    assert again is not None
    assert again.server.params["files"] != files, "a key is of one cell alone"
    kept = haproxy(ProxyParameters(tls="rsa-2048", tls_resumption=True))
    (text,) = kept.params["files"].values()
    assert "no-tls-tickets" not in text
    assert "cachesize" not in text


def test_http_2_is_used_only_between_client_and_proxy() -> None:
    parameters = ProxyParameters(http="2", requests="keep-alive")
    stages = carried_out(parameters, 100.0, straight=True)
    spoken = {stage.to: stage.client.params["version"] for stage in stages.values()}
    assert spoken == {"machine": "2", "origin": "1.1", "straight": "1.1"}
    (text,) = haproxy(parameters).params["files"].values()
    assert "proto h2" in text
    secured = ProxyParameters(http="2", requests="keep-alive", tls="rsa-2048")
    (text,) = haproxy(secured).params["files"].values()
    assert "alpn h2" in text
    assert "proto h2" not in text


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"http": "2"}, "write `requests: keep-alive`"),
        ({"tls_resumption": True}, "write `tls: ecdsa-p256`"),
    ],
)
def test_incompatible_settings_are_refused(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ProxyParameters.model_validate(asked)


@pytest.mark.parametrize(("value", "version"), [(1.0, "1.0"), (1.1, "1.1"), (2, "2"), ("2", "2")])
def test_a_version_of_http_may_be_written_without_quotes(value: object, version: str) -> None:
    asked = {"http": value, "requests": "keep-alive"}
    assert ProxyParameters.model_validate(asked).http == version


@pytest.mark.parametrize("value", [3, 1.5, True, "1", float("nan")])
def test_another_version_of_http_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="http"):
        ProxyParameters.model_validate({"http": value})


def test_proxy_needs_a_bridged_network_and_haproxy() -> None:
    parameters = ProxyParameters()
    assert {"network", "bridged", "toolbox"} <= WORKLOAD.needs_for(parameters)
    assert WORKLOAD.adds(parameters).packages == {"haproxy"}
    assert WORKLOAD.roles == {"peer", "origin"}
    names = {metric.name for metric in WORKLOAD.metrics_for(parameters)}
    assert "response-offered-median" not in names
    asked = {metric.name for metric in WORKLOAD.metrics_for(ProxyParameters(offered=5.0))}
    assert "response-offered-median" in asked


@pytest.mark.parametrize("name", ["proxy", "http-load"])
def test_empty_objects_have_no_bandwidth(name: str) -> None:
    workload = WORKLOADS[name]
    for size in (0, 1):
        parameters = workload.parameters.model_validate({"size": size})
        names = {metric.name for metric in workload.metrics_for(parameters)}
        values = workload.observe(parameters, result_of(name, 2.5))
        assert ("bandwidth" in names) == ("bandwidth" in values) == (size > 0)
        metrics = {metric.name: metric for metric in workload.metrics}
        assert not any(metrics[each].impossible(values[each]) for each in values)


def test_haproxy_reads_the_file_that_its_configuration_is_written_to() -> None:
    asked = haproxy(ProxyParameters()).params
    path = asked["argv"][-1]
    assert path == "/tmp/tare-haproxy/haproxy.cfg"
    assert asked["files"][path].startswith("global\n")
