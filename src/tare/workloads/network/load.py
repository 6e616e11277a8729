"""``net-load``: a neighbour that keeps the host's network busy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.workloads.contract import NETWORK, Metric, Parameters, Workload
from tare.workloads.values import numbers

EXPECTED_S = 5.0


class NetLoadParameters(Parameters):
    """Over how many connections."""

    connections: int = Field(
        default=1, ge=1, le=64, description="Number of connections, each busy in both directions."
    )


class NetLoad(Workload[NetLoadParameters]):
    """A neighbour whose packets take the host's time (hwang2013, section IV.G)."""

    name = "net-load"
    resource = "network"
    summary = (
        "Endless sending to a partner outside the machine, which sends everything back; only for "
        "neighbours, because it ends with the subject."
    )
    parameters = NetLoadParameters
    needs = NETWORK
    keeps_busy = False
    neighbour_only = True
    metrics = (Metric("rate", "B/s", "higher", "Bytes sent and received per second."),)

    def request(self, parameters: NetLoadParameters) -> dict[str, Any]:
        """Return nothing: where its partner is met is known only when both are there."""
        return {}

    def partners(self, parameters: NetLoadParameters) -> int:
        """Return how many connections its partner makes."""
        return parameters.connections

    def expected_s(self, parameters: NetLoadParameters) -> float:
        """Estimate the seconds of one cell, which its subject decides."""
        return EXPECTED_S

    def clocked_s(self, parameters: NetLoadParameters) -> float:
        """Return the seconds that the clock ends."""
        return EXPECTED_S

    def observe(self, parameters: NetLoadParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of traffic."""
        return numbers(result, {"rate": "bytes_per_s"})
