"""The first events of runs with values chosen for tests; none of them was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare.events import EventLog, Preflight, RunStarted

BLOCKS = 3


def begin(
    log: EventLog,
    run: str,
    name: str,
    *,
    cpus: int,
    memory: int,
    arms: Iterable[str],
    scenarios: Mapping[str, Any],
    workload: str,
) -> None:
    """Write the beginning of a run of one workload on machines of one vCPU."""
    study = {
        "study": name,
        "title": "Synthetic data, not measured",
        "baseline": "bare",
        "blocks": {"least": BLOCKS, "most": BLOCKS, "precision": 0.05},
        "margin": 0.02,
        "confidence": 0.95,
        "shape": {"vcpus": 1, "memory": memory},
        "arms": {arm: {"platform": "bare"} for arm in arms},
        "scenarios": dict(scenarios),
        "workloads": {workload: {"workload": workload}},
    }
    log.append(
        RunStarted(
            run=run,
            study=study,
            study_path=f"studies/{name}.yaml",
            study_sha256="0" * 64,
            seed=1,
            host={"cpus": cpus},
            versions={"tare": "0.1.0"},
        )
    )
    log.append(Preflight(checks=()))
