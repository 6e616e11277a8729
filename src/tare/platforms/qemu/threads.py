"""The CPUs of QEMU's threads other than its vCPUs, and the proof of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host
from tare.hosts.trace.threads import allowed_cpus, threads_of, vhost_threads
from tare.platforms.qemu.qmp import Monitor


def emulator_cpus(
    chosen: str | tuple[int, ...],
    own: Sequence[int],
    online: Sequence[int],
    *,
    option: str = "emulator-cpus",
    housekeeping: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return the CPUs for all threads of QEMU but its vCPUs; empty for any.

    Args:
        chosen: ``any``, ``same``, ``other``, or CPUs.
        own: The CPUs that the machine's vCPUs are pinned to; empty when they are not.
        online: The host's CPUs.
        option: What chose so, for messages.
        housekeeping: The CPUs that the user reserves for other threads; empty: all others.

    Raises:
        MachineFault: The host has no such CPU.
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


async def place_disk_thread(
    host: Host, name: str, monitor: Monitor, cpus: Sequence[int]
) -> Mapping[int, list[int]]:
    """Bind the thread that QEMU has for a disk to some CPUs.

    Args:
        host: The host that it runs on.
        name: The machine's name.
        monitor: QEMU's monitor, which reports the thread's id.
        cpus: The CPUs.

    Returns:
        The thread's id, and the CPUs on which the kernel lets it run.

    Raises:
        MachineFault: It may run elsewhere.
    """
    thread = int((await monitor.execute("query-iothreads"))[0]["thread-id"])
    return {thread: await _bind(host, f"{name}: the disk's thread", thread, cpus)}


async def place_vhost_threads(
    host: Host, name: str, pid: int, cpus: Sequence[int]
) -> Mapping[int, list[int]]:
    """Bind the threads that carry a machine's packets (vhost-net) to some CPUs.

    Args:
        host: The host that it runs on.
        name: The machine's name.
        pid: QEMU's process.
        cpus: The CPUs.

    Returns:
        The threads' ids, and the CPUs on which the kernel lets them run.

    Raises:
        MachineFault: There are none, or one may run elsewhere.
    """
    threads, wanted = await vhost_threads(host, pid), f"vhost-{pid}"
    if not threads:
        raise MachineFault(f"{name}: the host has no thread {wanted} that could be bound to CPUs")
    return {
        thread: await _bind(host, f"{name}: the thread {wanted}", thread, cpus)
        for thread in threads
    }


async def _bind(host: Host, what: str, thread: int, cpus: Sequence[int]) -> list[int]:
    """Bind a thread to CPUs; return those on which the kernel lets it run.

    Raises:
        MachineFault: It may run elsewhere.
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
    """Read back the CPUs of the threads of a QEMU that are not vCPUs.

    Args:
        host: The host that it runs on.
        name: The machine's name.
        pid: QEMU's process.
        vcpus: The threads of its vCPUs.
        cpus: Where the others are to run; empty for anywhere.

    Returns:
        What is recorded of the machine; nothing if they run anywhere.

    Raises:
        MachineFault: One of them may run elsewhere.
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
