"""``packet-rate``: measure the rate of small packets from one end to the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import Metric, Parameters
from tare.workloads.network.ends import AGENT_PORT, End, Ends, PairWorkload
from tare.workloads.values import numbers

PREPARATION_S = 0.5


class PacketRateParameters(Parameters):
    """How large the packets are, which way they go, for how long."""

    size: Size = Field(
        default=18,
        ge=1,
        le=65_507,
        description="Size of each UDP datagram; 18 gives the shortest Ethernet frame (64 bytes).",
    )
    direction: Literal["to-machine", "from-machine"] = Field(
        default="to-machine",
        description="The end that sends. User-mode networks carry datagrams only to the machine.",
    )
    threads: int = Field(default=1, ge=1, le=256, description="Number of parallel senders.")
    duration: Duration = Field(default=5.0, gt=0, le=1e6, description="Duration of sending.")


class PacketRate(PairWorkload[PacketRateParameters]):
    """A flood of UDP datagrams; only what arrives counts."""

    name = "packet-rate"
    resource = "network"
    summary = "Small UDP datagrams at the maximum rate, counted where they arrive."
    parameters = PacketRateParameters
    metrics = (
        Metric("received", "1/s", "higher", "Packets that arrived per second.", headline=True),
        Metric("sent", "1/s", "neither", "Packets that the sender's kernel accepted per second."),
    )

    def request(self, parameters: PacketRateParameters) -> dict[str, Any]:
        """Return the parameters of the sender's end."""
        return dict(self.ends(parameters).client.params)

    def ends(self, parameters: PacketRateParameters) -> Ends:
        """Return the ends: the receiver is the server, and the sender the client."""
        at = {"address": "{address}", "port": "{port}"}
        sender = {
            "bytes": parameters.size,
            "threads": parameters.threads,
            "seconds": parameters.duration,
        }
        return Ends(
            port=AGENT_PORT,
            server=End("net-server", at),
            client=End(self.name, {**at, **sender}),
            serves="machine" if parameters.direction == "to-machine" else "peer",
        )

    def expected_s(self, parameters: PacketRateParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + PREPARATION_S

    def clocked_s(self, parameters: PacketRateParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration

    def observe(
        self, parameters: PacketRateParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics, per second."""
        return numbers(result, {"received": "server.packets_per_s", "sent": "sent_per_s"})
