"""The page of two runs: its verdicts, what it says without scripts, and that it is one file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from report.report_page_reader import read
from run.run_driving import tare
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.data.settings import Settings
from tare.analysis.effects.cached_arrays import ShownAs
from tare.analysis.effects.results import Flag
from tare.analysis.model import Comparison, RunData
from tare.analysis.runs.change_verdicts import changed
from tare.analysis.runs.resource_changes import resource_changes
from tare.errors import InputError
from tare.events import Record, fold_records
from tare.report.compare.answer import change_lines, change_sentences
from tare.report.compare.changes import ChangeMark, RunPair, changes_figure, changes_page
from tare.report.figures.palette import looks
from tare.report.figures.vector import svg_of
from tare.report.page.links import anchor_of
from tare.report.terminal.run_changes import render_changes

ARMS = {"bare": "bare", "box": "oci", "vm": "qemu"}
PAIRS = 15
SLOWER = {"box": 1.05, "vm": 1.3}


def simulated(
    seed: int, vm: float, metrics: int, blocks: int = 12, spread: float = 0.02
) -> SimulatedRun:
    host = 1 + seed % 3
    truth = {arm: host * SLOWER.get(arm, 1.0) * (vm if arm == "vm" else 1.0) for arm in ARMS}
    several = [
        SimulatedMetric(
            f"latency-{n}", {arm: value * 1e-6 for arm, value in truth.items()},
            unit="s", workload=f"work-{n}", spreads=(spread, 0.0),
        )
        for n in range(metrics)
    ]  # fmt: skip
    return SimulatedRun(
        several, arms=ARMS, emulated=frozenset(), blocks=blocks, seed=seed, run=f"r{seed}"
    )


def run_of(run: SimulatedRun) -> RunData:
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(run)))
    return run_data(Path("nowhere"), fold_records(records))


def against_bare(run: SimulatedRun) -> Comparison:
    data = run_of(run)
    return compare_runs(data, Settings.of([data]))


def compared(run: SimulatedRun) -> dict[str, Comparison]:
    data = run_of(run)
    settings = Settings.of([data])
    return {
        arm: compare_runs(data, settings if arm == "bare" else settings.against(arm, data.arms))
        for arm in ("bare", "box")
    }


def test_changes_are_reported_and_unchanged_metrics_rarely() -> None:
    """Pairs of runs whose guest costs as much before as after, and pairs with +10 %."""
    wrong = elsewhere = found = 0
    for seed in range(PAIRS):
        before = compared(simulated(3 * seed, 1.0, 2))
        same = changed(before, compared(simulated(3 * seed + 1, 1.0, 2)), "bare")
        own = [one for one in same if one.baseline == "bare"]
        wrong += any(one.verdict in ("worse", "better") for one in own if one.change.arm == "vm")
        elsewhere += any(
            one.verdict in ("worse", "better") for one in same if one.baseline != "bare"
        )
        slower = changed(before, compared(simulated(3 * seed + 2, 1.1, 2)), "bare")
        found += all(
            one.verdict == ("worse" if one.change.arm == "vm" else one.verdict)
            for one in slower
            if one.baseline == "bare"
        )
    most = 0.05 * PAIRS + 3 * math.sqrt(0.0475 * PAIRS)
    assert wrong <= most
    assert elsewhere <= most
    assert found >= PAIRS - 1


def test_intervals_of_changes_by_resource_hold_together() -> None:
    """All intervals of a pair of runs cover the true changes in at least 95 % of pairs."""
    missed = unnoticed = claimed = 0
    for seed in range(PAIRS):
        before = against_bare(simulated(2 * seed + 100, 1.0, 3))
        for factor in (1.0, 1.1):
            after = against_bare(simulated(2 * seed + 101, factor, 3))
            own = changed({"bare": before}, {"bare": after}, "bare")
            costs = [change.cost for change in resource_changes(own, 0.95, 0.02)]
            assert [(cost.arm, cost.resource) for cost in costs] == [
                ("box", "work"), ("vm", "work")
            ]  # fmt: skip
            truths = [1.0, factor]
            missed += any(
                cost.interval is None or not cost.interval.holds(truth)
                for cost, truth in zip(costs, truths, strict=True)
            )
            unnoticed += factor > 1 and costs[1].finding != "slower"
            claimed += any(
                cost.finding in ("slower", "faster")
                for cost, truth in zip(costs, truths, strict=True)
                if truth == 1.0
            )
    most = 0.05 * 2 * PAIRS + 2 * math.sqrt(0.0475 * 2 * PAIRS)
    assert missed <= most
    assert claimed <= most
    assert unnoticed <= 2


def test_an_answer_names_what_changed_by_resource() -> None:
    before, after = (against_bare(simulated(seed, vm, 3)) for seed, vm in ((7, 1.0), (8, 1.4)))
    own = changed({"bare": before}, {"bare": after}, "bare")
    sentences = change_sentences(own, before, after)
    assert re.fullmatch(r"Costs more: work \+\d+ % \(\+\d+ % to \+\d+ %\)\.", sentences["vm"])
    assert "Costs" not in sentences["box"]
    lost = replace(
        own[0].change.before, flags=(Flag("failures", "2 of its 12 cells failed"),)
    )  # fmt: skip
    doubted = [
        replace(one, change=replace(one.change, before=replace(lost, arm=one.change.arm)))
        for one in own
        if one.change.arm == "vm"
    ]
    assert "Costs" not in change_sentences(doubted, before, after)["vm"]


@pytest.mark.parametrize("blocks", [4, 12])
@pytest.mark.parametrize("factor", [0.5, 0.8, 1.0, 1.03, 1.25, 2.0])
def test_sentence_and_bar_of_a_change_have_one_word_for_a_resource(
    factor: float, blocks: int
) -> None:
    before, after = (
        against_bare(simulated(seed, vm, 1, blocks=blocks, spread=0.01))
        for seed, vm in ((3, 1.0), (6, factor))
    )
    own = changed({"bare": before}, {"bare": after}, "bare")
    key = own[0].change.key
    named = {(key.scenario, key.workload, key.parameters): ShownAs("cache bandwidth", "", True)}
    for shown_as, word, other in (({}, "work", "cache"), (named, "cache", "work")):
        for line in change_lines(own, replace(before, shown_as=shown_as), after):
            assert [bar.label for bar in line.bars] == [word.capitalize()]
            assert other not in line.sentence.lower()
            assert word in line.sentence.lower() or blocks == 4


def test_few_blocks_and_findings_give_no_verdict() -> None:
    few = changed(
        compared(simulated(0, 1.0, 1, blocks=4)), compared(simulated(1, 1.5, 1, blocks=4)), "bare"
    )
    assert {one.verdict for one in few} == {"preliminary"}
    quiet = [compared(simulated(seed, 1.0, 1, spread=0.001)) for seed in (3, 6)]
    assert {one.verdict for one in changed(quiet[0], quiet[1], "bare")} == {"equivalent"}


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_change_without_an_interval_has_none_as_a_cost(
    better: Literal["lower", "higher"],
) -> None:
    few = changed(
        compared(simulated(0, 1.0, 1, blocks=4)), compared(simulated(1, 1.5, 1, blocks=4)), "bare"
    )
    one = few[0].change
    for change in (
        replace(one, low=-math.inf, high=math.inf),
        replace(one, low=0.0, high=math.inf),
    ):
        before = replace(one.before, metric=one.before.metric._replace(better=better))
        unbounded = replace(few[0], change=replace(change, before=before))
        assert unbounded.cost is not None
        assert not all(map(math.isfinite, unbounded.cost[1:]))


def test_a_page_of_too_short_runs_says_so_first(tmp_path: Path) -> None:
    runs = {"before": simulated(0, 1.0, 2, blocks=3), "after": simulated(1, 1.2, 2, blocks=3)}
    folders = [write_run(tmp_path / name, events_of(each)) for name, each in runs.items()]
    done = tare("compare", *folders, "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Too few blocks for a verdict (3 of the 6 needed in each run)." in page


def test_labels_that_do_not_fit_next_to_marks_are_drawn_whole_above_them() -> None:
    names = [f"switch threads=100 · latency {word}" for word in ("median", "max")]
    marks = [
        ChangeMark(name, "oci", False, "preliminary", (1.1, 0, math.inf), "") for name in names
    ]
    for width in (360.0, 900.0):
        svg = svg_of(changes_figure(marks, looks(["bare", "oci"], "bare"), 0.02, width))
        assert all(f"oci: {name}" in svg for name in names), width


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    place = tmp_path_factory.mktemp("two")
    made = {"before": simulated(0, 1.0, 3), "after": simulated(1, 1.2, 3)}
    return {name: write_run(place / name, events_of(each)) for name, each in made.items()}


def test_the_command_writes_one_file_that_reads_without_scripts(
    runs: Mapping[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    done = tare("compare", runs["before"], runs["after"], "--html", out)
    assert done.returncode == 0, done.stderr
    html = out.read_text(encoding="utf-8")
    page = read(html)
    text = "".join(page.text)
    assert "changed from run r0 (12 blocks) to run r1 (12 blocks)" in text
    assert re.search(r"vm\s*: Costs more: work \+\d+ %", text)
    assert not re.search(r"(src|href)=\"(?!#|data:|\.\./)[^\"]", html), "nothing from outside"
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    names = {element.attributes.get("id") for element in page.elements}
    own = [row for row in data["rows"] if row[3] == "bare"]
    assert {row[0] for row in own} <= names
    assert {row[3] for row in data["rows"]} == {"bare", "box", "vm"}
    assert data["runs"] == ["r0", "r1"]
    worse = {row[2] for row in own if row[6][4] == "worse"}
    assert worse == {"vm"}
    before, after = (
        compared(simulated(number, cost, 3))["bare"] for number, cost in ((0, 1.0), (1, 1.2))
    )
    effect = next(e for e in after.effects if e.arm == "vm")
    row = next(row for row in own if row[0] == anchor_of(effect.key, "vm"))
    old = next(e for e in before.effects if (e.key, e.arm) == (effect.key, "vm"))
    assert row[7][0] == pytest.approx(effect.estimate / old.estimate, rel=0.01)
    assert math.isfinite(row[7][1]) and row[7][1] < row[7][0] < row[7][2]


def test_a_page_of_anything_but_two_runs_is_refused(runs: Mapping[str, Path]) -> None:
    done = tare("compare", runs["before"], "--html", "x.html")
    assert done.returncode == 2
    assert "compares two runs" in done.stderr


def of_arms(number: int, *arms: str, workload: str = "work") -> Comparison:
    metric = SimulatedMetric(
        "latency", dict.fromkeys(arms, 1e-6), unit="s", workload=workload, spreads=(0.01, 0.0)
    )
    run = SimulatedRun(
        [metric], arms={arm: ARMS[arm] for arm in arms}, emulated=frozenset(), run=f"r{number}"
    )
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(run)))
    data = run_data(Path("nowhere"), fold_records(records))
    return compare_runs(data, Settings.of([data]))


@pytest.mark.parametrize(
    ("before", "after", "says", "hint"),
    [
        (of_arms(1, "bare", "vm"), of_arms(2, "bare"), "the run r2 has no arm", "`hosts:`"),
        (of_arms(1, "bare"), of_arms(2, "bare", "vm"), "the run r1 has no arm", "`hosts:`"),
        (
            of_arms(1, "bare", "box"),
            of_arms(2, "bare", "vm"),
            "no arm in common except bare: the first has box, the second vm",
            "the same name in both studies",
        ),
        (
            of_arms(1, "bare", "vm"),
            of_arms(2, "bare", "vm", workload="other"),
            "no arm of both did the same work",
            "the same workloads",
        ),
    ],
)
def test_runs_with_nothing_in_common_are_refused_with_the_reason(
    before: Comparison, after: Comparison, says: str, hint: str
) -> None:
    with pytest.raises(InputError, match=says) as raised:
        render_changes(before, after, Console())
    assert hint in raised.value.hint
    page = changes_page(RunPair({"bare": before}, {"bare": after}, "bare"), [], Path())
    assert says in page.lead
