"""A run of a study exactly as planned, in which every value is 1; none was measured."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from study.shipped_studies import shipped_plan
from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
from tare.analysis.model import Comparison
from tare.analysis.topics.cores import STATES
from tare.analysis.topics.monitoring import QUANTITIES, CounterTrack, Monitor, Phase
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
    Skipped,
)
from tare.events.stream import canonical_json
from tare.references.published import Reference, known_references, load_reference
from tare.study.planning.cells import Cell
from tare.study.planning.plan import Plan
from tare.workloads import WORKLOADS

BLOCKS = 2


def kinds_of(reference: Reference) -> set[str]:
    """Return the workloads that a source's tables, figures and numbers are about."""
    kinds = {table.workload for table in reference.tables}
    kinds |= {fact.workload for fact in reference.facts.values() if fact.measured}
    return kinds | {kind for exhibit in reference.exhibits for kind in exhibit.workloads}


@cache
def _kinds_of_all() -> frozenset[str]:
    return frozenset(kind for name in known_references() for kind in kinds_of(load_reference(name)))


@cache
def planned_run(study: str, cpus: int) -> Comparison:
    """Return a shipped study as if run on so many CPUs, of what any source is about; made once."""
    with TemporaryDirectory() as folder:
        return as_if_run(Path(folder) / "run", shipped_plan(study, cpus), cpus, _kinds_of_all())


def as_if_run(folder: Path, plan: Plan, cpus: int, kinds: Collection[str]) -> Comparison:
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
        for skip in plan.skipped:
            if skip.scenario is not None and skip.workload is None:
                log.append(Skipped(arm=skip.arm, scenario=skip.scenario, reason=skip.reason))
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
                    log.append(CellFinished(cell=cell.id, status="ok", facts=_facts(cell)))
            log.append(BlockFinished(block=number))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return compare(load_runs([folder]))


def _facts(cell: Cell) -> dict[str, Any]:
    """Return the facts of a cell that reports read next to its values: for load balancers."""
    if cell.kind != "proxy":
        return {}
    return {"proxy": {"size": cell.parameters["size"], "limits": [], "account": {}}}


def as_if_watched(plan: Plan, reference: Reference) -> tuple[Monitor, ...]:
    """Return counters of a slave and its host for every cell, in which every value is 1."""
    steps = {exhibit.step for exhibit in reference.exhibits if exhibit.step}
    times = tuple(float(second) for second in range(1, 11))
    groups = [f"{group}-{state}" for group in ("bound", "others") for state in STATES]
    values = {name: (1.0,) * len(times) for name in (*QUANTITIES, *groups)}
    tracks = (CounterTrack("slave-1", times, values), CounterTrack("host", times, values))
    phases = tuple(Phase(f"{step} map", 0.0, 10.0) for step in sorted(steps))
    return tuple(
        Monitor(
            *(cell.id, number, cell.arm, cell.scenario, cell.workload),
            *(canonical_json(dict(cell.parameters)), False, tracks, phases),
        )
        for number in range(1, BLOCKS + 1)
        for batch in plan.block(number)
        for cell in batch.cells
        if cell.kind in kinds_of(reference)
    )
