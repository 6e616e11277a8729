"""Runs of known truth, of a workload with one metric."""

from __future__ import annotations

from pathlib import Path

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Comparison
from tare.events import Record, fold_records

ARMS = {"bare": "bare", "bare-again": "bare", "vm": "qemu"}


def run(
    seed: int, vm: float = 1.2, host: float = 1.0, blocks: int = 12, spread: float = 0.03
) -> Comparison:
    truth = {"bare": host, "bare-again": host, "vm": vm * host}
    metric = SimulatedMetric("latency", truth, workload="switch", spreads=(spread, 0.0))
    simulated = SimulatedRun(
        [metric], arms=ARMS, emulated=frozenset(), blocks=blocks, seed=seed, run=f"r{seed}"
    )
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated)))
    return compare_runs(run_data(Path("nowhere"), fold_records(records)))
