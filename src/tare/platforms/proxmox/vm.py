"""A VM on a Proxmox node: its configuration, state, disturbances and figures.

Figures are Proxmox's own averages over minutes, for the last hour (``rrddata``).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.contract import MachineSpec
from tare.platforms.proxmox.network import vnet_of
from tare.platforms.proxmox.node import Node
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.own_disk import Bus, OwnDisk
from tare.platforms.vendors.session import NoSuchObject

MIB = 1 << 20
GIB = 1 << 30
OWN = 1
"""The position of a machine's own disk on its bus; the boot disk is at 0, the CD at 2."""
_NEW_DISK = re.compile(r"[^:,\s]+:\d+(\.\d+)?(,|$)")
DISTURBING = frozenset(
    {
        *("vzdump", "qmsnapshot", "qmdelsnapshot", "qmrollback", "qmigrate", "qmmove", "qmresize"),
        *("qmsuspend", "qmresume", "qmpause", "qmconfig", "qmreset", "qmreboot"),
    }
)
"""The types of Proxmox's tasks that disturb a measurement."""


def own_bus(options: ProxmoxOptions) -> Bus | None:
    """Return the bus of a VM's own disk; None: the arm names no storage for the disk."""
    if options.disks is None:
        return None
    if options.devices == "paravirtual":
        return Bus("virtio-scsi", frozenset({"virtio_scsi"}))
    # On q35, QEMU attaches IDE drives to its AHCI controller.
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
    isolated: IsolatedNic | None = None,
) -> dict[str, Any]:
    """Return a VM's configuration in the form of Proxmox's API; qm.conf(5).

    Args:
        options: The arm's options.
        spec: The specification of the machine.
        uuid: The VM's UUID, which its firmware shows.
        configuration: The uploaded CD with the agent's configuration, by Proxmox's name.
        own: The VM's empty disk; None: it has none.
        isolated: The VM's second network card; None: it has none.
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
        # No balloon, so that none can disturb a cell.
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
        # The unit is GiB; PVE accepts fractions ($NEW_DISK_RE of PVE/API2/Qemu.pm).
        wanted[f"{bus}{OWN}"] = f"{options.disks}:{own.size / GIB},backup=0,cache=none"
    if isolated is not None:
        card = f"{options.nic if emulated else 'virtio'}={isolated.mac.upper()}"
        # The unit is MiB per second; the limit applies to each direction (tap_rate_limit of
        # PVE/Network.pm).
        limit = "" if isolated.rate is None else f",rate={isolated.rate / 8 / MIB:g}"
        wanted["net1"] = f"{card},bridge={vnet_of(isolated.network)}{limit}"
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
    """Return the host CPUs that all vCPUs of a machine use together."""
    vcpus = range(spec.shape.vcpus)
    return tuple(sorted({spec.cpus[number % len(spec.cpus)] for number in vcpus}))


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Describe how a VM's configuration differs from the request; empty if it does not."""
    for key in ("cores", "memory", "balloon", "affinity", "cpuunits", "cpulimit", "kvm"):
        if key in wanted and str(_plain(found.get(key))) != str(_plain(wanted[key])):
            return f"{key} was to be {wanted[key]}, but Proxmox reports {found.get(key)}"
    for key, value in wanted.items():
        if value and _NEW_DISK.match(str(value)) and not found.get(key):
            return f"{key} was to be {value}, but Proxmox reports nothing"
    card = str(found.get("net0", ""))
    if not card.startswith(wanted["net0"].partition(",")[0]):
        return f"net0 was to be {wanted['net0']}, but Proxmox reports {card or 'nothing'}"
    second = str(found.get("net1", ""))
    if second.lower() != str(wanted.get("net1", "")).lower():
        return f"net1 was to be {wanted.get('net1', 'absent')}, but Proxmox reports {second}"
    return ""


def _plain(value: Any) -> Any:
    """Convert a number in any notation to a float; return other values unchanged."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


class ProxmoxVm(VirtualMachine):
    """A VM that has been created.

    Args:
        node: The node.
        number: The VM's number.
        spec: The machine as requested.
        wanted: The configuration that was requested of Proxmox.
        facts: The facts that the node reported about itself.
    """

    def __init__(
        self,
        node: Node,
        number: int,
        spec: MachineSpec,
        wanted: Mapping[str, Any],
        facts: Mapping[str, Any],
    ) -> None:
        self._node = node
        self._number = number
        self._spec = spec
        self._wanted = wanted
        self._facts = facts
        self._pid: int | None = None

    async def power_on(self) -> None:
        """Check that the VM is as requested, and start it."""
        found = await self._node.config(self._number)
        if why := differing(self._wanted, found):
            raise MachineFault(why)
        await self._node.power_on(self._number)

    async def why_off(self) -> str:
        """Return why the VM does not run; empty while it runs."""
        try:
            current = await self._node.current(self._number)
        except NoSuchObject:
            return f"its VM {self._number} is gone from {self._node.name}"
        if current.get("status") == "running":
            return ""
        return f"Proxmox reports that its VM is {current.get('status')}"

    async def power_off(self) -> None:
        """Stop the VM at once; do nothing if it is stopped or gone."""
        try:
            if (await self._node.current(self._number)).get("status") != "stopped":
                await self._node.power_off(self._number)
        except NoSuchObject:
            return

    async def applied(self) -> Mapping[str, Any]:
        """Return the VM's properties as Proxmox reports them."""
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
            # All threads of QEMU share these CPUs, so each vCPU may use all of them.
            scheduling["vcpus"] = dict.fromkeys(
                map(str, range(self._spec.shape.vcpus)), str(pinned)
            )
        return {"hypervisor": hypervisor, **({"scheduling": scheduling} if scheduling else {})}

    async def cost(self) -> dict[str, float]:
        """Return the memory that the VM uses on its node; for CPU time, only averages exist."""
        current = await self._node.current(self._number)
        memory = float(current.get("memhost") or 0)
        return {"rss_bytes": memory} if memory > 0 else {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that disturbed it: Proxmox's tasks, a lock, the end of its QEMU."""
        found = [
            f"{each['type']} of {_time_text(each['starttime'])}"
            for each in await self._tasks()
            if each.get("type") in DISTURBING
        ]
        try:
            current = await self._node.current(self._number)
        except NoSuchObject:
            return (*found, f"it left {self._node.name}")
        if lock := current.get("lock"):
            found.append(f"locked for: {lock}")
        if self._pid is not None and current.get("pid") != self._pid:
            found.append(f"its QEMU is another one: process {current.get('pid')}")
        return tuple(found)

    async def _tasks(self) -> Sequence[Mapping[str, Any]]:
        listed = await self._node.ask(
            lambda node: node.tasks.get(vmid=self._number, source="all", limit=500)
        )
        return sorted(listed, key=lambda each: int(each.get("starttime", 0)))

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return Proxmox's averages over minutes that are entirely within a period."""
        if ended - begun < 2 * RRD_S:
            return None
        points = await self._node.ask(
            lambda node: node.qemu(self._number).rrddata.get(timeframe="hour", cf="AVERAGE")
        )
        return minutes_within(points, begun, ended)


def _time_text(unix: Any) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(int(unix)))


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
"""By Proxmox's name of each figure: its name in Tare, its description, and its unit."""


def minutes_within(
    points: Sequence[Mapping[str, Any]], begun: float, ended: float
) -> HypervisorFigures | None:
    """Return the averages of the minutes that are entirely within a period; None: there are none.

    A point's time is one end of its minute. Proxmox does not document which end, so the period must
    contain the minutes on both sides of it.

    Args:
        points: The points as ``rrddata`` returns them.
        begun: The period's start (Unix time in seconds).
        ended: The period's end, in the same unit.
    """
    kept = [
        (float(point["time"]), point)
        for point in points
        if begun <= float(point["time"]) - RRD_S and float(point["time"]) + RRD_S <= ended
    ]
    figures = []
    for key, (name, words, unit) in FIGURES.items():
        known = [
            (at, float(value))
            for at, value in ((at, point.get(key)) for at, point in kept)
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if known:
            ends, values = zip(*known, strict=True)
            figures.append(HypervisorFigure(name, words, unit, values, ends))
    return HypervisorFigures(SOURCE, RRD_S, "interval", tuple(figures)) if figures else None
