"""Plan a study for one host: blocks of visits of cells, in an order drawn from a seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import BaseModel

from tare.errors import InputError
from tare.scenarios.placement import HostCpus, Placement, Unplaceable, place
from tare.study.knobs import lacking_knobs, starved_host
from tare.study.model import Scenario, Study, WorkloadSpec
from tare.study.quantities import format_size


@dataclass(frozen=True)
class ArmFacts:
    """What was found out about one arm on this host.

    Args:
        usable: Whether its machines can be started.
        reason: Why not.
        max_vcpus: The most vCPUs a machine may have.
        min_memory: The least memory of a machine, in bytes.
        pinning: Whether vCPUs can be bound to CPUs.
        devices: Device models on offer; empty where there is no choice.
        neighbours: Whether machines can run beside the subject.
        emulated: Whether results show behaviour only.
        boot_s: Seconds a machine takes to start and stop, for the estimate.
        slowdown: How many times longer than natively a cell takes, for the estimate.
        lacks: Workload name to the reason why it cannot run on this arm.
        loads_lack: Scenario to the reason why its neighbours' loads cannot run on this arm.
        knobs: The scheduler knobs that machines have here.
        missing_knobs: Knob to the reason why machines lack it.
        boot: What the host must be booted with; visits of one boot come one after another.
    """

    usable: bool
    reason: str = ""
    max_vcpus: int = 1
    min_memory: int = 0
    pinning: bool = False
    devices: frozenset[str] = frozenset()
    neighbours: bool = True
    emulated: bool = False
    boot_s: float = 0.0
    slowdown: float = 1.0
    lacks: Mapping[str, str] = field(default_factory=dict)
    loads_lack: Mapping[str, str] = field(default_factory=dict)
    knobs: frozenset[str] = frozenset()
    missing_knobs: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""


class Kind(Protocol):
    """What planning needs of a workload: its parameters and the time it takes."""

    @property
    def parameters(self) -> type[Any]:
        """The model of its parameters."""
        ...

    def expected_s(self, parameters: Any) -> float:
        """Return the seconds one cell takes on undisturbed hardware."""
        ...


@dataclass(frozen=True)
class Cell:
    """One arm × scenario × workload × parameters within a block.

    Args:
        id: Its identity within the run.
        block: Number of the block, from 1.
        arm: Name of the arm.
        scenario: Name of the scenario.
        workload: The study's label for the workload.
        kind: The workload's name.
        parameters: Those that the study sets, as plain values.
        repeat: From 1.
        deadline_s: The study's own limit, in seconds; None to derive one.
        expected_s: Estimated seconds of measuring.
    """

    id: str
    block: int
    arm: str
    scenario: str
    workload: str
    kind: str
    parameters: Mapping[str, Any]
    repeat: int = 1
    deadline_s: float | None = None
    expected_s: float = 0.0


@dataclass(frozen=True)
class Visit:
    """One fresh boot of an arm for one scenario, and the cells measured in it, in order.

    ``vcpus`` are the subject's.
    """

    block: int
    arm: str
    scenario: str
    cells: tuple[Cell, ...]
    placement: Placement
    boot_s: float = 0.0
    host_trace: bool = False
    boot: str = ""
    vcpus: int = 1

    @property
    def expected_s(self) -> float:
        """Estimated seconds of booting and measuring."""
        return self.boot_s + sum(cell.expected_s for cell in self.cells)


@dataclass(frozen=True)
class Skip:
    """An arm, or one scenario or workload of it, that will not run, with the reason."""

    arm: str
    scenario: str | None
    workload: str | None
    reason: str


@dataclass(frozen=True)
class Plan:
    """What will run, block by block.

    Args:
        study: What was planned.
        seed: Determines the order of everything.
        visits: The visits of every block in the study's order, as of block 1.
        skipped: What will not run, and why.
        host_boot_s: Estimated seconds to boot the host, for each boot of a block.
    """

    study: Study
    seed: int
    visits: tuple[Visit, ...]
    skipped: tuple[Skip, ...]
    host_boot_s: float = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that run, in the study's order."""
        return tuple(dict.fromkeys(visit.arm for visit in self.visits))

    @property
    def notes(self) -> tuple[str, ...]:
        """How scenarios were adapted to this host, one sentence each."""
        return tuple(
            dict.fromkeys(
                f"{visit.scenario}: {note}"
                for visit in self.visits
                for note in visit.placement.notes
            )
        )

    @property
    def block_s(self) -> float:
        """Estimated seconds of one block."""
        return self.host_boot_s * len(self.boots) + sum(visit.expected_s for visit in self.visits)

    @property
    def boots(self) -> tuple[str, ...]:
        """What the host is booted with in each block, in the study's order."""
        return tuple(dict.fromkeys(visit.boot for visit in self.visits))

    @property
    def least_s(self) -> float:
        """Estimated seconds until the study may stop."""
        return self.block_s * self.study.blocks.least

    @property
    def most_s(self) -> float:
        """Estimated seconds if all blocks run; the budget limits it once ``least`` are done."""
        whole = self.block_s * self.study.blocks.most
        budget = self.study.blocks.budget
        return whole if budget is None else min(whole, max(self.least_s, budget + self.block_s))

    def block(self, number: int) -> tuple[Visit, ...]:
        """Return the visits of a block in random order, each with its cells in random order.

        The order depends on the seed and ``number`` only, not on the process or on what ran
        before, so that a resumed run goes on in the same order. Visits that need the host booted
        alike come one after another, and the order of these boots is random too.

        Args:
            number: From 1.
        """
        # A string seeds Random through SHA-512, which no process-wide hash seed touches.
        order = random.Random(f"{self.seed}/{number}")
        visits = list(self.visits)
        order.shuffle(visits)
        if len(self.boots) > 1:
            boots = list(self.boots)
            order.shuffle(boots)
            visits.sort(key=lambda visit: boots.index(visit.boot))
        return tuple(_in_block(visit, number, order) for visit in visits)


def make_plan(
    study: Study,
    seed: int,
    facts: Mapping[str, ArmFacts],
    cpus: HostCpus,
    kinds: Mapping[str, Kind],
    host_boot_s: float = 0.0,
) -> Plan:
    """Plan a study for one host; what cannot run is skipped with its reason.

    Args:
        study: What to measure.
        seed: Determines the order of everything.
        facts: What was found out about each arm.
        cpus: The host's CPUs.
        kinds: The workloads by name.
        host_boot_s: Seconds the host takes to be booted otherwise, for the estimate.

    Raises:
        InputError: The baseline cannot run here at all, so nothing could be compared.
    """
    visits: list[Visit] = []
    skipped: list[Skip] = []
    for arm in study.arms:
        if reason := _arm_lacks(study, arm, facts[arm], len(cpus.online)):
            skipped.append(Skip(arm, None, None, reason))
            continue
        skipped += [
            Skip(arm, None, label, facts[arm].lacks[spec.workload])
            for label, spec in study.workloads.items()
            if spec.workload in facts[arm].lacks
        ]
        for scenario in study.scenarios:
            planned = _visit(study, arm, scenario, facts[arm], cpus, kinds)
            if isinstance(planned, Skip):
                skipped.append(planned)
            elif planned.cells:
                visits.append(planned)
    if not any(visit.arm == study.baseline for visit in visits):
        reasons = "; ".join(skip.reason for skip in skipped if skip.arm == study.baseline)
        raise InputError(
            f"the baseline {study.baseline!r} cannot run here: {reasons or 'it has no cells'}",
            "change what it needs, or choose another arm as `baseline`",
        )
    return Plan(study, seed, tuple(visits), tuple(skipped), host_boot_s)


def _arm_lacks(study: Study, arm: str, facts: ArmFacts, host_cpus: int) -> str:
    """Return why an arm cannot run here at all, or nothing."""
    if not facts.usable:
        return facts.reason or "it cannot be used here"
    vcpus = min(study.vcpus_of(arm, name, host_cpus) for name in study.scenarios)
    if vcpus > facts.max_vcpus:
        return _too_many(vcpus, facts)
    shape = study.shape_of(arm)
    if shape.memory < facts.min_memory:
        return (
            f"wants {format_size(shape.memory)} of memory; "
            f"this platform needs at least {format_size(facts.min_memory)}"
        )
    devices = getattr(study.arms[arm].options, "devices", None)
    if facts.devices and isinstance(devices, str) and devices not in facts.devices:
        return f"wants {devices} devices; this platform offers {', '.join(sorted(facts.devices))}"
    return lacking_knobs(study.arms[arm].options, facts.knobs, facts.missing_knobs)


def _too_many(vcpus: int, facts: ArmFacts) -> str:
    return f"wants {vcpus} vCPUs; this platform allows at most {facts.max_vcpus} here"


def _visit(
    study: Study,
    arm: str,
    name: str,
    facts: ArmFacts,
    cpus: HostCpus,
    kinds: Mapping[str, Kind],
) -> Visit | Skip:
    scenario = study.scenarios[name]
    if scenario.neighbours and not facts.neighbours:
        return Skip(arm, name, None, "needs neighbours, which this platform cannot run")
    if reason := facts.loads_lack.get(name) or _little_memory(scenario, facts):
        return Skip(arm, name, None, reason)
    vcpus = study.vcpus_of(arm, name, len(cpus.online))
    if vcpus > facts.max_vcpus:
        return Skip(arm, name, None, _too_many(vcpus, facts))
    try:
        placement = place(scenario, cpus, vcpus, facts.pinning)
    except Unplaceable as lacking:
        return Skip(arm, name, None, str(lacking))
    options, others = study.arms[arm].options, study.shape_of(arm).vcpus
    if reason := starved_host(options, placement, vcpus, cpus, others):
        return Skip(arm, name, None, reason)
    cells = tuple(
        cell
        for label, spec in study.workloads.items()
        if spec.workload not in facts.lacks and (spec.scenarios is None or name in spec.scenarios)
        for cell in _cells(arm, name, label, spec, facts, kinds[spec.workload])
    )
    boots = 1 + len(placement.neighbours)
    return Visit(
        1,
        arm,
        name,
        cells,
        placement,
        facts.boot_s * boots,
        study.records_host(arm, name),
        facts.boot,
        vcpus,
    )


def _little_memory(scenario: Scenario, facts: ArmFacts) -> str:
    """Return why a neighbour has too little memory for this platform, or nothing."""
    given = [each.memory for each in scenario.neighbours if each.memory is not None]
    if not given or min(given) >= facts.min_memory:
        return ""
    return (
        f"wants neighbours with {format_size(min(given))} of memory; "
        f"this platform needs at least {format_size(facts.min_memory)}"
    )


def _cells(
    arm: str, scenario: str, label: str, spec: WorkloadSpec, facts: ArmFacts, kind: Kind
) -> Iterator[Cell]:
    for point in spec.points:
        parameters: BaseModel = kind.parameters.model_validate(point)
        expected_s = kind.expected_s(parameters) * facts.slowdown
        for repeat in range(1, spec.repeats + 1):
            yield Cell(
                id=cell_id(1, arm, scenario, label, point, repeat),
                block=1,
                arm=arm,
                scenario=scenario,
                workload=label,
                kind=spec.workload,
                parameters=point,
                repeat=repeat,
                deadline_s=spec.deadline,
                expected_s=expected_s,
            )


def _in_block(visit: Visit, number: int, order: random.Random) -> Visit:
    cells = [
        replace(
            cell,
            block=number,
            id=cell_id(
                number, cell.arm, cell.scenario, cell.workload, cell.parameters, cell.repeat
            ),
        )
        for cell in visit.cells
    ]
    order.shuffle(cells)
    return replace(visit, block=number, cells=tuple(cells))


def cell_id(
    block: int,
    arm: str,
    scenario: str,
    workload: str,
    parameters: Mapping[str, Any],
    repeat: int = 1,
) -> str:
    """Return a cell's identity, such as ``b003/qemu-pv/pinned/tick[samples=20000]#2``.

    Args:
        block: Number of the block, from 1.
        arm: Name of the arm.
        scenario: Name of the scenario.
        workload: The study's label for the workload.
        parameters: Those that the study sets, as plain values; they are put in order of name.
        repeat: From 1; the first bears no number.
    """
    inside = ",".join(f"{key}={_plain(parameters[key])}" for key in sorted(parameters))
    point = f"[{inside}]" if inside else ""
    number = f"#{repeat}" if repeat > 1 else ""
    return f"b{block:03d}/{arm}/{scenario}/{workload}{point}{number}"


def cell_label(cell: str) -> str:
    """Return what of a cell's identity names the work: ``tick[samples=20000]``."""
    return cell.split("/", 3)[-1]


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    # Words that JSON reads otherwise keep their quotes, so that no two values look alike.
    if isinstance(value, str) and _BARE.fullmatch(value) and value not in _JSON_WORDS:
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_JSON_WORDS = ("true", "false", "null", "NaN", "Infinity")
