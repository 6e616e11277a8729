"""CPU time of each Xen domain, from Xen itself: dom0's kernel sees only its own vCPUs."""

from __future__ import annotations

from collections.abc import Iterable

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.trace.threads import threads_of
from tare.platforms.contract import CpuAccounting
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.output import Domain
from tare.platforms.xen.settings import pinned_cpus

DOM0 = 0


def cpu_accounting(
    domains: tuple[Domain, ...],
    own: int,
    batch: str,
    cpus: int,
) -> CpuAccounting:
    """Return the CPU time of each domain, from the lines of ``xl list``.

    Args:
        domains: All domains.
        own: The machine's domain number.
        batch: The prefix of the names of all machines in its batch.
        cpus: The computer's number of CPUs, as Xen reports it.

    Raises:
        MachineFault: The machine, or dom0, is missing in the list.
    """
    spent = {each.id: each.cpu_s for each in domains}
    if own not in spent or DOM0 not in spent:
        raise MachineFault(f"`xl list` does not list domain {own if DOM0 in spent else DOM0}")
    others: dict[str, float] = {}
    for each in domains:
        if each.id not in (own, DOM0):
            name = each.name.removeprefix(batch) or str(each.id)
            others[name] = others.get(name, 0.0) + each.cpu_s
    return CpuAccounting(own, cpus, spent[own], spent[DOM0], others)


async def cpus_of(host: Host) -> int:
    """Return the computer's number of CPUs, as Xen reports it.

    Raises:
        MachineFault: Xen does not report it.
    """
    answer = xen_output.info(await xen.asked(host, "info")).get("nr_cpus", "")
    if not answer.isdecimal() or not int(answer):
        raise MachineFault(f"{host.name}: `xl info` reports no CPUs (nr_cpus is {answer!r})")
    return int(answer)


async def dom0s_cpus(host: Host, cpus: int) -> tuple[int, ...]:
    """Return the computer's CPUs on which dom0's vCPUs may run.

    Args:
        host: The host.
        cpus: The computer's number of CPUs.

    Raises:
        MachineFault: Xen's toolstack does not answer.
    """
    return within((await pinned_cpus(host, 0)).values(), cpus)


def within(listed: Iterable[str], cpus: int) -> tuple[int, ...]:
    """Parse lists of CPUs as ``xl vcpu-list`` prints them: ``0-1,3``, or ``all``.

    Text in any other form counts as an empty list.
    """
    found: set[int] = set()
    for part in (part for text in listed for part in text.split(",")):
        first, _, last = part.partition("-")
        if part == "all":
            found |= set(range(cpus))
        elif first.isdecimal() and (last or first).isdecimal() and len(part) < 12:
            found |= set(range(int(first), min(int(last or first), cpus - 1) + 1))
    return tuple(sorted(found))


async def device_threads(host: Host, domain: int) -> tuple[int, ...]:
    """Return the threads of the QEMU that emulates a domain's devices; empty without a QEMU."""
    key = f"/local/domain/{domain}/image/device-model-pid"
    answer = await host.run(["xenstore-read", key], timeout_s=xen.COMMAND_S)
    pid = answer.stdout.decode(errors="replace").strip()
    return tuple(await threads_of(host, [int(pid)])) if answer.ok and pid.isdecimal() else ()
