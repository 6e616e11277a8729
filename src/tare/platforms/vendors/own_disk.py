"""A machine's own disk at a vendor's hypervisor: empty when it boots, formatted by the agent.

The server creates an empty virtual disk of the shape's size. The machine's configuration gives the
live image's agent that size and how to format it (agent/src/boot/empty_disk.rs), so that the file
system is the same as the one that Tare makes on hosts. The guest's kernel proves which device model
the disk has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.platforms.linux.disk import FORMAT

MIB = 1 << 20
NOT_DROPPED = "Tare cannot drop the caches of a hypervisor that it reaches through an API"


@dataclass(frozen=True)
class Bus:
    """The bus to which a machine's own disk is attached.

    Args:
        name: The device model in words, such as ``virtio-scsi``, as in a platform's statement.
        drivers: The guest kernel's drivers for it, as named in ``/sys/bus``: the disk must have one
            of them.
        instead: What the user can do if the disk has another driver; empty: nothing is known.
    """

    name: str
    drivers: frozenset[str]
    instead: str = ""


@dataclass(frozen=True)
class OwnDisk:
    """The disk of one machine.

    Args:
        size: Its size in bytes.
        bus: The bus to which it is attached.
    """

    size: int
    bus: Bus

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Describe the wrong device model that the disk has; empty: the model is right.

        A machine that found no disk is accepted: workloads that need the disk fail with the
        agent's own reason.

        Args:
            proof: The proof of the machine's agent.
        """
        carried = disk_drivers(proof)
        if not carried or carried & self.bus.drivers:
            return ""
        wrong = (
            f"its disk is driven by {', '.join(sorted(carried))}, and was to be on {self.bus.name} "
            f"({' or '.join(sorted(self.bus.drivers))})"
        )
        return f"{wrong}: {self.bus.instead}" if self.bus.instead else wrong

    def applied(self, proof: Mapping[str, Any]) -> dict[str, Any]:
        """Return the disk's entry in the machine's record; empty if the machine found no disk."""
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
    """Return the disk that a machine gets; None: its shape or its platform has no disk.

    Args:
        size: The shape's disk size in bytes.
        bus: The bus to which its platform attaches disks; None: it attaches none.

    Raises:
        MachineFault: The size is not a whole number of mebibytes, so hypervisors would round it.
    """
    if not size or bus is None:
        return None
    if size % MIB:
        raise MachineFault(
            f"hypervisors round the size of a disk of {size} bytes",
            "write whole mebibytes, such as `disk: 512MiB`",
        )
    return OwnDisk(size, bus)


def scratch_configuration(size: int) -> dict[str, Any]:
    """Return the configuration with which a live machine formats its empty disk.

    Args:
        size: The disk's size in bytes, by which the agent recognises it.
    """
    return {"scratch": {"bytes": size, "format": [*FORMAT]}}


def disk_drivers(proof: Mapping[str, Any]) -> frozenset[str]:
    """Return the guest kernel's drivers for the machine's own disk and for the buses it is on."""
    found = proof.get("scratch")
    drivers = found.get("drivers") if isinstance(found, Mapping) else None
    return frozenset(map(str, drivers or ()))
