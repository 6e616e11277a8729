"""Bytemark's kernels, one by one or all: how often per second a verified piece of work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tare.units import Duration
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.threads import FROM_MACHINE, Threads, threads_asked
from tare.workloads.values import numbers

PREPARATION_S = 0.05

REFERENCE_RATES: Mapping[str, float] = {
    "numeric-sort": 2000,
    "string-sort": 20_000,
    "bitfield": 500,
    "fp-emulation": 12_000,
    "fourier": 1200,
    "assignment": 400,
    "idea": 20_000,
    "huffman": 12_000,
    "neural-net": 300,
    "lu": 8000,
}
"""Iterations per second at which an index is 1: Tare's own unit, not the result of a machine.

They are round numbers near the rates of one thread of a server CPU of 2023. They must never change:
an index could no longer be compared with one of an earlier version.
"""

INDICES: Mapping[str, tuple[str, ...]] = {
    "mem-index": ("string-sort", "bitfield", "assignment"),
    "int-index": ("numeric-sort", "fp-emulation", "idea", "huffman"),
    "fp-index": ("fourier", "neural-net", "lu"),
}
"""The kernels of each index, as Bytemark groups them."""


class KernelParameters(Parameters):
    """How long to repeat the work, by how many threads."""

    duration: Duration = Field(
        default=5.0,
        gt=0,
        le=86_400,
        description="Minimum time to repeat the work (Bytemark's rule is 5 s).",
    )
    threads: Threads = Field(
        default=1,
        description="Threads that do the same at once, one per CPU in turn; `all`: one for each "
        "CPU of the machine.",
    )


class BytemarkParameters(Parameters):
    """How long to repeat the work of each kernel, by how many threads."""

    duration: Duration = Field(
        default=5.0,
        gt=0,
        le=86_400,
        description="Minimum time to repeat the work of *each* of the ten kernels (Bytemark's rule "
        "is 5 s).",
    )
    threads: Threads = Field(
        default=1,
        description="Threads that do the same at once, one per CPU in turn; `all`: one for each "
        "CPU of the machine.",
    )


class Kernel(Workload[KernelParameters]):
    """One kernel, reimplemented from its description, by its name in the agent."""

    resource = "cpu"
    parameters = KernelParameters
    from_machine = (FROM_MACHINE,)

    def __init__(self, name: str, summary: str, iteration: str) -> None:
        self.name = name
        self.summary = summary
        self.iteration = iteration
        self.metrics = (
            Metric(
                "rate",
                "1/s",
                "higher",
                f"Iterations per second, of all threads together; one iteration {iteration}.",
                headline=True,
            ),
        )

    def request(self, parameters: KernelParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds, counts."""
        return {"seconds": parameters.duration, **threads_asked(parameters.threads)}

    def expected_s(self, parameters: KernelParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.duration + PREPARATION_S

    def clocked_s(self, parameters: KernelParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration

    def observe(self, parameters: KernelParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the rate of iterations; on a wrong result, the agent reports a failure instead."""
        return numbers(result, {"rate": "iterations_per_s"})


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "numeric-sort",
        "Bytemark's integer sort: heap sort of 8111 32-bit integers.",
        "sorts the array once",
    ),
    Kernel(
        "string-sort",
        "Bytemark's string sort: heap sort of strings of 4 to 80 bytes, packed into 8111 bytes.",
        "sorts all strings once",
    ),
    Kernel(
        "bitfield",
        "Bytemark's bitfield: sets, clears and complements runs of bits in 32768 words.",
        "changes 30 runs of bits, bit by bit",
    ),
    Kernel(
        "fp-emulation",
        "Bytemark's FP emulation: 3000 floating-point operations by integer arithmetic alone.",
        "does all 3000 operations once",
    ),
    Kernel(
        "fourier",
        "Bytemark's Fourier: series coefficients of (x+1)^x on [0, 2], by the trapezoid rule.",
        "computes the first 100 pairs of coefficients",
    ),
    Kernel(
        "assignment",
        "Bytemark's assignment: the cheapest way to give 101 machines one of 101 tasks each.",
        "solves the problem once",
    ),
    Kernel(
        "idea",
        "Bytemark's cipher: 4000 bytes through the block cipher IDEA and back.",
        "encrypts and decrypts all bytes once",
    ),
    Kernel(
        "huffman",
        "Bytemark's Huffman: 5000 bytes of text compressed and expanded.",
        "compresses and expands the text once",
    ),
    Kernel(
        "neural-net",
        "Bytemark's neural net: a 35-8-8 network learns 26 letters by back-propagation.",
        "teaches a fresh network all letters, in 228 passes",
    ),
    Kernel(
        "lu",
        "Bytemark's LU: 101 linear equations, by decomposition into triangles.",
        "solves the equations once",
    ),
)
"""The ten kernels, in the order in which `Bytemark` runs them."""


class Bytemark(Workload[BytemarkParameters]):
    """All ten kernels in one cell, and their three indices."""

    name = "bytemark"
    resource = "cpu"
    summary = (
        "Bytemark's ten kernels in sequence, with one index each for memory, integer and "
        "floating-point work."
    )
    parameters = BytemarkParameters
    from_machine = (FROM_MACHINE,)
    metrics = (
        *(
            Metric(
                index,
                "1",
                "higher",
                f"Geometric mean of {', '.join(f'`{kernel}`' for kernel in kernels)}, relative to "
                "fixed rates; only ratios of it mean something.",
                headline=True,
            )
            for index, kernels in INDICES.items()
        ),
        *(
            Metric(
                kernel.name,
                "1/s",
                "higher",
                "Iterations per second, of all threads together; one iteration "
                f"{kernel.iteration}.",
            )
            for kernel in KERNELS
        ),
    )

    def request(self, parameters: BytemarkParameters) -> dict[str, Any]:
        """Return the agent's parameters: seconds of each kernel, counts."""
        return {"seconds": parameters.duration, **threads_asked(parameters.threads)}

    def expected_s(self, parameters: BytemarkParameters) -> float:
        """Estimate the seconds of one cell."""
        return (parameters.duration + PREPARATION_S) * len(KERNELS)

    def clocked_s(self, parameters: BytemarkParameters) -> float:
        """Return the seconds that the duration fixes, however slow the machine is."""
        return parameters.duration * len(KERNELS)

    def observe(
        self, parameters: BytemarkParameters, result: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return each kernel's rate, in iterations per second, and the indices.

        Raises:
            KeyError: A kernel is missing.
            ValueError: A rate is not a finite number above 0.
        """
        rates = numbers(
            result, {kernel.name: f"kernels.{kernel.name}.iterations_per_s" for kernel in KERNELS}
        )
        return indices(rates) | rates


def indices(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the indices: geometric means of rates relative to `REFERENCE_RATES`.

    They are geometric means, because only with these the ratio of two machines does not depend on
    the reference (Fleming & Wallace, CACM 29, 1986).

    Args:
        rates: Iterations per second by kernel, all ten.

    Raises:
        ValueError: A rate is not above 0.
    """
    for kernel, rate in rates.items():
        if rate <= 0:
            raise ValueError(f"kernels.{kernel} is {rate}, not above 0")
    return {
        index: math.exp(
            math.fsum(math.log(rates[kernel] / REFERENCE_RATES[kernel]) for kernel in kernels)
            / len(kernels)
        )
        for index, kernels in INDICES.items()
    }
