"""How each arm's cost by resource changed from one run to another, with simultaneous intervals.

In each run, the mean log cost over a resource's metrics is one value a block. The change is the
difference of the two runs' means. The intervals of all arms and resources are one family: together
they cover all true changes between the two runs with the study's confidence (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tare.analysis.effects.cached_arrays import ShownAs, What
from tare.analysis.effects.resources import (
    ORDER,
    ResourceCost,
    ResourceName,
    cache_resources,
    resource_of,
)
from tare.analysis.effects.results import Effect, Interval, VerdictWord
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.runs.change_verdicts import JudgedChange
from tare.analysis.runs.run_changes import SPOILS, hidden_by_clock
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.meta_analysis import Shift, mean_shift


@dataclass(frozen=True)
class ResourceChange:
    """The change of one arm's cost in one resource.

    Args:
        cost: The change as a cost: the cost in the second run divided by that in the first, with
            its simultaneous interval. ``blocks`` is that of the run with fewer.
        changes: The changes of the resource's headline metrics, those without a ratio too.
    """

    cost: ResourceCost
    changes: tuple[JudgedChange, ...]


def resource_changes(
    found: Sequence[JudgedChange],
    confidence: float,
    margin: float,
    shown_as: Mapping[What, ShownAs] | None = None,
) -> tuple[ResourceChange, ...]:
    """Return the change of every arm in every resource, in the order of arms and resources.

    Args:
        found: Changes against one baseline, with verdicts.
        confidence: The confidence at which all intervals together cover all true changes.
        margin: The practical margin, as a share.
        shown_as: The names of workloads that did not measure what their own name says.
    """
    members: dict[tuple[str, ResourceName], list[JudgedChange]] = {}
    for one in found:
        effect = one.change.before
        if effect.headline and effect.better != "neither":
            members.setdefault((effect.arm, resource_of(effect.metric)), []).append(one)
    arms = list(dict.fromkeys(arm for arm, _ in members))
    named = sorted(members, key=lambda name: (arms.index(name[0]), ORDER.index(name[1])))
    ratios = {name: [one for one in members[name] if one.change.ratio] for name in named}
    caches = cache_resources(
        {name: [one.change.key for one in own] for name, own in members.items()}, shown_as or {}
    )
    family = sum(1 for own in ratios.values() if own)
    return tuple(
        ResourceChange(
            replace(
                _cost(name, members[name], ratios[name], confidence, margin, family),
                cache=name[1] in caches,
            ),
            tuple(members[name]),
        )
        for name in named
    )


def _cost(
    name: tuple[str, ResourceName],
    changes: Sequence[JudgedChange],
    ratios: Sequence[JudgedChange],
    confidence: float,
    margin: float,
    family: int,
) -> ResourceCost:
    first = changes[0]
    runs = (
        _means([one.change.before for one in ratios]),
        _means([one.change.after for one in ratios]),
    )
    blocks = min(map(len, runs))
    estimate, interval = math.nan, None
    if blocks:
        shift = mean_shift(*runs, 1 - (1 - confidence) / max(1, family))
        estimate = math.exp(shift.shift)
        if blocks >= least_blocks(LEVEL):
            interval = _interval(shift, ratios, confidence)
    effects = [effect for one in changes for effect in (one.change.before, one.change.after)]
    return ResourceCost(
        resource=name[1],
        arm=name[0],
        baseline=first.baseline,
        emulated=any(effect.emulated for effect in effects),
        effects=tuple(one.change.after for one in changes),
        averaged=len(ratios) if blocks else 0,
        blocks=blocks,
        each=first.change.before.each,
        cost=estimate,
        interval=interval,
        margin=margin,
        doubt=next(
            (flag.text for effect in effects for flag in effect.flags if flag.kind in SPOILS), ""
        ),
        flattered=_flattered(changes),
    )


def _means(effects: Sequence[Effect]) -> list[float]:
    """Return the mean log cost over effects in each block in which all of them have a value."""
    if not effects:
        return []
    by_block = [
        {
            (block.run, block.block): math.log(block.value) * (-1 if e.better == "higher" else 1)
            for block in e.block_effects
        }
        for e in effects
    ]
    common = [block for block in by_block[0] if all(block in own for own in by_block[1:])]
    return [math.fsum(own[block] for own in by_block) / len(by_block) for block in common]


def _interval(shift: Shift, ratios: Sequence[JudgedChange], confidence: float) -> Interval:
    """Return the interval of a change, wider for dependent blocks and for the steps of clocks."""
    effects = [effect for one in ratios for effect in (one.change.before, one.change.after)]
    wider = max(effect.widened for effect in effects)
    hidden = math.fsum(hidden_by_clock(effect, True) for effect in effects) / len(ratios)
    low, high = (
        shift.shift + wider * (end - shift.shift) + sign * hidden
        for end, sign in ((shift.low, -1), (shift.high, 1))
    )
    return Interval(math.exp(low), math.exp(min(high, 700.0)), "student-t", confidence)


def _flattered(changes: Sequence[JudgedChange]) -> frozenset[VerdictWord]:
    """Return the directions that lost cells may have caused: slow cells may be what fails."""
    lost = {
        (when, flag.kind)
        for one in changes
        for when, effect in (("before", one.change.before), ("after", one.change.after))
        for flag in effect.flags
    }
    found: set[VerdictWord] = set()
    if lost & {("before", "failures"), ("after", "baseline-failures")}:
        found.add("worse")
    if lost & {("before", "baseline-failures"), ("after", "failures")}:
        found.add("better")
    return frozenset(found)
