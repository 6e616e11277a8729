"""Redis under its own benchmark, both in the machine that is measured."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.workloads.additions import Additions
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import finite, words

SOCKET = "/tmp/redis.sock"
# Nothing is saved and nothing listens on a network: clients and server share a socket in memory.
SERVER = f"redis-server --port 0 --unixsocket {SOCKET} --save '' --appendonly no --daemonize yes"
SCRIPT = f"""
{SERVER} >/tmp/redis.log || exit 1
until redis-cli -s {SOCKET} ping >/tmp/redis.ping 2>&1; do sleep 0.05; done
redis-benchmark -s {SOCKET} --csv "$@"
status=$?
redis-cli -s {SOCKET} shutdown nosave
exit $status
"""
TIMEOUT_S = 3600.0
RATE = 50_000.0
"""Requests per second that an ordinary computer serves; only for the plan."""


class RedisParameters(Parameters):
    """What the clients ask for, and how many there are."""

    command: Literal["set", "get", "incr", "lpush"] = Field(
        default="get", description="The command of Redis that is measured."
    )
    requests: int = Field(default=100_000, ge=100, description="How often it is sent.")
    clients: int = Field(default=50, ge=1, le=1000, description="How many connections send it.")
    bytes: int = Field(default=3, ge=1, le=1 << 20, description="The size of a value.")


class Redis(Workload[RedisParameters]):
    """Redis, measured by its own benchmark."""

    name = "redis"
    summary = "Redis with its own benchmark, over a socket in the machine."
    parameters = RedisParameters
    needs = frozenset({"toolbox"})
    carried_out_by = "program"
    metrics = (
        Metric("rate", "1/s", "higher", "Requests served per second.", headline=True),
        Metric("latency", "s", "lower", "Time of a request: the median."),
        Metric("latency-p99", "s", "lower", "Time of a request: the 99th percentile.", "tail"),
    )

    def adds(self, parameters: RedisParameters) -> Additions:
        """Return the packages that the toolbox must hold: apt adds what they depend on."""
        return Additions(packages=frozenset({"redis-server", "redis-tools"}))

    def request(self, parameters: RedisParameters) -> dict[str, Any]:
        """Return what the agent's ``program`` is to run: a shell that serves, asks and ends."""
        asked = {
            "-t": parameters.command,
            "-n": parameters.requests,
            "-c": parameters.clients,
            "-d": parameters.bytes,
        }
        flags = [str(word) for flag in asked.items() for word in flag]
        step = {"argv": ["sh", "-c", SCRIPT, "sh", *flags], "cwd": "/tmp"}
        return {"steps": [step], "timeout_s": TIMEOUT_S, "keep": 1 << 16}

    def expected_s(self, parameters: RedisParameters) -> float:
        """Estimate the seconds of one cell."""
        return 1.0 + parameters.requests / RATE

    def observe(self, parameters: RedisParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics from what the benchmark printed: a head and one line of CSV.

        Raises:
            KeyError: A column is missing.
            ValueError: The line is missing, or a figure is not a number.
        """
        lines = list(csv.DictReader(words(result, "output").splitlines()))
        if len(lines) != 1:
            raise ValueError(f"redis-benchmark printed {len(lines)} results, not one")
        (line,) = lines
        return {
            "rate": finite(line["rps"], "rps"),
            "latency": finite(line["p50_latency_ms"], "p50_latency_ms") * 1e-3,
            "latency-p99": finite(line["p99_latency_ms"], "p99_latency_ms") * 1e-3,
        }
