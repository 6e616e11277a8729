"""The configuration of a Proxmox VM, ``/etc/pve/qemu-server/NUMBER.conf``; qm.conf(5)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tare.platforms.imported.command_line import all_threads_on
from tare.platforms.imported.cpu_tuning import weigh
from tare.platforms.imported.ledger import Said, shown
from tare.platforms.imported.model import FIRMWARE, Disk, Found
from tare.platforms.imported.numbers import bytes_of, cpu_set, fraction, whole
from tare.platforms.imported.proxmox_cpu import take_processor_of_proxmox
from tare.platforms.imported.qemu_disks import pairs

_LINE = re.compile(r"([a-z][a-zA-Z0-9_-]*):\s*(.*)")
_DISK = re.compile(r"(ide|scsi|virtio|sata)(\d+)")
_ORDER = ("ide", "scsi", "virtio", "sata")
"""In which order Proxmox looks for the disk that boots (PVE/QemuServer/Drive.pm)."""
_NIC = re.compile(r"net(\d+)")
_NODE = re.compile(r"numa\d+")
_SIZE = re.compile(r"([0-9]{1,15})(\.[0-9]{1,3})?([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VOLUME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:")
_EXTENSION = re.compile(r"\.(raw|qcow2|vmdk|qed|subvol|cloop|iso|img)$")
"""The formats that a volume's name ends with; any other dot is part of the name."""
NO_EFFECT = frozenset(
    {
        *("bootdisk", "description", "digest", "meta", "onboot", "parent", "smbios1", "startup"),
        *("tags", "template", "vmgenid", "vga", "tablet", "agent", "lock", "protection"),
        *("keyboard", "localtime", "startdate", "reboot", "autostart", "snaptime", "hookscript"),
        *("spice_enhancements", "audio0", "migrate_downtime", "migrate_speed", "cdrom", "tdf"),
        *("vmstate", "vmstatestorage", "runningmachine", "runningcpu", "running-nets-host-mtu"),
        *("searchdomain", "nameserver", "ciuser", "cipassword", "citype", "cicustom", "sshkeys"),
        *("ciupgrade", "keephugepages", "lxc", "watchdog"),
    }
)
"""Keys without effect on what is measured; the values of some are secrets."""
_NO_EFFECT_NUMBERED = re.compile(r"(?:unused|ipconfig|serial|parallel|usb)\d+")
_USUAL = frozenset({("balloon", "0"), ("numa", "0"), ("acpi", "1"), ("freeze", "0")})
"""What is so in any case."""
_WHY = {
    "args": "write `extra-args`",
    "balloon": "all of its memory is taken, as without a balloon",
    "numa": "Tare's machines have one NUMA node",
    "bios": FIRMWARE[1],
    "efidisk0": FIRMWARE[1],
    "hotplug": "nothing is added while a machine runs",
    "rng0": "Tare's guests have none",
}
KEYS = frozenset(
    {
        *("memory", "cores", "sockets", "cpu", "scsihw", "vmgenid", "smbios1", "bios", "boot"),
        *("bootdisk", "machine", "ostype", "kvm", "numa", "hugepages", "vcpus", "affinity", "vga"),
        *("balloon", "cpulimit", "cpuunits", "efidisk0", "tpmstate0", "agent", "acpi", "tablet"),
        *("startdate", "hotplug", "localtime", "args", "onboot", "protection", "template", "meta"),
        *("smp", "freeze", "watchdog", "shares", "arch", "rng0", "tdf", "ivshmem", "cdrom"),
    }
)
"""Keys that a VM's configuration has, and hardly any other text."""
_KEYS_NUMBERED = re.compile(
    r"(?:ide|scsi|virtio|sata|net|hostpci|usb|serial|parallel|numa|unused|ipconfig|virtiofs)\d+"
)
CONTAINERS = frozenset({"rootfs", "unprivileged"})
"""Keys that only a container's configuration has (pct.conf(5))."""
_DISK_ASIDE = frozenset(
    {"backup", "replicate", "serial", "shared", "wwn", "ssd", "import-from", "vendor", "product"}
    | {"cyls", "heads", "secs", "trans", "model", "rerror", "werror", "media", "volume", "format"}
)


def is_configuration(text: str) -> bool:
    """Return whether a text begins as such a file does."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _LINE.fullmatch(first) is not None


def read_proxmox(text: str) -> Found:
    """Return what a configuration says; its snapshots, which follow it, are not read.

    Raises:
        ValueError: A line is none of such a file, or it describes no VM.
    """
    found = Found(described=True)
    said = Said("", _values(found, text))
    kvm = said.get("kvm", "1") != "0" and said.get("arch", "x86_64") == "x86_64"
    found.options["accelerator"] = "kvm" if kvm else "tcg"
    if said.get("arch", "x86_64") != "x86_64":
        found.leave(f"processors of the kind {said['arch']}", "Tare's machines have x86-64")
    found.name = said.get("name", "")
    _size_of(found, said)
    _board(found, said.get("machine", "pc"))
    take_processor_of_proxmox(found, said)
    if pages := said.get("hugepages", ""):
        found.huge_pages({"2": 2 << 20, "1024": 1 << 30}.get(pages))
    _tuning(found, said)
    order = _boot_order(said)
    for key in sorted(said, key=_place):
        _part(found, key, said, order)
    _controller(found, said)
    _finish(found, said)
    return found


def _values(found: Found, text: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            found.set_aside("snapshots and pending changes")
            break
        if not line or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError(f"line {number} is no `key: value`")
        said[parts[1]] = parts[2].strip()
    if CONTAINERS & set(said):
        raise ValueError("describes a container, which `platform: oci` or `incus` has")
    if not any(key in KEYS or _KEYS_NUMBERED.fullmatch(key) for key in said):
        raise ValueError("describes no virtual machine")
    return said


def _size_of(found: Found, said: Said) -> None:
    """Take memory and vCPUs: 512 MiB, one core and one socket by default (qm.conf(5))."""
    memory = Said("memory", pairs(said.get("memory", "512"), "current"))
    found.memory = bytes_of(memory.get("current", ""), 1 << 20)
    found.close(memory)
    # `smp` is the older word for all of them.
    cores = whole(said.get("cores", "1")) or 1
    sockets = whole(said.get("sockets", said.get("smp", "1"))) or 1
    found.vcpus = cores * sockets
    if sockets > 1:
        found.leave(f"sockets: {sockets}", "each vCPU is a core of its own, in one socket")
    there = whole(said.get("vcpus", ""))
    if there and there < found.vcpus:
        found.leave(
            f"vCPUs that may be added, up to {found.vcpus}", "those that are there are taken"
        )
        found.vcpus = there


def _board(found: Found, text: str) -> None:
    said = Said("machine", pairs(text, "type"))
    kind = said.get("type", "pc").partition("+pve")[0]
    if not kind and said.get("enable-s3", said.get("enable-s4", "")):
        kind = "pc"
    found.board("pc" if kind.startswith("i440fx") else kind or "pc")
    found.close(said)


def _tuning(found: Found, said: Said) -> None:
    """Take limit, weight and CPUs of the whole VM (qm.conf(5), `cpulimit` and what follows)."""
    text = said.get("cpulimit", "0")
    limit = fraction(text)
    if limit is None:
        found.leave(f"cpulimit: {text}", "it is no number")
    elif limit > 0:
        found.schedule(cap=limit)
    if units := said.get("cpuunits", ""):
        weigh(found, f"cpuunits {units}", whole(units))
    if affinity := said.get("affinity", ""):
        all_threads_on(found, f"vCPUs on CPUs {affinity}", affinity)
        found.carry("affinity" if cpu_set(affinity) else "")


def _place(key: str) -> tuple[int, int, str]:
    match = _DISK.fullmatch(key)
    if match is None:
        return (len(_ORDER), 0, "")
    return (_ORDER.index(match[1]), int(match[2]), key)


def _part(found: Found, key: str, said: Said, order: Mapping[str, int]) -> None:
    if match := _DISK.fullmatch(key):
        _disk(found, key, match[1], Said("disk", pairs(said[key], "file")), order)
    elif _NODE.fullmatch(key):
        node = Said(key, pairs(said[key], "cpus"))
        if ("policy", "bind") in node.items() and "hostnodes" in node:
            found.bind_memory(node["hostnodes"])
            node.skip("cpus", "memory", "policy")
        found.close(node, dict.fromkeys(node, "Tare's machines have one NUMA node"))
    elif _NIC.fullmatch(key):
        other = said.get("arch", "x86_64") != "x86_64"
        card = Said("network interface", pairs(said[key], "model"))
        _interface(found, card, other_processor=other)


def _interface(found: Found, said: Said, *, other_processor: bool) -> None:
    first_pair = next(iter(said.items()), ("", ""))
    model = first_pair[1] if first_pair[0] == "model" else first_pair[0]
    queues = whole(said.get("queues", ""))
    bridge = said.get("bridge", "")
    said.skip(model, "model", "macaddr", "bridge")
    if not found.add_nic(model, queues):
        return
    if not bridge:
        # Without a bridge it is QEMU's own network (qm.conf(5)).
        found.options["network"] = "user"
    elif other_processor and model == "virtio":
        # On another kind of host Proxmox leaves the kernel out of it.
        found.options["vhost"] = "off"
    for name, value in said.rest():
        if name in ("firewall", "link_down", "tag", "trunks"):
            found.leave(f"network {name}={value}", "Tare's own network is taken")
        else:
            found.leave(f"network {shown(name, value)}")


def _boot_order(said: Said) -> Mapping[str, int]:
    """Return the places of the disks in the boot order, by their keys."""
    boot = Said("boot", pairs(said.get("boot", ""), "legacy"))
    names = boot.get("order", "").split(";") if "order" in boot else [said.get("bootdisk", "")]
    return {name: place for place, name in enumerate(names)}


def _disk(found: Found, key: str, bus: str, said: Said, order: Mapping[str, int]) -> None:
    volume = said.get("file", said.get("volume", ""))
    if said.get("media", "") == "cdrom" or volume in ("none", "cdrom"):
        found.set_aside(f"{key} (a CD)")
        return
    found.carry(key)
    # Without a word on it Proxmox goes past the host's page cache.
    cache = {"": "none", "off": "none"}.get(said.get("cache", ""), said.get("cache", ""))
    disk = Disk(bus, cache, said.get("aio", "io_uring"), _bytes(said.get("size", "")))
    disk.boot = order.get(key)
    found.add_disk(disk)
    if "cache" not in said:
        disk.leave("how the disk is cached is not said", "Proxmox takes none, on btrfs writeback")
    if "aio" not in said:
        disk.leave(
            "how QEMU drives the disk is not said",
            "Proxmox takes io_uring, but `native` (with a cache, `threads`) on LVM, CIFS, some RBD",
        )
    _volume(disk, volume, said.get("format", ""))
    disk.thread = "own" if said.get("iothread", "") == "1" else ""
    disk.queues = whole(said.get("queues", ""))
    for name in said.read:
        found.carry(f"disk {name}")
    for name, value in said.rest():
        if name in _DISK_ASIDE or value in ("ignore", "0", "off"):
            found.set_aside(f"disk {name}")
        else:
            disk.leave(f"disk {shown(name, value)}")


def _volume(disk: Disk, volume: str, form: str) -> None:
    """Take what holds a disk: a file, a block device, or a storage that decides it."""
    extension = _EXTENSION.search(volume)
    storage = _VOLUME.match(volume)
    if volume.startswith("/dev/"):
        disk.kept = "block"
    elif form or extension or volume.startswith("/"):
        disk.kept = form or (extension[1] if extension else "raw")
        disk.kept = "raw" if disk.kept in ("img", "subvol") else disk.kept
    else:
        # LVM, ZFS and iSCSI have block devices; their volumes' names end in no format.
        disk.kept = "block"
        name = storage[0].rstrip(":") if storage else volume
        disk.leave(
            f"storage {name}",
            "on LVM write `disk-format: lvm`, on RBD remove `disk-format`; a block device is taken",
        )


def _controller(found: Found, said: Said) -> None:
    # By default it is LSI's (qm.conf(5)).
    controller = said.get("scsihw", "lsi")
    on_scsi = any(disk.bus == "scsi" for disk in found.disks)
    if on_scsi and not controller.startswith("virtio-scsi"):
        found.leave(f"disk controller {controller}", "virtio-scsi is taken")


def _finish(found: Found, said: Said) -> None:
    """List the keys that were not read."""
    for key in said.read:
        found.carry(key)
    for key, value in said.rest():
        if (key, value) == ("template", "1"):
            found.leave("template: 1", "taken as a machine; Proxmox starts it for backups only")
        elif key in NO_EFFECT or _NO_EFFECT_NUMBERED.fullmatch(key) or (key, value) in _USUAL:
            found.set_aside(key)
        else:
            found.leave(shown(key, value).replace("=", ": ", 1), _WHY.get(key, ""))


def _bytes(text: str) -> int | None:
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    unit = _UNITS[size[3]]
    whole_part = bytes_of(size[1], unit)
    return None if whole_part is None else whole_part + round(float(size[2] or 0) * unit)
