"""The loss of each machine of a cell, subject and neighbours alike, as a square matrix.

Loads report their work, so every machine with a load is measured too. Each is compared with its
own undisturbed rate, in the same block of the same arm.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tare.analysis.data.grouping import Block, BlockId, Measured
from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.estimates import Pair, estimate_all, pair_up
from tare.analysis.effects.families import tested
from tare.analysis.effects.results import Key
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.topics.interference import NeighbourEffect
from tare.events.metric import Metric
from tare.events.results import CellResult

RATE = "rate"
"""The metric of every load's work."""
SLEEPER = "wakeup"
"""A subject that nearly always sleeps: a neighbour that runs only next to it is undisturbed."""
LOADED, ALONE = "beside", "alone"
ROLE = "each"
"""The role that stands for all machines of a cell with the same load."""


@dataclass(frozen=True)
class MachineLoss:
    """The slowdown of machines with one load next to others.

    Args:
        effect: The slowdown; its key's workload is the load, its scenario what disturbed it.
        others: All other machines of the cell in words.
        each: The slowdown of each machine, by its role.
    """

    effect: NeighbourEffect
    others: str
    each: Mapping[str, float]


@dataclass(frozen=True)
class _Machine:
    role: str
    kind: str
    given: str


@dataclass(frozen=True)
class _Seen:
    """The work of machines of one load among the same others, by block and role."""

    metric: Metric
    by_block: dict[BlockId, dict[str, list[float]]]


_Others = tuple[tuple[str, int], ...]
_Who = tuple[str, str, str]
"""Arm, load, and the load's parameters."""


def machine_losses(
    runs: Sequence[RunData], arms: Sequence[str], confidence: float, level: float = LEVEL
) -> tuple[MachineLoss, ...]:
    """Return the losses of machines with each load next to every other, in the order of arms.

    A load that was never measured undisturbed is left out.

    Args:
        runs: Runs of one study.
        arms: The arms, in the order of the result.
        confidence: Nominal coverage of the intervals.
        level: The rate at which an arm without any slowdown may be reported with one.
    """
    seen = _seen(runs)
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    wanted: list[tuple[str, Pair, _Others, _Seen, _Seen]] = []
    for (who, others), disturbed in seen.items():
        quiet = _undisturbed(seen, who)
        cause = _cause(who[1], others)
        if quiet is None or quiet is disturbed or not cause:
            continue
        key = Key(cause, who[1], who[2], ROLE, disturbed.metric.name)
        pair = pair_up(key, _measured(disturbed, quiet), LOADED, ALONE)
        if pair is not None and pair.scale == "ratio":
            wanted.append((who[0], pair, others, disturbed, quiet))
    if not wanted:
        return ()
    pairs = [pair for _, pair, *_ in wanted]
    estimates = estimate_all(pairs, confidence, runs[0].run, resampled=False)
    tests = tested(pairs, [arm for arm, *_ in wanted], runs[0].run, level)
    found = []
    for (arm, pair, others, disturbed, quiet), one, test in zip(
        wanted, estimates, tests, strict=True
    ):
        interval = one.student_t
        if interval is not None:
            interval = replace(interval, low=1 / interval.high, high=1 / interval.low)
        sure = interval is not None and not interval.holds(1.0)
        in_words = words(others)
        effect = NeighbourEffect(
            arm,
            arm in emulated,
            pair.key,
            in_words,
            ALONE,
            disturbed.metric,
            1 / one.estimate,
            interval,
            len(pair.blocks),
            test.adjusted,
            sure and test.adjusted is not None and test.adjusted < level,
        )
        found.append(MachineLoss(effect, in_words, _machine_slowdowns(disturbed, quiet)))
    order = {arm: place for place, arm in enumerate(arms)}
    return tuple(sorted(found, key=lambda loss: order.get(loss.effect.arm, len(order))))


def matrix(found: Sequence[MachineLoss]) -> tuple[NeighbourEffect, ...]:
    """Return one slowdown for each arm, load and disturber: rows and columns are the same loads.

    If a load was measured among several mixtures, the one with the fewest kinds is used.
    """
    best: dict[tuple[str, str, str], MachineLoss] = {}
    victims = {loss.effect.key.workload for loss in found}
    for loss in found:
        if loss.effect.key.scenario not in victims:
            continue
        place = (loss.effect.arm, loss.effect.key.workload, loss.effect.key.scenario)
        known = best.get(place)
        if known is None or loss.others.count(",") < known.others.count(","):
            best[place] = loss
    loads = list(dict.fromkeys(load for _, load, _ in best))
    return tuple(
        best[arm, victim, cause].effect
        for arm in dict.fromkeys(arm for arm, _, _ in best)
        for victim in loads
        for cause in loads
        if (arm, victim, cause) in best
    )


def words(others: _Others) -> str:
    """Return machines in words, such as ``cpu-load, 2 × memory-load``."""
    return ", ".join(kind if count == 1 else f"{count} × {kind}" for kind, count in others)


def _cause(victim: str, others: _Others) -> str:
    """Return the kind of load that disturbed ``victim``; empty if several kinds may have.

    Another kind of load is the cause if there is only one, and the victim's own kind if there is no
    other. A sleeping subject does not disturb anything.
    """
    kinds = {kind for kind, _ in others} - {SLEEPER}
    strange = kinds - {victim}
    if len(strange) == 1:
        return strange.pop()
    return victim if kinds == {victim} else ""


def _seen(runs: Sequence[RunData]) -> dict[tuple[_Who, _Others], _Seen]:
    found: dict[tuple[_Who, _Others], _Seen] = {}
    for run in runs:
        loads = _loads(run)
        for done in run.counted:
            cell = done.result
            machines = tuple(_machines(run, cell))
            rates = {seen.role: seen for seen in done.observed if seen.metric.name == RATE}
            for machine in machines:
                seen = rates.get(machine.role)
                if machine.kind not in loads or seen is None:
                    continue
                others = Counter(each.kind for each in machines if each is not machine)
                place = ((cell.arm, machine.kind, machine.given), tuple(sorted(others.items())))
                known = found.setdefault(place, _Seen(seen.metric, {}))
                by_role = known.by_block.setdefault((cell.run, cell.block), {})
                by_role.setdefault(machine.role, []).append(seen.value)
    return found


def _loads(run: RunData) -> frozenset[str]:
    """Return the loads that neighbours of the study carry."""
    scenarios: Mapping[str, Any] = run.study.get("scenarios") or {}
    return frozenset(
        str(each.get("load"))
        for scenario in scenarios.values()
        for each in scenario.get("neighbours") or ()
    )


def _machines(run: RunData, cell: CellResult) -> Iterator[_Machine]:
    workloads: Mapping[str, Any] = run.study.get("workloads") or {}
    spec = workloads.get(cell.workload)
    kind = spec.get("workload", cell.workload) if isinstance(spec, Mapping) else cell.workload
    yield _Machine(SUBJECT, str(kind), _chosen(cell.parameters))
    scenarios: Mapping[str, Any] = run.study.get("scenarios") or {}
    neighbours = (scenarios.get(cell.scenario) or {}).get("neighbours") or ()
    given = {str(each.get("load")): each.get("parameters") or {} for each in neighbours}
    for report in cell.facts.get("neighbours") or ():
        load = str(report.get("load"))
        yield _Machine(str(report.get("role")), load, _given(given.get(load, {})))


@lru_cache(maxsize=1024)
def _chosen(parameters: str) -> str:
    """Return :func:`_given` of a cell's parameters; cached, as all blocks and arms share them."""
    return _given(json.loads(parameters or "{}"))


def _given(parameters: Mapping[str, Any]) -> str:
    """Return a load's parameters without its duration, which neighbours do not get."""
    kept = {name: value for name, value in parameters.items() if name != "duration"}
    return json.dumps(kept, sort_keys=True)


def _undisturbed(seen: Mapping[tuple[_Who, _Others], _Seen], who: _Who) -> _Seen | None:
    for others in ((), ((SLEEPER, 1),)):
        if (who, others) in seen:
            return seen[who, others]
    return None


def _measured(disturbed: _Seen, quiet: _Seen) -> Measured:
    # Whether or not a load is a headline, its rate is its purpose.
    measured = Measured(disturbed.metric._replace(headline=True))
    measured.arms[LOADED], measured.arms[ALONE] = _blocks(disturbed), _blocks(quiet)
    return measured


def _blocks(seen: _Seen) -> dict[BlockId, Block]:
    return {block: list(by_role.values()) for block, by_role in sorted(seen.by_block.items())}


def _machine_slowdowns(disturbed: _Seen, quiet: _Seen) -> dict[str, float]:
    """Return each machine's slowdown: the geometric mean over the blocks that have both."""
    roles = sorted({role for by_role in disturbed.by_block.values() for role in by_role})
    alone = _blocks(quiet)
    found = {}
    for role in roles:
        own = {
            block: [by_role[role]]
            for block, by_role in sorted(disturbed.by_block.items())
            if role in by_role
        }
        measured = Measured(disturbed.metric._replace(kind="typical", headline=True))
        measured.arms[LOADED], measured.arms[ALONE] = own, alone
        pair = pair_up(Key("", "", "", role, RATE), measured, LOADED, ALONE)
        if pair is not None and pair.scale == "ratio":
            mean = sum(pair.differences) / len(pair.differences)
            found[role] = 1 / pair.outward(mean)
    return found
