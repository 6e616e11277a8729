"""Costs have one direction everywhere, and follow from the values next to them, or say why not."""

from __future__ import annotations

import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Better, Comparison, Effect, Kind, as_cost, cost_ends
from tare.events import CellFinished, Record, fold_records
from tare.report import render_comparison
from tare.report.page.words import cost, ratio
from tare.report.sections.results import effects_table
from tare.report.terminal.run_changes import render_changes, render_pooled

ARMS = {"bare": "bare", "bare-again": "bare", "vm": "qemu"}


def compared(
    better: Better = "higher",
    kind: Kind = "typical",
    factor: float = 0.08,
    spread: float = 0.5,
    run: str = "r1",
    lost: int = 0,
) -> Comparison:
    """An arm whose values are ``factor`` of the baseline's; both vary greatly from boot to boot."""
    metric = SimulatedMetric(
        "rate", {"bare": 100.0, "bare-again": 100.0, "vm": 100.0 * factor}, unit="1/s",
        better=better, kind=kind, spreads=(spread, 0.0),
    )  # fmt: skip
    simulated = SimulatedRun([metric], arms=ARMS, emulated=frozenset(), blocks=9, run=run)
    events = [
        event.model_copy(update={"status": "failed"})
        if isinstance(event, CellFinished) and event.cell.startswith(f"b00{lost}/vm/")
        else event
        for event in events_of(simulated)
    ]
    records = [Record(seq=i, time=float(i), event=event) for i, event in enumerate(events)]
    return compare_runs(run_data(Path("nowhere"), fold_records(records)))


def only(comparison: Comparison) -> Effect:
    (effect,) = comparison.effects
    return effect


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("lost", [0, 3])
def test_a_cost_is_the_quotient_of_the_values_next_to_it(better: Better, lost: int) -> None:
    """Also where the arm lacks a block, whose value the baseline's column must not hold."""
    effect = only(compared(better, lost=lost))
    assert effect.follows and effect.compared is not None
    arm, baseline = effect.compared
    quotient = baseline / arm if better == "higher" else arm / baseline
    assert as_cost(effect.estimate, better) == pytest.approx(quotient, rel=1e-9)
    table = effects_table(compared(better, lost=lost), "effects", [effect])
    assert table.texts_of(effect)["estimate"] == ratio(quotient)
    # What the columns held before does not give it: arithmetic means of all blocks.
    means = effect.arm_summary.mean / effect.baseline_summary.mean
    assert means != pytest.approx(effect.estimate, rel=0.01)


@pytest.mark.parametrize("kind", ["tail", "maximum"])
def test_a_factor_that_does_not_follow_is_marked_and_explained(kind: Kind) -> None:
    found = compared("lower", kind)
    effect = only(found)
    assert not effect.follows
    table = effects_table(found, "effects", [effect])
    assert table.texts_of(effect)["estimate"].endswith("× †")
    assert "† Not the quotient of the two values" in table.caption
    console = Console(file=StringIO(), width=200)
    render_comparison(found, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "× †" in text and "† Not the quotient of the two values" in " ".join(text.split())


def test_a_factor_that_follows_has_no_mark() -> None:
    found = compared()
    assert "†" not in effects_table(found, "effects", found.effects).caption


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_table_figure_sentence_and_comparisons_agree_on_the_direction(better: Better) -> None:
    """An arm that is 12.5 times worse is at about 12.5 everywhere, for rates as for times."""
    factor = 0.08 if better == "higher" else 12.5
    first, second, third = (compared(better, factor=factor, spread=0.02, run=r) for r in "abc")
    effect = only(first)
    drawn = cost(effect)
    assert drawn is not None and 11 < drawn < 14
    shown = effects_table(first, "effects", first.effects).texts_of(effect)
    assert shown["estimate"] == ratio(drawn)
    low, high = (float(end) for end in shown["low"].split(" to "))
    assert low < drawn < high
    assert f"cost {drawn:.1f}" in effect.sentence
    two, all_three = StringIO(), StringIO()
    render_changes(first, second, Console(file=two, width=200))
    render_pooled([first, second, third], Console(file=all_three, width=200))
    for printed in (two, all_three):
        assert f" {ratio(drawn)[:3]}" in printed.getvalue()


def test_a_change_for_the_worse_is_above_one_for_rates_too() -> None:
    console = Console(file=StringIO(), width=200)
    before, after = (compared(factor=f, spread=0.01, run=r) for f, r in ((0.5, "a"), (0.25, "b")))
    render_changes(before, after, console)
    row = next(line for line in console.file.getvalue().splitlines() if "| vm" in line)  # type: ignore[attr-defined]
    cells = [cell.strip() for cell in row.split("|")]
    factors = [float(cell.rstrip("×")) for cell in cells[3:6]]
    assert factors == pytest.approx([2.0, 4.0, 2.0], rel=0.05)
    assert "worse" in row


def test_costs_of_ratios_and_their_ends() -> None:
    assert (as_cost(0.5, "higher"), as_cost(0.5, "lower"), as_cost(0.5, "neither")) == (2, 0.5, 0.5)
    assert as_cost(0.0, "higher") == math.inf
    assert cost_ends(0.25, 0.5, "higher") == (2, 4) and cost_ends(0.25, 0.5, "lower") == (0.25, 0.5)
    assert cost_ends(0.0, math.inf, "higher") == (0.0, math.inf)
