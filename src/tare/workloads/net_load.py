"""``net-load``: a neighbour that keeps the host's network busy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.workloads.base import Metric, Parameters
from tare.workloads.ends import NETWORK
from tare.workloads.values import numbers, own

EXPECTED_S = 5.0


class NetLoadParameters(Parameters):
    """Over how many connections."""

    connections: int = Field(
        default=1, ge=1, le=64, description="Connections, each busy in both directions."
    )


class NetLoad:
    """A neighbour whose packets take the host's time (seed 002, section IV.G)."""

    name = "net-load"
    summary = (
        "Endless sending to a partner outside the machine, which sends everything back; a "
        "neighbour only, as it ends when the subject does."
    )
    parameters: type[Parameters] = NetLoadParameters
    realtime = False
    needs = NETWORK
    keeps_busy = False
    neighbour_only = True
    metrics: tuple[Metric, ...] = (
        Metric("rate", "B/s", "higher", "Bytes sent and received per second."),
    )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return nothing: where its partner is met is known only when both are there."""
        own(NetLoadParameters, parameters)
        return {}

    def partners(self, parameters: Parameters) -> int:
        """Return how many connections its partner makes."""
        return own(NetLoadParameters, parameters).connections

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell, which its subject decides."""
        own(NetLoadParameters, parameters)
        return EXPECTED_S

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of traffic."""
        return numbers(result, {"rate": "bytes_per_s"})
