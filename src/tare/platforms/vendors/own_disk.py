"""The disk of a machine's own at a maker's hypervisor: empty when it boots, formatted inside.

The server makes an empty virtual disk of the shape's size; the machine's configuration tells the
live image's agent that size and how to format it (agent/src/boot/empty_disk.rs), so that the file
system is the same as the one that Tare makes on hosts. Which device model carries the disk, the
guest's kernel proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.platforms.linux.disk import FORMAT

MIB = 1 << 20
NOT_DROPPED = "Tare cannot make a hypervisor forget that it reaches by its API"


@dataclass(frozen=True)
class Bus:
    """How a machine's own disk is attached.

    Args:
        name: The device model in words, such as ``virtio-scsi``; what a statement calls it.
        drivers: The guest kernel's drivers for it, as they are named below ``/sys/bus``: one of
            them carries the disk.
        instead: What to do where another driver does; empty: nothing is known.
    """

    name: str
    drivers: frozenset[str]
    instead: str = ""


@dataclass(frozen=True)
class OwnDisk:
    """The disk that one machine was given.

    Args:
        size: Its size in bytes.
        bus: How it is attached.
    """

    size: int
    bus: Bus

    def unlike(self, proof: Mapping[str, Any]) -> str:
        """Return which other device model the disk really has, in words; empty: the right one.

        A machine that found no disk is none the worse for workloads without one; those that need
        it fail with the agent's own reason.

        Args:
            proof: The agent's, of its machine.
        """
        carried = disk_drivers(proof)
        if not carried or carried & self.bus.drivers:
            return ""
        told = (
            f"its disk is driven by {', '.join(sorted(carried))}, and was to be on {self.bus.name} "
            f"({' or '.join(sorted(self.bus.drivers))})"
        )
        return f"{told}: {self.bus.instead}" if self.bus.instead else told

    def applied(self, proof: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is told of the disk with the machine; empty where that found none."""
        found = proof.get("scratch")
        if not isinstance(found, Mapping):
            return {}
        return {
            "disk": {
                "attached": self.bus.name,
                "file_system": found.get("file_system"),
                "bytes": self.size,
            }
        }


def own_disk(size: int, bus: Bus | None) -> OwnDisk | None:
    """Return the disk that a machine is to be given; None: its shape or its platform has none.

    Args:
        size: That of the shape, in bytes.
        bus: How its platform attaches it; None: it gives none.

    Raises:
        MachineFault: No hypervisor makes a disk of exactly that size.
    """
    if not size or bus is None:
        return None
    if size % MIB:
        raise MachineFault(
            f"a disk of {size} bytes is not to be had from a hypervisor: it rounds",
            "write whole mebibytes, such as `disk: 512MiB`",
        )
    return OwnDisk(size, bus)


def scratch_words(size: int) -> dict[str, Any]:
    """Return what a live machine's configuration says of the empty disk that it is to format.

    Args:
        size: Its size in bytes, by which the agent knows it.
    """
    return {"scratch": {"bytes": size, "format": [*FORMAT]}}


def disk_drivers(proof: Mapping[str, Any]) -> frozenset[str]:
    """Return the guest kernel's drivers that carry its own disk, from all that it hangs on."""
    found = proof.get("scratch")
    drivers = found.get("drivers") if isinstance(found, Mapping) else None
    return frozenset(map(str, drivers or ()))
