"""Where a plan meets memory: machines that have too little of it, and those that have too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tare.study.model.notes import BEYOND_MEMORY
from tare.units import format_size

if TYPE_CHECKING:
    from tare.study.model.kinds import Kind
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Study
    from tare.study.planning.cells import Batch


def little_memory(scenario: Scenario, least: int) -> str:
    """Return why another machine has too little memory for a platform, or nothing.

    Args:
        scenario: Says how much its machines have, where it is not the shape's.
        least: With how many bytes the platform's machines start.
    """
    own = [each.memory for each in scenario.neighbours]
    own += [each.memory for each in scenario.machines.values()]
    own += [scenario.cluster.memory] if scenario.cluster else []
    given = [memory for memory in own if memory is not None]
    if not given or min(given) >= least:
        return ""
    return (
        f"wants other machines with {format_size(min(given))} of memory; "
        f"this platform needs at least {format_size(least)}"
    )


def held_at_once(study: Study, arm: str) -> tuple[int, ...]:
    """Return the memory of each machine in the scenario whose machines have most of it.

    Neighbours that fill a host count as one: how many there are depends on where they are placed.

    Args:
        study: Has the scenarios and shapes.
        arm: Whose machines they are.
    """
    own = study.shape_of(arm).memory

    def of(scenario: Scenario) -> tuple[int, ...]:
        found = [own]
        for each in scenario.neighbours:
            found += [each.memory or own] * (1 if each.count == "fill" else each.count)
        found += [each.memory or own for each in scenario.machines.values() if each.on is None]
        if (cluster := scenario.cluster) is not None and cluster.external is None:
            others = cluster.slaves - (cluster.master == "with-first")
            found += [cluster.memory or own] * others
        return tuple(found)

    return max((of(each) for each in study.scenarios.values()), key=sum, default=(own,))


def cached_beyond(
    study: Study, batches: Iterable[Batch], why: Mapping[str, str], kinds: Mapping[str, Kind]
) -> tuple[str, ...]:
    """Return which arms cache more of their disks' files than their shape's memory holds.

    Args:
        study: Has the shapes.
        batches: What runs.
        why: Of each arm that is not kept to its memory, the reason.
        kinds: The workloads by name.

    Returns:
        One sentence for all arms that have one reason.
    """
    found: dict[tuple[str, int], dict[str, None]] = {}
    for batch in batches:
        reason = why.get(batch.arm, "")
        # The machines of a cluster are kept to their memory, or fail.
        if reason and batch.placement.cluster is None and _on_disk(batch, kinds):
            memory = batch.placement.subject_memory or study.shape_of(batch.arm).memory
            found.setdefault((reason, memory), {})[batch.arm] = None
    return tuple(
        f"{BEYOND_MEMORY} to {format_size(memory)} on {', '.join(arms)} ({reason}), so that what "
        "does not go past the page cache may be answered from more memory than a guest has"
        for (reason, memory), arms in found.items()
    )


def _on_disk(batch: Batch, kinds: Mapping[str, Kind]) -> bool:
    """Whether a workload or a neighbour's load of a batch uses a disk of the machine's own."""
    carried = [(cell.kind, cell.parameters) for cell in batch.cells]
    carried += [(each.load, each.parameters) for each in batch.placement.neighbours]
    return any(
        "disk" in kinds[name].needs_for(kinds[name].parameters.model_validate(dict(given)))
        for name, given in carried
        if name in kinds
    )
