"""The CPUs of the subject and the other machines, chosen by functions without side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tare.errors import TareError
from tare.study.planning.host_cpus import HostCpus

if TYPE_CHECKING:
    from tare.study.model.scenario import Cluster, Companion, Neighbours, Scenario, Where


ONLY_CPU = "the platform cannot bind vCPUs, but all machines share the host's only CPU"


class Unplaceable(TareError):
    """A scenario cannot run on this host or platform; the message is the reason."""


@dataclass(frozen=True)
class NeighbourPlacement:
    """One neighbour: its load, and the host CPUs of its vCPUs (none: anywhere).

    ``memory`` is its own memory in bytes; None: as much as the subject has.
    """

    load: str
    parameters: Mapping[str, Any]
    cpus: tuple[int, ...]
    memory: int | None = None


@dataclass(frozen=True)
class CompanionPlacement:
    """A further machine that the subject's workload works with, by its role.

    ``cpus`` are the host CPUs of its vCPUs (none: anywhere); ``vcpus`` and ``memory`` (bytes) are
    its own; None: those of the arm's shape. ``host`` names a host other than the arm's; empty: the
    arm's host.
    """

    role: str
    cpus: tuple[int, ...] = ()
    vcpus: int | None = None
    memory: int | None = None
    host: str = ""


@dataclass(frozen=True)
class Placement:
    """The CPUs and hosts of all roles of a scenario.

    Args:
        subject: Host CPUs of the subject's vCPUs; empty means anywhere.
        neighbours: The placement of each neighbour.
        companions: The placement of each machine that the workload works with.
        notes: The adaptations of the scenario to this host, one sentence each.
        cluster: The cluster that subject and companions form; None: they form none.
        link: The speed of the link to machines outside, in bits per second; None: no limit.
        within: The host CPUs for machines that are not pinned; empty: all.
        carrier: The name of the other computer that runs the machines, and that CPU numbers refer
            to; empty: the arm's host.
        unpinned: Whether the scenario binds machines to CPUs, which the platform cannot do.
    """

    subject: tuple[int, ...] = ()
    neighbours: tuple[NeighbourPlacement, ...] = ()
    companions: tuple[CompanionPlacement, ...] = ()
    notes: tuple[str, ...] = ()
    cluster: Cluster | None = None
    link: float | None = None
    within: tuple[int, ...] = ()
    carrier: str = ""
    unpinned: bool = False

    @property
    def subject_on_host(self) -> tuple[int, ...]:
        """The subject's CPUs on the arm's host; empty: any CPU, or another computer's."""
        return () if self.carrier else self.subject

    @property
    def subject_memory(self) -> int | None:
        """The subject's own main memory, in bytes; None: that of the arm's shape."""
        if self.cluster is None or not self.cluster.begins_with_subject:
            return None
        return self.cluster.memory


def place(
    scenario: Scenario,
    cpus: HostCpus,
    vcpus: int,
    can_pin: bool,
    host: str = "",
    memory: int = 0,
) -> Placement:
    """Choose host CPUs for the roles of a scenario.

    A pinned subject gets isolated CPUs first, then the highest-numbered ones. It gets one CPU per
    core, on a single NUMA node if a node has enough CPUs and memory. The first CPU, where a kernel
    does most of its housekeeping, is used last.

    Args:
        scenario: The scenario.
        cpus: The CPUs of the host that carries the arm.
        vcpus: The number of the subject's vCPUs.
        can_pin: Whether the platform binds vCPUs to CPUs.
        host: The name of the arm's host, for machines that are to run on another one.
        memory: The subject's memory, in bytes.

    Raises:
        Unplaceable: The host or platform lacks something for it, which the message names.
    """
    if not can_pin and _binds(scenario):
        if len(cpus.online) == 1:
            bound = place(scenario, cpus, vcpus, True, host, memory)
            return replace(
                bound,
                subject=(),
                neighbours=tuple(replace(each, cpus=()) for each in bound.neighbours),
                companions=tuple(replace(each, cpus=()) for each in bound.companions),
                notes=(*bound.notes, ONLY_CPU),
            )
        if scenario.unpinned:
            free = place(_unbound(scenario), cpus, vcpus, False, host, memory)
            return replace(free, unpinned=True)
    notes: list[str] = []
    subject = _subject(scenario, cpus, vcpus, can_pin, notes, memory)
    neighbours: list[NeighbourPlacement] = []
    for wanted in scenario.neighbours:
        count = _count(wanted, cpus, vcpus, notes)
        pool = _pool(wanted.cpus, cpus, subject, can_pin)
        if wanted.cpus != "any" and wanted.cpus != "same" and count > len(pool):
            notes.append(f"{count} {wanted.load} neighbours share {_cpus(len(pool))}")
        neighbours += [
            NeighbourPlacement(
                wanted.load, dict(wanted.parameters), _rotated(pool, number), wanted.memory
            )
            for number in range(count)
        ]
    companions = tuple(
        _companion(role, each, host, cpus, subject, can_pin)
        for role, each in scenario.machines.items()
    )
    companions += _slaves(scenario, host, cpus, subject, vcpus, can_pin, notes)
    described = tuple(notes)
    return Placement(
        subject,
        tuple(neighbours),
        companions,
        described,
        scenario.cluster,
        scenario.link,
        cpus.within,
    )


def with_ends(
    placement: Placement, roles: Sequence[str], cpus: HostCpus, vcpus: int, can_pin: bool
) -> Placement:
    """Return a placement with a machine for each further end, such as a client and an origin.

    If the subject is pinned, each end gets CPUs other than the subject's, as far as there are
    enough.

    Args:
        placement: The placement of the scenario's machines.
        roles: The roles of the ends; roles that the scenario has already are ignored.
        cpus: The CPUs of the host that carries the arm.
        vcpus: The number of vCPUs of each end.
        can_pin: Whether the platform binds vCPUs to CPUs.
    """
    there = {each.role for each in placement.companions}
    missing = [role for role in roles if role not in there]
    if not missing:
        return placement
    names = " and ".join(missing)
    are = "is a machine" if len(missing) == 1 else "are machines"
    notes = [f"{names} {are} too: no process reaches the arm's network"]
    pool: tuple[int, ...] = ()
    if placement.subject and can_pin:
        with suppress(Unplaceable):
            pool = _pool("other", cpus, placement.subject, can_pin)
        if len(pool) < vcpus * len(missing):
            none = f"no CPU of its own is left for {names}"
            notes.append(f"{names} share {_cpus(len(pool))}" if pool else none)
    ends = tuple(
        CompanionPlacement(role, _rotated(pool, vcpus * number)[: min(vcpus, len(pool))])
        for number, role in enumerate(missing)
    )
    return replace(
        placement,
        companions=(*placement.companions, *ends),
        notes=(*placement.notes, *notes),
    )


def _binds(scenario: Scenario) -> bool:
    """Return whether a scenario binds any machine to CPUs."""
    return scenario.subject.cpus == "pinned"


def _unbound(scenario: Scenario) -> Scenario:
    """Return the scenario with none of its machines bound to CPUs."""
    cluster = scenario.cluster
    return scenario.model_copy(
        update={
            "subject": scenario.subject.model_copy(update={"cpus": "any"}),
            "neighbours": tuple(
                each.model_copy(update={"cpus": "any"}) for each in scenario.neighbours
            ),
            "machines": {
                role: each.model_copy(update={"cpus": "any"})
                for role, each in scenario.machines.items()
            },
            "cluster": cluster and cluster.model_copy(update={"cpus": "any"}),
        }
    )


def _slaves(
    scenario: Scenario,
    home: str,
    cpus: HostCpus,
    subject: tuple[int, ...],
    vcpus: int,
    can_pin: bool,
    notes: list[str],
) -> tuple[CompanionPlacement, ...]:
    """Return the placement of a cluster's machines other than the subject, which is its master."""
    cluster = scenario.cluster
    if cluster is None:
        return ()
    hosts = cluster.hosts or (home,)
    found: list[CompanionPlacement] = []
    pool = _pool("other", cpus, subject, can_pin) if cluster.cpus == "own" else ()
    each = cluster.vcpus or vcpus
    first = cluster.slaves - len(cluster.roles)
    for number, role in enumerate(cluster.roles):
        host = hosts[(first + number) % len(hosts)]
        chosen: tuple[int, ...] = ()
        if pool and host == home:
            place = number // len(hosts) * each
            chosen = _rotated(pool, place)[: min(each, len(pool))]
        where = "" if host == home else host
        found.append(CompanionPlacement(role, chosen, cluster.vcpus, cluster.memory, where))
    here = sum(not slave.host for slave in found)
    if pool and here * each > len(pool):
        notes.append(f"{here} slaves with {each} vCPUs each share {_cpus(len(pool))}")
    if far := ", ".join(dict.fromkeys(slave.host for slave in found if slave.host)):
        if pool:
            notes.append(f"slaves on {far} are bound to no CPUs: those are the arm's own host's")
        notes.append(f"of hosts the arm's own alone is sampled every second, and not {far}")
    return tuple(found)


def _companion(
    role: str,
    wanted: Companion,
    home: str,
    cpus: HostCpus,
    subject: tuple[int, ...],
    can_pin: bool,
) -> CompanionPlacement:
    if wanted.on in (None, home):
        pool = _pool(wanted.cpus, cpus, subject, can_pin)
        return CompanionPlacement(role, pool, wanted.vcpus, wanted.memory)
    if wanted.cpus != "any":
        raise Unplaceable(
            f"the machine {role} is on another host, {wanted.on}, which has no CPUs that are "
            f"{wanted.cpus} to the subject's: write `cpus: any`"
        )
    return CompanionPlacement(role, (), wanted.vcpus, wanted.memory, wanted.on or "")


def _subject(
    scenario: Scenario, cpus: HostCpus, vcpus: int, can_pin: bool, notes: list[str], memory: int
) -> tuple[int, ...]:
    if scenario.subject.cpus == "any":
        return ()
    if not can_pin:
        raise Unplaceable("needs vCPUs bound to host CPUs, which this platform cannot do here")
    if vcpus > len(cpus.machines):
        raise Unplaceable(
            f"needs {_cpus(vcpus)} to bind {vcpus} vCPUs to; {_has(cpus, len(cpus.machines))}"
        )
    chosen = _choose(cpus, vcpus, memory)
    taken = set(chosen)
    if cpus.online[0] in taken and len(cpus.online) == vcpus:
        notes.append(
            f"the subject takes {'the only CPU' if vcpus == 1 else f'all {vcpus} CPUs'} of this "
            "host, and shares with everything else that runs on it"
        )
    elif cpus.online[0] in taken:
        notes.append(
            f"the subject takes CPU {cpus.online[0]} too, where the host's kernel does most of its "
            "own work: no other CPU is left for it"
        )
    if any(cpus.core(cpu) & taken - {cpu} for cpu in chosen):
        notes.append("some of the subject's vCPUs share a core: the host has too few cores")
    if cpus.isolated and (plain := sum(cpu not in cpus.isolated for cpu in chosen)):
        which = "none" if plain == vcpus else f"{vcpus - plain} of {vcpus}"
        notes.append(f"{which} of the subject's CPUs is isolated: too few isolated CPUs are free")
    if len(spread := sorted({cpus.node(cpu) for cpu in chosen})) > 1:
        words = ", ".join(map(str, spread))
        notes.append(f"the subject's CPUs are on NUMA nodes {words}: no node has enough cores")
    elif memory and (size := cpus.memory.get(spread[0])) is not None and size < memory:
        notes.append(f"NUMA node {spread[0]} of the subject's CPUs has too little memory for it")
    return chosen


def _has(cpus: HostCpus, count: int) -> str:
    """Return a phrase for the number of CPUs for machines."""
    if not cpus.measured:
        return f"this host has {count}"
    return f"of this host's {len(cpus.online)} CPUs {count} are for machines"


def chosen_cpus(cpus: HostCpus, count: int) -> tuple[int, ...]:
    """Return the ``count`` best CPUs to measure on, or all if there are fewer, ascending."""
    return _choose(cpus, min(count, len(cpus.machines)), 0)


def _choose(cpus: HostCpus, count: int, memory: int) -> tuple[int, ...]:
    """Return the best CPUs to measure on, ascending; see :func:`place` for what is best."""
    first, home = cpus.online[0], _home(cpus, count, memory)
    ranked = sorted(
        (cpu for cpu in cpus.machines if cpu != first),
        key=lambda cpu: (
            cpu not in cpus.isolated,
            cpus.node(cpu) != home,
            cpu in cpus.first_core,
            -cpu,
        ),
    )
    chosen: list[int] = []
    cores: set[frozenset[int]] = set()
    shared: list[int] = []
    for cpu in ranked:
        if (core := cpus.core(cpu)) in cores:
            shared.append(cpu)
        else:
            cores.add(core)
            chosen.append(cpu)
    last = [first] if first in cpus.machines else []
    return tuple(sorted((*chosen, *shared, *last)[:count]))


def _home(cpus: HostCpus, count: int, memory: int) -> int:
    """Return the NUMA node that suits a machine best; the last one if several suit equally."""
    by_node: dict[int, list[int]] = {}
    for cpu in cpus.machines:
        by_node.setdefault(cpus.node(cpu), []).append(cpu)

    def merit(node: int) -> tuple[bool, ...]:
        own = [cpu for cpu in by_node[node] if cpu != cpus.online[0]]
        isolated = {cpus.core(cpu) for cpu in own if cpu in cpus.isolated}
        cores = {cpus.core(cpu) for cpu in own}
        holds = not cpus.memory or cpus.memory.get(node, -1) >= memory
        roomy = len(isolated) >= count, len(cores - {cpus.first_core}) >= count
        return (*roomy[:1], holds, roomy[1], len(cores) >= count, len(own) >= count, bool(isolated))

    return max(by_node, key=lambda node: (*merit(node), node))


def _count(wanted: Neighbours, cpus: HostCpus, vcpus: int, notes: list[str]) -> int:
    if isinstance(wanted.count, int):
        return wanted.count
    # Unbound machines share the CPUs that the host's scheduler assigns.
    pool = len(cpus.roaming if wanted.cpus == "any" else cpus.machines)
    count = max(1, pool - vcpus)
    whole = pool == len(cpus.online)
    notes.append(
        f"{count} {wanted.load} neighbour{'s' if count > 1 else ''} to fill "
        f"{'a host of ' if whole else ''}{_cpus(pool)}{'' if whole else ' for machines'} "
        f"next to {vcpus} vCPU{'s' if vcpus > 1 else ''} of the subject"
    )
    return count


def _pool(where: Where, cpus: HostCpus, subject: tuple[int, ...], can_pin: bool) -> tuple[int, ...]:
    """Return the CPUs that other machines may be bound to, the best first; empty means anywhere."""
    if where == "any":
        return ()
    if not can_pin:
        raise Unplaceable(
            "needs other machines bound to host CPUs, which this platform cannot do here"
        )
    if where == "same":
        return subject
    own = set(subject)
    others = [cpu for cpu in cpus.machines if cpu not in own]
    shared = frozenset[int]().union(*map(cpus.core, subject))
    nodes = {cpus.node(cpu) for cpu in subject}
    if where == "sibling":
        pool = [cpu for cpu in others if cpu in shared]
        lacking = "a second hardware thread on the subject's core; " + (
            "which CPUs of this host share a core is not reported"
            if cpus.cores and cpus.cores < len(cpus.online)
            else "this host offers none"
        )
    elif where == "other-node":
        pool = [cpu for cpu in others if cpus.node(cpu) not in nodes]
        lacking = "a second NUMA node; this host offers one"
    else:
        # Another core is the purer "other"; its own sibling and the first CPU come last.
        first = cpus.online[0]
        pool = sorted(others, key=lambda cpu: (cpu in shared, cpu == first, -cpu))
        lacking = f"a CPU other than the subject's; {_has_cpus(cpus)}"
    if not pool:
        raise Unplaceable(f"needs {lacking}")
    return tuple(pool)


def _has_cpus(cpus: HostCpus) -> str:
    if not cpus.measured:
        return f"this host has {_cpus(len(cpus.online))}"
    return f"machines have {_cpus(len(cpus.measured))} of this host"


def _rotated(pool: Sequence[int], by: int) -> tuple[int, ...]:
    by = by % len(pool) if pool else 0
    return (*pool[by:], *pool[:by])


def _cpus(count: int) -> str:
    return f"{count} CPU" if count == 1 else f"{count} CPUs"
