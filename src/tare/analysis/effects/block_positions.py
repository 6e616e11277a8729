"""The position of each arm in its block, from the order in which machines were started."""

from __future__ import annotations

from collections.abc import Iterable

from tare.analysis.data.grouping import BlockId
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.duets import is_duet

Places = dict[str, dict[BlockId, dict[str, float]]]
"""The position of each arm by scenario and block, from 0; a fraction for several arms together."""


def places_in_blocks(runs: Iterable[RunData]) -> Places:
    """Return the positions of all arms: 0 is the first boot of a block.

    The arms of a duet are booted at once: their position is the half of the CPUs that they had.

    Args:
        runs: The runs; a batch that was booted again keeps its first position.
    """
    found: Places = {}
    for run in runs:
        if is_duet(run):
            _halves(run, found)
            continue
        begun: dict[int, dict[tuple[str, str], int]] = {}
        for machine in run.machines:
            if machine.role == "subject":
                order = begun.setdefault(machine.block, {})
                place = order.setdefault((machine.arm, machine.scenario), len(order))
                of_block = found.setdefault(machine.scenario, {})
                of_block.setdefault((run.run, machine.block), {})[machine.arm] = float(place)
    return found


def _halves(run: RunData, found: Places) -> None:
    first: dict[tuple[str, int], dict[str, int]] = {}
    for machine in run.machines:
        cpus = machine.placement.get("cpus")
        if machine.role == "subject" and isinstance(cpus, list | tuple) and cpus:
            first.setdefault((machine.scenario, machine.block), {})[machine.arm] = min(cpus)
    for (scenario, block), arms in first.items():
        order = sorted(arms.values())
        of_block = found.setdefault(scenario, {}).setdefault((run.run, block), {})
        of_block.update({arm: float(order.index(cpu)) for arm, cpu in arms.items()})


def taken_together(places: Places, name: str, arms: tuple[str, ...]) -> None:
    """Add the mean position of ``arms`` as ``name``, in blocks that have any of them."""
    for blocks in places.values():
        for arms_there in blocks.values():
            known = [arms_there[arm] for arm in arms if arm in arms_there]
            if known:
                arms_there[name] = sum(known) / len(known)
