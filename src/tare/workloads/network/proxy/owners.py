"""Assign a computer's CPU time to owners, by each thread's number, its parents or its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SMALL = 0.01
"""A process with less than this share of all CPU time has no row of its own."""
NAMED = 6
"""The number of these small processes that are named."""

CLIENT, ORIGIN, TARE, MACHINE = "client", "origin", "Tare itself", "machine"
NEIGHBOURS = "neighbours"
VCPUS, HYPERVISOR, DEVICES = "the machine’s vCPUs", "hypervisor", "the machine’s devices"
VHOST, NETBACK, VSWITCHD, KSOFTIRQD = "vhost", "netback", "ovs-vswitchd", "ksoftirqd"
IDLE, STEAL, UNOWNED = "idle", "steal", "unowned"
_KERNELS = (
    (re.compile(r"vhost-\d+"), VHOST),
    (re.compile(r"vif(\d+)\.\d+.*"), NETBACK),
    (re.compile(r"ksoftirqd/\d+"), KSOFTIRQD),
    (re.compile(r"ovs-vswitchd|handler\d+|revalidator\d+"), VSWITCHD),
)


@dataclass(frozen=True)
class Task:
    """One thread in a period.

    Args:
        pid, tid: The numbers of its process and of the thread.
        process, name: The names of its process and of the thread.
        user, system, guest: Ticks in user mode and in kernel mode, and the part within a guest.
        run_s: Seconds on a CPU.
    """

    pid: int
    tid: int
    process: str
    name: str
    user: int
    system: int
    guest: int
    run_s: float


@dataclass(frozen=True)
class Owners:
    """The owners of the threads of a host.

    Args:
        machine: All threads of the machine that is measured.
        vcpus: The machine's threads that are virtual CPUs.
        client, origin: The threads of these roles' agents; their children belong to them as well.
        neighbours: The threads of machines that load the host.
        tare: The process that runs the study.
        server: The name of the server in the machine, if it is a process of this host.
        domain: The machine's number for the hypervisor below this host; None: there is no
            hypervisor below, or it is not known.
    """

    machine: frozenset[int] = frozenset()
    vcpus: frozenset[int] = frozenset()
    client: frozenset[int] = frozenset()
    origin: frozenset[int] = frozenset()
    neighbours: frozenset[int] = frozenset()
    tare: frozenset[int] = frozenset()
    server: str = ""
    domain: int | None = None

    def root_of(self, number: int) -> str:
        """Return the owner of a thread or process by its own number; empty: none."""
        for who, owned in (
            (MACHINE, self.machine),
            (CLIENT, self.client),
            (ORIGIN, self.origin),
            (NEIGHBOURS, self.neighbours),
            (TARE, self.tare),
        ):
            if number in owned:
                return who
        return ""


def tasks_in(account: Mapping[str, Any]) -> list[Task]:
    """Return the threads in an account.

    Raises:
        KeyError, ValueError: The account has no threads, or another form than the agent's.
    """
    found = []
    for row in account["tasks"]:
        if not isinstance(row, Sequence) or len(row) != 8:
            raise ValueError("a thread in an account has other than eight fields")
        pid, tid, process, name, user, system, guest, run_ns = row
        fields = (str(process), str(name), int(user), int(system), int(guest))
        found.append(Task(int(pid), int(tid), *fields, int(run_ns) * 1e-9))
    return found


def parents_in(account: Mapping[str, Any]) -> dict[int, int]:
    """Return the parent of each process in an account."""
    return {int(pid): int(parent) for pid, parent in account["parents"]}


def owner_of(task: Task, owners: Owners, parents: Mapping[int, int]) -> str:
    """Return the owner of a thread: by its own number, then by its process and the ancestors."""
    number, seen = task.pid, {0}
    for direct in (task.tid, task.pid):
        if who := owners.root_of(direct):
            return who
    while number not in seen:
        seen.add(number)
        number = parents.get(number, 0)
        if who := owners.root_of(number):
            return who
    return ""


def used(
    tasks: Sequence[Task], owners: Owners, parents: Mapping[int, int]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPU seconds of each owner, and those of processes without an owner, by name.

    Args:
        tasks: All threads of a host.
        owners: Their owners.
        parents: The parent of each process.
    """
    owned: dict[str, float] = {}
    strangers: dict[str, float] = {}
    for task in tasks:
        who = owner_of(task, owners, parents)
        if who == MACHINE:
            for part, seconds in _machines(task, owners):
                owned[part] = owned.get(part, 0.0) + seconds
        elif task.process == VSWITCHD:
            # Tare starts this process for a batch, but its work is not Tare's own.
            owned[VSWITCHD] = owned.get(VSWITCHD, 0.0) + task.run_s
        elif who or (who := _kernels(task, owners)):
            owned[who] = owned.get(who, 0.0) + task.run_s
        else:
            strangers[task.process] = strangers.get(task.process, 0.0) + task.run_s
    return owned, strangers


def _machines(task: Task, owners: Owners) -> list[tuple[str, float]]:
    ticks = task.user + task.system
    if owners.server:
        if task.process != owners.server:
            return [(TARE, task.run_s)]
        # Without a tick, the mode is not known: assume the kernel, which is most of a proxy's work.
        share = task.user / ticks if ticks else 0.0
        parts = ((f"{owners.server} user", share), (f"{owners.server} kernel", 1 - share))
        return [(who, task.run_s * part) for who, part in parts]
    if task.tid not in owners.vcpus:
        return [(_kernels(task, owners) or DEVICES, task.run_s)]
    if not task.guest or not ticks:
        # An emulator runs the guest as a part of itself.
        return [(VCPUS, task.run_s)]
    inside = min(1.0, task.guest / ticks)
    return [(VCPUS, task.run_s * inside), (HYPERVISOR, task.run_s * (1 - inside))]


def _kernels(task: Task, owners: Owners) -> str:
    """Return the kind of a thread of the kernel or the switch; empty: none of these."""
    found = ((name.fullmatch(task.name), who) for name, who in _KERNELS)
    match, who = next(((match, who) for match, who in found if match), (None, ""))
    # The name has the number of the thread or domain that it works for; check that it is ours.
    if who == VHOST and int(task.name.partition("-")[2]) not in owners.machine:
        return ""
    if match and who == NETBACK and owners.domain not in (None, int(match[1])):
        return ""
    return who


def with_strangers(
    owned: Mapping[str, float], strangers: Mapping[str, float], total_s: float
) -> dict[str, float]:
    """Return all CPU time by owner; small processes without an owner have one entry together.

    Args:
        owned: Seconds by owner.
        strangers: Seconds by the name of a process.
        total_s: CPU seconds in total.
    """
    found = dict(owned)
    small = {name: spent for name, spent in strangers.items() if spent < SMALL * total_s}
    for name, spent in strangers.items():
        if name not in small:
            found[f"process {name}"] = spent
    if small:
        most = sorted(small, key=lambda name: (-small[name], name))
        more = f" and {len(most) - NAMED} more" if len(most) > NAMED else ""
        found[f"processes below 1 %: {', '.join(most[:NAMED])}{more}"] = sum(small.values())
    return found
