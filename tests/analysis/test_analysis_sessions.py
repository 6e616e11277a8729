"""Sessions are a level above boots: what differs from one to the next is in the intervals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_swapped import events_of, fold_of, planned, swapped
from study.study_catalog import CATALOG
from tare.analysis import compare_every_pair, compare_runs
from tare.analysis.data.grouping import group
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.estimates import pair_up
from tare.analysis.effects.results import Effect
from tare.analysis.runs.sessions import independent_rounds
from tare.analysis.runs.variance_components import effects_over_sessions
from tare.analysis.statistics.logratio import mean_interval
from tare.cli.ending import decide_on
from tare.report.page.data import ReportData
from tare.report.sections.over_sessions import BySession
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study

TRUE = 0.1
ASKED = """\
study: s
baseline: bare
blocks: {least: 2, most: 400, precision: 0.05}
arms: {bare: {platform: bare}, vm: {platform: qemu}}
sessions: {boots: {a: {arms: [bare]}, b: {arms: [vm]}}}
workloads: {tick: {}}
"""


def noisy(
    seed: int, rounds: int, blocks: int, between: float, within: float, drift: float = 0.0
) -> RunData:
    """Return a run whose sessions differ by ``between``, and their boots by ``within``."""
    rng = np.random.default_rng(seed)
    of_session = between * rng.standard_normal(2 * rounds + 1)

    def log(arm: str, session: int, when: float) -> float:
        own = TRUE if arm == "vm" else 0.0
        noise = within * float(rng.standard_normal())
        return own + float(of_session[session]) + drift * when + noise

    return swapped(rounds, blocks, log)


def effect_of(run: RunData, arm: str = "vm") -> Effect:
    return next(effect for effect in compare_runs([run]).effects if effect.arm == arm)


def covers(low: float, high: float) -> bool:
    return low <= TRUE <= high


@pytest.mark.parametrize(("between", "within"), [(0.05, 0.01), (0.0, 0.03)])
def test_intervals_over_rounds_cover_and_those_over_blocks_do_not(
    between: float, within: float
) -> None:
    runs, rounds, blocks = 200, 8, 3
    over_rounds = over_blocks = 0
    for seed in range(runs):
        run = noisy(seed, rounds, blocks, between, within)
        interval = effect_of(run).student_t
        assert interval is not None
        over_rounds += covers(math.log(interval.low), math.log(interval.high))
        ((key, measured),) = group([run]).items()
        naive = pair_up(key, measured, "vm", "bare")
        assert naive is not None
        ends = mean_interval(naive.differences, 0.95)
        over_blocks += covers(float(ends.low), float(ends.high))
    # Two standard errors of 200 tries at 95 % are 3.1 %.
    assert 0.915 <= over_rounds / runs <= 0.985
    if between:
        assert over_blocks / runs < 0.85


def test_even_drift_cancels_out_of_there_and_back() -> None:
    run = noisy(1, 4, 2, between=0.0, within=0.0, drift=0.01)
    (found,) = effects_over_sessions(compare_runs([run]))
    assert math.log(found.effect.estimate) == pytest.approx(TRUE)
    assert found.arm_first is not None and found.baseline_first is not None
    assert math.log(found.arm_first) == pytest.approx(TRUE - 0.01)
    assert math.log(found.baseline_first) == pytest.approx(TRUE + 0.01)


def test_a_round_counts_once_and_arms_of_one_boot_are_compared_block_by_block() -> None:
    comparison = compare_runs([noisy(1, 8, 3, 0.02, 0.02)])
    (vm,) = comparison.effects
    (control,) = comparison.aa
    assert (vm.each, vm.blocks, len(vm.block_effects)) == ("round", 8, 8)
    assert (control.each, control.blocks) == ("block", 24)
    # The baseline's twin counts as the baseline: of each round all of its boots.
    assert vm.baseline == "bare" and comparison.pooled == {"bare": "again"}
    bare = next(summary for summary in comparison.summaries if summary.arm == "bare")
    assert len(bare.blocks) == 24


def test_an_arms_own_interval_is_over_its_sessions() -> None:
    widths = {}
    for between in (0.0, 0.2):
        run = noisy(3, 8, 4, between, 0.01)
        (bare,) = (one for one in compare_runs([run]).summaries if one.arm == "bare")
        assert bare.interval is not None
        widths[between] = bare.interval.half_width
    assert widths[0.2] > 5 * widths[0.0]


@pytest.mark.parametrize(("between", "low", "high"), [(0.1, 0.9, 1.0), (0.0, 0.0, 0.1)])
def test_the_share_between_rounds_is_found(between: float, low: float, high: float) -> None:
    shares = [
        effects_over_sessions(compare_runs([noisy(seed, 8, 4, between, 0.02)]))[0].share
        for seed in range(30)
    ]
    assert low <= float(np.median([share for share in shares if share is not None])) <= high
    (one_block,) = effects_over_sessions(compare_runs([noisy(1, 8, 1, between, 0.02)]))
    assert one_block.share is None


def test_few_rounds_are_preliminary_however_many_blocks_they_have() -> None:
    comparison = compare_runs([noisy(1, 4, 10, 0.02, 0.02)])
    (vm,) = comparison.effects
    assert vm.verdict == "preliminary" and vm.interval is None
    assert "6 rounds are the least for a verdict" in vm.sentence
    notes = " ".join(comparison.notes)
    assert "different boots of rack-3: within one round of sessions arm and session cannot" in notes
    assert "rest on 4 rounds, not on 40 blocks" in notes
    assert "The A/A pair is of one boot" in notes


def test_a_difference_between_boots_is_declared_over_enough_rounds() -> None:
    assert effect_of(noisy(1, 12, 2, 0.005, 0.005)).verdict == "worse"


def test_every_pair_of_arms_knows_which_are_of_one_boot() -> None:
    pairs = compare_every_pair([noisy(1, 8, 2, 0.02, 0.02)]).pairs
    assert pairs is not None
    assert {(e.arm, e.baseline): e.each for e in pairs.effects} == {
        ("vm", "bare"): "round",
        ("bare", "vm"): "round",
    }


def test_sessions_of_one_boot_count_as_one() -> None:
    def booted(session: object) -> str:
        number = session.number  # type: ignore[attr-defined]
        return "same" if number in (2, 3) else f"boot-{number}"

    run = swapped(4, 2, lambda arm, session, when: 0.0, booted=booted)
    assert independent_rounds(run.sessions) == {1: 1, 2: 1, 3: 3, 4: 4}
    assert effect_of(run).blocks == 3
    notes = " ".join(compare_runs([run]).notes)
    assert "their rounds count as one: 2 with 1." in notes
    assert "rest on 3 rounds, not on 8 blocks" in notes


def test_deviation_from_the_plan_is_noted() -> None:
    run = swapped(2, 1, lambda *_: 0.0, order=lambda s: [s[0], s[1], s[3], s[2]])
    notes = " ".join(compare_runs([run]).notes)
    assert "not as planned: session 4 before session 3." in notes
    assert "came first in different numbers of rounds (a in 2, b in 0)" in notes
    planned_so = swapped(2, 1, lambda *_: 0.0)
    assert "as planned" not in " ".join(compare_runs([planned_so]).notes)


def test_the_report_has_a_row_for_each_session_as_it_was_measured() -> None:
    run = swapped(2, 3, lambda *_: 0.0, order=lambda s: [s[0], s[1], s[3], s[2]])
    section = BySession().data(ReportData([run], compare_runs([run])))
    assert section is not None
    between, measured = section.tables
    assert (between.name, measured.name) == ("over-sessions", "sessions")
    rows = [[cell.text for cell in row] for row in measured.shown().rows]
    assert [row[:5] for row in rows] == [
        ["1", "1", "a", "1 to 3", "1"],
        ["2", "1", "b", "1 to 3", "2"],
        ["4", "2", "a", "4 to 6", "3"],
        ["3", "2", "b", "4 to 6", "3"],
    ]
    ((*_, interval, rounds, _),) = [[cell.text for cell in row] for row in between.shown().rows]
    # Two rounds that happen to be alike would have a narrow one.
    assert (interval, rounds) == ("–", "2")


def test_stopping_rule_counts_rounds_and_not_blocks() -> None:
    study = parse_study(ASKED.encode(), "s.yaml", CATALOG, hosts=KnownHosts(Path("hosts.yaml")))
    rng = np.random.default_rng(1)
    offsets = 0.2 * rng.standard_normal(20)

    def decided(between: float) -> bool:
        def log(arm: str, session: int, when: float) -> float:
            return between * float(offsets[session]) + 0.001 * float(rng.standard_normal())

        fold = fold_of(events_of(planned(4, 10).sessions, log))
        return decide_on(study, fold, 40).continues

    assert decided(1.0) and not decided(0.0)


@given(st.permutations(range(8)), st.lists(st.sampled_from("xyz"), min_size=8, max_size=8))
def test_rounds_are_one_only_where_a_boot_is_in_both(order: list[int], boots: list[str]) -> None:
    sessions = planned(4, 1).sessions
    run = swapped(
        4, 1, lambda *_: 0.0, lambda s: [s[i] for i in order], lambda each: boots[each.number - 1]
    )
    one = independent_rounds(run.sessions)
    for a in sessions:
        for b in sessions:
            if a.boot == b.boot and boots[a.number - 1] == boots[b.number - 1]:
                assert one[a.round] == one[b.round]
    shared = {(each.boot, boots[each.number - 1]) for each in sessions}
    if len(shared) == len(sessions):
        assert len(set(one.values())) == 4
