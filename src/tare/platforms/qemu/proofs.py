"""All that is proven of a QEMU before its guest runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.hosts import Host
from tare.platforms.contract import Shape
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.qemu.disk import prove_disk
from tare.platforms.qemu.features import prove_features
from tare.platforms.qemu.memory import prove_memory
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.qmp import Monitor
from tare.platforms.qemu.threads import emulator_cpus, place_disk_thread, prove_placement


@dataclass(frozen=True)
class Asked:
    """What was requested of one QEMU, and the monitor that reports what it did.

    Args:
        name: The machine's name.
        options: Its options.
        shape: Its size.
        monitor: QEMU's monitor.
        disk: The disk of its own, where it has one.
    """

    name: str
    options: QemuOptions
    shape: Shape
    monitor: Monitor
    disk: OwnDisk | None

    async def proven(
        self, host: Host, pid: int, vcpus: Sequence[int], cpus: Sequence[int]
    ) -> Mapping[str, Any]:
        """Bind the disk's thread where it was asked to run, and see that all is as asked.

        Args:
            host: Where it runs.
            pid: QEMU's process.
            vcpus: The threads of its vCPUs.
            cpus: The CPUs that these are pinned to; empty: anywhere.

        Returns:
            What is recorded of the machine.

        Raises:
            MachineFault: Something is otherwise.
        """
        asked, online = self.options, host.topology().online
        kept = host.topology().housekeeping
        own: Mapping[int, list[int]] = {}
        if asked.iothread_cpus is not None:
            option = "iothread-cpus"
            allowed = (
                emulator_cpus(asked.iothread_cpus, cpus, online, option=option, housekeeping=kept)
                or online
            )
            own = await place_disk_thread(host, self.name, self.monitor, allowed)
        elsewhere = emulator_cpus(asked.emulator_cpus, cpus, online, housekeeping=kept)
        record = {
            **await prove_placement(host, self.name, pid, (*vcpus, *own), elsewhere),
            **({"disk_thread": next(iter(own.values()))} if own else {}),
            **await prove_features(self.name, asked.cpu_features, self.monitor),
            **await prove_memory(
                self.name,
                self.shape,
                host,
                pid,
                hugepages=asked.hugepages,
                locked=asked.mlock,
                touched=asked.prealloc,
                node=asked.numa_node,
            ),
        }
        if self.disk is not None:
            maps = await host.read(f"/proc/{pid}/maps")
            record["disk"] = await prove_disk(self.name, asked, self.monitor, self.disk, maps)
        return record
