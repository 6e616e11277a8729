"""Import the disks of QEMU's command line: their storage, cache mode and bus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from tare.platforms.imported.model import CACHE_OF_QEMU, FIRMWARE, Description, Disk
from tare.platforms.imported.notes import Values, shown
from tare.platforms.imported.parsing import parse_whole_number

OTHERS = frozenset({"floppy", "sd", "mtd"})
"""Kinds of ``-drive if=`` that are not disks."""
DISKS = {
    "virtio-blk": "virtio",
    "scsi-hd": "scsi",
    "scsi-block": "scsi",
    "scsi-disk": "scsi",
    "nvme": "nvme",
    "ide-hd": "ide",
    "ide-drive": "ide",
    "vhost-user-blk": "virtio",
}
CONTROLLER = "virtio-scsi"
OTHER_CONTROLLERS = re.compile(r"(lsi\w*|megasas.*|pvscsi|mptsas1068|dc390|am53c974|sym53c\w+)")
PLACED = frozenset(
    {"id", "bus", "addr", "unit", "channel", "scsi-id", "lun", "bootindex", "device_id", "serial"}
    | {"multifunction", "chassis_nr", "chassis", "port", "slot", "acpi-index", "ver", "model"}
    | {"product", "vendor", "wwn", "node-name", "read-only", "locking", "auto-read-only", "romfile"}
    | {"index", "media", "readonly", "dev", "mac", "rombar", "rerror", "werror", "on"}
)
"""Properties that only locate or identify a device."""
_TRANSPORT = re.compile(r"-(?:pci|device|ccw)(?:-(?:non-)?transitional)?$")
_FORMATS = frozenset({"raw", "qcow2", "qcow", "vmdk", "vdi", "vhdx", "vpc", "qed", "luks"})
_FILTERS = frozenset({"throttle", "copy-on-read", "copy-before-write", "blkdebug", "blkverify"})
_REMOTE = re.compile(r"(rbd|nbd|iscsi|nfs|gluster|ssh|https?|ftps?|sheepdog|fat|json)[:+]")
_DEEPEST = 16
Nodes = Mapping[str, Mapping[str, str]]


def plain(kind: str) -> str:
    """Return a device's name without the suffix of the bus that it is plugged into."""
    return _TRANSPORT.sub("", kind)


def pairs(value: str, first: str) -> dict[str, str]:
    """Parse an option's properties; ``first`` is the name of a value without a name.

    Newer versions of libvirt and Proxmox write them as JSON.

    Raises:
        ValueError: The text begins like JSON but is not valid JSON.
    """
    if value.startswith("{"):
        try:
            return dict(_flat(json.loads(value)))
        except json.JSONDecodeError as error:
            raise ValueError(f"an option's JSON cannot be read: {error.msg}") from None
    values: dict[str, str] = {}
    # A comma within a value is doubled.
    for number, part in enumerate(value.replace(",,", "\0").split(",")):
        key, equals, held = part.replace("\0", ",").partition("=")
        if equals:
            # A list property of QEMU is given once for each of its values.
            values[f"{key}.{number}" if key == "host-nodes" and key in values else key] = held
        elif number == 0 and first:
            values[first] = key
        elif key:
            values[key] = "on"
    return values


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, held in value.items():
            yield from _flat(held, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, held in enumerate(value):
            yield from _flat(held, f"{name}.{number}")
    elif isinstance(value, bool):
        yield name, "on" if value else "off"
    elif isinstance(value, str | int | float):
        yield name, str(value)
    elif value is None:
        yield name, "null"


class Backend:
    """The storage of a disk: a chain of nodes from the device to the file or block device.

    Args:
        values: The values of the outermost node, and of the nodes within it.
        nodes: All named nodes, by name.
    """

    def __init__(self, values: Mapping[str, str], nodes: Nodes) -> None:
        self.layers: list[Values] = []
        self._follow(dict(values), nodes)

    def _follow(self, values: dict[str, str], nodes: Nodes) -> None:
        for _ in range(_DEEPEST):
            inner = {
                key.removeprefix("file."): value
                for key, value in values.items()
                if key.startswith("file.")
            }
            own = {key: value for key, value in values.items() if not key.startswith("file.")}
            below = nodes.get(own.get("file", ""))
            if below is not None and below.get("node-name", below.get("id")) == own["file"]:
                inner = dict(below)
                del own["file"]
            if own.get("file", "").startswith("json:"):
                inner = pairs(own.pop("file").removeprefix("json:"), "")
            self.layers.append(Values("disk", own))
            if not inner:
                return
            values = inner

    def get(self, *names: str) -> str:
        """Return a property from the innermost node that has it; empty if no node has it."""
        found = ""
        for layer in self.layers:
            for name in names:
                found = layer.get(name, found)
        return found

    @property
    def form(self) -> str:
        """The format of the file; empty if it is not given."""
        values = [layer.get(name, "") for layer in self.layers for name in ("format", "driver")]
        return next((each for each in values if each in _FORMATS), "")

    @property
    def holder(self) -> str:
        """The driver of the innermost storage, such as ``file`` or ``host_device``."""
        drivers = [layer.get("driver", "") for layer in self.layers]
        drivers = [each for each in drivers if each not in _FORMATS | _FILTERS | {""}]
        if drivers:
            return drivers[-1]
        remote = _REMOTE.match(self.file)
        return remote[1] if remote else ""

    @property
    def file(self) -> str:
        """The path of the innermost storage; empty if it is not given."""
        return self.get("file", "filename")


def add_drive(found: Description, values: Mapping[str, str]) -> None:
    """Import a disk that ``-drive`` attaches by itself."""
    bus = values.get("if", "ide")
    if bus == "pflash":
        found.leave(*FIRMWARE)
    elif bus in OTHERS:
        found.leave(f"-drive if={bus}")
    elif values.get("media") == "cdrom":
        found.set_aside("-drive media=cdrom")
    elif bus != "none":
        add_disk(found, bus, values, Values("-drive", {}), {})


def add_device(found: Description, kind: str, device: Values, nodes: Nodes) -> None:
    """Import a disk that is a separate device.

    Args:
        found: The description read so far.
        kind: The device's plain name.
        device: The device's properties.
        nodes: The nodes that store disks, by name.
    """
    disk = add_disk(found, DISKS[kind], nodes.get(device.get("drive", ""), {}), device, nodes)
    queues = device.get("num-queues", device.get("max_ioqpairs", ""))
    disk.queues = parse_whole_number(queues)
    disk.thread = device.get("iothread", "")
    mapped = [name for name in device if re.fullmatch(r"iothread-vq-mapping\.\d+\.iothread", name)]
    for name in [each for each in device if each.startswith("iothread-vq-mapping.")]:
        device.skip(name)
    if mapped:
        disk.thread = device[mapped[0]]
        if len(mapped) > 1:
            disk.leave(f"{len(mapped)} I/O threads of the disk", "Tare's disk has one")
    if kind not in ("virtio-blk", "scsi-hd", "nvme", "ide-hd"):
        disk.leave(f"-device {kind}", f"a disk on {disk.bus} is taken")
    for name in device.read:
        found.carry(f"-device {kind} {name}")
    for name, value in device.rest():
        if name in PLACED:
            found.set_aside(f"-device {name}")
        else:
            disk.leave(f"-device {kind} {shown(name, value)}")


def add_controller(found: Description, values: Values) -> None:
    """Import a virtio-scsi controller, which has the queues and the thread of its disks."""
    queues = parse_whole_number(values.get("num_queues", values.get("num-queues", "")))
    values.skip("driver")
    thread = values.get("iothread", "")
    mapped = [name for name in values if re.fullmatch(r"iothread-vq-mapping\.\d+\.iothread", name)]
    values.skip(*(name for name in values if name.startswith("iothread-vq-mapping.")))
    if len(mapped) > 1:
        found.leave(f"{len(mapped)} I/O threads of virtio-scsi", "Tare's disk has one")
    found.serve_scsi(queues, thread or (values[mapped[0]] if mapped else ""))
    found.close(values, aside=PLACED)


def add_disk(
    found: Description, bus: str, values: Mapping[str, str], device: Values, nodes: Nodes
) -> Disk:
    """Import a disk.

    Args:
        found: The description read so far.
        bus: The bus by QEMU's name.
        values: The values of the disk's storage.
        device: The device that attaches the disk.
        nodes: The nodes that store disks, by name.
    """
    backend = Backend(values, nodes)
    disk = Disk(bus, _cache(backend, device), backend.get("aio"))
    disk.boot = parse_whole_number(device.get("bootindex", ""))
    found.add_disk(disk)
    file, holder = backend.file, backend.holder
    # If no format is given, QEMU detects it in the file's content, which is not available here.
    probed = "qcow2" if file.endswith(".qcow2") else "raw"
    disk.kept = backend.form or probed
    if holder == "host_device" or (not holder and file.startswith("/dev/")):
        if disk.kept != "raw":
            disk.leave(f"disk format {disk.kept} on a block device", "it is taken as raw")
        disk.kept = "block"
    elif holder not in ("", "file"):
        disk.leave(f"a disk by {holder}", "a machine of Tare's has a file or a device of the host")
    for layer in backend.layers:
        _filter(found, disk, layer)
        layer.skip("if", "driver", "id", "format", "file", "filename", "node-name")
        for name, value in layer.rest():
            if name in PLACED:
                found.set_aside(f"disk {name}")
            else:
                _property(disk, name, value)
    return disk


def _filter(found: Description, disk: Disk, layer: Values) -> None:
    """List a node that only passes requests on to the next node."""
    kind = layer.get("driver", "")
    if kind == "throttle":
        # Its limits are in an object `throttle-group`, which is listed.
        found.set_aside(f"disk throttle-group={layer.get('throttle-group', '')}")
    elif kind in _FILTERS:
        disk.leave(f"disk driver={kind}", "requests go straight to the disk")


def _property(disk: Disk, name: str, value: str) -> None:
    """List a storage property that no option of an arm can express."""
    nothing = {
        "discard": ("ignore",),
        "detect-zeroes": ("off",),
        "snapshot": ("off",),
        "copy-on-read": ("off",),
        "force-share": ("off",),
        "pr-manager": (),
    }
    if value in nothing.get(name, ("",)) or name == "throttle-group":
        return
    if name.startswith("backing"):
        disk.leave("the image that the disk's image is laid over", "each has one file")
    else:
        disk.leave(f"disk {shown(name, value)}")


def _cache(backend: Backend, device: Values) -> str:
    """Return the cache mode for its parts: the table of ``-drive cache=`` in QEMU's manual."""
    mode = backend.get("cache")
    if mode:
        return "none" if mode == "off" else mode
    flags = {name: backend.get(f"cache.{name}") for name in ("direct", "no-flush", "writeback")}
    written = "off" in (device.get("write-cache", ""), flags["writeback"])
    if flags["no-flush"] == "on":
        return "unsafe"
    if flags["direct"] == "on":
        return "directsync" if written else "none"
    return "writethrough" if written else CACHE_OF_QEMU
