"""Exchange messages with a machine: over persistent connections, or each over a new connection."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import Metric, Parameters
from tare.workloads.network.ends import AGENT_PORT, End, Ends, PairWorkload
from tare.workloads.values import numbers

PREPARATION_S = 0.5
WARMUP_S = 0.2
MOST_BYTES = 16 << 20


class ExchangeParameters(Parameters):
    """What is exchanged, by how many at once, for how long."""

    request: Size = Field(default=1, ge=1, le=MOST_BYTES, description="Size of each request.")
    response: Size = Field(default=1, ge=1, le=MOST_BYTES, description="Size of each answer.")
    connections: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Number of parallel clients; each waits for its answer before it asks again.",
    )
    duration: Duration = Field(
        default=5.0, gt=0, le=1e6, description="Duration of the measurement, after 0.2 s."
    )
    timeout: Duration = Field(
        default=5.0, gt=0, le=3600, description="Time limit for an answer; after it the cell fails."
    )


def _latencies(what: str) -> tuple[Metric, ...]:
    return (
        Metric(
            "latency-median",
            "s",
            "lower",
            f"Median time of {what}.",
            headline=True,
            may_be_zero=False,
        ),
        Metric("latency-p99", "s", "lower", f"99th percentile of {what}.", kind="tail"),
        Metric("latency-p99.9", "s", "lower", f"99.9th percentile of {what}.", kind="tail"),
        Metric("latency-max", "s", "lower", f"Longest time of {what}.", kind="maximum"),
    )


_LATENCIES = {
    "latency-median": "exchange.median_s",
    "latency-p99": "exchange.p99_s",
    "latency-p99.9": "exchange.p999_s",
    "latency-max": "exchange.max_s",
}


class _Exchange(PairWorkload[ExchangeParameters]):
    parameters = ExchangeParameters
    once: bool
    measured: Mapping[str, str]

    def request(self, parameters: ExchangeParameters) -> dict[str, Any]:
        """Return the parameters of the client's end."""
        return dict(self.ends(parameters).client.params)

    def ends(self, parameters: ExchangeParameters) -> Ends:
        """Return the ends: the machine serves, and the peer sends requests."""
        common = {
            "address": "{address}",
            "port": "{port}",
            "request_bytes": parameters.request,
            "response_bytes": parameters.response,
        }
        return Ends(
            port=AGENT_PORT,
            server=End("net-server", {**common, "once": self.once}),
            client=End(
                self.name,
                {
                    **common,
                    "connections": parameters.connections,
                    "seconds": parameters.duration,
                    "warmup_s": WARMUP_S,
                    "timeout_s": parameters.timeout,
                },
            ),
        )

    def expected_s(self, parameters: ExchangeParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + WARMUP_S + PREPARATION_S

    def clocked_s(self, parameters: ExchangeParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration + WARMUP_S

    def observe(
        self, parameters: ExchangeParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics, in seconds and per second."""
        return numbers(result, self.measured)


class RequestResponse(_Exchange):
    """What netperf calls TCP_RR."""

    name = "request-response"
    resource = "network"
    summary = (
        "A client outside the machine and a server in it exchange small messages over persistent "
        "TCP connections, one at a time on each."
    )
    once = False
    metrics: tuple[Metric, ...] = (
        Metric("rate", "1/s", "higher", "Exchanges per second, of all clients.", headline=True),
        *_latencies("an exchange"),
    )
    measured = MappingProxyType({"rate": "exchanges_per_s", **_LATENCIES})


class ConnectRequestResponse(_Exchange):
    """What netperf calls TCP_CRR."""

    name = "connect-request-response"
    resource = "network"
    summary = (
        "A client outside the machine connects to a server in it, exchanges one message, and sees "
        "the connection closed, again and again."
    )
    once = True
    metrics: tuple[Metric, ...] = (
        Metric("rate", "1/s", "higher", "Connections per second, of all clients.", headline=True),
        *_latencies("a connection with its exchange, from connecting until it is closed"),
        Metric("connect-median", "s", "lower", "Median time until a connection is established."),
    )
    measured = MappingProxyType(
        {"rate": "exchanges_per_s", **_LATENCIES, "connect-median": "connect.median_s"}
    )
