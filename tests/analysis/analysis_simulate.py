"""Simulated nested data and run folders of known truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Check,
    Event,
    EventLog,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    PlatformChecked,
    Preflight,
    RunFinished,
    RunStarted,
)
from tare.events.metric import Better, Kind, Resource

T = TypeVar("T")


def some(value: T | None) -> T:
    """The value, which is there."""
    assert value is not None
    return value


def nested_logs(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    spreads: tuple[float, float, float],
    law: str = "normal",
) -> np.ndarray:
    """Logs of values: shape (simulations, blocks, repeats, iterations), mean 0."""

    def draw(size: tuple[int, ...]) -> np.ndarray:
        if law == "exponential":
            return rng.exponential(size=size) - 1
        return rng.standard_normal(size)

    sims, blocks, repeats, iterations = shape
    return (
        spreads[0] * draw((sims, blocks, 1, 1))
        + spreads[1] * draw((sims, blocks, repeats, 1))
        + spreads[2] * draw((sims, blocks, repeats, iterations))
    )


@dataclass(frozen=True)
class SimulatedMetric:
    """One metric: its true value per arm, and its spreads (sd of logs) per level."""

    name: str
    truth: Mapping[str, float]
    workload: str = "tick"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "s"
    better: Better = "lower"
    kind: Kind = "typical"
    headline: bool = True
    resource: Resource | None = None
    spreads: tuple[float, float] = (0.01, 0.005)


@dataclass(frozen=True)
class SimulatedRun:
    """What to simulate."""

    metrics: Sequence[SimulatedMetric]
    arms: Mapping[str, str] = field(
        default_factory=lambda: {"bare": "bare", "bare-again": "bare", "qemu-pv": "qemu"}
    )
    emulated: frozenset[str] = frozenset({"qemu-pv"})
    blocks: int = 8
    repeats: int = 1
    seed: int = 1
    run: str = "r1"
    shared_spread: float = 0.1
    finished: bool = True


def study_of(simulated: SimulatedRun) -> dict[str, Any]:
    aa = ("bare", "bare-again") if "bare-again" in simulated.arms else None
    return {
        "study": "simulated",
        "title": "Simulated",
        "baseline": "bare",
        "aa": aa,
        "confidence": 0.95,
        "margin": 0.02,
        "blocks": {"least": simulated.blocks, "most": simulated.blocks, "precision": 0.05},
        "arms": {arm: {"platform": platform} for arm, platform in simulated.arms.items()},
    }


def started(simulated: SimulatedRun) -> list[Event]:
    events: list[Event] = [
        RunStarted(
            run=simulated.run,
            study=study_of(simulated),
            study_path="simulated.yaml",
            study_sha256="0" * 64,
            seed=simulated.seed,
            host={"hostname": "here"},
            versions={"tare": "0"},
        ),
        Preflight(checks=(Check(name="load", level="ok", found="0.1"),)),
    ]
    events += [
        PlatformChecked(
            arm=arm, platform=platform, options={}, usable=True, emulated=arm in simulated.emulated
        )
        for arm, platform in simulated.arms.items()
    ]
    return events


def cell_name(block: int, arm: str, metric: SimulatedMetric, n: int) -> str:
    inside = ",".join(f"{k}={v}" for k, v in metric.parameters.items())
    suffix = f"#{n}" if n > 1 else ""
    return f"b{block:03d}/{arm}/alone/{metric.workload}[{inside}]{suffix}"


def events_of(simulated: SimulatedRun) -> list[Event]:
    """All events of a simulated run."""
    rng = np.random.default_rng(simulated.seed)
    events = started(simulated)
    by_cell: dict[tuple[str, str], list[SimulatedMetric]] = {}
    for metric in simulated.metrics:
        by_cell.setdefault((metric.workload, json.dumps(metric.parameters)), []).append(metric)
    for block in range(1, simulated.blocks + 1):
        events.append(BlockStarted(block=block, order=tuple(simulated.arms)))
        common = simulated.shared_spread * rng.standard_normal()
        for arm in simulated.arms:
            machine = f"tare-{simulated.run}-{block}-{arm}"
            events += [
                MachineStarting(
                    machine=machine, block=block, arm=arm, scenario="alone", role="subject"
                ),
                MachineReady(machine=machine, boot_s=1.0, proof={"kernel": {"release": arm}}),
            ]
            for metrics in by_cell.values():
                boots = [m.spreads[0] * rng.standard_normal() for m in metrics]
                for repeat in range(1, simulated.repeats + 1):
                    name = cell_name(block, arm, metrics[0], repeat)
                    events.append(
                        CellStarted(
                            cell=name,
                            block=block,
                            arm=arm,
                            scenario="alone",
                            workload=metrics[0].workload,
                            parameters=dict(metrics[0].parameters),
                        )
                    )
                    for metric, boot in zip(metrics, boots, strict=True):
                        log = common + boot + metric.spreads[1] * rng.standard_normal()
                        events.append(
                            Observed(
                                cell=name,
                                metric=metric.name,
                                unit=metric.unit,
                                better=metric.better,
                                kind=metric.kind,
                                headline=metric.headline,
                                resource=metric.resource,
                                value=metric.truth[arm] * float(np.exp(log)),
                            )
                        )
                    events.append(CellFinished(cell=name, status="ok", measured_s=0.5))
            events.append(
                MachineStopped(
                    machine=machine, expected=True, host_cost={"cpu_s": 2.0, "rss_bytes": 1e8}
                )
            )
        events.append(BlockFinished(block=block))
    if simulated.finished:
        events.append(RunFinished(status="complete", wall_s=9, booting_s=3, measuring_s=5))
    return events


def write_run(folder: Path, events: Sequence[Event]) -> Path:
    """Write events as a run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with EventLog(folder / "events.jsonl") as log:
        for event in events:
            log.append(event)
    return folder
