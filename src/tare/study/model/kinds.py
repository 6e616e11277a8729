"""The properties of a workload that planning uses, and the machines that it cannot run on."""

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


class WorkloadKind(Protocol):
    """The properties of a workload that planning uses: parameters, roles and duration."""

    @property
    def parameters(self) -> type[Any]:
        """The model of its parameters."""
        ...

    @property
    def roles(self) -> frozenset[str]:
        """The roles of additional machines that it uses."""
        ...

    @property
    def topology(self) -> str:
        """The machines that it runs on; ``cluster`` for a job on a cluster."""
        ...

    @property
    def realtime(self) -> bool:
        """Whether its threads keep all other threads off their CPU."""
        ...

    def needs_for(self, parameters: Any) -> frozenset[str]:
        """Return the needs of its machine for these parameters."""
        ...

    def expected_s(self, parameters: Any) -> float:
        """Return the seconds one cell takes on undisturbed hardware."""
        ...

    def clocked_s(self, parameters: Any) -> float:
        """Return the part of these seconds that does not depend on the machine's speed."""
        ...

    def on_slaves(self, parameters: Any, slaves: int) -> Any:
        """Return a job's parameters for a cluster with this number of slaves."""
        ...

    def vcpus_for(self, parameters: Any) -> int:
        """Return the fewest vCPUs that its machine needs."""
        ...


def few_vcpus(spec: WorkloadSpec, point: Mapping[str, Any], kind: WorkloadKind, vcpus: int) -> str:
    """Return why a machine has too few vCPUs for a workload, or an empty string."""
    needed = kind.vcpus_for(kind.parameters.model_validate(dict(point)))
    if needed <= vcpus:
        return ""
    values = " ".join(f"{name}={value}" for name, value in point.items())
    return f"{spec.workload} {values} needs {needed} vCPUs, not {vcpus}: write `vcpus: {needed}`"


def wrong_machines(scenario: Scenario, kind: WorkloadKind) -> str:
    """Return why a workload cannot run with a scenario's machines, or an empty string."""
    on_cluster = kind.topology == "cluster"
    if on_cluster and scenario.cluster is None:
        return "is a job on a cluster: write `cluster: {slaves: 2}` for the scenario"
    if scenario.cluster is not None and not on_cluster:
        return "is not a job on a cluster"
    for role in sorted(scenario.roles - kind.roles):
        return f"does not use a machine `{role}`"
    return ""


def with_cpu_notes(
    placement: Placement,
    scenario: Scenario,
    name: str,
    cells: Iterable[Cell],
    kinds: Mapping[str, WorkloadKind],
    cpus: HostCpus,
    shape: int,
) -> Placement:
    """Add notes to a placement if the subject leaves too few CPUs to clients and servers.

    Args:
        placement: The CPUs of the scenario's machines.
        scenario: The scenario.
        name: Its name.
        cells: The cells of the scenario.
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
    """Return a note if the subject has fewer vCPUs than its shape on a host of this many CPUs."""
    if scenario.subject.vcpus != SPARE or (has := spare_vcpus(shape, count)) == shape:
        return ()
    return (
        f"the subject has {has} of its shape's {shape} vCPUs: the host has {count} CPUs, and the "
        f"others are for processes outside it; the whole shape needs {shape + SPARED_CPUS} CPUs",
    )


def _crowded(
    placement: Placement,
    scenario: Scenario,
    name: str,
    cells: Iterable[Cell],
    kinds: Mapping[str, WorkloadKind],
    cpus: HostCpus,
) -> tuple[str, ...]:
    """Return a note if the subject leaves no CPU to a workload's clients and servers."""
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
    return (
        f"{', '.join(named)} share all CPUs with the subject, and may be the bottleneck{instead}",
    )
