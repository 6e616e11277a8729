"""The memory of planned machines: too little for a platform, or page cache beyond their shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tare.study.model.notes import BEYOND_MEMORY
from tare.units import format_size

if TYPE_CHECKING:
    from tare.study.model.kinds import WorkloadKind
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Study
    from tare.study.planning.cells import Batch


def little_memory(scenario: Scenario, least: int) -> str:
    """Return why another machine has too little memory for a platform, or an empty string.

    Args:
        scenario: The scenario, which may set the memory of its machines.
        least: The least memory of the platform's machines, in bytes.
    """
    own = [each.memory for each in scenario.neighbours]
    own += [each.memory for each in scenario.machines.values()]
    own += [scenario.cluster.memory] if scenario.cluster else []
    given = [memory for memory in own if memory is not None]
    if not given or min(given) >= least:
        return ""
    return (
        f"has other machines with {format_size(min(given))} of memory; this platform needs at "
        f"least {format_size(least)}"
    )


def held_at_once(study: Study, arm: str) -> tuple[int, ...]:
    """Return the memory of each machine in the scenario with the most memory in total.

    Neighbours that fill a host count as one, because their number depends on their placement.

    Args:
        study: The study with the scenarios and shapes.
        arm: The arm of the machines.
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
    study: Study,
    batches: Iterable[Batch],
    why: Mapping[str, str],
    kinds: Mapping[str, WorkloadKind],
) -> tuple[str, ...]:
    """Return notes on arms that may cache more of their files than their shape's memory holds.

    Args:
        study: The study with the shapes.
        batches: The batches that run.
        why: For each arm whose memory is not limited, the reason.
        kinds: The workloads by name.

    Returns:
        One sentence for each reason, with all of its arms.
    """
    found: dict[tuple[str, int], dict[str, None]] = {}
    for batch in batches:
        reason = why.get(batch.arm, "")
        # The memory of a cluster's machines is limited, or they fail.
        if reason and batch.placement.cluster is None and _uses_disk(batch, kinds):
            memory = batch.placement.subject_memory or study.shape_of(batch.arm).memory
            found.setdefault((reason, memory), {})[batch.arm] = None
    return tuple(
        f"{BEYOND_MEMORY} to {format_size(memory)} on {', '.join(arms)} ({reason}), so reads "
        "through the page cache may use more memory than a guest has"
        for (reason, memory), arms in found.items()
    )


def _uses_disk(batch: Batch, kinds: Mapping[str, WorkloadKind]) -> bool:
    """Return whether a workload or a neighbour's load of a batch uses a machine's own disk."""
    carried = [(cell.kind, cell.parameters) for cell in batch.cells]
    carried += [(each.load, each.parameters) for each in batch.placement.neighbours]
    return any(
        "disk" in kinds[name].needs_for(kinds[name].parameters.model_validate(dict(given)))
        for name, given in carried
        if name in kinds
    )
