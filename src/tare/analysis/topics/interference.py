"""How much neighbours slow an arm down: its value with neighbours against its value without.

The comparison stays within one arm and one block, so it excludes the cost of the platform itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.analysis.data.grouping import Measured, group
from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.estimates import Pair, estimate_all, pair_up
from tare.analysis.effects.families import tested
from tare.analysis.effects.results import Interval, Key, OfMetric, reciprocal
from tare.analysis.effects.verdict import LEVEL
from tare.events.metric import Metric


@dataclass(frozen=True)
class NeighbourEffect(OfMetric):
    """The effect of one scenario's neighbours on one metric of one arm.

    Args:
        arm: The arm.
        emulated: Whether it is emulated.
        key: What was measured; its scenario is the one with neighbours.
        neighbours: These neighbours in words.
        quiet: The scenario without neighbours that is compared with.
        metric: The metric.
        slowdown: How many times worse: the ratio of the value with neighbours to that without,
            turned so that above 1 is worse; geometric mean over blocks (median for tails).
        interval: The interval of the slowdown; None with fewer than two blocks.
        blocks: The number of blocks that have both.
        p: The p-value of the slowdown, corrected over all slowdowns of the arm.
        decided: Whether there is a slowdown: p below the level, and 1 outside the interval.
    """

    arm: str
    emulated: bool
    key: Key
    neighbours: str
    quiet: str
    metric: Metric
    slowdown: float
    interval: Interval | None
    blocks: int
    p: float | None = None
    decided: bool = False


def interference(
    runs: Sequence[RunData], arms: Sequence[str], confidence: float, level: float = LEVEL
) -> tuple[NeighbourEffect, ...]:
    """Return the slowdown of every headline metric of every arm with every kind of neighbours.

    Args:
        runs: Runs of one study.
        arms: The arms, in the order of the result.
        confidence: Nominal coverage of the intervals.
        level: The rate at which an arm without any slowdown may be reported with one.
    """
    scenarios = _scenarios_of(runs)
    if not any(each.get("neighbours") for each in scenarios.values()):
        return ()
    quiet = {name: _quiet_counterpart(name, scenarios) for name in scenarios}
    return _slowdowns(runs, arms, confidence, level, quiet)


def memory_bus(
    runs: Sequence[RunData], arms: Sequence[str], confidence: float, level: float = LEVEL
) -> tuple[NeighbourEffect, ...]:
    """Return the slowdown by neighbours that copy memory, relative to neighbours that calculate.

    Both keep their CPUs busy; only the former need caches and memory bus (fayyad2013,
    scenarios 3 to 6). No accesses to memory are counted: the result shows their cost.

    Args:
        runs: Runs of one study.
        arms: The arms, in the order of the result.
        confidence: Nominal coverage of the intervals.
        level: The rate at which an arm without any slowdown may be reported with one.
    """
    scenarios = _scenarios_of(runs)
    calculating = {name: _calculating(name, scenarios) for name in scenarios}
    if not any(calculating.values()):
        return ()
    return _slowdowns(runs, arms, confidence, level, calculating)


def _scenarios_of(runs: Sequence[RunData]) -> Mapping[str, Any]:
    return (runs[0].study.get("scenarios") or {}) if runs else {}


def _calculating(name: str, scenarios: Mapping[str, Any]) -> str | None:
    """Return the scenario that has calculating neighbours in place of those that copy memory."""
    copying = scenarios[name].get("neighbours") or ()
    if not copying or any(each.get("load") != "memory-load" for each in copying):
        return None

    def places(neighbours: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        keys = ("count", "cpus", "memory")
        return [tuple(each.get(key) for key in keys) for each in neighbours]

    for other, each in scenarios.items():
        found = each.get("neighbours") or ()
        if (
            found
            and all(one.get("load") == "cpu-load" for one in found)
            and places(found) == places(copying)
            and each.get("subject") == scenarios[name].get("subject")
        ):
            return other
    return None


def _slowdowns(
    runs: Sequence[RunData],
    arms: Sequence[str],
    confidence: float,
    level: float,
    quiet: Mapping[str, str | None],
) -> tuple[NeighbourEffect, ...]:
    """Return the slowdowns of headline metrics in scenarios, each relative to its ``quiet`` one."""
    scenarios = _scenarios_of(runs)
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    wanted: list[tuple[str, Pair]] = []
    for base, by_scenario in _values_by_scenario(group(runs)).items():
        for arm in arms:
            among = _scenarios_as_arms(by_scenario, arm)
            for loaded in by_scenario:
                alone = quiet.get(loaded)
                if among is None or alone is None or alone not in by_scenario:
                    continue
                pair = pair_up(base._replace(scenario=loaded), among, loaded, alone)
                if pair is not None and pair.scale == "ratio":
                    wanted.append((arm, pair))
    estimates = estimate_all([pair for _, pair in wanted], confidence, runs[0].run)
    # One family for each arm: otherwise, among 150 equal pairs some would always be coloured.
    tests = tested([pair for _, pair in wanted], [arm for arm, _ in wanted], runs[0].run, level)
    places = {name: place for place, name in enumerate(scenarios)}
    workloads = {name: place for place, name in enumerate(runs[0].study.get("workloads") or ())}
    found = [
        _decided(
            _neighbour_effect(
                pair, arm, one.estimate, one.student_t or one.order, scenarios, emulated
            ),
            test.adjusted,
            level,
        )
        for (arm, pair), one, test in zip(wanted, estimates, tests, strict=True)
    ]
    # As the study lists them; sorting keeps the order in which metrics are declared.
    found.sort(
        key=lambda effect: (
            arms.index(effect.arm),
            workloads.get(effect.key.workload, len(workloads)),
            natural(effect.key.parameters),
            places[effect.key.scenario],
        )
    )
    return tuple(found)


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return a key by which numbers within texts sort by their value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((0, float(p), "") if i % 2 else (1, 0.0, p) for i, p in enumerate(parts))


def _values_by_scenario(measured: Mapping[Key, Measured]) -> dict[Key, dict[str, Measured]]:
    found: dict[Key, dict[str, Measured]] = {}
    for key, values in measured.items():
        if key.role == SUBJECT and values.headline and values.better != "neither":
            found.setdefault(key._replace(scenario=""), {})[key.scenario] = values
    return found


def _scenarios_as_arms(by_scenario: Mapping[str, Measured], arm: str) -> Measured | None:
    """Return one arm's values with scenarios in the place of arms."""
    blocks = {
        scenario: values.arms[arm] for scenario, values in by_scenario.items() if arm in values.arms
    }
    if not blocks:
        return None
    return replace(next(iter(by_scenario.values())), arms=blocks)


def _quiet_counterpart(name: str, scenarios: Mapping[str, Any]) -> str | None:
    """Return the scenario without neighbours to compare with, if possible of the same placement."""
    if not scenarios[name].get("neighbours"):
        return None
    quiet = [other for other, each in scenarios.items() if not each.get("neighbours")]
    placed = [o for o in quiet if scenarios[o].get("subject") == scenarios[name].get("subject")]
    return next(iter([*placed, *quiet]), None)


def _neighbour_effect(
    pair: Pair,
    arm: str,
    ratio: float,
    interval: Interval | None,
    scenarios: Mapping[str, Any],
    emulated: frozenset[str],
) -> NeighbourEffect:
    worse_is_more = pair.measured.better == "lower"
    if interval is not None and not worse_is_more:
        interval = replace(interval, low=reciprocal(interval.high), high=reciprocal(interval.low))
    return NeighbourEffect(
        arm=arm,
        emulated=arm in emulated,
        key=pair.key,
        neighbours=neighbour_words(scenarios[pair.key.scenario]["neighbours"]),
        quiet=pair.baseline,
        metric=pair.measured.metric,
        slowdown=ratio if worse_is_more else reciprocal(ratio),
        interval=interval,
        blocks=len(pair.blocks),
    )


def _decided(effect: NeighbourEffect, p: float | None, level: float) -> NeighbourEffect:
    excluded = effect.interval is not None and not effect.interval.holds(1.0)
    return replace(effect, p=p, decided=excluded and p is not None and p < level)


def neighbour_words(neighbours: Sequence[Mapping[str, Any]]) -> str:
    """Return neighbours in words, such as ``3 × cpu-load on any CPU``."""
    parts = []
    for each in neighbours:
        count = each.get("count", 1)
        number = "one for each free CPU" if count == "fill" else f"{count} ×"
        parts.append(f"{number} {each.get('load', '')} on {each.get('cpus', 'any')} CPU")
    return ", ".join(parts)
