"""Plan a study for one host: blocks of batches of cells, in an order drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from tare.errors import InputError
from tare.study.model.kinds import WorkloadKind, few_vcpus, with_cpu_notes, wrong_machines
from tare.study.model.knobs import lacking_knobs, starved_host
from tare.study.model.notes import (
    live_toolbox_notes,
    one_kernel_note,
    other_shape_note,
    unpinned_note,
)
from tare.study.model.releases import Release
from tare.study.model.scenario import Scenario
from tare.study.model.study import Study, WorkloadSpec
from tare.study.planning.arm_order import sort_batches
from tare.study.planning.cells import Batch, Cell, cell_id
from tare.study.planning.cpu_choice import described
from tare.study.planning.duets import align_order, exchanged, expected_s, paired
from tare.study.planning.guest_kernels import REALTIME, GuestKernels, KernelChoice, choose_kernel
from tare.study.planning.host_cpus import Carrier, HostCpus
from tare.study.planning.memory_held import cached_beyond, little_memory
from tare.study.planning.placement import Unplaceable, place, with_ends
from tare.study.planning.release_arms import release_notes, unfit_release
from tare.study.planning.turns import pair_into_turns
from tare.units import format_size

CLUSTER_S = 20.0
"""Seconds that a cluster takes to start on machines that are ready, and to stop."""

PLAIN_KERNEL = "generic"
LIVE_KERNELS = frozenset({PLAIN_KERNEL, REALTIME})
"""The kernels that an arm may name for the live image that its machines boot."""


@dataclass(frozen=True)
class ArmFacts:
    """The facts on one arm on its host, from checks or assumptions.

    Args:
        usable: Whether its machines can be started.
        reason: The reason if not.
        max_vcpus: The most vCPUs a machine may have.
        min_memory: The least memory of a machine, in bytes.
        pinning: Whether vCPUs can be bound to CPUs.
        devices: The offered device models; empty if there is no choice.
        neighbours: Whether machines can run next to the subject.
        emulated: Whether the machines are emulated, so that results show behaviour only.
        boot_s: Seconds a machine takes to start and stop, for the estimate.
        slowdown: The factor by which work takes longer than natively, for the estimate.
        lacks: By workload of the study, the reason why it cannot run on this arm.
        loads_lack: By scenario, the reason why its neighbours' loads cannot run on this arm.
        own_ends: By workload of the study, the roles of its other ends that are machines of the
            arm, because no process reaches its network. Runs of older versions lack them.
        loads_ends: By scenario, the roles of the other ends of its neighbours' loads that are
            machines of the arm.
        knobs: The scheduler knobs that machines have here.
        missing_knobs: By knob, the reason why machines lack it.
        boot: The required boot of the host; batches of one boot run one after another.
        boots_image: Whether its machines boot the kernel that an arm may name.
        plain_kernel: Whether the study wants a real-time kernel here, but its machines do not run
            reliably on it, or boot a live image without it.
        no_own_cache: The reason why its machines cache files beyond their shape's memory; empty:
            they do not.
        host_addresses: Whether its machines are on the host's own network, with its ports.
        kernels: The kernels that its machines can boot if the study names none.
        general_kernel: Whether they always boot the distribution's general kernel in that case.
        boots_live: Whether its machines boot a live image, which may have been made with another
            kernel.
        live_toolbox: The toolbox that this live image needs for the study; empty: none, or unknown.
        carrier: The computer that runs its machines, if its hypervisor reports one; None: the arm's
            host.
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
    own_ends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loads_ends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    knobs: frozenset[str] = frozenset()
    missing_knobs: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    boots_image: bool = True
    plain_kernel: bool = False
    no_own_cache: str = ""
    host_addresses: bool = False
    kernels: GuestKernels = field(default_factory=GuestKernels)
    general_kernel: bool = False
    boots_live: bool = False
    live_toolbox: str = ""
    carrier: Carrier | None = None

    def cpus_of(self, host: HostCpus) -> HostCpus:
        """Return the CPUs that its machines run on.

        Args:
            host: The CPUs of the arm's host.
        """
        return host if self.carrier is None else self.carrier.cpus


@dataclass(frozen=True)
class Skip:
    """An arm, or one scenario or workload of it, that will not run, with the reason.

    ``hint`` is a change of the study that would help; it may be empty.
    """

    arm: str
    scenario: str | None
    workload: str | None
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class HostFacts:
    """The facts on one host, from checks or assumptions.

    Args:
        cpus: Its CPUs.
        boot_s: Seconds that a reboot of it takes, for the estimate.
    """

    cpus: HostCpus
    boot_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The batches that will run in each block, and the skipped parts of the study.

    Args:
        study: The planned study.
        seed: Determines the order of everything.
        batches: The batches of block 1 in the study's order; every block has the same.
        skipped: The parts of the study that will not run, with the reasons.
        hosts: The facts on each host, by name.
        plain: The arms that run, but not (reliably) on the real-time kernel that the study wants.
        live: Those of ``plain`` that boot the live image.
        beyond: Notes on arms that cache more of files than their memory holds, one sentence each.
        chosen: The kernel of machines for which the study names none.
        carriers: By arm, the computer that runs its machines, as far as its hypervisor reports it.
        live_toolboxes: The toolbox that the live image of an arm's machines needs, by arm.
        noise_s: Estimated seconds for measuring the noise of all hosts before block 1; 0 if no
            workload is real-time.
    """

    study: Study
    seed: int
    batches: tuple[Batch, ...]
    skipped: tuple[Skip, ...]
    hosts: Mapping[str, HostFacts]
    plain: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    chosen: KernelChoice = field(default_factory=KernelChoice)
    carriers: Mapping[str, Carrier] = field(default_factory=dict)
    live_toolboxes: Mapping[str, str] = field(default_factory=dict)
    noise_s: float = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that run, in the study's order."""
        return tuple(dict.fromkeys(batch.arm for batch in self.batches))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on renamed keys, confounded effects and adapted scenarios, a sentence each."""
        adapted = [
            f"{batch.scenario}{f' on {batch.host}' if batch.host else ''}: {note}"
            for batch in self.batches
            for note in batch.placement.notes
        ]
        free: dict[str, list[str]] = {}
        for batch in self.batches:
            if batch.placement.unpinned:
                free.setdefault(batch.scenario, []).append(batch.arm)
        adapted += [unpinned_note(scenario, arms) for scenario, arms in free.items()]
        releases = release_notes(self.study, self.arms)
        apart = self._apart if self.study.sessions is None else ()
        kernel = (self.chosen.note,) if self.chosen.note else ()
        first = (*self.study.notices, *self._other_shapes, *apart, *self._one_kernel, *kernel)
        toolbox = live_toolbox_notes(self.live_toolboxes)
        rest = (*releases, *self.beyond, *self._cpus, *toolbox, *adapted)
        return tuple(dict.fromkeys((*first, *rest)))

    def kernel_of(self, arm: str) -> str | None:
        """Return the kernel that an arm boots: one for all that are compared; None: the default."""
        plain = PLAIN_KERNEL if self.plain and self.chosen.name is None else None
        return self.study.kernel_of(arm) or plain or self.chosen.name

    def release_of(self, arm: str) -> Release | None:
        """Return an arm's release: its own, or its lab's."""
        return self.study.release_of(arm)

    @property
    def _one_kernel(self) -> tuple[str, ...]:
        fragile = [arm for arm in self.plain if arm not in self.live]
        return (one_kernel_note(fragile, self.live),) if self.plain else ()

    @property
    def _cpus(self) -> tuple[str, ...]:
        """Notes on the CPUs for machines on each host, one sentence each; none if they get all."""
        own = [batch.host for batch in self.batches if batch.arm not in self.carriers]
        carried: list[tuple[Carrier, list[str]]] = []
        for arm in self.arms:
            if (carrier := self.carriers.get(arm)) is None:
                continue
            arms = next((arms for each, arms in carried if each == carrier), None)
            if arms is None:
                carried.append((carrier, [arm]))
            else:
                arms.append(arm)
        return (
            *(
                f"CPUs of {name or 'the host'}: {sentence}"
                for name in dict.fromkeys(own)
                for sentence in described(self.hosts[name].cpus)
            ),
            *(
                f"CPUs of {carrier.name}, which runs {', '.join(arms)}: {sentence}"
                for carrier, arms in carried
                for sentence in (carrier.words, *described(carrier.cpus))
            ),
        )

    @property
    def _apart(self) -> tuple[str, ...]:
        """Notes on comparisons across two hosts, one sentence for each host without a baseline."""
        study, run = self.study, self.arms
        home, own = study.host_of(study.baseline), study.own_baselines
        alone: dict[str, list[str]] = {}
        for arm in run:
            if (host := study.host_of(arm)) != home and own.get(arm) not in run:
                alone.setdefault(host, []).append(arm)
        return tuple(
            f"{', '.join(arms)} on {host}: arm and host cannot be separated, because the baseline "
            f"cannot run there; the ratios are to {study.baseline} on {home}"
            for host, arms in alone.items()
        )

    @property
    def _other_shapes(self) -> tuple[str, ...]:
        """Notes on arms that are compared with a baseline of another shape for lack of one."""
        study, run = self.study, self.arms
        found = []
        for arm in run:
            own = study.own_baselines.get(arm, study.baseline)
            base = own if own in run else study.baseline
            if base in study.arms and study.shape_of(arm) != study.shape_of(base):
                shapes = {name: study.shape_of(name).model_dump() for name in (arm, base)}
                found.append(other_shape_note(arm, shapes[arm], base, shapes[base]))
        return tuple(found)

    @property
    def block_s(self) -> float:
        """Estimated seconds of one block."""
        booting = sum(self.hosts[host].boot_s * len(boots) for host, boots in self.boots.items())
        alone_s = sum(batch.expected_s for batch in self.batches)
        working = booting + (expected_s(self.batches) if self.study.blocks.duet else alone_s)
        return max(working, self.study.blocks.every or 0.0)

    @property
    def boots(self) -> Mapping[str, tuple[str, ...]]:
        """The boots of each host in a block, in the study's order."""
        found: dict[str, dict[str, None]] = {}
        for batch in self.batches:
            found.setdefault(batch.host, {})[batch.boot] = None
        return {host: tuple(boots) for host, boots in found.items()}

    @property
    def least_s(self) -> float:
        """Estimated seconds until the study may stop."""
        return self.noise_s + self.block_s * self.study.blocks.least

    @property
    def most_s(self) -> float:
        """Estimated seconds if all blocks run; the budget limits it once ``least`` are done."""
        whole = self.noise_s + self.block_s * self.study.blocks.most
        budget = self.study.blocks.budget
        return whole if budget is None else min(whole, max(self.least_s, budget + self.block_s))

    def block(self, number: int) -> tuple[Batch, ...]:
        """Return the batches of a block in balanced order, each with its cells in random order.

        The order depends on the seed and ``number`` only, not on the process or on what ran
        before, so that a resumed run continues in the same order. Batches on one host that need the
        same boot of it run one after another; the order of these boots is random too.

        Args:
            number: The block, from 1.
        """
        # A string seeds Random through SHA-512, independent of the process's hash seed.
        order = random.Random(f"{self.seed}/{number}")
        batches = sort_batches(self.batches, self.boots, number, self.seed)
        found = tuple(batch.in_block(number, order) for batch in batches)
        alike = align_order(found) if self.study.blocks.paired else found
        return exchanged(alike) if self.study.blocks.duet else alike


def make_plan(
    study: Study,
    seed: int,
    facts: Mapping[str, ArmFacts],
    hosts: Mapping[str, HostFacts],
    kinds: Mapping[str, WorkloadKind],
) -> Plan:
    """Plan a study for its hosts; skip the parts that cannot run, with their reasons.

    Args:
        study: The study.
        seed: Determines the order of everything.
        facts: The facts on each arm, by name.
        hosts: The facts on each host, by name.
        kinds: The workloads by name.

    Raises:
        InputError: The baseline cannot run here, so nothing could be compared.
    """
    batches: list[Batch] = []
    skipped = [Skip(arm, None, None, reason) for arm, reason in study.left_out.items()]
    chosen = _kernel_choice(study, facts, kinds)
    for arm in study.arms:
        cpus = facts[arm].cpus_of(hosts[study.host_of(arm)].cpus)
        reason = _arm_lacks(study, arm, facts[arm], cpus)
        if reason := reason or chosen.skipped.get(arm, ""):
            skipped.append(Skip(arm, None, None, reason, _shape_hint(study, arm, facts[arm], cpus)))
            continue
        skipped += [
            Skip(arm, None, label, facts[arm].lacks[label])
            for label in study.workloads
            if label in facts[arm].lacks
        ]
        skipped += _skipped_workloads(study, arm, kinds, cpus)
        for scenario in study.scenarios:
            planned = _batch(study, arm, scenario, facts[arm], cpus, kinds)
            if isinstance(planned, Skip):
                skipped.append(planned)
            elif planned.cells:
                batches.append(planned)
    if study.blocks.duet:
        home = hosts[study.host_of(study.baseline)].cpus
        batches, alone = paired(batches, facts[study.baseline].cpus_of(home), kinds)
        skipped += [Skip(*each) for each in alone]
    if study.blocks.turns:
        ported = frozenset(arm for arm, each in facts.items() if each.host_addresses)
        batches, alone = pair_into_turns(batches, kinds, ported)
        skipped += [Skip(*each) for each in alone]
    if study.baseline in study.arms and not any(batch.arm == study.baseline for batch in batches):
        reasons = "; ".join(skip.reason for skip in skipped if skip.arm == study.baseline)
        raise InputError(
            f"the baseline {study.baseline!r} cannot run here: {reasons or 'it has no cells'}",
            "change what it needs, or choose another arm as baseline: --set baseline=ARM",
        )
    run = dict.fromkeys(batch.arm for batch in batches)
    choosing = any(facts[arm].boots_image for arm in run)
    plain = tuple(arm for arm in run if choosing and facts[arm].plain_kernel)
    live = tuple(arm for arm in plain if not facts[arm].boots_image)
    beyond = cached_beyond(study, batches, {arm: facts[arm].no_own_cache for arm in run}, kinds)
    carriers = {arm: found for arm in run if (found := facts[arm].carrier) is not None}
    return Plan(
        study,
        seed,
        tuple(batches),
        tuple(skipped),
        hosts,
        plain,
        live,
        beyond,
        chosen,
        carriers,
        {arm: facts[arm].live_toolbox for arm in run if facts[arm].live_toolbox},
        _noise_s(study, run, kinds),
    )


def _noise_s(study: Study, arms: Iterable[str], kinds: Mapping[str, WorkloadKind]) -> float:
    """Return the seconds for measuring the noise of the arms' hosts, one after another."""
    if not _is_realtime(study, kinds):
        return 0.0
    hosts = {study.host_of(arm) for arm in arms}
    # A lab whose time counts instructions has no noise to measure.
    counted = {name for name in hosts if study.computers[name].kind == "lab"}
    measured = hosts - counted if study.lab.deterministic else hosts
    return study.noise.host_s * len(measured)


def _is_realtime(study: Study, kinds: Mapping[str, WorkloadKind]) -> bool:
    return any(kinds[spec.workload].realtime for spec in study.workloads.values())


def _kernel_choice(
    study: Study, facts: Mapping[str, ArmFacts], kinds: Mapping[str, WorkloadKind]
) -> KernelChoice:
    unnamed = {
        arm: facts[arm] for arm in study.arms if facts[arm].usable and not study.kernel_of(arm)
    }
    return choose_kernel(
        {arm: each.kernels for arm, each in unnamed.items() if each.boots_image},
        realtime=_is_realtime(study, kinds),
        general=any(each.general_kernel for each in unnamed.values()),
    )


def _vcpus(study: Study, arm: str, scenario: str, cpus: HostCpus) -> int:
    """Return the number of a subject's vCPUs: only pinned ones can use isolated CPUs."""
    pinned = study.scenarios[scenario].subject.cpus == "pinned"
    return study.vcpus_of(arm, scenario, len(cpus.machines if pinned else cpus.roaming))


def _arm_lacks(study: Study, arm: str, facts: ArmFacts, cpus: HostCpus) -> str:
    """Return why an arm cannot run here, or an empty string."""
    if not facts.usable:
        return facts.reason or "it cannot be used here"
    if reason := shape_lacks(study, arm, facts, cpus):
        return reason
    if (named := study.arms[arm].kernel) and not facts.boots_image:
        if not facts.boots_live:
            return "names a kernel, but its machines run an existing one; remove `kernel`"
        if named not in LIVE_KERNELS:
            return (
                f"`kernel: {named}`: its live image was made with `generic` or with `rt` "
                "(tare image live --kernel rt); name one of them"
            )
    if reason := unfit_release(study, arm, boots_image=facts.boots_image):
        return reason
    devices = study.arms[arm].options.wanted_devices
    if facts.devices and devices and devices not in facts.devices:
        return f"wants {devices} devices; this platform offers {', '.join(sorted(facts.devices))}"
    return lacking_knobs(study.arms[arm].options, facts.knobs, facts.missing_knobs)


def shape_lacks(study: Study, arm: str, facts: ArmFacts, cpus: HostCpus) -> str:
    """Return why an arm's machines cannot have their shape here; empty if they can.

    Args:
        study: The study.
        arm: The arm's name.
        facts: The facts on it.
        cpus: The CPUs of its host.
    """
    vcpus = min(_vcpus(study, arm, name, cpus) for name in study.scenarios)
    if vcpus > facts.max_vcpus:
        return _too_many(vcpus, facts)
    shape = study.shape_of(arm)
    if shape.memory < facts.min_memory:
        return (
            f"wants {format_size(shape.memory)} of memory; "
            f"this platform needs at least {format_size(facts.min_memory)}"
        )
    return ""


def _too_many(vcpus: int, facts: ArmFacts) -> str:
    return f"wants {vcpus} vCPUs; this platform allows at most {facts.max_vcpus} here"


def _shape_hint(study: Study, arm: str, facts: ArmFacts, cpus: HostCpus) -> str:
    """Return a change of the study if an arm cannot have its shape here; else an empty string."""
    if not facts.usable or not shape_lacks(study, arm, facts, cpus):
        return ""
    if min(_vcpus(study, arm, name, cpus) for name in study.scenarios) > facts.max_vcpus:
        return _fewer_vcpus(facts)
    return f"set `memory` in its `shape` to {format_size(facts.min_memory)} or more"


def _fewer_vcpus(facts: ArmFacts) -> str:
    if facts.max_vcpus < 1:
        return ""
    return f"set `vcpus` in its `shape`, or in the scenario, to {facts.max_vcpus} or less"


def _batch(
    study: Study,
    arm: str,
    name: str,
    facts: ArmFacts,
    cpus: HostCpus,
    kinds: Mapping[str, WorkloadKind],
) -> Batch | Skip:
    scenario = study.scenarios[name]
    if (scenario.neighbours or scenario.roles) and not facts.neighbours:
        return Skip(arm, name, None, "needs other machines, which this platform cannot run")
    if reason := facts.loads_lack.get(name) or little_memory(scenario, facts.min_memory):
        return Skip(arm, name, None, reason)
    vcpus = _vcpus(study, arm, name, cpus)
    if vcpus > facts.max_vcpus:
        return Skip(arm, name, None, _too_many(vcpus, facts), _fewer_vcpus(facts))
    options, others = study.arms[arm].options, study.shape_of(arm).vcpus
    cells = tuple(
        cell
        for label, spec in study.workloads.items()
        if label not in facts.lacks
        and (spec.scenarios is None or name in spec.scenarios)
        and not wrong_machines(scenario, kinds[spec.workload])
        for cell in _cells(arm, name, label, spec, facts, kinds[spec.workload], scenario)
        if not few_vcpus(spec, cell.parameters, kinds[spec.workload], vcpus)
    )
    # The machines of a cluster are the ends of its own work, but not of its neighbours' loads.
    ends = [facts.own_ends.get(cell.workload, ()) for cell in cells if scenario.cluster is None]
    ends.append(facts.loads_ends.get(name, ()))
    try:
        memory = study.shape_of(arm).memory
        placement = place(scenario, cpus, vcpus, facts.pinning, study.host_of(arm), memory)
        roles = dict.fromkeys(role for each in ends for role in each)
        placement = with_ends(placement, tuple(roles), cpus, others, facts.pinning)
        if facts.carrier is not None and not facts.carrier.is_host:
            placement = replace(placement, carrier=facts.carrier.name)
    except Unplaceable as lacking:
        return Skip(arm, name, None, str(lacking))
    if reason := starved_host(options, placement, vcpus, cpus, others):
        return Skip(arm, name, None, reason)
    boots = 1 + len(placement.neighbours) + len(placement.companions)
    return Batch(
        1,
        arm,
        name,
        cells,
        with_cpu_notes(placement, scenario, name, cells, kinds, cpus, others),
        facts.boot_s * boots + (CLUSTER_S * facts.slowdown if scenario.cluster else 0.0),
        study.records_host(arm, name),
        facts.boot,
        vcpus,
        study.host_of(arm),
    )


def _skipped_workloads(
    study: Study, arm: str, kinds: Mapping[str, WorkloadKind], cpus: HostCpus
) -> list[Skip]:
    """Return the skips of workloads that need other machines, or more vCPUs, than there are."""
    found: list[Skip] = []
    for name, scenario in study.scenarios.items():
        vcpus = _vcpus(study, arm, name, cpus)
        for label, spec in study.workloads.items():
            if spec.scenarios is not None and name not in spec.scenarios:
                continue
            kind = kinds[spec.workload]
            if reason := wrong_machines(scenario, kind):
                found.append(Skip(arm, name, label, f"{spec.workload} {reason}"))
                continue
            few = [few_vcpus(spec, point, kind, vcpus) for point in spec.points]
            found += [Skip(arm, name, label, reason) for reason in dict.fromkeys(few) if reason]
    return found


def _cells(
    arm: str,
    scenario: str,
    label: str,
    spec: WorkloadSpec,
    facts: ArmFacts,
    kind: WorkloadKind,
    made: Scenario,
) -> Iterator[Cell]:
    for point in spec.points:
        parameters: BaseModel = kind.parameters.model_validate(point)
        if made.cluster is not None:
            parameters = kind.on_slaves(parameters, made.cluster.slaves)
        clocked_s = kind.clocked_s(parameters)
        worked_s = kind.expected_s(parameters) - clocked_s
        expected_s = clocked_s + worked_s * facts.slowdown
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
