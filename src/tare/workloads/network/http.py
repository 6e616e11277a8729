"""``http-load``: nginx in the machine, and a client outside it that counts and times requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import NETWORK, Metric, Parameters
from tare.workloads.network.ends import HTTP_PORT, End, Ends, PairWorkload
from tare.workloads.network.nginx import nginx
from tare.workloads.values import numbers

PREPARATION_S = 1.5
INTERVAL_S = 0.1
USUAL_INTERVALS, MOST_INTERVALS = 3000, 20_000
"""The usual and the maximum number of intervals of a time series. The agent keeps a histogram for
each interval, and accepts at most the maximum."""


class HttpLoadParameters(Parameters):
    """What is asked for, how often, and by how many at once."""

    size: Size = Field(default=1024, ge=0, le=1 << 30, description="Size of the requested file.")
    requests: Literal["connection", "keep-alive"] = Field(
        default="connection",
        description="Whether each request has its own TCP connection, or requests share "
        "connections.",
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Requests per second, each timed from when it is due, independent of earlier "
        "ones (open loop). Default: each request follows an answer at once (closed loop).",
    )
    arrivals: Literal["constant", "poisson"] = Field(
        default="constant", description="With `rate`: evenly spaced, or independent of each other."
    )
    connections: int = Field(
        default=32, ge=1, le=20_000, description="Maximum number of requests in flight."
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Number of the client's threads. Default: one per CPU.",
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Number of nginx's processes. Default: one per CPU that it sees.",
    )
    duration: Duration = Field(default=5.0, gt=0, le=1e6, description="What counts.")
    warmup: Duration = Field(
        default=0.5, ge=0, le=3600, description="Duration of the load before the measurement."
    )
    timeout: Duration = Field(default=10.0, gt=0, le=3600, description="Time limit of a request.")
    interval: Duration | None = Field(
        default=None,
        ge=0.001,
        le=3600,
        description="Interval of the time series of response times. Default: 100 ms, or longer so "
        "that there are at most 3000 intervals.",
    )


def interval_of(asked: HttpLoadParameters) -> float:
    """Return the seconds of the time series' intervals: as requested, or to fit the duration."""
    wanted = asked.interval or max(INTERVAL_S, asked.duration / USUAL_INTERVALS)
    return max(wanted, asked.duration / MOST_INTERVALS)


class HttpLoad(PairWorkload[HttpLoadParameters]):
    """Requests to nginx in the machine, from outside it."""

    name = "http-load"
    resource = "network"
    summary = (
        "nginx in the machine serves a file to a client outside. The client sends requests as fast "
        "as it gets answers, or at a fixed rate, and times each request from when it was due."
    )
    parameters = HttpLoadParameters
    needs = NETWORK | {"toolbox"}
    metrics = (
        Metric("requests", "1/s", "higher", "Requests answered per second.", headline=True),
        Metric("bandwidth", "B/s", "higher", "Bytes of files received per second."),
        Metric(
            "response-median",
            "s",
            "lower",
            "Median time of a request.",
            headline=True,
            may_be_zero=False,
        ),
        Metric("response-p99", "s", "lower", "99th percentile of a request.", kind="tail"),
        Metric("response-p99.9", "s", "lower", "99.9th percentile of a request.", kind="tail"),
        Metric("response-max", "s", "lower", "Longest time of a request.", kind="maximum"),
        Metric("first-byte-median", "s", "lower", "Median time until an answer begins."),
        Metric("failed-share", "1", "lower", "Share of failed requests."),
    )

    def metrics_for(self, parameters: HttpLoadParameters) -> tuple[Metric, ...]:
        """Return the metrics of a cell: empty files have no bandwidth."""
        return tuple(each for each in self.metrics if each.name != "bandwidth" or parameters.size)

    def request(self, parameters: HttpLoadParameters) -> dict[str, Any]:
        """Return the parameters of the client's end."""
        return dict(self.ends(parameters).client.params)

    def ends(self, parameters: HttpLoadParameters) -> Ends:
        """Return the ends: nginx in the machine, the generator at the peer."""
        client: dict[str, Any] = {
            "address": "{address}",
            "port": "{port}",
            "paths": ["/file"],
            "keep_alive": parameters.requests == "keep-alive",
            "connections": parameters.connections,
            "threads": parameters.threads,
            "rate": parameters.rate,
            "arrivals": parameters.arrivals,
            "seconds": parameters.duration,
            "warmup_s": parameters.warmup,
            "timeout_s": parameters.timeout,
            "interval_s": interval_of(parameters),
        }
        return Ends(
            port=HTTP_PORT,
            server=nginx(parameters.size, HTTP_PORT, parameters.workers),
            client=End(
                self.name, {name: value for name, value in client.items() if value is not None}
            ),
        )

    def expected_s(self, parameters: HttpLoadParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + parameters.warmup + PREPARATION_S

    def clocked_s(self, parameters: HttpLoadParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration + parameters.warmup

    def observe(
        self, parameters: HttpLoadParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics, in seconds, bytes and per second."""
        bandwidth = {"bandwidth": "bytes_per_s"} if parameters.size else {}
        return numbers(
            result,
            {
                "requests": "requests_per_s",
                **bandwidth,
                "response-median": "total.median_s",
                "response-p99": "total.p99_s",
                "response-p99.9": "total.p999_s",
                "response-max": "total.max_s",
                "first-byte-median": "first_byte.median_s",
                "failed-share": "failed_share",
            },
        )
