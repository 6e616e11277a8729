"""What a verdict's words say where means hide something: zeros, losses, slow boots, lost cells."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
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
from tare.report import render_comparison
from tare.report.figures.palette import looks
from tare.report.page.verdicts import arm_lines, arm_sentences
from tare.report.page.warnings import warnings_of
from tare.report.sections.results import effects_table

Values = list[float | None]


def compared(folder: Path, bare: Values, kvm: Values, **metric: Any) -> Comparison:
    """Compare two arms by one metric's values, block by block; of cells that failed None."""
    values = {"bare": bare, "kvm": kvm}
    study = {
        "study": "seldom", "baseline": "bare", "margin": 0.02, "confidence": 0.95,
        "blocks": {"least": len(bare), "most": len(bare), "precision": 0.05},
        "shape": {"vcpus": 1, "memory": 1 << 28},
        "arms": {arm: {"platform": "bare"} for arm in values},
        "scenarios": {"alone": {"subject": {"cpus": "pinned"}}},
        "workloads": {"work": {"workload": "work"}},
    }  # fmt: skip
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="invented-4", study=study, study_path="", study_sha256="0" * 64, seed=1,
                host={"cpus": 2}, versions={},
            )
        )  # fmt: skip
        for arm in values:
            log.append(PlatformChecked(arm=arm, platform="bare", options={}, usable=True))
        for block in range(1, len(bare) + 1):
            log.append(BlockStarted(block=block, order=()))
            for arm, of_arm in values.items():
                cell, value = f"b{block:03d}/{arm}/alone/work", of_arm[block - 1]
                where: dict[str, Any] = {"arm": arm, "scenario": "alone", "workload": "work"}
                log.append(CellStarted(cell=cell, block=block, parameters={}, **where))
                if value is None:
                    log.append(CellFinished(cell=cell, status="failed", reason="timed out"))
                    continue
                settings = {"metric": "what", "unit": "1", "better": "lower", **metric}
                log.append(Observed(cell=cell, headline=True, value=value, **settings))
                log.append(CellFinished(cell=cell, status="ok"))
            log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return compare(load_runs([folder]))


def printed(comparison: Comparison) -> str:
    out = io.StringIO()
    render_comparison(comparison, Console(file=out))
    return " ".join(out.getvalue().split())


def test_a_difference_has_a_sign_and_its_baseline_next_to_it(tmp_path: Path) -> None:
    bare: Values = [5.0, 6.0, 4.0, 0.0, 6.0, 5.0, 4.0, 6.0]
    found = compared(tmp_path, bare, [15.0 + n % 3 for n in range(8)])
    assert arm_sentences(found) == {"kvm": "Work worse by +11.4 (work/what)."}
    (line,) = arm_lines(found, looks(["bare", "kvm"], "bare"))
    assert [bar.value for bar in line.bars] == ["no ratio"]
    text = printed(found)
    assert re.search(r"\| \+11\.4 \| \+[\d.]+ to \+[\d.]+ \|", text)
    assert "With a sign: a difference" in text


def test_losses_in_a_few_boots_are_reported_with_their_mean_and_share(tmp_path: Path) -> None:
    lost: Values = [3000.0 if block in (2, 7, 11, 15, 18) else 0.0 for block in range(20)]
    found = compared(tmp_path, [0.0] * 20, lost, kind="tail")
    assert found.headlines[0].verdict == "inconclusive"
    assert arm_sentences(found) == {"kvm": "Worst latency undecided."}
    row = effects_table(found, "effects", found.effects).texts_of(found.headlines[0])
    assert (row["value"], row["baseline_value"], row["estimate"]) == ("750.0", "0.000", "+750")
    assert "kvm: boots with any: kvm in 5 of 20, interval 8.7 to 49.1 %" in printed(found)


def test_slow_boots_and_lost_cells_are_reported_before_the_table(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    bare: Values = [1.0 + 0.001 * (n % 5) for n in range(12)]
    slow: Values = [3.0 if n == 5 else 1.0 + 0.001 * (n % 4) for n in range(12)]
    found = compared(tmp_path / "slow", bare, slow, unit="s")
    assert "kvm: 1 of 12 boots of kvm was slow, 3× the typical cost (" in printed(found)
    assert "1 of 12 boots of kvm was slow, 3× the typical cost" in " ".join(
        each.text for each in warnings_of(found)
    )
    (tmp_path / "lost").mkdir()
    lost: Values = [None if n % 2 else 1.0 + 0.05 * (n % 4) for n in range(20)]
    found = compared(tmp_path / "lost", [1.0 + 0.05 * (n % 3) for n in range(20)], lost, unit="s")
    assert arm_sentences(found)["kvm"].endswith("10 of its 20 cells failed.")


def test_an_interval_without_a_cost_leaves_no_cost_of_0_percent(tmp_path: Path) -> None:
    (tmp_path / "lost").mkdir()
    better: Values = [None if n < 5 else 0.8 + 0.001 * (n % 3) for n in range(12)]
    found = compared(tmp_path / "lost", [1.0 + 0.001 * (n % 3) for n in range(12)], better)
    (effect,) = found.headlines
    assert (effect.verdict, effect.not_excluded) == ("inconclusive", 0.0)
    assert "the interval by itself excludes every cost, but no gain is shown" in effect.sentence
    assert "faster" not in arm_sentences(found)["kvm"], "the slow ones may be what failed"
    row = effects_table(found, "effects", found.effects).texts_of(effect)
    assert row["not_excluded"] == "–"
