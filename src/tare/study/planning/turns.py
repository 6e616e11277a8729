"""Two arms whose machines run at the same time, on the same CPUs, and work in turns.

A disturbance of the computer that lasts longer than a turn affects both arms, and cancels out of
their ratio, as in a duet; but neither works at the same time as the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.study.planning.duets import (
    ARMS,
    Left,
    duet_faults,
    faults_of_two,
    keep_common_cells,
    needed_by,
)

if TYPE_CHECKING:
    from tare.study.model.kinds import WorkloadKind
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Arm
    from tare.study.planning.blocks import Blocks
    from tare.study.planning.cells import Batch
    from tare.study.reading.yamltext import Path

WHY = "with turns, only what both arms can run is measured"
SERVED = (
    "both arms use this host’s own addresses, and two servers cannot share one port: remove `turns`"
)
NOTE = "in turns: both arms run on the same CPUs, and one of them works at a time"


def faults_at_once(
    blocks: Blocks, arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield the reasons why two arms cannot run at the same time, if a study requests that.

    Args:
        blocks: The study's settings for blocks.
        arms: Its arms by name; None for those that are invalid.
        scenarios: Its scenarios by name; None for those that are invalid. Empty if it names none.
    """
    if blocks.duet:
        yield from duet_faults(arms, scenarios)
    if blocks.turns:
        yield from turn_faults(arms, scenarios)


def turn_faults(
    arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield the reasons why a study cannot be measured in turns, each as a place and advice.

    Args:
        arms: Its arms by name; None for those that are invalid.
        scenarios: Its scenarios by name; None for those that are invalid. Empty if it names none.
    """
    yield from faults_of_two("turns", "turns are", arms, scenarios)
    for name, scenario in scenarios.items():
        if scenario is not None and (scenario.neighbours or scenario.roles):
            yield (
                ("scenarios", name),
                "the other machines of both arms would run at the same time: remove them, or "
                "`turns`",
            )


def pair_into_turns(
    batches: Sequence[Batch], kinds: Mapping[str, WorkloadKind], ported: Set[str]
) -> tuple[list[Batch], list[Left]]:
    """Return the batches of arms that work in turns, without the work that has no partner.

    Args:
        batches: One of each arm and scenario, each placed on its own.
        kinds: The workloads by name.
        ported: The arms whose machines use the host's own addresses, and so its ports.

    Returns:
        The batches that run, and the work that does not.
    """
    kept: list[Batch] = []
    left: list[Left] = []
    for scenario in dict.fromkeys(batch.scenario for batch in batches):
        two = [batch for batch in batches if batch.scenario == scenario]
        if why := _conflict(two):
            left += [(batch.arm, scenario, None, why) for batch in two]
            continue
        both, lone = keep_common_cells(two, WHY)
        left += lone
        if all(batch.arm in ported for batch in both):
            both, served = _without_servers(both, kinds)
            left += served
        for batch in both:
            notes = (*batch.placement.notes, NOTE)
            kept.append(replace(batch, placement=replace(batch.placement, notes=notes)))
    return kept, left


def _without_servers(
    two: Sequence[Batch], kinds: Mapping[str, WorkloadKind]
) -> tuple[list[Batch], list[Left]]:
    """Leave out network servers, because the machines of both arms have the same ports."""
    kept: list[Batch] = []
    left: list[Left] = []
    for batch in two:
        apart = [cell for cell in batch.cells if "network" not in needed_by(kinds[cell.kind], cell)]
        serving = dict.fromkeys(cell.workload for cell in batch.cells if cell not in apart)
        left += [(batch.arm, batch.scenario, workload, SERVED) for workload in serving]
        if apart:
            kept.append(replace(batch, cells=tuple(apart)))
    return kept, left


def _conflict(two: Sequence[Batch]) -> str:
    """Return why two arms cannot run at the same time, or an empty string."""
    if len(two) != ARMS:
        return f"turns need two arms, but only {two[0].arm} can run here"
    first, second = two
    if first.boot != second.boot:
        return "each arm needs a different boot of the host, so they cannot take turns"
    return ""
