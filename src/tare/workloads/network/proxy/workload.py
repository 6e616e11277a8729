"""``proxy``: HAProxy in the machine, between a client and an origin that are outside it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from tare.identity import identity
from tare.workloads.additions import Additions
from tare.workloads.contract import Metric, Need
from tare.workloads.network.ends import (
    HTTP_PORT,
    ORIGIN_PORT,
    ProxiedEnds,
    ProxiedTraffic,
    ProxiedWorkload,
    Results,
    Stage,
)
from tare.workloads.network.nginx import nginx
from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy import load_search, preparation
from tare.workloads.network.proxy.haproxy import (
    PROGRAM,
    QUESTIONS,
    SOCKET,
    VERSION,
    connection_limit,
    haproxy,
)
from tare.workloads.network.proxy.parameters import ProxyParameters
from tare.workloads.network.proxy.summary import PACKETS, RECORDED, summed
from tare.workloads.values import listed, mapping, number

PREPARATION_S = 2.0
NEEDS: frozenset[Need] = frozenset({"network", "bridged", "toolbox"})

_TIMED = (
    *(
        (f"response-{percent}", load_search.stage_at_share(percent))
        for percent in load_search.SHARES
    ),
    ("response-offered", load_search.OFFERED),
    ("probe", load_search.PROBE),
)
"""The first part of each latency metric's name, and the stage that it measures."""
_WORDS = {
    **{
        load_search.stage_at_share(percent): f"at {percent} % of the proxy's capacity"
        for percent in load_search.SHARES
    },
    load_search.OFFERED: "at the rate that all arms are offered",
    load_search.PROBE: "of the probe during the load that keeps the proxy full",
}


def _latencies() -> tuple[Metric, ...]:
    found: list[Metric] = []
    for name, stage in _TIMED:
        words = _WORDS[stage]
        first = stage == load_search.OFFERED
        found += [
            Metric(
                f"{name}-median",
                "s",
                "lower",
                f"Median time {words}.",
                headline=first,
                may_be_zero=False if first else None,
            ),
            Metric(f"{name}-p99", "s", "lower", f"99th percentile of it {words}.", "tail"),
        ]
    return tuple(found)


def _mean(stages: Results, stage: str, *path: str) -> float:
    """Return a figure of a stage, as the mean over its rounds."""
    return fmean(number(stages, [each, *path]) for each in load_search.rounds_of(stage, stages))


class Proxy(ProxiedWorkload[ProxyParameters]):
    """HAProxy in the machine, a client and an nginx outside it."""

    name = "proxy"
    resource = "network"
    summary = (
        "HAProxy in the machine forwards requests from a client outside to an origin outside: "
        "first without the proxy, then through it with increasing load until the rate stops "
        "rising, and then at shares of that rate."
    )
    parameters = ProxyParameters
    needs = NEEDS
    carried_out_by = "http-load"
    metrics = (
        Metric(
            "requests",
            "1/s",
            "higher",
            "Requests answered per second through the proxy, where neither the client nor the "
            "origin was the limit.",
            headline=True,
        ),
        Metric(
            "cpu-per-request",
            "s",
            "lower",
            "CPU time that the host spent on the machine for each request.",
            headline=True,
            may_be_zero=False,
        ),
        Metric(
            "requests-at-least",
            "1/s",
            "neither",
            "Requests answered per second if client or origin may have been the limit, or if the "
            "rate was still rising at `most-connections`: the proxy's capacity is at least this, "
            "and no loss is computed from it.",
        ),
        Metric("bandwidth", "B/s", "higher", "Bytes of objects per second, as `requests`."),
        Metric(
            "bandwidth-at-least",
            "B/s",
            "neither",
            "Bytes of objects per second, as `requests-at-least`.",
        ),
        Metric("connections", "1/s", "neither", "Connections of the client per second."),
        Metric("concurrency", "1", "neither", "Requests in flight at that rate."),
        Metric(
            "direct",
            "1/s",
            "neither",
            "Requests per second of the client to the origin, through the same switching.",
        ),
        Metric(
            "straight",
            "1/s",
            "neither",
            "Requests per second of the client to the origin with nothing between them.",
        ),
        Metric(
            "tls-resumed",
            "1",
            "neither",
            "Share of TLS handshakes that resumed an earlier session.",
        ),
        *_latencies(),
        Metric("failed-share", "1", "lower", "Share of failed requests."),
        Metric("packets-in", "1/s", "neither", "Packets that the machine received per second."),
        Metric("packets-out", "1/s", "neither", "Packets that the machine sent per second."),
        Metric("packet-in", "B", "neither", "Mean size of received packets."),
        Metric("packet-out", "B", "neither", "Mean size of sent packets."),
        Metric(
            "owned-share",
            "1",
            "neither",
            "Share of the host's CPU time whose user is known, including idle time.",
        ),
    )

    def metrics_for(self, parameters: ProxyParameters) -> tuple[Metric, ...]:
        """Return the metrics of a cell, without those that its parameters leave out."""
        there = {
            "response-offered": parameters.offered is not None,
            "tls-": parameters.tls != "none",
            "bandwidth": parameters.size > 0,
            **{f"response-{percent}": parameters.at_shares for percent in load_search.SHARES},
        }
        left_out = tuple(name for name, has in there.items() if not has)
        return tuple(each for each in self.metrics if not each.name.startswith(left_out))

    def adds(self, parameters: ProxyParameters) -> Additions:
        """Return the packages that the toolbox must hold: the distribution's HAProxy."""
        return Additions(packages=frozenset({PROGRAM}))

    def request(self, parameters: ProxyParameters) -> dict[str, Any]:
        """Return the parameters of the client's first stage."""
        first = load_search.following(parameters, {})
        assert first is not None
        return dict(first.client.params)

    def ends(self, parameters: ProxyParameters) -> ProxiedEnds:
        """Return the three ends and the stages between them."""
        first = load_search.following(parameters, {})
        assert first is not None
        shown = None if parameters.tls == "none" else identity(parameters.tls)
        certificate = "" if shown is None else shown.digest

        def following(done: Results, straight: bool) -> Stage | None:
            return load_search.following(parameters, done, straight, certificate)

        def result(results: Mapping[str, Any]) -> Mapping[str, Any]:
            return summed(results, parameters)

        return ProxiedEnds(
            port=HTTP_PORT,
            server=haproxy(parameters, shown),
            client=first.client,
            through=ProxiedTraffic(
                origin=nginx(
                    parameters.size,
                    ORIGIN_PORT,
                    parameters.origin_workers,
                    connection_limit(parameters),
                    parameters.origin_addresses,
                ),
                following=following,
                ask={"socket": SOCKET, "words": list(QUESTIONS)},
                server=PROGRAM,
                version=VERSION,
                files=kernel.FILES,
                outside_files=preparation.FILES,
                summed=result,
                origin_addresses=parameters.origin_addresses,
            ),
        )

    def expected_s(self, parameters: ProxyParameters) -> float:
        """Estimate the seconds of one cell."""
        return load_search.expected_s(parameters) + PREPARATION_S

    def observe(self, parameters: ProxyParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics, in seconds, bytes and per second."""
        stages = mapping(result, "stages")
        least = "-at-least" if listed(result, "limits") else ""
        values = {
            f"requests{least}": _mean(stages, load_search.FULL, "requests_per_s"),
            "connections": _mean(stages, load_search.FULL, "connections_per_s"),
            "concurrency": _mean(stages, load_search.FULL, "connections_used"),
            "direct": number(result, "direct_per_s"),
            "failed-share": _mean(stages, load_search.FULL, "failed_share"),
        }
        if "owned" in mapping(result, "account"):
            values["owned-share"] = number(result, "account.owned")
        if parameters.size:
            # Empty objects have no bandwidth, which differs from a bandwidth of 0.
            values[f"bandwidth{least}"] = _mean(stages, load_search.FULL, "bytes_per_s")
        if "straight_per_s" in result:
            values["straight"] = number(result, "straight_per_s")
        if (tls := mapping(result, "tls")) and number(tls, "handshake.count") > 0:
            values["tls-resumed"] = number(tls, "resumed") / number(tls, "handshake.count")
        if "machine_s" in mapping(result, "account"):
            values["cpu-per-request"] = number(result, "account.machine_s")
        for metric, stage in _TIMED:
            if stage in stages:
                values[f"{metric}-median"] = _mean(stages, stage, "total", "median_s")
                values[f"{metric}-p99"] = _mean(stages, stage, "total", "p99_s")
        packets = mapping(result, "packets")
        return values | {name: number(packets, [name]) for name in PACKETS if name in packets}

    def facts(self, parameters: ProxyParameters, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the account of CPU time, the limits, and the set-up."""
        kept = {name: result[name] for name in RECORDED}
        return {"host_cost": dict(result["host_cost"]), "proxy": {**kept, "size": parameters.size}}
