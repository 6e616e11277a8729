"""What a workload declares: its parameters, its metrics, and how a result becomes values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Better = Literal["higher", "lower", "neither"]
Kind = Literal["typical", "tail", "maximum"]


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    Args:
        name: Short kebab-case name, unique within the workload.
        unit: SI unit (``s``, ``B``, ``B/s``, ``1/s``, ``1``).
        better: Which direction is an improvement.
        summary: What it means, in one sentence.
        kind: ``typical`` values get t-intervals on log-ratios; ``tail`` and ``maximum`` get
            order-statistic or boot-level bootstrap intervals only.
        headline: Whether it stands for the workload on the report's first screen.
    """

    name: str
    unit: str
    better: Better
    summary: str
    kind: Kind = "typical"
    headline: bool = False


class Parameters(BaseModel):
    """Base of every workload's parameters; field descriptions become the reference in docs."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Workload(Protocol):
    """Something measured. One file per workload implements this."""

    name: str
    summary: str
    parameters: type[Parameters]
    metrics: tuple[Metric, ...]
    realtime: bool
    """Whether a PREEMPT_RT kernel is the default image for it."""

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the ``params`` object the agent is sent (plain numbers, base SI or ns)."""
        ...

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds one cell takes on undisturbed hardware, for the plan."""
        ...

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Turn the agent's result into one value per metric name, in SI units.

        Raises:
            KeyError: The result lacks what the metrics need.
            ValueError: What is there is no finite number, or not what the workload tells.
        """
        ...
