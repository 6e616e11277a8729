"""``net-stream``: bulk data over TCP, by iperf3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.units import Duration, Size
from tare.workloads.contract import NETWORK, Metric, Parameters
from tare.workloads.network.ends import IPERF_PORT, End, Ends, PairWorkload
from tare.workloads.values import number, shortened, words

PREPARATION_S = 1.0
SLACK_S = 30.0
KEPT_BYTES = 256 << 10
_BITS = 8.0


class NetStreamParameters(Parameters):
    """Which way, in how many streams, for how long."""

    direction: Literal["to-machine", "from-machine"] = Field(
        default="to-machine",
        description="Direction of the data; the peer always opens the connection.",
    )
    streams: int = Field(default=1, ge=1, le=128, description="Number of parallel connections.")
    duration: Duration = Field(
        default=5.0,
        ge=1,
        le=86_400,
        description="Duration of the measurement, in whole seconds, after `warmup`.",
    )
    warmup: Duration = Field(
        default=1.0, ge=0, le=60, description="Warm-up in whole seconds, while TCP finds its speed."
    )
    length: Size = Field(default=128 << 10, ge=1, le=1 << 20, description="Size of one write.")


class NetStream(PairWorkload[NetStreamParameters]):
    """Iperf3 of the toolbox at both ends; its own figures are the metrics."""

    name = "net-stream"
    resource = "network"
    summary = "Bulk data over TCP between the machine and a peer outside it, by iperf3."
    parameters = NetStreamParameters
    needs = NETWORK | {"toolbox"}
    metrics = (
        Metric("bandwidth", "B/s", "higher", "Data received per second.", headline=True),
        Metric("retransmits", "1", "lower", "Number of segments that the sender retransmitted."),
        Metric("machine-cpu", "1", "lower", "Share of one CPU that iperf3 used in the machine."),
    )

    def request(self, parameters: NetStreamParameters) -> dict[str, Any]:
        """Return the parameters of the client's end."""
        return dict(self.ends(parameters).client.params)

    def ends(self, parameters: NetStreamParameters) -> Ends:
        """Return the ends: the machine serves, the peer connects and states the direction."""
        server = ["iperf3", "--server", "--bind", "{address}", "--port", "{port}"]
        client = [
            *("iperf3", "--client", "{address}", "--port", "{port}", "--json"),
            # A single interval for the whole run; otherwise the answer grows with the duration.
            *(
                "--interval",
                "0",
                "--time",
                f"{parameters.duration:.0f}",
                "--omit",
                f"{parameters.warmup:.0f}",
            ),
            *("--parallel", str(parameters.streams), "--length", str(parameters.length)),
            *(["--reverse"] if parameters.direction == "from-machine" else []),
        ]
        limit_s = parameters.duration + parameters.warmup + SLACK_S
        return Ends(
            port=IPERF_PORT,
            server=End("serve-program", {"argv": server, "port": IPERF_PORT}),
            client=End(
                "program",
                # On a failure iperf3 exits with 1, and its JSON has the reason.
                {
                    "steps": [{"argv": client, "codes": [0, 1]}],
                    "timeout_s": limit_s,
                    "keep": KEPT_BYTES,
                },
            ),
        )

    def expected_s(self, parameters: NetStreamParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + parameters.warmup + PREPARATION_S

    def clocked_s(self, parameters: NetStreamParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration + parameters.warmup

    def observe(
        self, parameters: NetStreamParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return iperf3's own figures; the bandwidth is the receiver's, in bytes per second.

        Raises:
            KeyError: iperf3's answer lacks a figure.
            ValueError: iperf3's answer is not JSON, or reports a failure.
        """
        answer = iperf_answer(words(result, "output"))
        received = number(answer, "end.sum_received.bits_per_second") / _BITS
        # Utilisation is per cent of one CPU, of the process; the machine's end is the remote one.
        return {
            "bandwidth": received,
            "retransmits": number(answer, "end.sum_sent.retransmits"),
            "machine-cpu": number(answer, "end.cpu_utilization_percent.remote_total") / 100,
        }


def iperf_answer(text: str) -> dict[str, Any]:
    """Return iperf3's answer in JSON.

    Raises:
        ValueError: The text is not a JSON object, or iperf3 reports a failure.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"iperf3 gave no JSON as output: {text[:200]!r}") from error
    if not isinstance(answer, dict):
        raise ValueError(f"iperf3 gave no JSON object as output: {text[:200]!r}")
    if "error" in answer:
        raise ValueError(f"iperf3 failed: {shortened(answer['error'])}")
    return answer
