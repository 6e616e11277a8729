"""Find limits of a cell other than the proxy: its client, its origin, or the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy import load_search
from tare.workloads.network.proxy.account import (
    HOST,
    CpuAccount,
    HypervisorUse,
    hypervisor_use_in,
    shares,
)
from tare.workloads.values import mapping, number

BUSY = 0.9
"""A client or origin that uses more of its CPUs than this may have been the limit."""
HEADROOM = 1.5
"""The factor by which the direct path must be faster than the proxied one."""


def limits(
    rounds: Sequence[Mapping[str, Any]],
    found: CpuAccount,
    direct: float,
    proxied: float,
    straight: float | None = None,
) -> list[str]:
    """Describe everything except the proxy that may have limited the cell; empty: nothing.

    Args:
        rounds: For each round of the load: the CPUs that the client and the origin may use
            (``outside``: lists by role; an empty one: any), which roles are on another host
            (``elsewhere``) or have a kernel of their own (``own_kernel``), the machine's own CPUs
            (``cpus``; empty: it may run anywhere), whether its platform cannot pin it
            (``unpinned``), and the ``accounts`` of all. All rounds have the same placement.
        found: The account of CPU time.
        direct: Requests per second without the proxy, through the same switching.
        proxied: Requests per second through the proxy.
        straight: Requests per second with nothing between client and origin; None: not measured.
    """
    words = []
    if straight is not None and straight < HEADROOM * proxied:
        words.append(
            f"client and origin make {straight:.0f} requests/s with nothing between them, "
            f"{straight / proxied:.2f} times as many as the proxied path ({HEADROOM} are asked for)"
        )
    elif direct < HEADROOM * proxied:
        words.append(
            f"the direct path makes {direct:.0f} requests/s, {direct / proxied:.2f} times as many "
            f"as the proxied one ({HEADROOM} are asked for)"
        )
    result, accounts = rounds[-1], [mapping(each, "accounts") for each in rounds]
    outside = {role: tuple(own) for role, own in result["outside"].items()}
    apart = frozenset(result.get("own_kernel", ()))
    hosted = {role: cpus for role, cpus in outside.items() if role not in apart}
    used = {who: share * found.cpus for who, share in shares(found, HOST).items()}
    machine = {int(cpu) for cpu in result.get("cpus", ())}
    below, elsewhere = _mean_below(rounds), frozenset(result.get("elsewhere", ()))
    for roles in _sharing(hosted):
        own = outside[roles[0]]
        who, busy = " and ".join(roles), sum(used.get(role, 0.0) for role in roles) / len(own)
        # Use of the machine's own CPUs is reported below. If the host is itself a guest, its CPU
        # numbers are not those of the computer.
        apart_from_it = below is None and not machine & set(own)
        full = _busy(accounts, "host", own) if apart_from_it else 0.0
        if busy > BUSY:
            words.append(f"{who} used {100 * busy:.0f} % of their CPU time")
        elif full > BUSY:
            words.append(
                f"{who} used {100 * busy:.0f} % of their CPU time, and other work the rest of "
                f"the {100 * full:.0f} % for which these CPUs were busy: what carries the "
                "machine’s packets may be on them"
            )
    words += _busy_by_own_kernels(accounts, apart & outside.keys())
    here = {role: cpus for role, cpus in outside.items() if role not in elsewhere}
    if below is not None:
        words += _withheld_by_host(
            below, machine, {role: here[role] for role in here if role not in apart}
        )
        here = {role: here[role] for role in here if role in apart}
    return words + _sharing_machine_cpus(here, machine, unpinned=bool(result.get("unpinned")))


def unended(rates: Mapping[int, float], most: int) -> list[str]:
    """Return a warning if a search for the highest rate ended while the rate was still rising.

    Args:
        rates: Rate by number of requests in flight, in the order in which they were tried.
        most: The maximum number of requests in flight.
    """
    if most not in rates or load_search.steps_without(rates) > 0:
        return []
    return [f"the rate had not stopped rising at {most} requests at once: raise `most-connections`"]


def _sharing(outside: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Return the roles in groups that have the same CPUs."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for role, cpus in outside.items():
        if cpus:
            groups.setdefault(tuple(cpus), []).append(role)
    return list(groups.values())


def _busy_by_own_kernels(accounts: Sequence[Mapping[str, Any]], roles: Iterable[str]) -> list[str]:
    """Describe the roles whose own kernels report busy CPUs: the host cannot see their CPU time."""
    words = []
    for role in sorted(roles):
        busy = _busy(accounts, role)
        if busy > BUSY:
            words.append(f"the {role}’s own computer was busy {100 * busy:.0f} %")
    return words


def _busy(
    accounts: Sequence[Mapping[str, Any]], whose: str, cpus: Sequence[int] | None = None
) -> float:
    """Return the share of the time in all rounds in which CPUs were busy, as their kernel reports.

    Args:
        accounts: The accounts of each round.
        whose: The account to use.
        cpus: The CPUs; None: all CPUs of that kernel.
    """
    total = idle = 0.0
    for each in accounts:
        account = mapping(each, whose)
        before, after = (mapping(account, when) for when in ("before", "after"))
        for cpu, spent in kernel.cpu_seconds(before, after, number(account, "hertz")).items():
            if cpus is None or cpu in cpus:
                total += sum(spent.values())
                idle += spent["idle"] + spent["iowait"]
    return 1 - idle / total if total > 0 else 0.0


def _mean_below(rounds: Sequence[Mapping[str, Any]]) -> HypervisorUse | None:
    """Return the last use of the CPUs below the host's kernel, with the mean of the host's use."""
    found = [below for each in rounds if (below := hypervisor_use_in(each)) is not None]
    return replace(found[-1], host=fmean(each.host for each in found)) if found else None


def _withheld_by_host(
    below: HypervisorUse, machine: set[int], here: Mapping[str, Sequence[int]]
) -> list[str]:
    """Describe how the host's kernel may have limited client and origin, if it is a guest itself.

    Its CPU numbers are not those of the computer. At least one of the CPUs that it is restricted to
    must be left for the threads that carry the machine's packets.
    """
    own = set(below.host_on)
    if not own or not here:
        return []
    who = " and ".join(here)
    if not machine or own & machine:
        return [
            f"the host’s kernel, and with it {who}, may run on the machine’s own CPUs: keep it "
            "off them (`dom0-cpus`)"
        ]
    theirs = {cpu for cpus in here.values() for cpu in cpus}
    if len(theirs) >= len(own) and below.host > BUSY:
        return [
            f"the host’s kernel used {below.host:.2f} of its {len(own)} CPUs, which {who} share "
            "with what carries the machine’s packets: give it one more (`dom0-cpus`)"
        ]
    return []


def _sharing_machine_cpus(
    here: Mapping[str, Sequence[int]], machine: set[int], *, unpinned: bool
) -> list[str]:
    """Describe which of client and origin may have run on the machine's own CPUs."""
    roles = [role for role, cpus in here.items() if not machine or not cpus or machine & set(cpus)]
    if not roles:
        return []
    who = f"{' and '.join(roles)} may run on the machine’s own CPUs"
    if not machine and unpinned:
        return [f"{who}, as its platform cannot bind it to any"]
    if not machine:
        return [f"{who}, as it is kept to none: write `subject: {{cpus: pinned}}`"]
    return [f"{who}: leave some to them, as by `--set shape.vcpus=1`"]
