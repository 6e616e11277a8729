"""What each machine lost: neighbours and subject alike, against the same load undisturbed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.compare import compare
from tare.analysis.topics.machine_losses import MachineLoss, machine_losses, matrix, words
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
from tare.report import build_report
from tare.report.page.data import ReportData
from tare.report.sections.machine_losses import MachineLosses

BLOCKS = 8
LOADS = {"cpu": "cpu-load", "memory": "memory-load", "network": "net-load"}
UNDISTURBED = {"cpu-load": 8e8, "memory-load": 4e9, "net-load": 1e8, "wakeup": 1.0}
TAKES = {"cpu-load": 1.5, "memory-load": 3.0, "net-load": 2.0, "wakeup": 1.0}
"""By what factor each machine of a kind slows every other machine down."""
SCENARIOS: dict[str, list[dict[str, object]]] = {
    "alone": [],
    **{name: [{"load": load, "count": 2}] for name, load in LOADS.items()},
    "network-one": [{"load": "net-load", "count": 1}],
}
WORKLOADS = ("cpu-load", "memory-load", "wakeup")


def rate(kind: str, others: list[str], block: int) -> float:
    lost = math.prod(TAKES[other] for other in others)
    return UNDISTURBED[kind] / lost * (1 + 0.01 * block)


def written(folder: Path, scenarios: Mapping[str, list[dict[str, object]]] = SCENARIOS) -> RunData:
    folder.mkdir()
    study = {
        "study": "fates",
        "title": "Synthetic data, not measured",
        "baseline": "bare",
        "blocks": {"least": BLOCKS, "most": BLOCKS},
        "margin": 0.05,
        "confidence": 0.95,
        "arms": {"bare": {"platform": "bare"}},
        "scenarios": {name: {"neighbours": each} for name, each in scenarios.items()},
        "workloads": {name: {"workload": name} for name in WORKLOADS},
    }
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="invented-1",
                study=study,
                study_path="",
                study_sha256="0" * 64,
                seed=1,
                host={"cpus": 4},
                versions={},
            )
        )
        log.append(PlatformChecked(arm="bare", platform="bare", options={}, usable=True))
        for block in range(1, BLOCKS + 1):
            log.append(BlockStarted(block=block, order=()))
            for name, neighbours in scenarios.items():
                for workload in WORKLOADS:
                    _cell(log, block, name, workload, neighbours)
            log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return load_run(folder)


def _cell(
    log: EventLog, block: int, scenario: str, workload: str, neighbours: list[dict[str, object]]
) -> None:
    cell = f"b{block:03d}/bare/{scenario}/{workload}"
    log.append(
        CellStarted(
            cell=cell, block=block, arm="bare", scenario=scenario, workload=workload, parameters={}
        )
    )
    loads = [str(each["load"]) for each in neighbours for _ in range(int(str(each["count"])))]
    roles = {"subject": workload} | {f"neighbour-{n}": load for n, load in enumerate(loads, 1)}
    for role, kind in roles.items():
        others = [other for name, other in roles.items() if name != role]
        log.append(
            Observed(
                cell=cell,
                role=role,
                metric="rate" if kind != "wakeup" else "latency-median",
                unit="1/s" if kind != "wakeup" else "s",
                better="higher" if kind != "wakeup" else "lower",
                headline=role == "subject",
                value=rate(kind, others, block),
            )
        )
    listed = [{"role": role, "load": load} for role, load in roles.items() if role != "subject"]
    log.append(CellFinished(cell=cell, status="ok", facts={"neighbours": listed}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return written(tmp_path_factory.mktemp("fates") / "run")


@pytest.fixture(scope="module")
def found(run: RunData) -> tuple[MachineLoss, ...]:
    return machine_losses([run], ["bare"], 0.95)


def of(found: tuple[MachineLoss, ...], victim: str, others: str) -> MachineLoss:
    return next(f for f in found if (f.effect.key.workload, f.others) == (victim, others))


def test_all_machines_of_a_cell_are_subjects_at_once(found: tuple[MachineLoss, ...]) -> None:
    subject = of(found, "cpu-load", "2 × memory-load")
    assert subject.effect.slowdown == pytest.approx(9.0)
    assert subject.each == {"subject": pytest.approx(9.0)}
    neighbours = of(found, "memory-load", "cpu-load, memory-load")
    assert neighbours.effect.slowdown == pytest.approx(4.5)
    assert neighbours.each == {
        "neighbour-1": pytest.approx(4.5),
        "neighbour-2": pytest.approx(4.5),
    }
    assert neighbours.effect.decided and neighbours.effect.blocks == BLOCKS


def test_the_matrix_is_square_and_whole(found: tuple[MachineLoss, ...]) -> None:
    square = matrix(found)
    places = [(effect.key.workload, effect.key.scenario) for effect in square]
    assert sorted(places) == sorted((v, c) for v in LOADS.values() for c in LOADS.values())
    values = {(h.key.workload, h.key.scenario): h.slowdown for h in square}
    # A subject with neighbours of one kind goes before neighbours that still have their own.
    assert values["cpu-load", "memory-load"] == pytest.approx(9.0)
    # What cannot be a subject is seen as a neighbour.
    assert values["net-load", "cpu-load"] == pytest.approx(1.5)
    assert values["net-load", "net-load"] == pytest.approx(2.0)


def test_load_without_an_undisturbed_cell_has_no_loss(tmp_path: Path) -> None:
    without = {name: each for name, each in SCENARIOS.items() if name != "network-one"}
    found = machine_losses([written(tmp_path / "run", without)], ["bare"], 0.95)
    assert {loss.effect.key.workload for loss in found} == {"cpu-load", "memory-load"}
    nobody = {"memory": SCENARIOS["memory"]}
    assert machine_losses([written(tmp_path / "none", nobody)], ["bare"], 0.95) == ()


def test_machines_in_words() -> None:
    assert words((("cpu-load", 1), ("net-load", 3))) == "cpu-load, 3 × net-load"


def test_report_draws_the_matrix_and_lists_each_machine(run: RunData, tmp_path: Path) -> None:
    comparison = compare([run])
    part = MachineLosses().data(ReportData([run], comparison))
    assert part is not None
    ((figure, _),) = part.figures
    assert figure.title == "What each machine lost"
    page = build_report([run], comparison, tmp_path).read_text(encoding="utf-8")
    assert 'id="fates"' in page and "neighbour-2 4.50×" in page
    assert (tmp_path / "figures" / "fates.svg").is_file()
    assert (tmp_path / "tables" / "fates.csv").is_file()
