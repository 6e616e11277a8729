"""Account for CPU time while the proxy is full: on the host by owner, in the machine by kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.owners import (
    CLIENT,
    IDLE,
    KSOFTIRQD,
    NEIGHBOURS,
    ORIGIN,
    STEAL,
    TARE,
    UNOWNED,
    VCPUS,
    VSWITCHD,
    Owners,
    parents_in,
    tasks_in,
    used,
    with_strangers,
)
from tare.workloads.values import finite, number, shortened

HOST, INSIDE = "host", "inside"
NOT_OF_MACHINE = frozenset({CLIENT, ORIGIN, NEIGHBOURS, TARE, KSOFTIRQD, VSWITCHD})
"""Owners whose time is not a cost of the machine; the time of its network threads is one."""
OWNED = 0.95
"""The least share of the time with an owner; below it, the figure is too incomplete."""
MOST_OF_GIVEN = 1.1
"""Above this value of ``threads_of_given``, the two clocks differ by more than their resolution."""
NOT_WATCHED = "the machine runs on another computer, whose CPUs are not watched"
SLOW_LOOK = 0.1
"""If reading all threads takes a larger share of the time, the threads read last are
underestimated."""


@dataclass(frozen=True)
class Spent:
    """CPU time of one owner, or of one kind.

    Args:
        where: :data:`HOST`, by owner, or :data:`INSIDE` the machine, by what its CPUs did.
        who: The owner or kind.
        share: The share of all CPU time there.
        per_request_s: CPU seconds for each request.
        cycles: Cycles for each request, by the rate of the host's CPUs while they were busy; None:
            not known, or the CPUs were idle.
    """

    where: str
    who: str
    share: float
    per_request_s: float
    cycles: float | None = None


@dataclass(frozen=True)
class CpuAccount:
    """The CPU time by owner and kind, as shares and per request.

    Args:
        spent: All CPU time; at each place, the largest share first.
        machine_s: CPU seconds of the host for the machine, per request; None: not known.
        owned: The share of the host's CPU time that has an owner. It includes idle time, and, if
            the host is itself a virtual machine, the time that its hypervisor took from it. None:
            the machine is on another computer, whose CPUs are not observed.
        softirq: Seconds of the host's software interrupts per request; they count as part of the
            work that they interrupt. None: not known.
        hardirq: The same for hardware interrupts.
        cycles_per_s: Cycles of a busy CPU of the host in a second; None: not counted.
        no_cycles: The reason why cycles were not counted.
        cpus: The number of CPUs of the host, to which shares refer; under Xen the computer's.
        threads_of_given: The time of the host kernel's threads by its own clock, as a share of
            the time that the hypervisor below gave it; None: there is no hypervisor below.
    """

    spent: tuple[Spent, ...]
    machine_s: float | None
    owned: float | None
    softirq: float | None
    hardirq: float | None
    cycles_per_s: float | None = None
    no_cycles: str = ""
    cpus: int = 0
    threads_of_given: float | None = None


@dataclass(frozen=True)
class HypervisorUse:
    """The use of the CPUs as the hypervisor below the host's kernel reports it, in CPUs.

    Args:
        domain: The machine's number in that hypervisor.
        cpus: The number of CPUs.
        machine, host: CPUs that the machine and the host's kernel had.
        others: CPUs that each other machine had, by its name.
        host_on: The CPUs that the host's kernel is restricted to; empty: not known.
    """

    domain: int
    cpus: int
    machine: float
    host: float
    others: Mapping[str, float]
    host_on: tuple[int, ...] = ()

    @property
    def idle(self) -> float:
        """Idle CPUs."""
        return max(0.0, self.cpus - self.machine - self.host - sum(self.others.values()))


def hypervisor_use_in(result: Mapping[str, Any]) -> HypervisorUse | None:
    """Return the use of the CPUs below the host's kernel; None: there is no hypervisor below."""
    reported = result.get("below")
    if not isinstance(reported, Mapping):
        return None
    domain, cpus = (int(number(reported, [name])) for name in ("domain", "cpus"))
    machine, host = (number(reported, [name]) for name in ("machine", "host"))
    others = reported["others"]
    if not isinstance(others, Mapping):
        raise ValueError(f"what other machines had is {shortened(others)}, not a number for each")
    named = {str(name): finite(spent, f"others {name}") for name, spent in others.items()}
    host_on = tuple(int(cpu) for cpu in reported.get("host_on", ()))
    return HypervisorUse(domain, cpus, machine, host, named, host_on)


def owners_in(reported: Mapping[str, Any]) -> Owners:
    """Return the owners in a result."""
    sets = {
        name: frozenset(int(each) for each in reported.get(name, ()))
        for name in ("machine", "vcpus", "client", "origin", "neighbours", "tare")
    }
    return Owners(**sets, server=str(reported.get("server", "")), domain=None)


def account_of(result: Mapping[str, Any]) -> CpuAccount:
    """Return the account of CPU time in a result.

    Args:
        result: Has the ``accounts`` of ``host`` and ``machine``, the ``owners``, the machine's own
            CPUs (``cpus``; with ``shared``, in the host's account), and the stage ``full``. If the
            host's kernel has only some of the computer's CPUs, ``below`` has the use of all CPUs.
            Without an account of ``host``, only the machine's own is used.

    Raises:
        KeyError, ValueError: A field is missing, or has another form than in the agent's answers.
    """
    accounts, owners = result["accounts"], owners_in(result["owners"])
    rate = number(result, "stages.full.requests_per_s")
    if "host" not in accounts:
        return _machine_account(result, accounts["machine"], rate)
    host, machine = accounts["host"], accounts["machine"]
    seconds = number(host, "seconds")
    requests = rate * seconds
    if requests <= 0:
        raise ValueError("no requests were answered while the CPUs were watched")
    cpus = _seconds_by_cpu(host)
    total_s = len(cpus) * seconds
    idle_s = sum(each["idle"] + each["iowait"] for each in cpus.values())
    steal_s = sum(each["steal"] for each in cpus.values())
    busy_s = total_s - idle_s
    tasks, below = tasks_in(host), hypervisor_use_in(result)
    if below is not None:
        owners = replace(owners, domain=below.domain)
    if owners.server and all(task.process != owners.server for task in tasks):
        # The host does not see the server: its machine has a kernel of its own.
        owners = replace(owners, server="")
    owned, strangers = used(tasks, owners, parents_in(host))
    others: dict[str, float] = {}
    of_given: float | None = None
    if below is not None:
        if below.host > 0:
            of_given = (sum(owned.values()) + sum(strangers.values())) / (below.host * seconds)
            owned, strangers = (_shortened(each, of_given) for each in (owned, strangers))
        # Time that the host's kernel did not get is shown as idle, or as the time of others.
        total_s, idle_s = below.cpus * seconds, below.idle * seconds
        owned[VCPUS] = owned.get(VCPUS, 0.0) + below.machine * seconds
        others = {f"machine {name}": spent * seconds for name, spent in below.others.items()}
        steal_s = 0.0
    by_owner = {**with_strangers(owned, strangers, total_s), **others, IDLE: idle_s}
    nobodys = max(0.0, total_s - sum(by_owner.values()))
    # Only time without an owner can be stolen time: some kernels count stolen time for threads.
    stolen = min(nobodys, steal_s)
    left = nobodys - stolen
    cycles, no_cycles = _cycles_per_s(host, busy_s - stolen)
    spent = _ordered(HOST, {**by_owner, STEAL: stolen, UNOWNED: left}, total_s, requests)
    inside = _machine_cpu_s(machine, result, cpus if result.get("shared") else None)
    within = sum(inside.values())
    spent += _ordered(INSIDE, inside, within, rate * number(machine, "seconds"))
    return CpuAccount(
        tuple(_add_cycles(each, cycles) for each in spent),
        _machines(owned, bool(owners.machine) or below is not None, result, requests),
        1 - left / total_s,
        sum(each["softirq"] for each in cpus.values()) / requests,
        sum(each["irq"] for each in cpus.values()) / requests,
        cycles,
        no_cycles,
        len(cpus) if below is None else below.cpus,
        of_given,
    )


def _machine_account(
    result: Mapping[str, Any], machine: Mapping[str, Any], rate: float
) -> CpuAccount:
    """Return the account of a machine on another computer, whose CPUs are not observed."""
    requests = rate * number(machine, "seconds")
    if requests <= 0:
        raise ValueError("no requests were answered while the CPUs were watched")
    inside = _machine_cpu_s(machine, result, None)
    spent = _ordered(INSIDE, inside, sum(inside.values()), requests)
    cost = _machines({}, False, result, requests)
    return CpuAccount(tuple(spent), cost, None, None, None, None, NOT_WATCHED)


def merge_accounts(parts: Sequence[CpuAccount], rates: Sequence[float]) -> CpuAccount:
    """Merge the accounts of several equally long periods into one.

    Args:
        parts: The account of each period.
        rates: Requests per second in each period.

    Raises:
        ValueError: There is no account.
    """
    if not parts:
        raise ValueError("there is no account")
    if len(parts) == 1:
        return parts[0]
    answered = [rate / sum(rates) for rate in rates]
    equal = [1 / len(parts)] * len(parts)

    def mean(weights: Sequence[float], values: Iterable[float | None]) -> float | None:
        reported = list(values)
        known = [value for value in reported if value is not None]
        if len(known) < len(reported):
            return None
        return sum(weight * value for weight, value in zip(weights, known, strict=True))

    by_owner = [{(each.where, each.who): each for each in part.spent} for part in parts]
    spent = []
    for where, who in dict.fromkeys(owner for part in by_owner for owner in part):
        theirs = [part.get((where, who), Spent(where, who, 0.0, 0.0, 0.0)) for part in by_owner]
        spent.append(
            Spent(
                where,
                who,
                mean(equal, (each.share for each in theirs)) or 0.0,
                mean(answered, (each.per_request_s for each in theirs)) or 0.0,
                mean(answered, (each.cycles for each in theirs)),
            )
        )
    return CpuAccount(
        tuple(sorted(spent, key=lambda each: (each.where != HOST, -each.share))),
        mean(answered, (each.machine_s for each in parts)),
        mean(equal, (each.owned for each in parts)),
        mean(answered, (each.softirq for each in parts)),
        mean(answered, (each.hardirq for each in parts)),
        mean(equal, (each.cycles_per_s for each in parts)),
        next((each.no_cycles for each in parts if each.no_cycles), ""),
        parts[0].cpus,
        mean(equal, (each.threads_of_given for each in parts)),
    )


def _shortened(spent: Mapping[str, float], of_given: float) -> dict[str, float]:
    """Return the times of threads, scaled down if they exceed what their kernel was given.

    The hypervisor below counts the time that it gave. The kernel's clock may continue while a CPU
    is taken away. Reading all threads also takes a while, so each thread is counted over another
    period.
    """
    return {who: seconds / max(1.0, of_given) for who, seconds in spent.items()}


def unowned(found: CpuAccount) -> list[str]:
    """Return a warning if too much of the host's CPU time has no owner."""
    if found.owned is None or found.owned >= OWNED:
        return []
    return [
        f"{100 * (1 - found.owned):.0f} % of the host's CPU time has no owner: the cost of a "
        "request, and each owner's share of it, may be larger than shown"
    ]


def clock_warnings(found: CpuAccount) -> list[str]:
    """Return a warning if a host's threads ran far longer than the time its kernel was given."""
    if found.threads_of_given is None or found.threads_of_given <= MOST_OF_GIVEN:
        return []
    return [
        f"the host's threads ran for {100 * found.threads_of_given:.0f} % of what the hypervisor "
        "below gave their kernel, by the kernel's own clock: each is scaled down in proportion"
    ]


def slow_look(host: Mapping[str, Any]) -> list[str]:
    """Return a warning if reading the host's threads took much of the time.

    Args:
        host: The host's account. Accounts of older runs lack the time of the reading (``look_s``).
    """
    look_s, seconds = float(host.get("look_s", 0.0)), number(host, "seconds")
    if look_s <= SLOW_LOOK * seconds:
        return []
    return [
        f"reading the host's threads took {look_s:.1f} s of the {seconds:.1f} s: some threads were "
        "watched only for the rest of the time; use a longer `duration`"
    ]


def _cycles_per_s(host: Mapping[str, Any], busy_s: float) -> tuple[float | None, str]:
    """Return the cycles per second of a busy CPU and an empty text, or None and the reason."""
    reported = host.get("cycles")
    if not isinstance(reported, Mapping):
        return None, "they were not counted"
    counted = reported.get("cpus")
    if not isinstance(counted, Mapping) or not counted:
        return None, str(reported.get("absent", "no CPU has a counter"))
    total = sum(finite(count, "cycles") for count in counted.values())
    if busy_s <= 0 or total <= 0:
        return None, "the counters did not advance"
    return total / busy_s, ""


def _add_cycles(spent: Spent, cycles_per_s: float | None) -> Spent:
    if cycles_per_s is None or spent.who in (IDLE, STEAL):
        return spent
    return replace(spent, cycles=spent.per_request_s * cycles_per_s)


def _seconds_by_cpu(account: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    found = kernel.cpu_seconds(account["before"], account["after"], number(account, "hertz"))
    if not found:
        raise ValueError(f"{kernel.STAT} lists no CPU")
    return found


def _machine_cpu_s(
    machine: Mapping[str, Any],
    result: Mapping[str, Any],
    hosts: Mapping[int, Mapping[str, float]] | None,
) -> dict[str, float]:
    """Return the seconds of the machine's own CPUs by kind of use.

    Args:
        machine: The machine's account.
        result: Has the machine's CPUs (``cpus``), as the host numbers them.
        hosts: The seconds of each CPU of the host by kind, if the machine shares the host's
            kernel; None: use the machine's account.
    """
    cpus = _seconds_by_cpu(machine) if hosts is None else hosts
    chosen = [int(cpu) for cpu in result.get("cpus", ())] if hosts is not None else []
    kept = [cpus[cpu] for cpu in (chosen or cpus) if cpu in cpus]
    found: dict[str, float] = {}
    for each in kept:
        for kind, seconds in each.items():
            name = {"nice": "user", "irq": "hardirq", "iowait": IDLE}.get(kind, kind)
            found[name] = found.get(name, 0.0) + seconds
    return found


def _ordered(
    where: str, spent: Mapping[str, float], total_s: float, requests: float
) -> list[Spent]:
    if total_s <= 0 or requests <= 0:
        raise ValueError(f"no time has passed {where}")
    found = sorted(spent.items(), key=lambda each: -each[1])
    return [Spent(where, who, part / total_s, part / requests) for who, part in found if part > 0]


def _machines(
    owned: Mapping[str, float], known: bool, result: Mapping[str, Any], requests: float
) -> float | None:
    """Return the host's CPU seconds for the machine, per request.

    Args:
        owned: Seconds by owner.
        known: True if the machine is among these; if not, its platform reports its cost.
        result: Has the ``cost``.
        requests: The number of requests answered meanwhile.
    """
    if known:
        return sum(spent for who, spent in owned.items() if who not in NOT_OF_MACHINE) / requests
    cost = result.get("cost")
    if not isinstance(cost, Mapping) or "cpu_s" not in cost:
        return None
    busy = finite(cost["cpu_s"], "cost.cpu_s") / number(result, "cost.wall_s")
    return busy / number(result, "stages.full.requests_per_s")


def shares(found: CpuAccount, where: str) -> dict[str, float]:
    """Return the share of each owner or kind in one place."""
    return {each.who: each.share for each in found.spent if each.where == where}
