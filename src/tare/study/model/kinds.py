"""What planning needs of a workload, and which machines it cannot run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tare.study.model.shape import SPARE, SPARED_CPUS, spare_vcpus

if TYPE_CHECKING:
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import WorkloadSpec
    from tare.study.planning.cells import Cell
    from tare.study.planning.host_cpus import HostCpus
    from tare.study.planning.placement import Placement


class Kind(Protocol):
    """What planning needs of a workload: its parameters and the time it takes."""

    @property
    def parameters(self) -> type[Any]:
        """The model of its parameters."""
        ...

    @property
    def roles(self) -> frozenset[str]:
        """The roles of further machines that it works with."""
        ...

    @property
    def topology(self) -> str:
        """On which machines it works; ``cluster``: it is a job on one."""
        ...

    @property
    def realtime(self) -> bool:
        """Whether its threads leave a CPU to nothing else."""
        ...

    def needs_for(self, parameters: Any) -> frozenset[str]:
        """Return what its machine must have with these parameters."""
        ...

    def expected_s(self, parameters: Any) -> float:
        """Return the seconds one cell takes on undisturbed hardware."""
        ...

    def clocked_s(self, parameters: Any) -> float:
        """Return how many of them the clock ends, however slow the machine is."""
        ...

    def on_slaves(self, parameters: Any, slaves: int) -> Any:
        """Return the parameters of a job on a cluster of so many slaves."""
        ...

    def vcpus_for(self, parameters: Any) -> int:
        """Return the least vCPUs of its machine."""
        ...


def few_vcpus(spec: WorkloadSpec, point: Mapping[str, Any], kind: Kind, vcpus: int) -> str:
    """Return why a machine has too few vCPUs for a workload with these parameters, or nothing."""
    needed = kind.vcpus_for(kind.parameters.model_validate(dict(point)))
    if needed <= vcpus:
        return ""
    said = " ".join(f"{name}={value}" for name, value in point.items())
    return f"{spec.workload} {said} needs {needed} vCPUs, not {vcpus}: write `vcpus: {needed}`"


def wrong_machines(scenario: Scenario, kind: Kind) -> str:
    """Return why a workload cannot run with a scenario's machines, or nothing."""
    on_cluster = kind.topology == "cluster"
    if on_cluster and scenario.cluster is None:
        return "is a job on a cluster: write `cluster: {slaves: 2}` for the scenario"
    if scenario.cluster is not None and not on_cluster:
        return "is no job on a cluster"
    for role in sorted(scenario.roles - kind.roles):
        return f"works with no machine `{role}`"
    return ""


def noting_ends(
    placement: Placement,
    scenario: Scenario,
    name: str,
    cells: Iterable[Cell],
    kinds: Mapping[str, Kind],
    cpus: HostCpus,
    shape: int,
) -> Placement:
    """Return the placement with a note where a machine leaves few CPUs to what asks or serves it.

    Args:
        placement: Where the scenario's machines run.
        scenario: The scenario.
        name: Its name.
        cells: What is measured in it.
        kinds: The workloads by name.
        cpus: The host's CPUs.
        shape: The vCPUs of the arm's shape.
    """
    notes = (
        *_spared(scenario, shape, len(cpus.online)),
        *_crowded(placement, scenario, name, cells, kinds, cpus),
    )
    return replace(placement, notes=(*placement.notes, *notes))


def _spared(scenario: Scenario, shape: int, count: int) -> tuple[str, ...]:
    """Say where the subject has fewer vCPUs than its shape, on a host of so many CPUs."""
    if scenario.subject.vcpus != SPARE or (has := spare_vcpus(shape, count)) == shape:
        return ()
    return (
        f"the subject has {has} of its shape's {shape} vCPUs, for the host has {count} CPUs, and "
        "the others are for what is outside it; the whole shape needs "
        f"{shape + SPARED_CPUS}",
    )


def _crowded(
    placement: Placement,
    scenario: Scenario,
    name: str,
    cells: Iterable[Cell],
    kinds: Mapping[str, Kind],
    cpus: HostCpus,
) -> tuple[str, ...]:
    """Say where the subject leaves no CPU at all to the ends of a workload."""
    if placement.carrier or not set(cpus.online) <= set(placement.subject):
        return ()
    ends = {
        cell.kind: kinds[cell.kind].roles - scenario.roles
        for cell in cells
        if kinds[cell.kind].topology != "cluster"
    }
    named = [f"{' and '.join(sorted(roles))} of {kind}" for kind, roles in ends.items() if roles]
    if not named:
        return ()
    own = f"scenarios.{name}.subject.vcpus" if scenario.subject.vcpus else "shape.vcpus"
    fewer = len(cpus.online) - 1
    instead = f": write `--set {own}={fewer}`" if fewer else ""
    return (f"{', '.join(named)} have no CPU but the subject's, and may be the limit{instead}",)
