"""The tuning analysis finds known effects, covers them, and rarely declares effects of nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.tuning import Tuning, tuning
from tare.events.metric import Metric
from tare.events.results import SkippedPart
from tare.study.model.matrix import Design, DesignRun, Setting
from tare.study.planning.factorial import smallest_fraction

FACTORS = 4
METRICS = ("switch", "pipe")


def design_of(extra: bool = False) -> Design:
    fraction = smallest_fraction(FACTORS, 4)
    assert fraction is not None
    settings = [
        Setting(name=f"s{n}", levels=("off", "on"), values=({f"s{n}": "off"}, {f"s{n}": "on"}))
        for n in range(FACTORS)
    ]
    runs = [
        DesignRun(arm="vm" if not any(run) else f"m-{n}", levels=run, alone=False)
        for n, run in enumerate(fraction.runs)
    ]
    if extra:
        third = settings[0].model_copy(
            update={"levels": ("off", "on", "max"), "values": ({}, {}, {"s0": "max"})}
        )
        settings[0] = third
        runs.append(DesignRun(arm="vm.s0-max", levels=(2, 0, 0, 0), alone=True))
    return Design(
        arm="vm",
        design="fractional",
        settings=tuple(settings),
        runs=tuple(runs),
        resolution=fraction.resolution,
        generators=fraction.generators,
        aliases=fraction.aliases,
    )


def run_of(
    design: Design,
    logs: Mapping[tuple[str, int, str], float],
    skipped: Sequence[SkippedPart] = (),
) -> RunData:
    """Return a run whose value is exp(log) for each workload, block and arm."""
    metric = Metric(
        name="latency", unit="s", better="lower", kind="typical", headline=True, summary="x"
    )
    counted = [
        SimpleNamespace(
            result=SimpleNamespace(
                scenario="alone", workload=workload, parameters="{}", cell=f"{block}{arm}",
                run="r", block=block, arm=arm,
            ),
            observed=[("subject", metric, float(np.exp(log)))],
        )
        for (workload, block, arm), log in logs.items()
    ]  # fmt: skip
    study = {"designs": {"m": design.model_dump(mode="json")}}
    run = SimpleNamespace(
        run="r", study=study, counted=counted, skipped=skipped, emulated_arms=frozenset()
    )
    return cast(RunData, run)


def simulated(
    rng: np.random.Generator, truth: Mapping[tuple[int, ...], float], blocks: int = 8
) -> Tuning:
    """Return the analysis of one simulated run.

    Args:
        rng: The source of noise.
        truth: The effect of each factor, or pair of factors, on the log scale.
        blocks: The number of blocks.
    """
    design = design_of()
    logs: dict[tuple[str, int, str], float] = {}
    for block in range(1, blocks + 1):
        for workload in METRICS:
            shared = rng.normal(0, 0.3)
            for run in design.runs:
                half = np.array(run.levels) - 0.5
                mean = sum(size * np.prod(half[list(term)]) for term, size in truth.items())
                noise = float(rng.normal(0, 0.03))
                logs[workload, block, run.arm] = float(mean + shared + noise)
    found = tuning([run_of(design, logs)], 0.95, 0.02)
    assert found is not None
    return found


TRUTH: dict[tuple[int, ...], float] = {
    (0,): -0.10,
    (1,): 0.05,
    (2,): 0.0,
    (3,): -0.02,
    (0, 1): 0.06,
    (1, 2): -0.04,
}


def true_value(changes: Sequence[Any], aliased: Sequence[str]) -> float:
    """Return the true sum of an effect and its aliases."""
    names = [tuple(int(change.setting[1:]) for change in changes)]
    names += [tuple(int(word.split()[0][1:]) for word in each.split(" × ")) for each in aliased]
    return sum(TRUTH.get(name, 0.0) for name in names)


SIMULATIONS = 300


def test_all_intervals_cover_the_truth_together() -> None:
    rng = np.random.default_rng(20)
    missed = 0
    for _ in range(SIMULATIONS):
        found = simulated(rng, TRUTH)
        assert len(found.effects) == len(METRICS) * (4 + 3)
        missed += any(
            effect.interval is None
            or not effect.interval.holds(np.exp(true_value(effect.changes, effect.aliased)))
            for effect in found.effects
        )
    # 5 % are allowed; three standard deviations of 300 simulations are 3.8 %.
    assert missed / SIMULATIONS <= 0.05 + 0.038


def test_a_study_without_effects_rarely_declares_any() -> None:
    rng = np.random.default_rng(21)
    wrong = sum(
        any(effect.outcome in ("better", "worse") for effect in simulated(rng, {}).effects)
        for _ in range(SIMULATIONS)
    )
    assert wrong / SIMULATIONS <= 0.05 + 0.038


def test_a_null_effect_among_real_ones_is_rarely_declared() -> None:
    rng = np.random.default_rng(22)
    wrong = 0
    for _ in range(SIMULATIONS):
        found = simulated(rng, TRUTH)
        wrong += any(
            effect.outcome in ("better", "worse")
            for effect in found.effects
            if true_value(effect.changes, effect.aliased) == 0
        )
    assert wrong / SIMULATIONS <= 0.05 + 0.038


def test_known_effects_are_found_and_become_advice() -> None:
    found = simulated(np.random.default_rng(5), {**TRUTH, (3,): 0.0}, blocks=10)
    advice = {switch.change.setting: switch.advice for switch in found.switches}
    assert advice["s0"] == "change"
    assert advice["s1"] == "keep"
    assert advice["s2"] in ("same", "undecided")
    [first, *_] = [effect for effect in found.effects if effect.changes[0].setting == "s0"]
    assert first.outcome == "better"
    assert first.ratio == pytest.approx(np.exp(-0.10), rel=0.02)
    interactions = [e for e in found.effects if len(e.changes) == 2 and e.outcome == "worse"]
    assert interactions and interactions[0].aliased


def test_few_blocks_are_preliminary_however_large_the_effect() -> None:
    found = simulated(np.random.default_rng(6), {(0,): -1.0}, blocks=3)
    assert {effect.outcome for effect in found.effects} == {"preliminary"}
    assert {switch.advice for switch in found.switches} == {"preliminary"}


def test_a_value_that_was_skipped_keeps_its_reason() -> None:
    design = design_of(extra=True)
    rng = np.random.default_rng(7)
    logs = {
        ("switch", block, run.arm): float(rng.normal())
        for block in range(1, 9)
        for run in design.runs
        if not run.alone
    }
    skip = SkippedPart("vm.s0-max", None, None, "this host lacks it")
    found = tuning([run_of(design, logs, [skip])], 0.95, 0.02)
    assert found is not None
    [switch] = [each for each in found.switches if each.change.value == "max"]
    assert (switch.advice, switch.reason) == ("not measured", "this host lacks it")


def test_a_further_value_is_compared_with_the_default_run() -> None:
    design = design_of(extra=True)
    logs = {
        ("switch", block, run.arm): 0.01 * block + (0.5 if run.alone else 0.0)
        for block in range(1, 9)
        for run in design.runs
    }
    found = tuning([run_of(design, logs)], 0.95, 0.02)
    assert found is not None
    [effect] = [each for each in found.effects if each.alone]
    assert effect.ratio == pytest.approx(np.exp(0.5))


def test_a_lost_run_in_one_block_loses_no_main_effect() -> None:
    design = design_of()
    rng = np.random.default_rng(8)
    logs = {
        ("switch", block, run.arm): float(rng.normal(0, 0.01)) - 0.2 * run.levels[0]
        for block in range(1, 9)
        for run in design.runs
    }
    del logs["switch", 3, design.runs[-1].arm]
    found = tuning([run_of(design, logs)], 0.95, 0.02)
    assert found is not None
    mains = [effect for effect in found.effects if len(effect.changes) == 1]
    assert [effect.blocks for effect in mains] == [8] * 4
    assert all(effect.assumes for effect in mains)
    assert mains[0].outcome == "better"


def test_a_study_without_matrices_has_no_tuning() -> None:
    run = cast(RunData, SimpleNamespace(study={}))
    assert tuning([run], 0.95, 0.02) is None
