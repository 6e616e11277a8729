"""What workloads need of their machines with the parameters they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tare.workloads.contract import Need, Workload


class Load(Protocol):
    """A neighbour's load, as a study or a placement names it."""

    @property
    def load(self) -> str:
        """The workload's name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its parameters, as the study gives them."""
        ...


def needs_of(workload: Workload[Any], points: Iterable[Mapping[str, Any]]) -> frozenset[Need]:
    """Return what a workload needs of its machine with any of these sets of parameters."""
    given = (workload.parameters.model_validate(dict(point)) for point in points)
    return frozenset[Need]().union(*map(workload.needs_for, given))


def needs_of_loads(
    workloads: Mapping[str, Workload[Any]], loads: Iterable[Load]
) -> frozenset[Need]:
    """Return what these loads need of their machines together. Unknown ones need nothing."""
    needed: frozenset[Need] = frozenset()
    for wanted in loads:
        load = workloads.get(wanted.load)
        if load is not None:
            needed |= needs_of(load, [wanted.parameters])
    return needed
