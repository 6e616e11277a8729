"""Gates over runs in deterministic labs, whose time counts instructions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

from analysis.analysis_runs import ARMS, run
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Comparison
from tare.analysis.runs.gates import check, parse_gate
from tare.events import Record, fold_records
from tare.report.compare.gates import as_text


def in_a_deterministic_lab(comparison: Comparison) -> Comparison:
    where = {"host": {"kind": "lab"}, "lab": {"deterministic": True}, "hosts": {}}
    runs = tuple(replace(run, study={**run.study, **where}) for run in comparison.runs)
    return replace(comparison, runs=runs)


def test_two_blocks_of_counted_instructions_are_held_against_a_gate_by_their_range() -> None:
    gate = [parse_gate("switch latency of vm in alone < +1 %")]
    before, same = run(1, blocks=2, spread=0.0005), run(2, blocks=2, spread=0.0005)
    slower = run(3, vm=1.2 * 1.05, blocks=2, spread=0.0005)
    noisy = run(4, blocks=2, spread=0.05)
    ends = {}
    for name, after in (("same", same), ("slower", slower), ("noisy", noisy)):
        (one,) = check(in_a_deterministic_lab(before), in_a_deterministic_lab(after), gate)
        ends[name] = one.outcome
        assert one.change.ranged and "time counts instructions" in as_text([one])
        pairs = product(one.change.after.block_effects, one.change.before.block_effects)
        ratios = [later.value / earlier.value for later, earlier in pairs]
        assert one.change.low <= min(ratios) <= max(ratios) <= one.change.high
    assert ends == {"same": "holds", "slower": "fails", "noisy": "open"}
    # One block has no range, and a run of measured time none either.
    (one,) = check(in_a_deterministic_lab(run(1, blocks=1)), in_a_deterministic_lab(same), gate)
    assert (one.outcome, one.change.ranged) == ("open", False)
    (one,) = check(before, in_a_deterministic_lab(same), gate)
    assert (one.outcome, one.change.ranged) == ("open", False)


def test_values_that_instructions_make_all_alike_are_those_of_no_coarse_clock() -> None:
    """Two builds of a Xen in deterministic labs, as measured: 202 instructions more in one."""
    truth = {"bare": 1.8825e-6, "bare-again": 1.8825e-6, "vm": 5.0605e-6}

    def measured(vm: float) -> Comparison:
        metric = SimulatedMetric("latency", {**truth, "vm": vm}, workload="switch", spreads=(0, 0))
        simulated = SimulatedRun([metric], arms=ARMS, emulated=frozenset(), blocks=2, seed=1)
        records = (
            Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated))
        )
        return in_a_deterministic_lab(compare_runs(run_data(Path("no"), fold_records(records))))

    gate = [parse_gate("switch latency of vm in alone < +1 %")]
    (same,) = check(measured(5.0605e-6), measured(5.0605e-6), gate)
    (slower,) = check(measured(5.0605e-6), measured(5.2625e-6), gate)
    assert (same.outcome, slower.outcome) == ("holds", "fails")
    assert same.change.high - same.change.low < 0.002
