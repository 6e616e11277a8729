"""Run against run, and gates on it: over runs of known truth, and by their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.analysis_runs import ARMS, run
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Comparison, Flag
from tare.analysis.runs.change_verdicts import changed
from tare.analysis.runs.gate_files import read_gates, with_floors
from tare.analysis.runs.gates import Gate, check, parse_gate, worst
from tare.analysis.runs.run_changes import changes, pooled
from tare.analysis.runs.run_variation import RunVariation, repeated_runs
from tare.analysis.statistics.meta_analysis import mean_shift, pool, rank_shift
from tare.errors import InputError
from tare.events import CellFinished, Event, Observed, Record, fold_records
from tare.report.compare.gates import as_text


def test_ten_per_cent_fail_and_nothing_does_not() -> None:
    """Twenty pairs of runs of 12 blocks at CV 3 %: +10 % planted, and nothing planted."""
    gate = [parse_gate("switch latency < +3 %")]
    planted = [worst(check(run(s), run(s + 1000, vm=1.2 * 1.1), gate)) for s in range(20)]
    same = [worst(check(run(s), run(s + 2000), gate)) for s in range(20)]
    assert planted.count("fails") >= 18
    assert planted.count("holds") == 0
    assert same.count("fails") == 0


def gate_errors(
    repeats: int, *, assumed: float = 0.01, between: float = 0.01, studies: int = 300
) -> tuple[float, float]:
    """Return how often a gate at its limit fails, with and without variation between runs."""
    rng = np.random.default_rng(repeats)
    template = run(1)
    (vm,) = (effect for effect in template.effects if effect.arm == "vm")

    def drawn() -> Comparison:
        logs = math.log(1.2) + between * rng.standard_normal() + 0.01 * rng.standard_normal(12)
        blocks = tuple(
            block._replace(value=math.exp(log))
            for block, log in zip(vm.block_effects, logs.tolist(), strict=True)
        )
        effect = replace(vm, block_effects=blocks, estimate=math.exp(float(logs.mean())), flags=())
        return replace(template, effects=(effect,))

    gate, fails, alone = [parse_gate("switch latency of vm < +0 %")], 0, 0
    for _ in range(studies):
        before, after = drawn(), drawn()
        known = [before, *(drawn() for _ in range(repeats))]
        variation = replace(repeated_runs(known, "named"), share=assumed)
        fails += worst(check(before, after, gate, variation=variation)) == "fails"
        alone += worst(check(before, after, gate, variation=RunVariation(0.0))) == "fails"
    return fails / studies, alone / studies


@pytest.mark.parametrize("repeats", [0, 3, 9])
def test_a_gate_at_its_limit_rarely_fails_by_what_runs_differ(repeats: int) -> None:
    """Runs differ by 1 %, as boots do: two runs alone fail such a gate in one of four pairs."""
    fails, alone = gate_errors(repeats)
    assert alone > 0.15
    assert fails <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_measured_variation_between_runs_replaces_the_assumed_one() -> None:
    """Runs that differ by 3 % fail by an assumed 1 %, and do not by a measured variation."""
    assert gate_errors(0, between=0.03, studies=150)[0] > 0.12
    assert gate_errors(3, between=0.03, studies=150)[0] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 150)
    # Two repeats are too few: the assumption stays, and the text says so.
    assert gate_errors(2, between=0.03, studies=150)[0] > 0.12


def test_a_gate_within_the_usual_difference_of_runs_is_open_and_says_so() -> None:
    before, after = run(1, blocks=40, spread=0.005), run(2, blocks=40, spread=0.005)
    gate = [parse_gate("switch latency of vm < +1.5 %")]
    (one,) = check(before, after, gate, variation=RunVariation(0.0, asked=True))
    assert one.outcome == "holds"
    assert "variation between runs is not included" in as_text([one])
    (one,) = check(before, after, gate)
    assert one.outcome == "open"
    text = as_text([one])
    assert "more runs would decide, more blocks would not" in text
    assert "about these two runs only" in text and "an assumed 1 %" in text
    (one,) = check(before, after, gate, variation=RunVariation(0.002, asked=True))
    assert one.outcome == "holds"
    assert "assuming that runs of one set-up differ by 0.2 %" in as_text([one])
    others = [run(seed, blocks=40, spread=0.005) for seed in range(3, 7)]
    quiet = repeated_runs([before, *others], "named by --repeat-run")
    (one,) = check(before, after, [parse_gate("switch latency of vm < +3 %")], variation=quiet)
    assert one.outcome == "holds"
    assert "5 runs of one set-up (named by --repeat-run)" in as_text([one])
    # The value itself has a variation from run to run too.
    value = [parse_gate(f"switch latency of vm < {1.01 * one.change.value:.4f} s")]
    (at_once,) = check(before, after, value, variation=RunVariation(0.0))
    (usual,) = check(before, after, value)
    assert at_once.value is not None and usual.value is not None
    assert usual.value.high > at_once.value.high


def test_an_effect_of_the_run_on_all_arms_is_not_a_change() -> None:
    """The second run's host is twice as slow in all: its values differ, its effects do not."""
    (change,) = changes(run(1), run(2, host=2.0), 0.95)
    assert change.low < 1 < change.high
    assert change.high / change.low < 1.1
    (planted,) = changes(run(1), run(2, vm=1.2 * 1.2, host=2.0), 0.95)
    assert planted.change == pytest.approx(1.2, rel=0.05)


def test_all_gates_of_a_call_are_one_family() -> None:
    before, after = run(1), run(2)
    alone = check(before, after, [parse_gate("switch latency < +3 %")])
    many = check(before, after, [parse_gate("switch latency < +3 %")] * 10)
    assert len(many) == 10
    assert many[0].change.high > alone[0].change.high
    assert many[0].change.confidence == pytest.approx(1 - 2 * 0.05 / 10)


def test_a_floor_lets_small_changes_pass() -> None:
    before, after = run(1, blocks=20), run(2, vm=1.2 * 1.1, blocks=20)
    gate = parse_gate("switch latency < +3 %")
    assert worst(check(before, after, [gate])) == "fails"
    assert worst(check(before, after, [replace(gate, floor=0.4)])) == "holds"
    (moved,) = check(before, after, [replace(gate, arm="vm", floor=0.4)])
    assert moved.by_floor and "; by its floor the limit is 1." in as_text([moved])
    assert not check(before, after, [replace(gate, arm="vm", floor=1e-9)])[0].by_floor
    improved = parse_gate("switch latency < -5 %")
    assert worst(check(after, before, [improved])) in ("holds", "open")
    assert worst(check(before, after, [improved])) == "fails"
    assert worst(check(after, before, [parse_gate("switch latency > -5 %")])) != "holds"


def test_a_gate_does_not_fail_by_what_a_baseline_lost_after() -> None:
    """Its slow cells may be those that failed, which makes the arm look slower in comparison."""
    gate = [parse_gate("switch latency of vm in alone < +3 %")]
    before, after = run(1, blocks=20), run(2, vm=1.2 * 1.2, blocks=20)
    (fails,) = check(before, after, gate)
    assert fails.outcome == "fails"
    flag = Flag("baseline-failures", "bare failed in 2 blocks in which vm did not")
    effects = tuple(replace(e, flags=(*e.flags, flag)) for e in after.effects)
    (opened,) = check(before, replace(after, effects=effects), gate)
    assert opened.outcome == "open"
    assert opened.reason == "in the second run, bare failed in 2 blocks in which vm did not"
    by_arm = changed({"bare": before}, {"bare": replace(after, effects=effects)}, "bare")
    assert {(c.verdict, c.reason) for c in by_arm if c.change.arm == "vm"} == {
        ("inconclusive", opened.reason)
    }
    assert {c.verdict for c in changed({"bare": before}, {"bare": after}, "bare")} >= {"worse"}


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_runs_too_short_for_a_verdict_leave_a_gate_open(blocks: int) -> None:
    """However narrow they look: Welch's interval of two blocks covers 85 % where it says 90."""
    gate = [parse_gate("switch latency of vm in alone < +50 %")]
    (one,) = check(run(1), run(2, blocks=blocks, spread=0.001), gate)
    assert (one.outcome, one.change.high) == ("open", math.inf)
    assert worst(check(run(1), run(2, blocks=6), gate)) == "holds"


def at_work(simulated: SimulatedRun, change: Callable[[Event], Event]) -> Comparison:
    events = map(change, events_of(simulated))
    records = [Record(seq=i, time=float(i), event=event) for i, event in enumerate(events)]
    return compare_runs(run_data(Path("nowhere"), fold_records(records)))


def test_no_gate_holds_by_what_is_left_of_failed_cells() -> None:
    """Five of twelve cells of the arm failed after: those may have been the slow ones."""

    def failing(event: Event) -> Event:
        lost = [f"b{block:03d}/vm/" for block in (1, 2, 3, 5, 8)]
        if isinstance(event, CellFinished) and event.cell.startswith(tuple(lost)):
            return event.model_copy(update={"status": "failed", "reason": "out of time"})
        return event

    metric = SimulatedMetric("latency", dict.fromkeys(ARMS, 1.0), workload="switch")
    simulated = SimulatedRun([metric], arms=ARMS, emulated=frozenset(), blocks=12)
    whole, left = at_work(simulated, lambda event: event), at_work(simulated, failing)
    gate = [parse_gate("switch latency of vm < +9 %")]
    assert worst(check(whole, whole, gate)) == "holds"
    (one,) = check(whole, left, gate)
    assert one.outcome == "open"
    assert one.reason == "in the second run, vm failed in 5 blocks in which the baseline did not"
    (value,) = check(whole, left, [parse_gate("switch latency of vm < 3 s")])
    assert value.outcome == "open" and value.reason


def test_an_arm_without_any_values_left_passes_no_gate() -> None:
    """All cells of one of two arms failed in the second run: the other arm is not an answer."""

    def dead(event: Event) -> Event:
        if isinstance(event, CellFinished) and "/other/" in event.cell:
            return event.model_copy(update={"status": "failed", "reason": "no boot"})
        return event

    arms = {**ARMS, "other": "qemu"}
    metric = SimulatedMetric("latency", dict.fromkeys(arms, 1.0), workload="switch")
    simulated = SimulatedRun([metric], arms=arms, emulated=frozenset(), blocks=8)
    whole, left = at_work(simulated, lambda event: event), at_work(simulated, dead)
    with pytest.raises(
        InputError, match="about other in alone, which has no value in the second run"
    ):
        check(whole, left, [parse_gate("switch latency < +9 %")])
    assert worst(check(whole, left, [parse_gate("switch latency of vm < +9 %")])) == "holds"
    assert worst(check(left, whole, [parse_gate("switch latency < +9 %")])) == "holds"


def test_changes_allow_for_the_clocks_resolution() -> None:
    """20 ns before and 21 after, in every block: one step of the clock, and no change of 5 %."""

    def ticks(length: float) -> Callable[[Event], Event]:
        def change(event: Event) -> Event:
            if isinstance(event, Observed):
                value = length if "/vm/" in event.cell else 20e-9
                return event.model_copy(update={"value": value})
            return event

        return change

    metric = SimulatedMetric("latency", dict.fromkeys(ARMS, 1.0), workload="switch")
    simulated = SimulatedRun([metric], arms=ARMS, emulated=frozenset(), blocks=12)
    before, after = (at_work(simulated, ticks(length)) for length in (20e-9, 21e-9))
    (change,) = (c for c in changes(before, after, 0.95) if c.arm == "vm")
    assert change.change == pytest.approx(1.05)
    assert change.low < 1 < 1.1 < change.high
    assert worst(check(before, after, [parse_gate("switch latency of vm < +4 %")])) == "open"


def test_a_gate_about_nothing_says_what_there_is() -> None:
    with pytest.raises(InputError, match="about nothing that both runs have") as error:
        check(run(1, blocks=2), run(2, blocks=2), [parse_gate("switch rate < +5 %")])
    assert "switch latency" in str(error.value.hint)
    before, after = run(1, blocks=2), run(2, blocks=2)
    for text, message, hint in (
        ("swich latency < +5 %", "about nothing", "did you mean switch latency?"),
        ("switch latency of kvm < +5 %", "about the arm kvm", "both runs have it for: vm"),
        (
            "switch latency in full < +5 %",
            "about the scenario full",
            "both runs have it for: alone",
        ),
    ):
        with pytest.raises(InputError, match=message) as error:
            check(before, after, [parse_gate(text)])
        assert hint in str(error.value.hint)


@pytest.mark.parametrize(
    "text", ["", "switch < 5 %", "switch latency 5 %", "switch latency < five %", "a b < -100 %"]
)
def test_text_that_is_not_a_gate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no gate"):
        parse_gate(text)


@pytest.mark.parametrize("written", ["200/s", "200 /s", "200 1/s", "0.2 k1/s"])
def test_a_rate_is_limited_as_reports_write_it(written: str) -> None:
    gate = parse_gate(f"numeric-sort rate > {written}")
    assert (gate.limit, gate.unit) == (200.0, "1/s")


def test_limits_in_the_metrics_unit() -> None:
    """The baseline takes 1 s, the arm 1.2 s before and 1.32 s after."""
    before, after = run(1, blocks=20), run(2, vm=1.2 * 1.1, blocks=20)

    def outcome(text: str) -> str:
        return worst(check(before, after, [parse_gate(f"switch latency {text}")]))

    changed = {"< +20 ms": "fails", "< +120 ms": "open", "< +300 ms": "holds", "> -10 ms": "holds"}
    middle = f"< {1e3 * after.effects[0].arm_summary.centre:.1f} ms"
    value = {"< 1.1 s": "fails", middle: "open", "< 2s": "holds", "> 1 s": "holds"}
    assert {text: outcome(text) for text in {**changed, **value}} == {**changed, **value}
    few = run(3, blocks=1)
    assert worst(check(few, few, [parse_gate("switch latency < 1 h")])) == "open"
    with pytest.raises(InputError, match="is in B/s, its metric in s"):
        outcome("< 3 MB/s")
    with pytest.raises(InputError, match="unknown unit"):
        outcome("< 3 parsec")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["gates", "floors", "gate", "floor", "latency"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    )
)
def test_any_file_holds_gates_or_says_why_not(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-gates.yaml"
    path.write_text(yaml.safe_dump(content))
    try:
        found = read_gates(path)
    except InputError:
        return
    assert all(0 <= gate.floor < math.inf and 0 <= gate.share < math.inf for gate in found)


def test_floors_of_a_command_line() -> None:
    gates = [parse_gate("switch latency < +1 %"), parse_gate("switch latency < +2 %", floor=0.3)]
    gates.append(parse_gate("switch rate > -1 %"))
    first, own, rate = with_floors(gates, ["latency=2 %", "latency = 1e-7"])
    assert (first.floor, first.share) == (1e-7, 0.02)
    assert (own.floor, own.share) == (0.3, 0)
    assert rate == gates[2]
    for wrong in ("latency", "other=1 %", "latency=five", "latency=-1", "=1", "latency=nan"):
        with pytest.raises(InputError, match="--floor"):
            with_floors(gates, [wrong])
    before, after = run(1), run(1001, vm=1.2 * 1.1)
    gate = [parse_gate("switch latency < +3 %")]
    assert worst(check(before, after, gate)) == "fails"
    assert worst(check(before, after, with_floors(gate, ["latency=20 %"]))) == "holds"


def test_floors_by_metric(tmp_path: Path) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text(
        "floors: {latency: [2 %, 0.1], rate: 5 %}\n"
        "gates:\n- switch latency < +1 %\n- {gate: switch latency < +1 %, floor: 0}\n"
        "- a rate > -1 %\n"
    )
    own, none, rate = read_gates(path)
    assert (own.floor, own.share) == (0.1, 0.02)
    assert (none.floor, none.share) == (0, 0)
    assert (rate.floor, rate.share) == (0, 0.05)
    before, after = run(1, blocks=20), run(2, vm=1.2 * 1.05, blocks=20)
    assert worst(check(before, after, [none])) == "fails"
    assert worst(check(before, after, [replace(none, share=0.2)])) == "holds"


@given(st.text(max_size=60))
def test_any_text_is_a_gate_or_an_error(text: str) -> None:
    try:
        found = parse_gate(text)
    except InputError:
        return
    assert found.limit > -1


@given(st.sampled_from("<>"), st.integers(-99, 900), st.sampled_from(["", " of vm"]))
def test_gates_are_read_as_they_are_written(side: str, limit: int, arm: str) -> None:
    found = parse_gate(f"switch latency-p99.9{arm} {side} {limit:+d} %")
    assert (found.workload, found.metric, found.arm) == ("switch", "latency-p99.9", arm[4:])
    assert found.below == (side == "<")
    assert found.limit == pytest.approx(limit / 100)


def test_a_file_of_gates(tmp_path: Path) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text("- switch latency < +5 %\n- {gate: tick slowdown < +1 %, floor: 0.01}\n")
    assert read_gates(path) == (
        parse_gate("switch latency < +5 %"),
        Gate("tick slowdown < +1 %", "tick", "slowdown", True, 0.01, floor=0.01),
    )
    entries = ("5", "{gate: x y < 1 %, flour: 1}", "[", "{gate: 3}")
    floors = ("{gate: x y < 1 %, floor: -1}", "{gate: x y < 1 %, floor: .nan}")
    texts = ("{gate: x y < 1 %, floor: five}", "{gate: x y < 1 %, floor: [a %]}")
    files = ("", "a: b", "gates: []", "floors: 3", "{floors: 3, gates: [x y < 1 %]}")
    for wrong in (*files, *(f"- {entry}" for entry in (*entries, *floors, *texts))):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"gates\.yaml"):
            read_gates(path)
    path.write_text("- switch latency < 5\n")
    with pytest.raises(InputError) as error:
        read_gates(path)
    assert error.value.message == f"{path}: entry 1: no gate: 'switch latency < 5'"
    with pytest.raises(InputError, match=r"none\.yaml"):
        read_gates(tmp_path / "none.yaml")


def test_different_baselines_are_not_compared() -> None:
    one = run(1, blocks=2)
    with pytest.raises(InputError, match="different baselines"):
        changes(one, replace(one, baseline="vm"), 0.95)


# --- The statistics by themselves ----------------------------------------------------------------


def test_welchs_interval_is_scipys() -> None:
    rng = np.random.default_rng(1)
    one, two = rng.normal(0, 1, 9), rng.normal(1, 3, 6)
    found = mean_shift(one.tolist(), two.tolist(), 0.95)
    expected = stats.ttest_ind(two, one, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert math.isinf(mean_shift([1.0], [2.0, 3.0], 0.95).high)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 7), st.integers(2, 7), st.sampled_from([0.81, 0.91, 0.949]))
def test_rank_intervals_are_as_deep_as_the_exact_test_allows(
    n: int, m: int, confidence: float
) -> None:
    """An end is the last value that the exact rank-sum test does not refuse."""
    rng = np.random.default_rng(n * 10 + m)
    one, two = rng.standard_normal(n), rng.standard_normal(m)
    found = rank_shift(one.tolist(), two.tolist(), confidence)
    if math.isinf(found.low):
        least = stats.mannwhitneyu(two + 100, one, method="exact").pvalue
        assert least > 1 - confidence
        return
    inside = stats.mannwhitneyu(two - found.low - 1e-9, one, method="exact").pvalue
    outside = stats.mannwhitneyu(two - found.low + 1e-9, one, method="exact").pvalue
    assert inside > 1 - confidence + 1e-12
    assert outside <= 1 - confidence + 1e-12


def test_runs_together_are_covered_though_they_differ() -> None:
    """Five runs whose true effects differ by 3 %: pooling their blocks would not cover."""
    rng = np.random.default_rng(3)
    covered, naive = 0, 0
    for _ in range(2000):
        effects = 0.03 * rng.standard_normal(5) + 0.01 * rng.standard_normal(5)
        found = pool(effects.tolist(), [0.01] * 5, 0.95)
        covered += found.low <= 0 <= found.high
        naive += abs(effects.mean()) <= 1.96 * 0.01 / math.sqrt(5)
    assert 0.93 <= covered / 2000 <= 0.975
    assert naive / 2000 < 0.6
    equal = pool([0.1, 0.1], [0.01, 0.01], 0.95)
    assert equal.effect == pytest.approx(0.1)
    assert (equal.between, equal.inconsistency) == (0, 0)
    assert math.isinf(pool([0.1], [0.01], 0.95).high)


def test_many_runs_have_a_term_for_the_run() -> None:
    (found,) = pooled([run(1, 1.2), run(2, 1.3), run(3, 1.4)], 0.95)
    assert len(found.effects) == 3
    assert found.together.between > 0.03
    assert found.together.inconsistency > 0.5
    assert math.exp(found.together.effect) == pytest.approx(1.3, rel=0.05)
