"""One VM of Tare's on a Proxmox node: its configuration, state, disturbances and figures.

Figures are Proxmox's own averages over minutes, of the last hour (``rrddata``).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.contract import MachineSpec
from tare.platforms.proxmox.node import Node
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.own_disk import Bus, OwnDisk
from tare.platforms.vendors.patience import patiently
from tare.platforms.vendors.session import Missing

MIB = 1 << 20
GIB = 1 << 30
OWN = 1
"""The place of a machine's own disk on its bus: what boots is in the first, the CD in the third."""
PASSING = ("lock", "is running")
"""Refusals that pass: a start whose answer was lost may begin after the look at whether it runs."""
LOCK_S = 30.0
_NEW_DISK = re.compile(r"[^:,\s]+:\d+(\.\d+)?(,|$)")
DISTURBING = frozenset(
    {
        *("vzdump", "qmsnapshot", "qmdelsnapshot", "qmrollback", "qmigrate", "qmmove", "qmresize"),
        *("qmsuspend", "qmresume", "qmpause", "qmconfig", "qmreset", "qmreboot"),
    }
)
"""Tasks of Proxmox that nothing should be measured through, by their type."""


def own_bus(options: ProxmoxOptions) -> Bus | None:
    """Return how VMs get a disk of their own; None where no storage for it is named."""
    if options.disks is None:
        return None
    if options.devices == "paravirtual":
        return Bus("virtio-scsi", frozenset({"virtio_scsi"}))
    # On q35 QEMU's IDE drives hang on its AHCI.
    return {
        "ide": Bus("IDE", frozenset({"ata_piix", "ahci"})),
        "sata": Bus("SATA", frozenset({"ahci"})),
    }[options.bus]


def settings(
    options: ProxmoxOptions,
    spec: MachineSpec,
    uuid: str,
    configuration: str,
    own: OwnDisk | None = None,
) -> dict[str, Any]:
    """Return a VM's configuration, as Proxmox's API takes it; qm.conf(5).

    Args:
        options: The arm's options.
        spec: The machine.
        uuid: Its id, which its firmware shows.
        configuration: The uploaded CD with the agent's configuration.
        own: The empty disk that it is to have; None: none.
    """
    emulated = options.devices == "emulated"
    bus = options.bus if emulated else "scsi"
    image = str(options.image)
    disk = f"{options.disks}:0,import-from={image}" if options.is_disk else f"{image},media=cdrom"
    scheduled = options.scheduling_of(spec.role)
    wanted: dict[str, Any] = {
        "name": spec.name,
        "cores": spec.shape.vcpus,
        "sockets": 1,
        "memory": -(-spec.shape.memory // MIB),
        # Without a balloon, none is blown up in a cell.
        "balloon": 0,
        "cpu": options.cpu,
        "kvm": int(options.kvm),
        "machine": options.machine,
        "ostype": "l26",
        "smbios1": f"uuid={uuid}",
        "scsihw": "virtio-scsi-single",
        "net0": f"{options.nic if emulated else 'virtio'},bridge={options.bridge}",
        f"{bus}0": disk,
        f"{bus}2": f"{configuration},media=cdrom",
        "boot": f"order={bus}0",
        "onboot": 0,
    }
    if own is not None:
        # In GiB, of which PVE takes fractions ($NEW_DISK_RE of PVE/API2/Qemu.pm).
        wanted[f"{bus}{OWN}"] = f"{options.disks}:{own.size / GIB},backup=0,cache=none"
    if spec.cpus:
        wanted["affinity"] = ",".join(map(str, affinity(spec)))
    if scheduled.weight is not None:
        wanted["cpuunits"] = scheduled.weight
    if scheduled.cap is not None:
        wanted["cpulimit"] = scheduled.cap
    if options.pool is not None:
        wanted["pool"] = options.pool
    return wanted


def affinity(spec: MachineSpec) -> tuple[int, ...]:
    """Return the host CPUs that a machine's vCPUs have, all together."""
    vcpus = range(spec.shape.vcpus)
    return tuple(sorted({spec.cpus[number % len(spec.cpus)] for number in vcpus}))


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return what of a VM's configuration is not as was asked, in words; empty if nothing."""
    for key in ("cores", "memory", "balloon", "affinity", "cpuunits", "cpulimit", "kvm"):
        if key in wanted and str(_plain(found.get(key))) != str(_plain(wanted[key])):
            return f"{key} was to be {wanted[key]}, but Proxmox says {found.get(key)}"
    for key, value in wanted.items():
        if value and _NEW_DISK.match(str(value)) and not found.get(key):
            return f"{key} was to be {value}, but Proxmox says nothing"
    said = str(found.get("net0", ""))
    if not said.startswith(wanted["net0"].partition(",")[0]):
        return f"net0 was to be {wanted['net0']}, but Proxmox says {said or 'nothing'}"
    return ""


def _plain(value: Any) -> Any:
    """Return a number as a number, however it is written."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


class ProxmoxVm(VirtualMachine):
    """A VM that was made.

    Args:
        node: Where.
        number: Its number.
        spec: What was asked for.
        wanted: The same, as it was asked of Proxmox.
        facts: What the node said of itself.
        gone: Takes back what belongs to it, once it is removed.
    """

    def __init__(
        self,
        node: Node,
        number: int,
        spec: MachineSpec,
        wanted: Mapping[str, Any],
        facts: Mapping[str, Any],
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._number = number
        self._spec = spec
        self._wanted = wanted
        self._facts = facts
        self._gone = gone
        self._pid: int | None = None

    async def power_on(self) -> None:
        """Start it, once it is known to be as was asked."""
        found = await self._node.config(self._number)
        if why := differing(self._wanted, found):
            raise MachineFault(why)
        await self._node.power_on(self._number)

    async def why_off(self) -> str:
        """Return why it does not run."""
        try:
            current = await self._node.current(self._number)
        except Missing:
            return f"its VM {self._number} is gone from {self._node.name}"
        if current.get("status") == "running":
            return ""
        return f"Proxmox says that its VM is {current.get('status')}"

    async def power_off(self) -> None:
        """Stop it at once."""
        try:
            if (await self._node.current(self._number)).get("status") != "stopped":
                await self._node.power_off(self._number)
        except Missing:
            return

    async def remove(self) -> None:
        """Remove it, and what belongs to it."""
        await remove_patiently(self._node, self._number, self._spec.name)
        await self._gone()

    async def applied(self) -> Mapping[str, Any]:
        """Return what Proxmox says that it is."""
        config = await self._node.config(self._number)
        current = await self._node.current(self._number)
        self._pid = current.get("pid")
        shown = {
            "qemu": current.get("running-qemu"),
            "machine": current.get("running-machine"),
            "HA": "managed" if current.get("ha", {}).get("managed") else "not managed",
        }
        hypervisor = {**self._facts, **{name: value for name, value in shown.items() if value}}
        scheduling: dict[str, Any] = {
            key: config[key] for key in ("affinity", "cpuunits", "cpulimit") if key in config
        }
        if pinned := config.get("affinity"):
            # All of QEMU's threads have them, and so has each vCPU.
            scheduling["vcpus"] = dict.fromkeys(
                map(str, range(self._spec.shape.vcpus)), str(pinned)
            )
        return {"hypervisor": hypervisor, **({"scheduling": scheduling} if scheduling else {})}

    async def cost(self) -> dict[str, float]:
        """Return the memory that it takes of its node; CPU time Proxmox tells as averages only."""
        current = await self._node.current(self._number)
        memory = float(current.get("memhost") or 0)
        return {"rss_bytes": memory} if memory > 0 else {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return what befell it: tasks of Proxmox, a lock, and the end of its QEMU."""
        told = [
            f"{each['type']} of {_when(each['starttime'])}"
            for each in await self._tasks()
            if each.get("type") in DISTURBING
        ]
        try:
            current = await self._node.current(self._number)
        except Missing:
            return (*told, f"it left {self._node.name}")
        if lock := current.get("lock"):
            told.append(f"locked for: {lock}")
        if self._pid is not None and current.get("pid") != self._pid:
            told.append(f"its QEMU is another one: process {current.get('pid')}")
        return tuple(told)

    async def _tasks(self) -> Sequence[Mapping[str, Any]]:
        listed = await self._node.ask(
            lambda node: node.tasks.get(vmid=self._number, source="all", limit=500)
        )
        return sorted(listed, key=lambda each: int(each.get("starttime", 0)))

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return Proxmox's averages over minutes that lie wholly in a while."""
        if ended - begun < 2 * RRD_S:
            return None
        points = await self._node.ask(
            lambda node: node.qemu(self._number).rrddata.get(timeframe="hour", cf="AVERAGE")
        )
        return minutes_within(points, begun, ended)


def _when(unix: Any) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(int(unix)))


async def remove_patiently(node: Node, number: int, name: str) -> bool:
    """Remove a VM by number and name; one that is locked or only just started is waited for.

    Returns:
        Whether there was one.
    """
    return await patiently(lambda: node.remove_named(number, name), PASSING, LOCK_S)


RRD_S = 60
"""Seconds between two points of the hour's figures (PVE/RRD.pm)."""
SOURCE = "Proxmox's rrddata, averages"
FIGURES = {
    "cpu": ("cpu-used", "used of its vCPUs' time, as a share of all of them", "1"),
    "mem": ("memory-used", "used of its memory", "B"),
    "netin": ("net-in", "received over the network", "B/s"),
    "netout": ("net-out", "sent over the network", "B/s"),
    "diskread": ("disk-read", "read from its disks", "B/s"),
    "diskwrite": ("disk-written", "written to its disks", "B/s"),
}
"""Each figure by Proxmox's name: what it is called here, what it is, and in which unit."""


def minutes_within(
    points: Sequence[Mapping[str, Any]], begun: float, ended: float
) -> HypervisorFigures | None:
    """Return the averages of the minutes that lie wholly within a while; None: none does.

    A point's time is one end of its minute, and Proxmox does not say which: both minutes beside it
    have to lie within.

    Args:
        points: As ``rrddata`` returns them.
        begun: Unix time in seconds.
        ended: The same.
    """
    kept = [
        (float(point["time"]), point)
        for point in points
        if begun <= float(point["time"]) - RRD_S and float(point["time"]) + RRD_S <= ended
    ]
    figures = []
    for key, (name, words, unit) in FIGURES.items():
        told = [(at, point.get(key)) for at, point in kept]
        known = [
            (at, float(value))
            for at, value in told
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if known:
            ends, values = zip(*known, strict=True)
            figures.append(HypervisorFigure(name, words, unit, values, ends))
    return HypervisorFigures(SOURCE, RRD_S, "interval", tuple(figures)) if figures else None
