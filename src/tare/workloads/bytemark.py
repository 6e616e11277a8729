"""Bytemark's kernels: how often per second a fixed, verified piece of work is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.study.quantities import Duration
from tare.workloads.base import Metric, Parameters
from tare.workloads.values import numbers, own

PREPARATION_S = 0.05


class KernelParameters(Parameters):
    """How long to repeat the work, by how many threads."""

    duration: Duration = Field(
        default=5.0,
        gt=0,
        le=86_400,
        description="Repeat the work for at least so long (Bytemark's rule is 5 s).",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Threads that do the same at once, one per CPU in turn.",
    )


class Kernel:
    """One kernel, written anew from its description, by its name in the agent."""

    parameters: type[Parameters] = KernelParameters
    realtime = False

    def __init__(self, name: str, summary: str, iteration: str) -> None:
        self.name = name
        self.summary = summary
        self.metrics: tuple[Metric, ...] = (
            Metric(
                "rate",
                "1/s",
                "higher",
                f"Iterations per second, of all threads together; one iteration {iteration}.",
                headline=True,
            ),
        )

    def request(self, parameters: Parameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, counts."""
        asked = own(KernelParameters, parameters)
        return {"seconds": asked.duration, "threads": asked.threads}

    def expected_s(self, parameters: Parameters) -> float:
        """Estimate the seconds of one cell."""
        return own(KernelParameters, parameters).duration + PREPARATION_S

    def observe(self, parameters: Parameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of iterations; a wrong result never gets here (the agent fails it)."""
        return numbers(result, {"rate": "iterations_per_s"})


NUMERIC_SORT = Kernel(
    "numeric-sort",
    "Bytemark's integer sort: heap sort of 8111 32-bit integers.",
    "sorts the array once",
)
FOURIER = Kernel(
    "fourier",
    "Bytemark's Fourier: series coefficients of (x+1)^x on [0, 2], by the trapezoid rule.",
    "computes the first 100 pairs of coefficients",
)
IDEA = Kernel(
    "idea",
    "Bytemark's cipher: 4000 bytes through the block cipher IDEA and back.",
    "encrypts and decrypts all bytes once",
)
