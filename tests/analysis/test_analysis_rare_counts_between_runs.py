"""Run against run of what is counted and often 0: no median of it, no margin that is none."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_ind

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Comparison, Kind, VerdictWord
from tare.analysis.runs.change_verdicts import changed
from tare.analysis.runs.gates import check, parse_gate
from tare.analysis.statistics.meta_analysis import mean_shift, seldom_shift
from tare.events import Event, Observed, Record, RunStarted, fold_records
from tare.report.compare.changes import write_changes
from tare.report.terminal.run_changes import render_pooled

ARMS = {"bare": "bare", "vm": "qemu"}
KINDS: tuple[Kind, ...] = ("typical", "tail", "maximum")


def lost(
    values: Sequence[float], kind: Kind = "tail", run: str = "r1", floor: float = 0.0
) -> Comparison:
    """A run in which the guest loses so many a boot, and the baseline none."""
    metric = SimulatedMetric("lost", dict.fromkeys(ARMS, 1.0), "net", unit="1", kind=kind)
    simulated = SimulatedRun([metric], arms=ARMS, emulated=frozenset(), blocks=len(values), run=run)

    def as_stored(event: Event) -> Event:
        if isinstance(event, Observed):
            block, arm = event.cell.split("/")[:2]
            value = values[int(block[1:]) - 1] if arm == "vm" else 0.0
            return event.model_copy(update={"value": float(value)})
        if isinstance(event, RunStarted) and floor:
            return event.model_copy(update={"study": {**event.study, "floors": {"lost": floor}}})
        return event

    records = (
        Record(seq=i, time=float(i), event=as_stored(e)) for i, e in enumerate(events_of(simulated))
    )
    return compare_runs(run_data(Path("nowhere"), fold_records(records)))


def in_some(blocks: int, every: int, count: float = 3000.0) -> list[float]:
    return [count if n % every == 1 else 0.0 for n in range(blocks)]


def verdict(before: Comparison, after: Comparison) -> VerdictWord:
    (one,) = changed({"bare": before}, {"bare": after}, "bare")
    return one.verdict


@pytest.mark.parametrize("kind", KINDS)
def test_losses_in_a_quarter_of_the_boots_are_worse_despite_equal_medians(kind: Kind) -> None:
    """None before, thousands after in 5 of 20 boots: the median is 0 both times."""
    before, after = lost([0.0] * 20, kind), lost(in_some(20, 4), kind, "r2")
    assert verdict(before, after) == "worse"
    for text, floor in (("< +5 %", 0.0), ("< +5 %", 10.0), ("< +10 1", 0.0), ("< 10 1", 0.0)):
        (one,) = check(before, after, [parse_gate(f"net lost {text}", floor=floor)])
        assert one.outcome == "fails", (text, one)
    few = lost(in_some(20, 10), kind, "r3")
    assert verdict(before, few) == "inconclusive"
    (value,) = check(before, few, [parse_gate("net lost < 10 1")])
    assert (value.outcome, value.at) == ("open", 300)


def test_a_share_of_nothing_is_not_a_limit() -> None:
    """More blocks would not help: 5 % of 0 is 0, and nothing is below it."""
    before, after = lost([0.0] * 20), lost([0.0] * 20, run="r2")
    (one,) = check(before, after, [parse_gate("net lost < +5 %")])
    assert one.outcome == "open"
    assert one.reason.startswith("it was 0 in the first run") and "--floor 'lost=1'" in one.reason
    (floored,) = check(before, after, [parse_gate("net lost < +5 %", floor=1.0)])
    assert (floored.outcome, floored.reason) == ("holds", "")
    (value,) = check(before, after, [parse_gate("net lost < 10 1")])
    assert (value.outcome, value.reason) == ("holds", "")


def test_metric_that_runs_cannot_pool_is_reported() -> None:
    """Random effects are of ratios of what is typical: a count that is often 0 has none."""
    text = StringIO()
    runs = [lost(in_some(20, 4), run=f"r{number}") for number in range(3)]
    render_pooled(runs, Console(file=text, width=200))
    assert "Left out: 1 headline effect without a typical ratio" in " ".join(
        text.getvalue().split()
    )


def test_zero_in_every_boot_of_both_runs_is_equal_only_with_a_floor() -> None:
    """As within a run: of 0 no share is a margin, and nothing bounds what was never seen."""
    none = [0.0] * 8
    assert verdict(lost(none), lost(none, run="r2")) == "inconclusive"
    # After 8 boots without any, 31 % may have some: 32 boots leave less than a tenth open.
    assert verdict(lost(none, floor=5.0), lost(none, run="r2")) == "inconclusive"
    assert verdict(lost(4 * none, floor=5.0), lost(none, run="r2")) == "inconclusive"
    none *= 4
    assert verdict(lost(none, floor=5.0), lost(none, run="r2")) == "equivalent"
    few = 4 * [0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0]
    assert verdict(lost(none, floor=5.0), lost(few, run="r2")) == "equivalent"
    many = [value * 100 for value in few]
    assert verdict(lost(none, floor=5.0), lost(many[:8], run="r2")) == "inconclusive"
    assert verdict(lost(none, floor=5.0), lost(many, run="r2")) == "worse"


def test_floors_of_the_study_are_a_changes_too() -> None:
    """A change by 20 % of a value is below the floor that the study says never matters."""
    before, after = (
        lost([count * (1 + 0.01 * (n % 3)) for n in range(12)], "typical", run)
        for count, run in ((1.0, "r1"), (1.2, "r2"))
    )
    assert verdict(before, after) == "worse"
    with_floor = tuple(
        replace(run, study={**run.study, "floors": {"lost": 0.5}}) for run in before.runs
    )
    assert verdict(replace(before, runs=with_floor), after) == "equivalent"


def test_a_run_that_has_none_by_chance_is_not_taken_for_certain() -> None:
    """Runs of 6 and 20 blocks that are alike: something in one block of five."""
    rng = np.random.default_rng(1)
    wrong = {"welch": 0, "seldom": 0}
    for _ in range(1000):
        first, second = (np.where(rng.random(n) < 0.2, 3000.0, 0.0).tolist() for n in (6, 20))
        for name, shift in (("welch", mean_shift), ("seldom", seldom_shift)):
            found = shift(first, second, 0.95)
            wrong[name] += found.low < found.high and not found.low <= 0 <= found.high
    assert wrong["welch"] > 100
    assert wrong["seldom"] <= 50
    assert math.isinf(seldom_shift([1.0], [2.0, 3.0], 0.95).high)


def test_often_zero_counts_have_a_pooled_student_interval() -> None:
    """Compare with scipy's, for runs of unlike sizes; the short one has nothing by chance."""
    first, second = [0.0, 0.0, 0.0, 1.0], [*in_some(20, 4, 8.0), 3.0, 9.0]
    student = ttest_ind(second, first, equal_var=True).confidence_interval(0.95)
    found = seldom_shift(first, second, 0.95)
    assert (found.low, found.high) == pytest.approx((student.low, student.high))
    # Where the short run has the spread, Welch's interval is the wider one, and is kept.
    scattered, steady = [0.0, 50.0, 0.0, 90.0], in_some(20, 20, 1.0)
    assert seldom_shift(scattered, steady, 0.95) == mean_shift(scattered, steady, 0.95)


def test_a_change_that_is_left_open_says_what_cost_is_not_excluded(tmp_path: Path) -> None:
    """In the metric's unit, where there is no ratio; nothing bounds what was 0 in all boots."""
    before, some = lost([0.0] * 20), lost(in_some(20, 10), run="r2")
    for after, cell, line in (
        (some, r">\d+<", r"a cost up to \d+ more is not excluded"),
        (lost([0.0] * 20, run="r3"), ">any<", "no cost is excluded"),
    ):
        page = tmp_path / "page.html"
        write_changes({"bare": before}, {"bare": after}, "bare", page)
        html = page.read_text()
        assert re.search(cell, html) and re.search(rf"undecided \({line}\)", html)
