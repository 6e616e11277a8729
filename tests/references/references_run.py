"""A run with values chosen for tests; none of them was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
from tare.analysis.model import Comparison
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
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

BLOCKS = 8
SCENARIOS: dict[str, Any] = {
    "one-to-all": {"subject": {"cpus": "any"}, "neighbours": []},
    "tight": {
        "subject": {"cpus": "pinned"},
        "neighbours": [{"load": "cpu-load", "count": 1, "cpus": "same", "parameters": {}}],
    },
    "crowd": {
        "subject": {"cpus": "any"},
        "neighbours": [{"load": "memory-load", "count": "fill", "cpus": "any", "parameters": {}}],
    },
}
WORKLOADS: dict[str, Any] = {
    "tick-short": {"workload": "tick"},
    "tick-long": {"workload": "tick"},
    "switch": {"workload": "switch"},
}
CELLS: tuple[tuple[str, dict[str, Any], str, float], ...] = (
    ("tick-short", {"duration": 1.0}, "excess-max", 5e-6),
    ("tick-long", {"samples": 100_000}, "excess-max", 20e-6),
    ("switch", {"threads": 2, "samples": 1000}, "latency-max", 4e-6),
    ("switch", {"threads": 100, "samples": 1000}, "latency-max", 5e-6),
    ("switch", {"threads": 1000, "samples": 1000}, "latency-max", 6e-6),
)
COSTS = {"bare": 1.0, "bare-again": 1.0, "vm": 3.0}


def value_of(base: float, arm: str, block: int) -> float:
    """A maximum that grows by a tenth of its base with each block."""
    return base * COSTS[arm] * (1 + 0.1 * block)


def write_realtime_run(folder: Path, scenarios: dict[str, Any] | None = None) -> Path:
    """Write a run of ``scenarios`` (by default a few of fayyad2013's) into ``folder``."""
    chosen = SCENARIOS if scenarios is None else scenarios
    folder.mkdir(parents=True, exist_ok=True)
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="invented-1",
                study={
                    "study": "realtime",
                    "title": "Synthetic data, not measured",
                    "baseline": "bare",
                    "aa": ["bare", "bare-again"],
                    "blocks": {"least": BLOCKS, "most": BLOCKS, "precision": 0.05},
                    "margin": 0.02,
                    "confidence": 0.95,
                    "shape": {"vcpus": 1, "memory": 1 << 28},
                    "arms": {arm: {"platform": "bare"} for arm in COSTS},
                    "scenarios": chosen,
                    "workloads": WORKLOADS,
                },
                study_path="studies/realtime.yaml",
                study_sha256="0" * 64,
                seed=1,
                host={"cpus": 2},
                versions={"tare": "0.1.0"},
            )
        )
        log.append(Preflight(checks=()))
        for arm in COSTS:
            emulated = arm == "vm"
            log.append(
                PlatformChecked(
                    arm=arm, platform="bare", options={}, usable=True, emulated=emulated
                )
            )
        for block in range(1, BLOCKS + 1):
            _block(log, block, chosen)
        log.append(RunFinished(status="complete", wall_s=9.0))
    return folder


def _block(log: EventLog, block: int, scenarios: dict[str, Any]) -> None:
    log.append(BlockStarted(block=block, order=()))
    for scenario, placed in scenarios.items():
        for arm in COSTS:
            roles = ["subject", *(f"neighbour-{n + 1}" for n in range(len(placed["neighbours"])))]
            for role in roles:
                machine = f"tare-invented-{block}-{scenario}-{arm}-{role}"
                log.append(
                    MachineStarting(
                        machine=machine, block=block, arm=arm, scenario=scenario, role=role
                    )
                )
                log.append(MachineReady(machine=machine, boot_s=0.1, proof={}))
                log.append(MachineStopped(machine=machine, expected=True))
            for workload, parameters, metric, base in CELLS:
                loaded = base * (2 if placed["neighbours"] else 1)
                _cell(log, block, arm, scenario, workload, parameters, metric, loaded)
    log.append(BlockFinished(block=block))


def _cell(
    log: EventLog,
    block: int,
    arm: str,
    scenario: str,
    workload: str,
    parameters: dict[str, Any],
    metric: str,
    base: float,
) -> None:
    inside = ",".join(f"{key}={parameters[key]}" for key in sorted(parameters))
    cell = f"b{block:03d}/{arm}/{scenario}/{workload}[{inside}]"
    log.append(
        CellStarted(
            cell=cell,
            block=block,
            arm=arm,
            scenario=scenario,
            workload=workload,
            parameters=parameters,
        )
    )
    log.append(
        Observed(
            cell=cell,
            metric=metric,
            unit="s",
            better="lower",
            kind="maximum",
            headline=True,
            value=value_of(base, arm, block),
        )
    )
    log.append(CellFinished(cell=cell, status="ok", measured_s=1.0))


def comparison_of_run(folder: Path) -> Comparison:
    """Load and compare the run, as ``tare report`` does."""
    return compare(load_runs([folder]))
