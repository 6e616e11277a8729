"""Two arms side by side, on equal cores that they exchange from block to block.

What disturbs a computer for a while then disturbs both arms at once, and cancels out of their ratio
(Bulej et al. 2020). Its price: each is the other's neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.study.planning.cells import Batch, Cell, cell_label
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import chosen_cpus

if TYPE_CHECKING:
    from tare.study.model.kinds import Kind
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Arm
    from tare.study.reading.yamltext import Path

ARMS = 2
SHARED = frozenset({"disk", "network", "bridged"})
"""What a host has one of, so that two at once measure each other."""

Left = tuple[str, str, str | None, str]
"""What will not run: arm, scenario, workload or None for all of them, and why."""


def duet_faults(
    arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield why a study cannot be measured as duets: where that stands, and what to do.

    Args:
        arms: Its arms by name; None for those that are wrong themselves.
        scenarios: The same of its scenarios; empty where it names none.
    """
    yield from faults_of_two("duet", "a duet is", arms, scenarios)
    if not scenarios:
        yield ("blocks", "duet"), "a duet needs a scenario with `subject: {cpus: pinned}`: name one"
    for name, scenario in scenarios.items():
        at: Path = ("scenarios", name)
        if scenario is not None and scenario.subject.cpus != "pinned":
            yield at, "the arms of a duet need CPUs of their own: write `subject: {cpus: pinned}`"
        if scenario is not None and (scenario.neighbours or scenario.roles):
            yield at, "in a duet each arm is the other’s neighbour; leave other machines out"


def faults_of_two(
    key: str, said: str, arms: Mapping[str, Arm | None], scenarios: Mapping[str, Scenario | None]
) -> Iterator[tuple[Path, str]]:
    """Yield why a study's arms cannot be up at once: where that stands, and what to do.

    Args:
        key: Of ``blocks``, which asks for it.
        said: Begins a sentence on what is asked for, such as ``a duet is``.
        arms: Its arms by name; None for those that are wrong themselves.
        scenarios: The same of its scenarios.
    """
    here: Path = ("blocks", key)
    if len(arms) != ARMS:
        yield (
            here,
            f"{said} of the baseline and one other arm, and this study has {len(arms)}: "
            "leave arms out, or take one with `--arm NAME`",
        )
    if len({arm.on for arm in arms.values() if arm}) > 1:
        yield here, f"{said} of arms on one host: write no `on`, or the same for both"
    unseen = (
        f"while two arms are up the host’s side is not recorded: leave `host-trace` out, or `{key}`"
    )
    for kind, parts in (("scenarios", scenarios), ("arms", arms)):
        for name, part in parts.items():
            if part and part.host_trace:
                yield (kind, name), unseen


def paired(
    batches: Sequence[Batch], cpus: HostCpus, kinds: Mapping[str, Kind]
) -> tuple[list[Batch], list[Left]]:
    """Place the two arms of each scenario side by side; what has no partner is left out.

    Args:
        batches: One of each arm and scenario, placed for itself.
        cpus: The host's CPUs.
        kinds: The workloads by name.

    Returns:
        The batches that run, and what does not.
    """
    kept: list[Batch] = []
    left: list[Left] = []
    for scenario in dict.fromkeys(batch.scenario for batch in batches):
        two = [batch for batch in batches if batch.scenario == scenario]
        beside, notes = _cores(two, cpus, kinds)
        if not beside:
            left += [(batch.arm, scenario, None, notes) for batch in two]
            continue
        both, lone = in_both(two, "a duet measures what both of its arms can run")
        left += lone
        for batch, own in zip(both, beside, strict=False):
            placement = replace(batch.placement, subject=own, notes=(notes,))
            kept.append(replace(batch, placement=placement))
    return kept, left


def in_both(two: Sequence[Batch], why: str) -> tuple[list[Batch], list[Left]]:
    """Leave out what only one of two batches measures.

    Args:
        two: The batches, of one scenario.
        why: What is told of what is left out.

    Returns:
        Both, or none where they have no cell in common; and what is left out.
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
    two: Sequence[Batch], cpus: HostCpus, kinds: Mapping[str, Kind]
) -> tuple[tuple[tuple[int, ...], ...], str]:
    """Return the CPUs of each and how they were chosen, or none and why there are none."""
    if len(two) != ARMS:
        return (), f"there is nothing to run beside {two[0].arm} here, and this is a duet"
    first, second = two
    if first.placement.unpinned or second.placement.unpinned:
        return (), "a duet binds both arms to CPUs, which the platform of one cannot do"
    if first.placement.carrier != second.placement.carrier:
        return (), "the arms run on different computers, so they cannot be a duet"
    if first.boot != second.boot:
        return (), "the host has to be booted otherwise for each arm, so they cannot be a duet"
    if first.vcpus != second.vcpus:
        return (), f"a duet needs machines of one size, not {first.vcpus} and {second.vcpus} vCPUs"
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
        return (), f"a duet needs {ARMS * count} cores on one NUMA node, which this host has not"
    if spare and len(cpus.online) == len(chosen):
        return (), "real-time threads of both arms would leave the host no CPU: it needs one more"
    halves = chosen[:count], chosen[count:]
    also = cpus.online[0] in chosen
    return halves, (
        f"a duet: both arms at once, on {_cpu_words(halves[0])} and {_cpu_words(halves[1])}, which "
        "they exchange from block to block; each is the other’s neighbour"
        + (", and one of them shares with all else that runs here" if also else "")
    )


def needed_by(kind: Kind, cell: Cell) -> frozenset[str]:
    """Return what a cell needs of its machine, by its parameters."""
    return kind.needs_for(kind.parameters.model_validate(dict(cell.parameters)))


def _cpu_words(cpus: Sequence[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {', '.join(map(str, cpus))}"


def exchanged(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return a block's batches with CPUs by their order.

    The order of two arms is balanced over blocks, so each has each half of the CPUs equally often;
    and the arm's place, which may be a covariate, is which half it had.

    Args:
        batches: Those of one block, in order, the two of a scenario after each other.
    """
    found: list[Batch] = []
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        halves = sorted((first.placement.subject, second.placement.subject))
        for batch, half in zip((first, second), halves, strict=True):
            found.append(replace(batch, placement=replace(batch.placement, subject=half)))
    return tuple(found)


def in_one_order(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return a block's batches with both arms' cells in the order of the first of the two.

    Args:
        batches: Those of one block, in order, the two of a scenario after each other.
    """
    found: list[Batch] = []
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        place = {cell_label(cell.id): number for number, cell in enumerate(first.cells)}
        cells = sorted(second.cells, key=lambda cell: place[cell_label(cell.id)])
        found += [first, replace(second, cells=tuple(cells))]
    return tuple(found)


def expected_s(batches: Sequence[Batch]) -> float:
    """Return how many seconds duets take: of each scenario the longer of its two batches."""
    longest: dict[str, float] = {}
    for batch in batches:
        longest[batch.scenario] = max(longest.get(batch.scenario, 0.0), batch.expected_s)
    return sum(longest.values())
