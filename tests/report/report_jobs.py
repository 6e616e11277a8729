"""A run of jobs on clusters with values chosen for tests; none of them was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report.report_run_begin import BLOCKS, begin
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
)

SLOWER = {"bare": 1.0, "kvm": 1.5}
SLAVES = {"one": 1, "two": 2}
SIZE = 1_000_000_000
PHASES = {"map": 20.0, "shuffle": 5.0, "sort": 1.0, "reduce": 14.0}
START_AND_END_S = 4.0


Caches = Mapping[str, Sequence[Mapping[str, Any]]]
"""For each arm, what its machines reported about their page caches."""
DROPPED = {"dropped": "all caches of files"}


def write_jobs_run(folder: Path, caches: Caches | None = None) -> Path:
    """Write a run in which TeraSort takes half as long again in ``kvm``, on one slave and two."""
    folder.mkdir(parents=True, exist_ok=True)
    with EventLog(folder / "events.jsonl") as log:
        begin(
            log,
            "invented-3",
            "mapreduce",
            cpus=8,
            memory=1 << 31,
            arms=SLOWER,
            scenarios={name: {"cluster": {"slaves": slaves}} for name, slaves in SLAVES.items()},
            workload="terasort",
        )
        for arm in SLOWER:
            log.append(PlatformChecked(arm=arm, platform="bare", options={}, usable=True))
        for block in range(1, BLOCKS + 1):
            log.append(BlockStarted(block=block, order=()))
            for arm in SLOWER:
                for scenario in SLAVES:
                    _cell(log, block, arm, scenario, (caches or {}).get(arm, [DROPPED]))
            log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=9.0))
    return folder


def _cell(
    log: EventLog, block: int, arm: str, scenario: str, caches: Sequence[Mapping[str, Any]]
) -> None:
    cell = f"b{block:03d}/{arm}/{scenario}/terasort[size={SIZE}]"
    where: dict[str, Any] = {"block": block, "arm": arm, "scenario": scenario}
    log.append(CellStarted(cell=cell, workload="terasort", parameters={"size": SIZE}, **where))
    times = SLOWER[arm] * (1 + 0.05 * block) / SLAVES[scenario]
    seconds = {name: times * length for name, length in PHASES.items()}
    whole = sum(seconds.values()) + START_AND_END_S
    for name, value in {**seconds, "time": whole}.items():
        event: dict[str, Any] = {"metric": f"sort-{name}", "unit": "s", "value": value}
        headline = name == "time"
        log.append(Observed(cell=cell, role="subject", better="lower", headline=headline, **event))
    for name, value, unit in (
        ("written", 3.0 * SIZE, "B"),
        ("copies", 1.0, "1"),
        ("sort-bytes-read", 2.0 * SIZE, "B"),
        ("sort-bytes-written", 2.0 * SIZE, "B"),
    ):
        event = {"metric": name, "unit": unit, "value": value}
        log.append(Observed(cell=cell, role="subject", better="neither", **event))
    # What prepares and what verifies has no job, and is as warm as it happens to be.
    put = {"took_s": 1.0, "caches": []}
    steps = {"put": put, "sort": {"took_s": whole, "job": {}, "caches": list(caches)}}
    facts = {"job": {"written_bytes": 3 * SIZE, "replication": 1, "steps": steps}}
    log.append(CellFinished(cell=cell, status="ok", measured_s=whole, facts=facts))
