"""Which work a source's figure is drawn of: over sizes, over slaves, or over their hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.comparison import Comparison
from tare.references.exhibits import Over
from tare.references.scenarios import mapping
from tare.report.words import Part


@dataclass(frozen=True)
class Shape:
    """How a scenario's cluster is made: its slaves, and on how many hosts they are."""

    slaves: int
    hosts: int


def shapes(comparison: Comparison) -> dict[str, Shape]:
    """Return how the clusters of the runs' scenarios are made, by scenario."""
    found: dict[str, Shape] = {}
    for run in comparison.runs:
        for name, scenario in mapping(run.study.get("scenarios")).items():
            cluster = mapping(mapping(scenario).get("cluster"))
            slaves, hosts = cluster.get("slaves"), cluster.get("hosts")
            if isinstance(slaves, int):
                spread = len(hosts) if isinstance(hosts, list | tuple) else 0
                found[str(name)] = Shape(slaves, max(1, min(spread, slaves)))
    return found


def telling(parts: Sequence[Part], made: Mapping[str, Shape], over: Over) -> list[Part]:
    """Return the pieces of work that show how something depends on what a figure is drawn over.

    A piece that was done with one size, or on one cluster, shows nothing of that. Blocks are in
    random order, so what is returned is in that of the clusters, of the sizes, and then of names.

    Args:
        parts: All pieces of work that were measured.
        made: How the scenarios' clusters are made.
        over: ``size``: what was done with several sizes, in the scenario that has most of them, or
            else on most slaves; where nothing was, all that was done there. ``slaves``: the same
            work on one host's clusters of several sizes; ``hosts``: the same work on as many slaves
            on one host and on more; empty: all.
    """
    known = sorted(dict.fromkeys(parts), key=lambda part: _place(part, made))
    if over == "size":
        return _over_size(known, made)
    clusters = [part for part in known if part.scenario in made]
    if over == "slaves":
        clusters = [part for part in clusters if made[part.scenario].hosts == 1]
        several = {work for work, numbers in _on(clusters, made).items() if len(numbers) > 1}
        return [part for part in clusters if part.parameters in several]
    if over == "hosts":
        alone = _on([part for part in clusters if made[part.scenario].hosts == 1], made)
        spread = _on([part for part in clusters if made[part.scenario].hosts > 1], made)
        return [
            part
            for part in clusters
            if made[part.scenario].slaves
            in alone.get(part.parameters, set()) & spread.get(part.parameters, set())
        ]
    return known


def _over_size(known: Sequence[Part], made: Mapping[str, Shape]) -> list[Part]:
    sizes: dict[tuple[str, str], set[float]] = {}
    for part in known:
        sizes.setdefault(_work(part), set()).add(_size(part))

    def rank(part: Part) -> tuple[int, int]:
        shape = made.get(part.scenario)
        return len(sizes[_work(part)]), shape.slaves if shape else 0

    best = max(known, key=rank, default=None)
    if best is None:
        return []
    there = sorted((part for part in known if part.scenario == best.scenario), key=_size)
    return [part for part in there if len(sizes[_work(part)]) > 1] or there


def _work(part: Part) -> tuple[str, str]:
    """Return what a piece of work has in common with the same of another size."""
    rest = {name: value for name, value in parameters_of(part.parameters).items() if name != "size"}
    return part.scenario, json.dumps(rest, sort_keys=True)


def _on(parts: Iterable[Part], made: Mapping[str, Shape]) -> dict[str, set[int]]:
    """Return on how many slaves each work was done, by its parameters."""
    found: dict[str, set[int]] = {}
    for part in parts:
        found.setdefault(part.parameters, set()).add(made[part.scenario].slaves)
    return found


def _place(part: Part, made: Mapping[str, Shape]) -> tuple[int, int, str, str, float, str]:
    shape = made.get(part.scenario, Shape(0, 0))
    size = _size(part)
    return shape.slaves, shape.hosts, part.scenario, part.workload, size, part.parameters


def _size(part: Part) -> float:
    size = parameters_of(part.parameters).get("size")
    return float(size) if isinstance(size, int | float) else 0.0


def parameters_of(text: str) -> Mapping[str, Any]:
    """Return parameters out of their canonical JSON."""
    return mapping(json.loads(text or "{}"))
