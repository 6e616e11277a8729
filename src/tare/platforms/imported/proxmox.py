"""Import a Proxmox VM's configuration, ``/etc/pve/qemu-server/NUMBER.conf``; qm.conf(5)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tare.platforms.imported.command_line import bind_all_threads
from tare.platforms.imported.cpu_tuning import weigh
from tare.platforms.imported.model import FIRMWARE, Description, Disk
from tare.platforms.imported.notes import Values, shown
from tare.platforms.imported.parsing import bytes_of, cpu_set, fraction, parse_whole_number
from tare.platforms.imported.processor import take_model
from tare.platforms.imported.qemu_disks import pairs

_LINE = re.compile(r"([a-z][a-zA-Z0-9_-]*):\s*(.*)")
_DISK = re.compile(r"(ide|scsi|virtio|sata)(\d+)")
_ORDER = ("ide", "scsi", "virtio", "sata")
"""The order in which Proxmox looks for the boot disk (PVE/QemuServer/Drive.pm)."""
_NIC = re.compile(r"net(\d+)")
_NODE = re.compile(r"numa\d+")
_SIZE = re.compile(r"([0-9]{1,15})(\.[0-9]{1,3})?([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VOLUME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:")
_EXTENSION = re.compile(r"\.(raw|qcow2|vmdk|qed|subvol|cloop|iso|img)$")
"""The formats that a volume's name can end with; any other dot is part of the name."""
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
"""Keys that have no effect on measurements; the values of some of them are secrets."""
_NO_EFFECT_NUMBERED = re.compile(r"(?:unused|ipconfig|serial|parallel|usb)\d+")
_USUAL = frozenset({("balloon", "0"), ("numa", "0"), ("acpi", "1"), ("freeze", "0")})
"""Settings that are the same in all of Tare's machines."""
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
"""Keys that a VM's configuration has, and that hardly any other text has."""
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
    """Return whether a text begins like such a file."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _LINE.fullmatch(first) is not None


def read_proxmox(text: str) -> Description:
    """Convert a configuration to a description; snapshots, which follow it, are not read.

    Raises:
        ValueError: A line does not have the file's syntax, or the file describes no VM.
    """
    found = Description(described=True)
    values = Values("", _values(found, text))
    kvm = values.get("kvm", "1") != "0" and values.get("arch", "x86_64") == "x86_64"
    found.options["accelerator"] = "kvm" if kvm else "tcg"
    if values.get("arch", "x86_64") != "x86_64":
        found.leave(f"processors of the kind {values['arch']}", "Tare's machines have x86-64")
    found.name = values.get("name", "")
    _size_of(found, values)
    _board(found, values.get("machine", "pc"))
    take_processor_of_proxmox(found, values)
    if pages := values.get("hugepages", ""):
        found.huge_pages({"2": 2 << 20, "1024": 1 << 30}.get(pages))
    _tuning(found, values)
    order = _boot_order(values)
    for key in sorted(values, key=_place):
        _part(found, key, values, order)
    _controller(found, values)
    _finish(found, values)
    return found


def _values(found: Description, text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            found.set_aside("snapshots and pending changes")
            break
        if not line or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError(f"line {number} is not `key: value`")
        values[parts[1]] = parts[2].strip()
    if CONTAINERS & set(values):
        raise ValueError("describes a container, which `platform: oci` or `incus` has")
    if not any(key in KEYS or _KEYS_NUMBERED.fullmatch(key) for key in values):
        raise ValueError("describes no virtual machine")
    return values


def _size_of(found: Description, values: Values) -> None:
    """Import memory and vCPUs; defaults: 512 MiB, one core and one socket (qm.conf(5))."""
    memory = Values("memory", pairs(values.get("memory", "512"), "current"))
    found.memory = bytes_of(memory.get("current", ""), 1 << 20)
    found.close(memory)
    # The key `smp` is the older name of `sockets`.
    cores = parse_whole_number(values.get("cores", "1")) or 1
    sockets = parse_whole_number(values.get("sockets", values.get("smp", "1"))) or 1
    found.vcpus = cores * sockets
    if sockets > 1:
        found.leave(f"sockets: {sockets}", "each vCPU is a separate core, in one socket")
    there = parse_whole_number(values.get("vcpus", ""))
    if there and there < found.vcpus:
        found.leave(f"vCPUs that may be added, up to {found.vcpus}", "Tare uses the available ones")
        found.vcpus = there


def _board(found: Description, text: str) -> None:
    values = Values("machine", pairs(text, "type"))
    kind = values.get("type", "pc").partition("+pve")[0]
    if not kind and values.get("enable-s3", values.get("enable-s4", "")):
        kind = "pc"
    found.board("pc" if kind.startswith("i440fx") else kind or "pc")
    found.close(values)


def _tuning(found: Description, values: Values) -> None:
    """Import limit, weight and CPUs of the whole VM (qm.conf(5), `cpulimit` and related keys)."""
    text = values.get("cpulimit", "0")
    limit = fraction(text)
    if limit is None:
        found.leave(f"cpulimit: {text}", "it is not a number")
    elif limit > 0:
        found.schedule(cap=limit)
    if units := values.get("cpuunits", ""):
        weigh(found, f"cpuunits {units}", parse_whole_number(units))
    if affinity := values.get("affinity", ""):
        bind_all_threads(found, f"vCPUs on CPUs {affinity}", affinity)
        found.carry("affinity" if cpu_set(affinity) else "")


def _place(key: str) -> tuple[int, int, str]:
    match = _DISK.fullmatch(key)
    if match is None:
        return (len(_ORDER), 0, "")
    return (_ORDER.index(match[1]), int(match[2]), key)


def _part(found: Description, key: str, values: Values, order: Mapping[str, int]) -> None:
    if match := _DISK.fullmatch(key):
        _disk(found, key, match[1], Values("disk", pairs(values[key], "file")), order)
    elif _NODE.fullmatch(key):
        node = Values(key, pairs(values[key], "cpus"))
        if ("policy", "bind") in node.items() and "hostnodes" in node:
            found.bind_memory(node["hostnodes"])
            node.skip("cpus", "memory", "policy")
        found.close(node, dict.fromkeys(node, "Tare's machines have one NUMA node"))
    elif _NIC.fullmatch(key):
        other = values.get("arch", "x86_64") != "x86_64"
        card = Values("network interface", pairs(values[key], "model"))
        _interface(found, card, other_processor=other)


def _interface(found: Description, values: Values, *, other_processor: bool) -> None:
    first_pair = next(iter(values.items()), ("", ""))
    model = first_pair[1] if first_pair[0] == "model" else first_pair[0]
    queues = parse_whole_number(values.get("queues", ""))
    bridge = values.get("bridge", "")
    values.skip(model, "model", "macaddr", "bridge")
    if not found.add_nic(model, queues):
        return
    if not bridge:
        # Without a bridge, the network is QEMU's own (qm.conf(5)).
        found.options["network"] = "user"
    elif other_processor and model == "virtio":
        # On another kind of host, Proxmox does not use vhost in the kernel.
        found.options["vhost"] = "off"
    for name, value in values.rest():
        if name in ("firewall", "link_down", "tag", "trunks"):
            found.leave(f"network {name}={value}", "Tare's own network is taken")
        else:
            found.leave(f"network {shown(name, value)}")


def _boot_order(values: Values) -> Mapping[str, int]:
    """Return the positions of the disks in the boot order, by the disks' keys."""
    boot = Values("boot", pairs(values.get("boot", ""), "legacy"))
    names = boot.get("order", "").split(";") if "order" in boot else [values.get("bootdisk", "")]
    return {name: place for place, name in enumerate(names)}


def _disk(found: Description, key: str, bus: str, values: Values, order: Mapping[str, int]) -> None:
    volume = values.get("file", values.get("volume", ""))
    if values.get("media", "") == "cdrom" or volume in ("none", "cdrom"):
        found.set_aside(f"{key} (a CD)")
        return
    found.carry(key)
    # Proxmox bypasses the host's page cache by default.
    cache = {"": "none", "off": "none"}.get(values.get("cache", ""), values.get("cache", ""))
    disk = Disk(bus, cache, values.get("aio", "io_uring"), _bytes(values.get("size", "")))
    disk.boot = order.get(key)
    found.add_disk(disk)
    if "cache" not in values:
        disk.leave("how the disk is cached is not given", "Proxmox takes none, on btrfs writeback")
    if "aio" not in values:
        disk.leave(
            "how QEMU drives the disk is not given",
            "Proxmox takes io_uring, but `native` (with a cache, `threads`) on LVM, CIFS, some RBD",
        )
    _volume(disk, volume, values.get("format", ""))
    disk.thread = "own" if values.get("iothread", "") == "1" else ""
    disk.queues = parse_whole_number(values.get("queues", ""))
    for name in values.read:
        found.carry(f"disk {name}")
    for name, value in values.rest():
        if name in _DISK_ASIDE or value in ("ignore", "0", "off"):
            found.set_aside(f"disk {name}")
        else:
            disk.leave(f"disk {shown(name, value)}")


def _volume(disk: Disk, volume: str, form: str) -> None:
    """Import a disk's storage: a file, a block device, or a storage that decides it."""
    extension = _EXTENSION.search(volume)
    storage = _VOLUME.match(volume)
    if volume.startswith("/dev/"):
        disk.kept = "block"
    elif form or extension or volume.startswith("/"):
        disk.kept = form or (extension[1] if extension else "raw")
        disk.kept = "raw" if disk.kept in ("img", "subvol") else disk.kept
    else:
        # LVM, ZFS and iSCSI have block devices; the names of their volumes have no format at the
        # end.
        disk.kept = "block"
        name = storage[0].rstrip(":") if storage else volume
        disk.leave(
            f"storage {name}",
            "on LVM write `disk-format: lvm`, on RBD remove `disk-format`; a block device is taken",
        )


def _controller(found: Description, values: Values) -> None:
    # By default the controller is LSI's (qm.conf(5)).
    controller = values.get("scsihw", "lsi")
    on_scsi = any(disk.bus == "scsi" for disk in found.disks)
    if on_scsi and not controller.startswith("virtio-scsi"):
        found.leave(f"disk controller {controller}", "virtio-scsi is taken")


def _finish(found: Description, values: Values) -> None:
    """List the keys that were not read."""

    def why(key: str, value: str) -> str | None:
        if (key, value) == ("template", "1"):
            return "taken as a machine; Proxmox starts it for backups only"
        if key in NO_EFFECT or _NO_EFFECT_NUMBERED.fullmatch(key) or (key, value) in _USUAL:
            return None
        return _WHY.get(key, "")

    found.close_each(values, why, lambda key, value: shown(key, value).replace("=", ": ", 1))


def _bytes(text: str) -> int | None:
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    unit = _UNITS[size[3]]
    whole_part = bytes_of(size[1], unit)
    return None if whole_part is None else whole_part + round(float(size[2] or 0) * unit)


_V2 = "+popcnt;+pni;+sse4.1;+sse4.2;+ssse3"
_V3 = f"+aes;{_V2};+avx;+avx2;+bmi1;+bmi2;+f16c;+fma;+abm;+movbe;+xsave"
_LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v2-AES": f"+aes;{_V2}",
    "x86-64-v3": _V3,
    "x86-64-v4": f"{_V3};+avx512f;+avx512bw;+avx512cd;+avx512dq;+avx512vl",
}
"""Proxmox's own models, which are QEMU's `qemu64` with these features."""
_RENAMED = {
    "Icelake-Client": "Icelake-Server",
    "Icelake-Client-noTSX": "Icelake-Server-noTSX",
}
_GENERIC = frozenset({"kvm32", "kvm64", "qemu32", "qemu64", "max", "host"})
_AMD = re.compile(r"athlon|phenom|Opteron|EPYC")
_WINDOWS = re.compile(r"win(\d{1,3})")
_OLD_WINDOWS = {"w2k8": 6, "wvista": 6, "wxp": 5, "w2k3": 5, "w2k": 5}
_SINCE_6 = ("hv_spinlocks=0x1fff", "hv_vapic", "hv_time", "hv_reset", "hv_vpindex", "hv_runtime")
_SINCE_7 = ("hv_relaxed", "hv_synic", "hv_stimer", "hv_ipi")


def take_processor_of_proxmox(found: Description, values: Values) -> None:
    """Import the processor: its model, and the flags that Proxmox adds.

    Args:
        found: The description read so far; its accelerator must be known.
        values: The configuration.
    """
    kvm = found.options["accelerator"] == "kvm"
    default = "kvm64" if kvm else "qemu64"
    if values.get("arch", "x86_64") == "aarch64":
        default = "host" if kvm else "max"
    own = Values("cpu", pairs(values.get("cpu", default), "cputype"))
    model = own.get("cputype", default)
    level = _LEVELS.get(model, "")
    if level:
        model = "qemu64"
    elif model.startswith("custom-"):
        found.leave(f"CPU {model}", "its definition is in cpu-models.conf; kvm64 is taken")
        model = "kvm64"
    model = _RENAMED.get(model, model)
    intel = values.get("arch", "x86_64") == "x86_64"
    flags: dict[str, str] = {}
    if intel:
        for flag in (
            *_added(model, values, kvm=kvm),
            *level.split(";"),
            *own.get("flags", "").split(";"),
        ):
            flags[flag.lstrip("+-").partition("=")[0].replace("_", "-")] = flag
        if own.get("hidden", "0") == "1":
            flags["kvm"] = "kvm=off"
    elif own.get("flags", ""):
        found.leave("CPU flags", "they are those of another kind of processor")
    for name, property_of in (("level", "level"), ("guest-phys-bits",) * 2, ("phys-bits",) * 2):
        if value := own.get(name, ""):
            flags[name] = "host-phys-bits=true" if value == "host" else f"{property_of}={value}"
    if vendor := own.get("hv-vendor-id", ""):
        flags["hv-vendor-id"] = f"hv_vendor_id={vendor}"
    own.skip("reported-model")
    take_model(found, model, [flag for flag in flags.values() if flag])
    found.close(own)
    if intel and windows_version(values.get("ostype", "")) >= 11:
        found.leave(
            "CPU features that Proxmox chooses by its version for Windows 11",
            "QEMU 11 removes cet-ibt and cet-ss, and adds hv-evmcs on Intel's processors",
        )


def windows_version(ostype: str) -> int:
    """Return the Windows version of a guest's `ostype`; 0 for another system."""
    found = _WINDOWS.fullmatch(ostype)
    return (parse_whole_number(found[1]) or 0) if found else _OLD_WINDOWS.get(ostype, 0)


def _added(model: str, values: Values, *, kvm: bool) -> list[str]:
    """Return the flags that Proxmox adds on its own (get_pve_cpu_flags, get_cpu_options)."""
    flags = ["+lahf_lm"] if model == "kvm64" else []
    if values.get("ostype", "") == "solaris":
        flags.append("-x2apic")
    if model in ("kvm64", "kvm32"):
        flags.append("+sep")
    if model.startswith("Opteron"):
        flags.append("-rdtscp")
    if kvm:
        flags += ["+kvm_pv_unhalt", "+kvm_pv_eoi"]
        flags += _enlightenments(values)
    if kvm and model != "host":
        flags.append("enforce")
    if model not in _GENERIC:
        flags.append(f"vendor={'AuthenticAMD' if _AMD.match(model) else 'GenuineIntel'}")
    return flags


def _enlightenments(values: Values) -> list[str]:
    """Return the enlightenments that Proxmox offers to Windows (get_hyperv_enlightenments)."""
    version = windows_version(values.get("ostype", ""))
    if version < 6 or (values.get("bios", "") == "ovmf" and version < 8):
        return []
    passed = any("x-vga" in values[name] for name in values if name.startswith("hostpci"))
    vendor = ["hv_vendor_id=proxmox"] if passed else []
    return [*vendor, *_SINCE_6, *(_SINCE_7 if version >= 7 else ())]
