"""What hosts say of their instruments is kept apart, each with its host's name."""

from __future__ import annotations

from pathlib import Path

from tare.events import Calibrated, Calibration, EventLog, Fold
from tare.fleet.merging import Merger
from tare.run.catalog import build_catalog
from tare.study.load import load_study

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
