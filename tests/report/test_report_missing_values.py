"""What a page says of headline metrics that have no value in some blocks: which, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.analysis import compare_runs, load_run
from tare.analysis.model import Comparison
from tare.analysis.runs.change_verdicts import changed
from tare.events import CellFinished, CellStarted, Event, Observed
from tare.report.compare.answer import change_sentences
from tare.report.page.verdicts import arm_sentences, count_words, lead
from tare.report.page.warnings import warnings_of

ARMS = {"bare": "bare", "a": "qemu"}
METRICS = [
    SimulatedMetric("slowdown", {"bare": 1.0, "a": 1.0}, "tick", resource="latency"),
    SimulatedMetric("median", {"bare": 1.0, "a": 1.0}, "switch", resource="latency"),
    SimulatedMetric("rate", {"bare": 1.0, "a": 1.0}, "sort", resource="cpu"),
]


def block_of(cell: str) -> int:
    return int(cell[1:4])


def without(
    folder: Path, lacks: Callable[[Event], bool], status: str = "", blocks: int = 8
) -> Comparison:
    """A run without the observations that are lacking, and whose cells may end otherwise."""
    events: list[Event] = []
    lost = set()
    run = SimulatedRun(METRICS, arms=ARMS, emulated=frozenset(), blocks=blocks)
    for event in events_of(run):
        if isinstance(event, Observed) and lacks(event):
            lost.add(event.cell)
            continue
        if isinstance(event, CellFinished) and event.cell in lost and status:
            event = event.model_copy(update={"status": status, "reason": "it broke"})
        events.append(event)
    return compare_runs(load_run(write_run(folder, events)))


def slowdown_in(arm: str, *blocks: int) -> Callable[[Event], bool]:
    return lambda event: (
        isinstance(event, Observed)
        and f"/{arm}/" in event.cell
        and event.metric == "slowdown"
        and block_of(event.cell) in blocks
    )


@pytest.mark.parametrize("arm", ["bare", "a"])
@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("", "left out by the workload"),
        ("failed", "because cells failed"),
        ("withheld", "because cells were withheld"),
    ],
)
def test_too_few_blocks_name_the_metric_without_values_and_why(
    tmp_path: Path, arm: str, status: str, why: str
) -> None:
    found = without(tmp_path, slowdown_in(arm, 2, 5, 7), status)
    sentence = arm_sentences(found)["a"]
    assert (
        "Too few blocks for a verdict on typical latency (5 of the 6 needed): 3 of 8 lack "
        f"tick/slowdown, {why}." in sentence
    )
    assert "sort" not in sentence and "switch" not in sentence


def test_cells_that_were_never_measured_are_a_reason_of_their_own(tmp_path: Path) -> None:
    events = [
        event
        for event in events_of(SimulatedRun(METRICS, arms=ARMS, emulated=frozenset()))
        if not (
            isinstance(event, Observed | CellFinished | CellStarted)
            and "/tick" in event.cell
            and block_of(event.cell) > 4
        )
    ]
    found = compare_runs(load_run(write_run(tmp_path, events)))
    assert (
        "(4 of the 6 needed): 4 of 8 lack tick/slowdown, not measured there."
        in (arm_sentences(found)["a"])
    )


def test_metrics_that_lack_values_in_different_blocks_are_all_named(tmp_path: Path) -> None:
    first, second = slowdown_in("a", 1, 2), slowdown_in("bare", 3)
    found = without(
        tmp_path,
        lambda event: (
            first(event)
            or second(event)
            or (
                isinstance(event, Observed)
                and event.metric == "median"
                and block_of(event.cell) == 8
            )
        ),
    )
    assert (
        "4 of 8 lack tick/slowdown and switch/median, left out by the workload."
        in (arm_sentences(found)["a"])
    )


def test_a_short_run_blames_no_metric(tmp_path: Path) -> None:
    found = without(tmp_path, lambda event: False, blocks=3)
    assert re.fullmatch(
        r"Too few blocks for a verdict \(3 of the 6 needed\)\. So far: CPU [+−][\d.]+ %, "
        r"typical latency [+−][\d.]+ %\.",
        arm_sentences(found)["a"],
    )
    assert not [each for each in warnings_of(found) if "lack" in each.line]


@pytest.mark.parametrize("blocks", [(4,), (2, 5, 7)])
def test_left_out_values_have_a_line_of_their_own_also_if_enough_are_left(
    tmp_path: Path, blocks: tuple[int, ...]
) -> None:
    found = without(tmp_path, slowdown_in("bare", *blocks))
    (warned,) = [each for each in warnings_of(found) if "left out" in each.line]
    assert warned.line == "Some blocks lack tick/slowdown, left out by the workload."
    assert warned.text == f"bare has no tick/slowdown in {len(blocks)} of 8 blocks."
    assert "`tare study tick`" in warned.action
    assert not warned.worthless


def test_failed_cells_are_not_called_left_out(tmp_path: Path) -> None:
    found = without(tmp_path, slowdown_in("a", 4), "failed")
    assert not [each for each in warnings_of(found) if "left out" in each.line]


def test_the_answer_stays_short_if_every_arm_lacks_values(tmp_path: Path) -> None:
    # The study realtime-short on a host without KVM: three arms, two of them without a verdict.
    names = ("oci", "qemu-pv", "qemu-em")
    truth = {"bare": 1.0, **dict.fromkeys(names, 2.0)}
    metrics = [
        SimulatedMetric("slowdown", truth, "tick", resource="latency"),
        SimulatedMetric("median", truth, "switch", resource="latency"),
        SimulatedMetric("latency-max", truth, "switch", kind="maximum", spreads=(2.0, 1.0)),
    ]
    run = SimulatedRun(
        metrics, arms={"bare": "bare", **dict.fromkeys(names, "qemu")}, emulated=frozenset()
    )
    events = [e for e in events_of(run) if not slowdown_in("bare", 2, 5, 7)(e)]
    found = compare_runs(load_run(write_run(tmp_path, events)))
    answers = arm_sentences(found)
    assert count_words([lead(found), *answers.values()]) <= 80
    assert all(
        re.search(r"ypical latency \(3 of 8 lack tick/slowdown, left out\)", text)
        and "worst latency" in text
        for text in answers.values()
    ), answers


def test_a_comparison_of_runs_names_the_run_that_lacks_values(tmp_path: Path) -> None:
    before = without(tmp_path / "before", slowdown_in("bare", 2, 5, 7))
    whole = without(tmp_path / "whole", lambda event: False)
    found = changed({"bare": before}, {"bare": whole}, "bare")
    assert (
        "Too few blocks for a verdict on typical latency (5 of the 6 needed in each run): 3 of 8 "
        "in the first run lack tick/slowdown, left out by the workload."
    ) in change_sentences(found, before, whole)["a"]
    found = changed({"bare": whole}, {"bare": before}, "bare")
    assert (
        "3 of 8 in the second lack tick/slowdown" in (change_sentences(found, whole, before)["a"])
    )
