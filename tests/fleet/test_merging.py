"""What hosts say of themselves and their instruments is kept apart, each with its host's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tare.events import (
    Calibrated,
    Calibration,
    Check,
    Event,
    EventLog,
    Fold,
    Planned,
    PlatformChecked,
    Preflight,
    RunStarted,
)
from tare.fleet.assignment import Way
from tare.fleet.merging import Merger
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

STUDY = Path(__file__).parents[2] / "studies" / "quick.yaml"


def calibrated(own: float) -> Calibrated:
    figure = Calibration(what="rate", unit="Hz", own=own, level="ok", found="alike")
    return Calibrated(took_s=1.0, found=(figure,))


def test_each_host_is_calibrated_by_itself_and_only_its_newest_counts(tmp_path: Path) -> None:
    study, fold = load_study(STUDY, build_catalog()), Fold()
    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(fold.take)
        merger = Merger(log, fold, study, 2, "replicate")
        for host, own in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
            merger.part_of(host, "tcp://x").take(calibrated(own))
    assert {name: each.found[0].own for name, each in fold.calibrated.items()} == {
        "a": 3.0,
        "b": 2.0,
    }


def test_each_host_reports_its_condition_once_and_the_newest_counts(tmp_path: Path) -> None:
    study, fold = load_study(STUDY, build_catalog()), Fold()
    notices: list[Event] = []
    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(fold.take)
        log.subscribe(lambda record: notices.append(record.event))
        merger = Merger(log, fold, study, 3, "replicate")
        for host, load in (("h1", "9"), ("h2", "0"), ("h12", "0"), ("h1", "1")):
            checks = (
                Check(name="load", level="warn", found=load),
                Check(name="x", level="ok", found=""),
            )
            merger.part_of(host, "tcp://x").take(Preflight(checks=checks))
    # Findings of others are not repeated with each: with a thousand hosts they would fill disks.
    found = [each for each in notices if isinstance(each, Preflight)]
    assert [(each.host, len(each.checks)) for each in found] == [
        ("h1", 2), ("h2", 2), ("h12", 2), ("h1", 2)
    ]  # fmt: skip
    assert {check.name: check.found for check in fold.checks if check.level == "warn"} == {
        "load on h2": "0",
        "load on h12": "0",
        "load on h1": "1",
    }


def joins(merger: Merger, host: str, facts: dict[str, Any], qemu: str) -> None:
    """Have a host say what it is, and join."""
    part = merger.part_of(host, f"tcp://{host}")
    began = {"run": "r", "study": {}, "study_path": "", "study_sha256": "0" * 64, "seed": 1}
    part.take(RunStarted.model_validate({**began, "host": facts, "versions": {}}))
    checked = {"arm": "qemu", "platform": "qemu", "options": {}, "usable": True}
    part.take(PlatformChecked.model_validate({**checked, "versions": {"qemu": qemu}}))
    part.take(Planned(blocks_most=4, cells_per_block=2, expected_block_s=1.0, notes=("A plan.",)))


@pytest.mark.parametrize("how", ["split", "replicate"])
def test_unequal_hosts_that_share_blocks_are_reported(how: Way, tmp_path: Path) -> None:
    study, fold = load_study(STUDY, build_catalog()), Fold()
    xeon = {"kernel": "6.1", "cpu_model": "Xeon", "memory_bytes": 8 << 30, "computer": "1"}
    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(fold.take)
        merger = Merger(log, fold, study, 3, how)
        joins(merger, "h1", xeon, "8.2")
        joins(merger, "h2", {**xeon, "computer": "2"}, "8.2")
        assert fold.notes == ("A plan.",)
        joins(merger, "h3", {**xeon, "cpu_model": "EPYC"}, "7.2")
        # A host that comes back was compared with itself.
        joins(merger, "h3", {**xeon, "cpu_model": "EPYC"}, "7.2")
    expected = (
        "h3 shares the blocks with h1 but differs from it: the processor is EPYC, and on h1 Xeon; "
        "qemu is 7.2, and on h1 8.2 (arm qemu). Differences between blocks are in part "
        "those of the hosts."
    )
    # Where each host measures all blocks, it is compared within itself.
    assert fold.notes == (("A plan.", expected) if how == "split" else ("A plan.",))
