"""Find the needs of workloads with given parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tare.study.model.platform_options import GIVEN, ISOLATED
from tare.workloads.contract import Need, Workload
from tare.workloads.network.ends import ORIGIN, PEER


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
    """Return all that a workload needs of its machine with these sets of parameters."""
    given = (workload.parameters.model_validate(dict(point)) for point in points)
    return frozenset[Need]().union(*map(workload.needs_for, given))


def ends_as_machines(way: str, needs: frozenset[Need]) -> tuple[str, ...]:
    """Return the roles of the other ends that must be machines.

    Such an end must be a machine if no process of the host can connect to the subject's network.

    Args:
        way: The kind of connection of the arm's machines.
        needs: The things that the workloads need of the subject.
    """
    if "network" not in needs:
        return ()
    bridged = "bridged" in needs
    if way == ISOLATED or (way == GIVEN and bridged):
        return (PEER, ORIGIN) if bridged else (PEER,)
    return ()


def needs_of_loads(
    workloads: Mapping[str, Workload[Any]], loads: Iterable[Load]
) -> frozenset[Need]:
    """Return all needs of these loads together. Loads that are not known need nothing."""
    needed: frozenset[Need] = frozenset()
    for wanted in loads:
        load = workloads.get(wanted.load)
        if load is not None:
            needed |= needs_of(load, [wanted.parameters])
    return needed
