"""A run of a study as it is planned, in which every value is 1: nothing of it was measured."""

from __future__ import annotations

from pathlib import Path

from tare.analysis.compare import compare
from tare.analysis.load import load_runs
from tare.analysis.model import Comparison
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
)
from tare.references.published import Reference
from tare.study.plan import Plan
from tare.workloads import WORKLOADS

BLOCKS = 2


def kinds_of(reference: Reference) -> set[str]:
    """Return the workloads that a source's tables and figures are about."""
    kinds = {table.workload for table in reference.tables}
    return kinds | {kind for exhibit in reference.exhibits for kind in exhibit.workloads}


def as_if_run(folder: Path, plan: Plan, cpus: int, kinds: set[str]) -> Comparison:
    """Return the comparison of a run of ``plan``, in which every value is 1; of ``kinds`` only."""
    folder.mkdir()
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="invented-1",
                study=plan.study.model_dump(mode="json"),
                study_path="",
                study_sha256="0" * 64,
                seed=plan.seed,
                host={"cpus": cpus},
                versions={},
            )
        )
        for arm in plan.arms:
            log.append(PlatformChecked(arm=arm, platform="bare", options={}, usable=True))
        for number in range(1, BLOCKS + 1):
            log.append(BlockStarted(block=number, order=()))
            for batch in plan.block(number):
                for cell in batch.cells:
                    if cell.kind not in kinds:
                        continue
                    log.append(
                        CellStarted(
                            cell=cell.id,
                            block=number,
                            arm=cell.arm,
                            scenario=cell.scenario,
                            workload=cell.workload,
                            parameters=dict(cell.parameters),
                        )
                    )
                    for metric in WORKLOADS[cell.kind].metrics:
                        log.append(
                            Observed(
                                cell=cell.id,
                                metric=metric.name,
                                unit=metric.unit,
                                better=metric.better,
                                kind=metric.kind,
                                value=1.0,
                            )
                        )
                    log.append(CellFinished(cell=cell.id, status="ok"))
            log.append(BlockFinished(block=number))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return compare(load_runs([folder]))
