"""The CPUs of QEMU's threads other than its vCPUs, and the proof that they run there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host
from tare.hosts.trace.threads import allowed_cpus, threads_of, vhost_threads
from tare.platforms.qemu.qmp import Monitor
from tare.study.planning.host_cpus import HostCpus


def emulator_cpus(
    chosen: str | tuple[int, ...],
    own: Sequence[int],
    online: Sequence[int],
    *,
    option: str = "emulator-cpus",
    housekeeping: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return the CPUs for all threads of QEMU except its vCPUs; empty for any.

    Args:
        chosen: ``any``, ``same``, ``other``, or CPU numbers.
        own: The CPUs to which the machine's vCPUs are pinned; empty if they are not.
        online: The host's CPUs.
        option: The option with this choice, for messages.
        housekeeping: The CPUs that the user reserves for other threads; empty: all others.

    Raises:
        MachineFault: The host has no such CPU, or no CPU is left for ``other``.
    """
    if not isinstance(chosen, str):
        if missing := [cpu for cpu in chosen if cpu not in online]:
            raise MachineFault(
                f"{option}: the host has no CPU {', '.join(map(str, missing))}",
                f"it has {', '.join(map(str, online))}",
            )
        return tuple(sorted(set(chosen)))
    if chosen == "any" or not own:
        return tuple(housekeeping)
    if chosen == "same":
        return tuple(sorted(set(own)))
    if others := tuple(cpu for cpu in housekeeping or online if cpu not in own):
        return others
    raise MachineFault(
        f"{option}: other: the vCPUs are pinned to all of the host's CPUs",
        f"give the machine fewer vCPUs, or use `{option}: same`",
    )


def own_thread_cpus(
    chosen: str | tuple[int, ...], own: Sequence[int], host: HostCpus, option: str
) -> tuple[int, ...]:
    """Return the CPUs for a thread with an option of its own; all of the host's for any.

    Args:
        chosen: As for :func:`emulator_cpus`.
        own: The CPUs to which the machine's vCPUs are pinned; empty if they are not.
        host: The host's CPUs.
        option: The option with this choice, for messages.

    Raises:
        MachineFault: As for :func:`emulator_cpus`.
    """
    kept = host.housekeeping
    return emulator_cpus(chosen, own, host.online, option=option, housekeeping=kept) or host.online


async def place_disk_thread(
    host: Host, name: str, monitor: Monitor, cpus: Sequence[int]
) -> Mapping[int, list[int]]:
    """Bind QEMU's thread for a disk to some CPUs.

    Args:
        host: The host on which it runs.
        name: The machine's name.
        monitor: QEMU's monitor, which reports the thread's id.
        cpus: The CPU numbers.

    Returns:
        The thread's id, with the CPUs on which the kernel lets it run.

    Raises:
        MachineFault: The kernel lets it run on other CPUs.
    """
    thread = int((await monitor.execute("query-iothreads"))[0]["thread-id"])
    return {thread: await _bind(host, f"{name}: the disk's thread", thread, cpus)}


async def place_vhost_threads(
    host: Host, name: str, pid: int, cpus: Sequence[int]
) -> Mapping[int, list[int]]:
    """Bind the threads that carry a machine's packets (vhost-net) to some CPUs.

    Args:
        host: The host on which it runs.
        name: The machine's name.
        pid: The id of QEMU's process.
        cpus: The CPU numbers.

    Returns:
        The threads' ids, each with the CPUs on which the kernel lets it run.

    Raises:
        MachineFault: There are no such threads, or the kernel lets one run on other CPUs.
    """
    threads, wanted = await vhost_threads(host, [pid]), f"vhost-{pid}"
    if not threads:
        raise MachineFault(f"{name}: the host has no thread {wanted} that could be bound to CPUs")
    return {
        thread: await _bind(host, f"{name}: the thread {wanted}", thread, cpus)
        for thread in threads
    }


async def _bind(host: Host, what: str, thread: int, cpus: Sequence[int]) -> list[int]:
    """Bind a thread to CPUs; return those on which the kernel lets it run.

    Raises:
        MachineFault: The kernel lets it run on other CPUs.
    """
    words = ",".join(map(str, cpus))
    done = await host.run(["taskset", "-pc", words, str(thread)], timeout_s=30)
    allowed = await allowed_cpus(host, thread)
    if not done.ok or set(allowed) != set(cpus):
        raise MachineFault(
            f"{what} was to run on CPUs {list(cpus)}, but the kernel says {list(allowed)} "
            f"({done.words()})"
        )
    return list(allowed)


async def prove_placement(
    host: Host, name: str, pid: int, vcpus: Sequence[int], cpus: Sequence[int]
) -> Mapping[str, Any]:
    """Read back the CPUs of QEMU's threads that are not vCPUs.

    Args:
        host: The host on which it runs.
        name: The machine's name.
        pid: The id of QEMU's process.
        vcpus: The threads to leave out: its vCPUs, and others with their own CPUs.
        cpus: The CPUs on which the others must run; empty: any.

    Returns:
        The CPUs and thread names for the machine's record; empty if the threads may run anywhere.

    Raises:
        MachineFault: The kernel lets one of them run on other CPUs.
    """
    if not cpus:
        return {}
    others = {
        thread: comm
        for thread, comm in (await threads_of(host, [pid])).items()
        if thread not in vcpus
    }
    for thread, comm in others.items():
        allowed = await allowed_cpus(host, thread)
        # A thread that has ended meanwhile has no CPUs.
        if allowed and set(allowed) != set(cpus):
            raise MachineFault(
                f"{name}: QEMU's thread {comm} was to run on CPUs {list(cpus)}, but the kernel "
                f"says {list(allowed)}"
            )
    return {"emulator": {"cpus": list(cpus), "threads": sorted(set(others.values()))}}
