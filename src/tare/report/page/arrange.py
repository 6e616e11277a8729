"""Put a comparison in the order of its study, so that page, figures and tables agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tare.analysis.model import AllPairs, Comparison, Effect, Key
from tare.report.page.words import Part, parameters_of

Rank = tuple[Any, ...]


def arrange(comparison: Comparison) -> Comparison:
    """Return ``comparison`` with effects and summaries in the study's order.

    Scenarios, workloads and arms follow the study, with the baseline first. Sets of parameters are
    ordered by their values, and metrics as the workload reports them. Recorded events are in the
    random order of the blocks, which is of no use to a reader.
    """
    keys = dict.fromkeys(
        key
        for group in (comparison.summaries, comparison.effects, comparison.aa)
        for key in (item.key for item in group)
    )
    rank = _ranks(comparison, keys)
    arms = {arm: place for place, arm in enumerate(comparison.arms)}

    scenarios = _places(comparison, "scenarios")

    def place(key: Key, arm: str) -> tuple[int, int]:
        return rank[key], arms.get(arm, len(arms))

    return replace(
        comparison,
        effects=tuple(sorted(comparison.effects, key=lambda e: place(e.key, e.arm))),
        aa=tuple(sorted(comparison.aa, key=lambda e: place(e.key, e.arm))),
        summaries=tuple(sorted(comparison.summaries, key=lambda s: place(s.key, s.arm))),
        pairs=_arrange_pairs(comparison.pairs, place),
        host_costs=tuple(
            sorted(
                comparison.host_costs,
                key=lambda c: (arms.get(c.arm, len(arms)), scenarios.get(c.scenario, 0)),
            )
        ),
    )


def _arrange_pairs(
    pairs: AllPairs | None, place: Callable[[Key, str], tuple[int, int]]
) -> AllPairs | None:
    if pairs is None:
        return None

    def pair(effect: Effect) -> tuple[int, ...]:
        return (*place(effect.key, effect.baseline), *place(effect.key, effect.arm))

    return replace(
        pairs,
        effects=tuple(sorted(pairs.effects, key=pair)),
        ranks=tuple(sorted(pairs.ranks, key=lambda rank: place(rank.key, rank.arm))),
    )


def _ranks(comparison: Comparison, keys: Iterable[Key]) -> dict[Key, int]:
    scenarios = _places(comparison, "scenarios")
    workloads = _places(comparison, "workloads")
    known = list(keys)
    metrics = {key: place for place, key in enumerate(known)}

    def rank(key: Key) -> Rank:
        part = Part.of(key)
        return (
            scenarios.get(part.scenario, len(scenarios)),
            workloads.get(part.workload, len(workloads)),
            part.workload,
            _natural(part.parameters),
            part.role,
            metrics[key],
        )

    return {key: place for place, key in enumerate(sorted(known, key=rank))}


def _places(comparison: Comparison, what: str) -> dict[str, int]:
    """Return the position of each name in the studies' mapping ``what``.

    A label and the workload that it stands for both get a position.
    """
    places: dict[str, int] = {}
    for run in comparison.runs:
        named = run.study.get(what)
        for name, value in named.items() if isinstance(named, Mapping) else ():
            meant = value.get("workload", name) if isinstance(value, Mapping) else name
            places.setdefault(str(name), len(places))
            places.setdefault(str(meant), len(places))
    return places


def _natural(parameters: str) -> Rank:
    given = parameters_of(parameters)
    return tuple((name, _number_or_text(given[name])) for name in sorted(given))


def _number_or_text(value: object) -> Rank:
    """Return a sort key that orders numbers by size, also inside texts."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value))
    pieces = re.split(r"(\d+)", str(value))
    return (1, *((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in pieces))
