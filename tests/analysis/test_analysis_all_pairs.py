"""Every arm against every other: one family, the same either way round, honest ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from benchmarks import _pair_simulations as sims
from benchmarks._simulated import Law
from tare.analysis import compare_every_pair, compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.pairs import ranked
from tare.analysis.model import AllPairs, Comparison, Effect, VerdictWord
from tare.errors import InputError
from tare.events import CellStarted, Event, Observed, Record, fold_records

ARMS = {"bare": "bare", "bare-again": "bare", "oci": "oci", "kvm": "qemu", "tcg": "qemu"}
TRUTH = {"bare": 1.0, "bare-again": 1.0, "oci": 1.0, "kvm": 1.3, "tcg": 3.0}
QUIET = (0.004, 0.002)
METRICS = (
    SimulatedMetric("time", TRUTH, spreads=QUIET),
    SimulatedMetric("rate", {a: 1 / v for a, v in TRUTH.items()}, better="higher", spreads=QUIET),
    SimulatedMetric("detail", TRUTH, headline=False, spreads=QUIET),
)


def fold(events: list[Event]) -> RunData:
    records = [Record(seq=i, time=float(i), event=event) for i, event in enumerate(events)]
    return run_data(Path("nowhere"), fold_records(records))


def run_of(simulated: SimulatedRun) -> RunData:
    return fold(events_of(simulated))


def pairs_of(comparison: Comparison) -> AllPairs:
    assert comparison.pairs is not None
    return comparison.pairs


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare_every_pair(run_of(SimulatedRun(METRICS, ARMS, blocks=10)))


def by_arms(pairs: AllPairs, metric: str) -> dict[tuple[str, str], Effect]:
    return {(e.arm, e.baseline): e for e in pairs.effects if e.key.metric == metric}


def test_each_pair_is_compared_in_both_directions_and_the_twin_is_left_out(
    comparison: Comparison,
) -> None:
    pairs = pairs_of(comparison)
    assert pairs.arms == ("bare", "oci", "kvm", "tcg")
    assert set(by_arms(pairs, "time")) == set(permutations(pairs.arms, 2))
    assert not by_arms(pairs, "detail")
    assert pairs.tests == len(pairs.each_once) == 2 * 6
    assert pairs.left_out == ""


def test_pairs_are_antisymmetric(comparison: Comparison) -> None:
    turned = {"worse": "better", "better": "worse"}
    for metric in ("time", "rate"):
        found = by_arms(pairs_of(comparison), metric)
        for (arm, other), effect in found.items():
            back = found[other, arm]
            assert effect.estimate * back.estimate == pytest.approx(1)
            assert effect.interval is not None
            assert back.interval is not None
            assert effect.interval.low * back.interval.high == pytest.approx(1)
            assert effect.adjusted_p == back.adjusted_p
            assert turned.get(effect.verdict, effect.verdict) == back.verdict


def test_a_pair_with_the_baseline_equals_the_effect_and_uses_the_twins_boots(
    comparison: Comparison,
) -> None:
    own = {(e.key, e.arm): e for e in comparison.headlines}
    against = [e for e in pairs_of(comparison).effects if e.baseline == "bare"]
    assert len(against) == len(own) == 6
    for effect in against:
        first = own[effect.key, effect.arm]
        assert effect.estimate == first.estimate
        assert effect.interval == first.interval
        assert effect.p is not None
        assert effect.adjusted_p is not None
        assert effect.adjusted_p >= effect.p


def test_true_differences_are_declared_and_equal_arms_share_ranks(comparison: Comparison) -> None:
    ranks = {(r.key.metric, r.arm): r for r in pairs_of(comparison).ranks}
    for metric in ("time", "rate"):
        places = {arm: (ranks[metric, arm].best, ranks[metric, arm].worst) for arm in TRUTH
                  if arm != "bare-again"}  # fmt: skip
        assert places == {"bare": (1, 2), "oci": (1, 2), "kvm": (3, 3), "tcg": (4, 4)}
        assert [tie.arm for tie in ranks[metric, "bare"].ties] == ["oci"]
        assert ranks[metric, "kvm"].ties == ()


def test_the_order_of_arms_in_the_study_changes_nothing() -> None:
    forward = SimulatedRun(METRICS, ARMS, blocks=8)
    events = events_of(forward)
    backward = [
        event.model_copy(update={"study": {**event.study, "arms": dict(reversed(
            event.study["arms"].items()))}}) if event.type == "run_started" else event
        for event in events
    ]  # fmt: skip
    checked = [e for e in backward if e.type == "platform_checked"]
    rest = [e for e in backward if e.type != "platform_checked"]
    first, second = (
        pairs_of(compare_every_pair(fold(each)))
        for each in (events, [rest[0], *reversed(checked), *rest[1:]])
    )
    assert first.arms != second.arms
    for pairs in (first, second):
        assert {(r.key, r.arm): (r.best, r.worst, frozenset(r.ties)) for r in pairs.ranks} == {
            (r.key, r.arm): (r.best, r.worst, frozenset(r.ties)) for r in first.ranks
        }


WORDS: tuple[VerdictWord, ...] = ("better", "worse", "equivalent", "inconclusive", "preliminary")
TURNED: Mapping[VerdictWord, VerdictWord] = {"better": "worse", "worse": "better"}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_hold_every_order_that_the_verdicts_allow(data: st.DataObject) -> None:
    template = _template()
    arms = list("abcde")[: data.draw(st.integers(2, 5))]
    effects = []
    for one, other in combinations(arms, 2):
        word = data.draw(st.sampled_from(WORDS))
        effects += [
            replace(template, arm=one, baseline=other, verdict=word),
            replace(template, arm=other, baseline=one, verdict=TURNED.get(word, word)),
        ]
    verdicts = {(e.arm, e.baseline): e.verdict for e in effects}
    ranks = {rank.arm: rank for rank in ranked(effects, arms)}
    for order in permutations(arms):
        place = {arm: number for number, arm in enumerate(order, 1)}
        allowed = all(place[a] < place[b] for (a, b), word in verdicts.items() if word == "better")
        inside = all(r.best <= place[arm] <= r.worst for arm, r in ranks.items())
        assert inside or not allowed
    for arm, rank in ranks.items():
        ties = {tie.arm: tie.verdict for tie in rank.ties}
        assert set(ties) == {o for o in arms if o != arm and verdicts[arm, o] not in TURNED}
        assert all(ties[other] == verdicts[arm, other] for other in ties)
        assert rank.worst - rank.best == len(ties)
    again = {rank.arm: rank for rank in ranked(effects[::-1], arms[::-1])}
    assert {a: (r.best, r.worst) for a, r in again.items()} == {
        a: (r.best, r.worst) for a, r in ranks.items()
    }


def _template() -> Effect:
    run = run_of(SimulatedRun(METRICS[:1], {"bare": "bare", "kvm": "qemu"}, blocks=2))
    return compare_runs(run).effects[0]


def test_a_verdict_in_one_direction_only_does_not_rank() -> None:
    template = _template()
    effects = [
        replace(template, arm="a", baseline="b", verdict="worse"),
        replace(template, arm="b", baseline="a", verdict="inconclusive"),
    ]
    for rank in ranked(effects, ["a", "b"]):
        assert (rank.best, rank.worst) == (1, 2)
        assert rank.ties[0].verdict == "inconclusive"


def test_metrics_without_a_better_direction_have_no_rank() -> None:
    template = _template()
    metric = template.metric._replace(better="neither")
    template = replace(template, metric=metric, verdict="differs")
    both = [template, replace(template, arm=template.baseline, baseline=template.arm)]
    assert ranked(both, [template.arm, template.baseline]) == ()


def test_too_many_pairs_are_omitted_with_a_note() -> None:
    run = run_of(SimulatedRun(METRICS, ARMS, blocks=2))
    pairs = pairs_of(compare_every_pair(run, most=11))
    assert (pairs.effects, pairs.ranks) == ((), ())
    assert "12 pairs" in pairs.left_out
    assert len(pairs_of(compare_every_pair(run, most=12)).each_once) == 12


def test_another_baseline_turns_effects_and_keeps_hosts_apart() -> None:
    run = run_of(SimulatedRun(METRICS, ARMS, blocks=8))
    given = Settings.of([run])
    turned = compare_runs(run, given.against("tcg", run.arms))
    found = {(e.key.metric, e.arm): e for e in turned.effects}
    assert turned.baseline == "tcg"
    assert found["time", "kvm"].verdict == "better"
    first = {(e.key.metric, e.arm): e for e in compare_runs(run).effects}
    pairs = by_arms(pairs_of(compare_every_pair(run)), "time")
    assert found["time", "kvm"].estimate == pytest.approx(pairs["kvm", "tcg"].estimate)
    assert found["time", "bare"].estimate < 1 / first["time", "kvm"].estimate
    with pytest.raises(InputError, match="no arm nothing"):
        given.against("nothing", run.arms)


def test_arms_of_another_host_keep_their_own_baseline() -> None:
    given = Settings("a", None, own_baselines={"b": "b", "b-vm": "b"})
    arms = ("a", "a-vm", "b", "b-vm")
    here = given.against("a-vm", arms)
    assert [here.baseline_of(arm) for arm in arms] == ["a-vm", "a-vm", "b", "b"]
    there = given.against("b-vm", arms)
    assert [there.baseline_of(arm) for arm in arms] == ["a", "a", "b-vm", "b-vm"]


STUDIES = 200


@pytest.mark.parametrize(("name", "law", "most"), sims.CASES)
def test_equal_arms_rarely_differ_in_any_pair(name: str, law: Law, most: float) -> None:
    each, whole = sims.wrongly_different(sims.equal_arms(law), STUDIES, 11)
    assert each > 0.1, "a family for each pair would not do"
    assert whole <= most + 3 * np.sqrt(most * (1 - most) / STUDIES), name


def test_equal_arms_rarely_differ_among_others_that_do() -> None:
    setting, groups = sims.two_groups()
    _, whole = sims.wrongly_different(setting, STUDIES, 12, groups)
    assert whole <= 0.05 + 3 * np.sqrt(0.0475 / STUDIES)


def test_a_zero_in_the_twin_alone_leaves_no_ratio() -> None:
    events = events_of(SimulatedRun(METRICS[:1], ARMS, blocks=8))
    cells = {e.cell for e in events if isinstance(e, CellStarted) and e.arm == "bare-again"}
    first = next(i for i, e in enumerate(events) if isinstance(e, Observed) and e.cell in cells)
    events[first] = events[first].model_copy(update={"value": 0.0})
    found = compare_every_pair(fold(events))
    assert {e.scale for e in found.effects} == {"difference"}
    assert {e.scale for e in pairs_of(found).effects if "bare" in (e.arm, e.baseline)} == {
        "difference"
    }
