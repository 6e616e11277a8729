"""Two arms that run at the same time, on equal cores that they swap in each block.

A temporary disturbance of the computer then affects both arms at once, and cancels out of their
ratio (Bulej et al. 2020). The drawback: each is the other's neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.study.planning.cells import Batch, Cell, cell_label
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import chosen_cpus

if TYPE_CHECKING:
    from tare.study.model.kinds import WorkloadKind
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Arm
    from tare.study.reading.yamltext import Path

ARMS = 2
SHARED = frozenset({"disk", "network", "bridged"})
"""Resources that a host has only one of, so that two arms at once would affect each other."""

Left = tuple[str, str, str | None, str]
"""Work that will not run: arm, scenario, workload (None for all), and the reason."""


def duet_faults(
    arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield the reasons why a study cannot be measured as duets, each as a place and advice.

    Args:
        arms: Its arms by name; None for those that are invalid.
        scenarios: Its scenarios by name; None for those that are invalid. Empty if it names none.
    """
    yield from faults_of_two("duet", "a duet is", arms, scenarios)
    if not scenarios:
        yield ("blocks", "duet"), "a duet needs a scenario with `subject: {cpus: pinned}`: add one"
    for name, scenario in scenarios.items():
        at: Path = ("scenarios", name)
        if scenario is not None and scenario.subject.cpus != "pinned":
            yield at, "the arms of a duet need CPUs of their own: write `subject: {cpus: pinned}`"
        if scenario is not None and (scenario.neighbours or scenario.roles):
            yield at, "in a duet each arm is the other’s neighbour; remove other machines"


def faults_of_two(
    key: str, start: str, arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield the reasons why arms cannot run at the same time, each as a place and advice.

    Args:
        key: The key of ``blocks`` that requests it.
        start: The start of the messages, such as ``a duet is``.
        arms: Its arms by name; None for those that are invalid.
        scenarios: Its scenarios by name; None for those that are invalid.
    """
    here: Path = ("blocks", key)
    if len(arms) != ARMS:
        yield (
            here,
            f"{start} for the baseline and one other arm, but this study has {len(arms)}: remove "
            "arms, or select one with `--arm NAME`",
        )
    if len({arm.on for arm in arms.values() if arm}) > 1:
        yield here, f"{start} for arms on one host: remove `on`, or write the same for both"
    unseen = f"the host’s side is not recorded while two arms run: remove `host-trace` or `{key}`"
    for kind, parts in (("scenarios", scenarios), ("arms", arms)):
        for name, part in parts.items():
            if part and part.host_trace:
                yield (kind, name), unseen


def paired(
    batches: Sequence[Batch], cpus: HostCpus, kinds: Mapping[str, WorkloadKind]
) -> tuple[list[Batch], list[Left]]:
    """Place the two arms of each scenario on separate cores; leave out work without a partner.

    Args:
        batches: One of each arm and scenario, each placed on its own.
        cpus: The host's CPUs.
        kinds: The workloads by name.

    Returns:
        The batches that run, and the work that does not.
    """
    kept: list[Batch] = []
    left: list[Left] = []
    for scenario in dict.fromkeys(batch.scenario for batch in batches):
        two = [batch for batch in batches if batch.scenario == scenario]
        core_pairs, notes = _cores(two, cpus, kinds)
        if not core_pairs:
            left += [(batch.arm, scenario, None, notes) for batch in two]
            continue
        both, lone = keep_common_cells(two, "a duet measures only what both of its arms can run")
        left += lone
        for batch, own in zip(both, core_pairs, strict=False):
            placement = replace(batch.placement, subject=own, notes=(notes,))
            kept.append(replace(batch, placement=placement))
    return kept, left


def keep_common_cells(two: Sequence[Batch], why: str) -> tuple[list[Batch], list[Left]]:
    """Leave out the cells that only one of two batches measures.

    Args:
        two: The batches, of one scenario.
        why: The reason to give for cells that are left out.

    Returns:
        Both batches, or none if they have no cell in common; and the work that is left out.
    """
    both = set.intersection(*({cell_label(cell.id) for cell in batch.cells} for batch in two))
    left: list[Left] = []
    for batch in two:
        lone = [cell.workload for cell in batch.cells if cell_label(cell.id) not in both]
        left += [(batch.arm, batch.scenario, label, why) for label in dict.fromkeys(lone)]
    if not both:
        return [], left
    kept = [
        replace(batch, cells=tuple(cell for cell in batch.cells if cell_label(cell.id) in both))
        for batch in two
    ]
    return kept, left


def _cores(
    two: Sequence[Batch], cpus: HostCpus, kinds: Mapping[str, WorkloadKind]
) -> tuple[tuple[tuple[int, ...], ...], str]:
    """Return the CPUs of each batch with an explanation, or no CPUs with the reason."""
    if len(two) != ARMS:
        return (), f"a duet needs two arms, but only {two[0].arm} can run here"
    first, second = two
    if first.placement.unpinned or second.placement.unpinned:
        return (), "a duet binds both arms to CPUs, which the platform of one cannot do"
    if first.placement.carrier != second.placement.carrier:
        return (), "the arms run on different computers, so they cannot be a duet"
    if first.boot != second.boot:
        return (), "each arm needs a different boot of the host, so they cannot be a duet"
    if first.vcpus != second.vcpus:
        return (), (
            f"a duet needs machines of equal size, not {first.vcpus} and {second.vcpus} vCPUs"
        )
    used = sorted({cell.kind for cell in first.cells if needed_by(kinds[cell.kind], cell) & SHARED})
    if used:
        return (), (
            f"{', '.join(used)} would measure the other arm’s use of the host’s one disk or "
            "network; a duet is for CPUs and memory"
        )
    count = first.vcpus
    chosen = chosen_cpus(cpus, ARMS * count)
    cores = {cpus.core(cpu) for cpu in chosen}
    spare = any(kinds[cell.kind].realtime for cell in first.cells)
    if len(chosen) < ARMS * count or len(cores) < ARMS * count:
        each = "one" if count == 1 else f"{count}"
        have = len({cpus.core(cpu) for cpu in cpus.machines})
        return (), f"a duet needs {ARMS * count} cores, {each} for each arm; this host has {have}"
    if len({cpus.node(cpu) for cpu in chosen}) > 1:
        return (), f"a duet needs {ARMS * count} cores on one NUMA node, which this host lacks"
    if spare and len(cpus.online) == len(chosen):
        return (), "real-time threads of both arms would leave the host no CPU: it needs one more"
    halves = chosen[:count], chosen[count:]
    also = cpus.online[0] in chosen
    return halves, (
        f"a duet: both arms at the same time, on {_cpu_words(halves[0])} and "
        f"{_cpu_words(halves[1])}, which they swap in each block; each is the other’s neighbour"
        + (", and one of them shares its CPU with everything else that runs here" if also else "")
    )


def needed_by(kind: WorkloadKind, cell: Cell) -> frozenset[str]:
    """Return the needs of a cell's machine for the cell's parameters."""
    return kind.needs_for(kind.parameters.model_validate(dict(cell.parameters)))


def _cpu_words(cpus: Sequence[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {', '.join(map(str, cpus))}"


def exchanged(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return a block's batches with their CPUs assigned by their order.

    The order of two arms is balanced over blocks, so each has each half of the CPUs equally often.
    The arm's position, which may be a covariate, shows which half it had.

    Args:
        batches: The batches of one block, in order; the two of a scenario are adjacent.
    """
    found: list[Batch] = []
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        halves = sorted((first.placement.subject, second.placement.subject))
        for batch, half in zip((first, second), halves, strict=True):
            found.append(replace(batch, placement=replace(batch.placement, subject=half)))
    return tuple(found)


def align_order(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return a block's batches with both arms' cells in the order of the first of the two.

    Args:
        batches: The batches of one block, in order; the two of a scenario are adjacent.
    """
    found: list[Batch] = []
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        place = {cell_label(cell.id): number for number, cell in enumerate(first.cells)}
        cells = sorted(second.cells, key=lambda cell: place[cell_label(cell.id)])
        found += [first, replace(second, cells=tuple(cells))]
    return tuple(found)


def expected_s(batches: Sequence[Batch]) -> float:
    """Return the seconds that duets take: the longer of the two batches in each scenario."""
    longest: dict[str, float] = {}
    for batch in batches:
        longest[batch.scenario] = max(longest.get(batch.scenario, 0.0), batch.expected_s)
    return sum(longest.values())
