"""Invented values of synthetic runs: how arms behave, and what their cells observe."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from tare.events import Observed


@dataclass(frozen=True)
class ArmSpec:
    """How an invented arm behaves: factors of cost, spread, whether it is emulated or fails."""

    platform: str = "bare"
    cpu: float = 1.0
    memory: float = 1.0
    latency: float = 1.0
    tail: float = 1.0
    spread: float = 0.004
    emulated: bool = False
    usable: bool = True
    reason: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    mark: str = ""


@dataclass(frozen=True)
class CellSpec:
    """A workload's name and parameters, with its metrics as functions of an arm."""

    workload: str
    parameters: dict[str, Any]

    @property
    def label(self) -> str:
        """The end of its cells' names."""
        inside = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.workload}[{inside}]"


RESOURCES = {"tick": "latency", "switch": "latency", "memory-bandwidth": "memory"}
RESOURCES |= {"numeric-sort": "cpu"}


def observations_of(
    random: np.random.Generator, cell: str, spec: CellSpec, arm: ArmSpec, noise: float
) -> list[Observed]:
    """Return what one cell observes on an arm, ``noise`` times as slow as usual."""

    def seen(metric: str, value: float, **more: Any) -> Observed:
        settings = {"unit": "s", "better": "lower", "kind": "typical", **more}
        settings.setdefault("resource", RESOURCES.get(spec.workload, "application"))
        return Observed(cell=cell, metric=metric, value=value, **settings)

    heavy = float(np.exp(random.normal(0, 0.25)))
    if spec.workload == "tick":
        return [
            seen("duration-median", 68e-6 * noise * (1.0 if not arm.emulated else 1.02)),
            seen("slowdown", 1 + 0.004 * noise * arm.latency, unit="1", headline=True),
            seen("duration-p99", 79e-6 * noise * arm.tail**0.5, kind="tail"),
            seen("duration-p99.9", 95e-6 * noise * arm.tail, kind="tail"),
            seen("duration-max", 310e-6 * heavy * arm.tail, kind="maximum"),
            seen("gaps", float(random.poisson(4 * arm.tail)), unit="1"),
        ]
    if spec.workload == "switch":
        threads = float(spec.parameters["threads"])
        base = 1.3e-6 * (1 + threads / 400)
        return [
            seen("latency-median", base * noise * arm.latency, headline=True),
            seen("latency-p99", 2.2 * base * noise * arm.latency, kind="tail"),
            seen("latency-max", 60 * base * heavy * arm.tail, kind="maximum"),
        ]
    if spec.workload == "memory-bandwidth":
        rates = {"copy": 11.2e9, "scale": 10.4e9, "add": 11.9e9, "triad": 11.8e9}
        return [
            seen(name, rate / noise / arm.memory, unit="B/s", better="higher",
                 headline=name == "triad")
            for name, rate in rates.items()
        ]  # fmt: skip
    return [seen("iterations", 912 / noise / arm.cpu, unit="1/s", better="higher", headline=True)]


def series_of(random: np.random.Generator, arm: ArmSpec) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the scatter and the histogram of a tick loop on an arm."""
    count = 20000
    samples = 68e3 + random.gamma(2, 60, count)
    period = 59
    samples[::period] += 9e3 + random.gamma(2, 700, len(samples[::period]))
    rare = random.random(count) < 0.0008 * arm.tail
    samples[rare] += random.pareto(1.6, int(rare.sum())) * 2e4 * arm.tail
    starts = np.cumsum(samples) - samples
    edges = np.linspace(0, count, 257).astype(int)
    spans = list(itertools.pairwise(edges))
    scatter = pl.DataFrame(
        {
            "time_ns": np.array([starts[a] for a, _ in spans]).astype(np.uint64),
            "min_ns": np.array([samples[a:b].min() for a, b in spans]),
            "max_ns": np.array([samples[a:b].max() for a, b in spans]),
            "samples": np.array([b - a for a, b in spans]).astype(np.uint64),
        }
    )
    bins = np.geomspace(6e4, samples.max() * 1.01, 400)
    counts, _ = np.histogram(samples, bins)
    keep = counts > 0
    histogram = pl.DataFrame(
        {
            "low_ns": bins[:-1][keep],
            "width_ns": np.diff(bins)[keep],
            "count": counts[keep].astype(np.uint64),
        }
    )
    return scatter, histogram
