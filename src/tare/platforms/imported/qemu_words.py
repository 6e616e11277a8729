"""Import a QEMU command line; qemu-system-x86_64(1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tare.platforms.imported.command_line import find_line, take_wrappers, without_shell
from tare.platforms.imported.model import BOOTS, FIRMWARE, Description
from tare.platforms.imported.notes import Values, shown
from tare.platforms.imported.parsing import bytes_of, parse_whole_number
from tare.platforms.imported.processor import take_processor
from tare.platforms.imported.qemu_disks import (
    CONTROLLER,
    DISKS,
    OTHER_CONTROLLERS,
    PLACED,
    Backend,
    add_controller,
    add_device,
    add_disk,
    add_drive,
    pairs,
    plain,
)

SILENT = frozenset(
    {
        *("nodefaults", "no-user-config", "display", "daemonize", "pidfile", "qmp", "mon", "S"),
        *("chardev", "serial", "monitor", "vnc", "nographic", "uuid", "msg", "D", "no-shutdown"),
        *("no-reboot", "parallel", "sandbox", "boot", "vga", "k", "usb", "spice"),
        *("rtc", "runas", "id", "no-fd-bootchk", "full-screen", "qmp-pretty", "run-with", "user"),
        *("enable-fips", "only-migratable", "iscsi", "add-fd", "chroot", "action", "debugcon"),
        *("nodefconfig", "sdl", "curses", "gtk", "alt-grab", "ctrl-grab", "no-quit", "portrait"),
        *("no-frame", "usbdevice", "smbios", "tpmdev", "dfilter", "d", "trace", "gdb", "s"),
        *("watchdog", "watchdog-action", "localtime", "startdate", "soundhw", "audiodev", "audio"),
        *("virtioconsole", "echr", "show-cursor", "name", "win2k-hack", "tdf"),
    }
)
"""Options about how QEMU itself runs, or about its display."""
ALONE = frozenset(
    {
        *("nodefaults", "no-user-config", "daemonize", "S", "nographic", "no-shutdown", "usb"),
        *("no-reboot", "no-hpet", "enable-kvm", "no-acpi", "snapshot", "mem-prealloc", "s"),
        *("no-fd-bootchk", "full-screen", "alt-grab", "ctrl-grab", "no-frame", "no-quit", "sdl"),
        *("curses", "gtk", "portrait", "win2k-hack", "only-migratable", "enable-fips"),
        *("preconfig", "singlestep", "xen-attach", "xen-domid-restrict", "async-teardown"),
        *("enable-sync-profile", "perfmap", "jitdump", "nodefconfig", "no-kvm", "h", "help"),
        *("version", "no-kvm-irqchip", "no-kvm-pit", "no-kvm-pit-reinjection", "tdf"),
        *("localtime", "show-cursor", "semihosting", "old-param", "no-log-console", "audio-help"),
    }
)
"""Options without a value, in all versions of QEMU (qemu-options.hx)."""
MEMORY = 128 << 20
"""QEMU's default memory size in bytes (qemu-system-x86_64(1), ``-m``)."""
NICS = {"virtio-net": "virtio"}
CORE_OWN = "each vCPU is a separate core"
_NIC = re.compile(r"(e1000e?|rtl8139|ne2k_pci|pcnet|vmxnet3|tulip|i82\w+|virtio-net|igb|e1000-\w+)")
_QUIET = re.compile(
    r"(isa-\w+|virtio-serial|virtserialport|virtconsole|usb-.*|.*vga.*|qxl.*|pvpanic|sga"
    r"|pcie-root-port|pcie-pci-bridge|pci-bridge|ahci|ich9-.*|piix.*|VGA|.*-ehci|.*-uhci"
    r"|.*xhci|ide-cd|scsi-cd|.*audio.*|hda-.*|intel-hda|.*-ohci|ioh3420|i82801b11-bridge|pxb.*"
    r"|virtio-gpu.*|virtio-keyboard|virtio-mouse|virtio-tablet|virtio-input.*|bochs-display"
    r"|ramfb|vmgenid|vmcoreinfo|AC97|ES1370|sb16|ib700|i6300esb|tpm-.*|x3130-.*|xio3130-.*"
    r"|pci-serial.*|pci-testdev|edu|secondary-vga|cirrus-vga|virtio-sound|pcspk)"
)
_CPU_DEVICE = re.compile(r".*-(?:x86_64|i386)-cpu")
_IMAGE = re.compile(r"[^=]*[./][^=]*")
"""The image of a disk, which is a separate word before or after all options."""
_SIZE = re.compile(r"(0x[0-9a-f]{1,15}|[0-9]{1,15})(\.[0-9]{1,6})?([bkmgtpe]?)(?:i?b)?", re.I)
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_HUGE_SIZE = re.compile(r"(\d{1,8})kB|hugepages-?(\d{1,4})(G|M)", re.I)
_ON = frozenset({"on", "yes", "true", "1"})


@dataclass
class _Gathered:
    """The definitions that other options refer to by name."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    netdevs: dict[str, Values] = field(default_factory=dict)
    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    accelerators: list[tuple[str, Values]] = field(default_factory=list)
    plugged_memory: int = 0
    plugged_vcpus: int = 0
    default_accelerator: str = "tcg"


def read_words(text: str) -> Description:
    """Convert a command line to a description.

    Raises:
        ValueError: The text is not a QEMU command line: a quotation does not end, or it contains no
            QEMU.
    """
    line = find_line(text)
    found = Description(described=True)
    # These are QEMU's defaults.
    found.options |= {"machine": "pc"}
    found.vcpus, found.memory = 1, MEMORY
    if line.others:
        found.leave(f"{line.others} further command lines of QEMU", "only one is read")
    if line.unread:
        found.leave(f"{line.unread} further lines of the text", "only QEMU's own line is read")
    take_wrappers(found, line.before, in_table=line.in_table)
    if line.arch not in ("", "x86_64", "i386"):
        found.leave(f"processors of the kind {line.arch}", "Tare's machines have x86-64")
    options = list(_options(found, list(without_shell(line.words))))
    gathered = _gather(options)
    gathered.default_accelerator = "kvm" if line.uses_kvm else "tcg"
    _settle_accelerator(found, gathered)
    take_processor(found, dict(options).get("cpu", ""))
    for name, value in options:
        if name in ("drive", "blockdev"):
            _storage(found, gathered, name, value)
        elif name == "device":
            _device(found, value, gathered)
        elif name in _OPTIONS:
            found.carry(f"-{name}")
            _OPTIONS[name](found, value, gathered)
        elif name in _GATHERED:
            found.carry(f"-{name}")
        elif name in SILENT:
            found.set_aside(f"-{name}")
        else:
            found.leave(_note(name, value), _WHY.get(name, ""))
    _settle_size(found, dict(options), gathered)
    _unused(found, gathered)
    return found


def _settle_size(found: Description, options: Mapping[str, str], gathered: _Gathered) -> None:
    """Add memory and vCPUs that are plugged in from the start, wherever they are in the line."""
    board = pairs(options.get("machine", options.get("M", "")), "type")
    backend = gathered.objects.get(board.get("memory-backend", ""), {})
    if "m" not in options and backend:
        # QEMU uses the size of the memory backend.
        found.memory = _size(backend.get("size", ""), 0) or found.memory
    if found.memory is not None:
        found.memory += gathered.plugged_memory
    found.vcpus = min((found.vcpus or 0) + gathered.plugged_vcpus, 1 << 20)


def _options(found: Description, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options with their values; other words are a disk's image, or are listed."""
    rest = iter(enumerate(words))
    for place, word in rest:
        name = word[2:] if word.startswith("--") else word[1:]
        if not word.startswith("-") or not name:
            if place in (0, len(words) - 1) and _IMAGE.fullmatch(word):
                yield "hda", word
            else:
                # An example is a kernel's argument, on a line that lost its quotation marks.
                found.leave(shown(*_named(word)), "it is not an option")
            continue
        yield name, "" if name in ALONE else next(rest, (0, ""))[1]


def _note(name: str, value: str) -> str:
    """Return an option's text for a note, without values that may be secrets."""
    if value.startswith("{"):
        return f"-{name}"
    parts = [shown(*_named(part)) if "=" in part else part for part in value.split(",")]
    plain_parts = [part for part in parts if shown(name, part) != name or "=" in part]
    return f"-{name} {','.join(plain_parts)}".rstrip()


def _named(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    return (name, value) if equals else ("", word)


def _gather(options: Sequence[tuple[str, str]]) -> _Gathered:
    """Collect the definitions that options refer to by name, in any order on the line."""
    gathered = _Gathered()
    for name, value in options:
        if name in ("drive", "blockdev"):
            values = pairs(value, "driver" if name == "blockdev" else "file")
            for key in ("id", "node-name"):
                if key in values:
                    gathered.nodes[values[key]] = values
        elif name == "netdev":
            values = pairs(value, "type")
            gathered.netdevs[values.get("id", "")] = Values("-netdev", values)
        elif name == "object":
            values = pairs(value, "qom-type")
            gathered.objects[values.get("id", "")] = values
        elif name == "accel":
            own = Values("-accel", pairs(value, "accel"))
            kinds = own.get("accel", "").split(":")
            gathered.accelerators += [(kind, own) for kind in kinds]
        elif name in ("machine", "M"):
            _accelerators_of(gathered, pairs(value, "type").get("accel", ""))
        elif name == "enable-kvm":
            _accelerators_of(gathered, "kvm")
        elif name == "no-kvm":
            _accelerators_of(gathered, "tcg")
    return gathered


def _accelerators_of(gathered: _Gathered, listed: str) -> None:
    gathered.accelerators += [(each, Values("-accel", {})) for each in listed.split(":") if each]


def _settle_accelerator(found: Description, gathered: _Gathered) -> None:
    """Choose the first accelerator that Tare supports; QEMU uses the first one that works."""
    wanted = gathered.accelerators or [(gathered.default_accelerator, Values("-accel", {}))]
    known = [kind for kind, _ in wanted if kind in ("kvm", "tcg")]
    found.options["accelerator"] = known[0] if known else "kvm"
    found.carry(f"-accel {found.options['accelerator']}")
    for place, (kind, own) in enumerate(wanted):
        if kind == "tcg" and own.get("thread", "") == "single" and kind == known[0]:
            found.options["threads"] = "single"
        if kind not in ("kvm", "tcg"):
            found.leave(f"-accel {kind}", f"{found.options['accelerator']} is taken")
        elif place and kind != found.options["accelerator"]:
            found.leave(f"-accel {kind} as a fallback", "QEMU takes the first that works")
        found.close(own)


def _storage(found: Description, gathered: _Gathered, name: str, value: str) -> None:
    found.carry(f"-{name}")
    if name == "drive":
        values = pairs(value, "file")
        if values.get("if") == "none" and values.get("media") == "cdrom":
            found.set_aside("-drive media=cdrom")
        add_drive(found, values)


def _device(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-device", pairs(value, "driver"))
    kind = plain(values.get("driver", ""))
    if "drive" in values:
        gathered.used.add(values["drive"])
    if kind in DISKS:
        found.carry(f"-device {kind}")
        add_device(found, kind, values, gathered.nodes)
    elif kind == CONTROLLER:
        found.carry(f"-device {kind}")
        add_controller(found, values)
    elif OTHER_CONTROLLERS.fullmatch(kind):
        found.leave(f"disk controller {kind}", "virtio-scsi is taken")
    elif _NIC.fullmatch(kind):
        _interface(found, kind, values, gathered)
    elif kind in ("pc-dimm", "virtio-mem"):
        _plugged_memory(found, kind, values, gathered)
    elif _CPU_DEVICE.fullmatch(kind):
        # This is a vCPU in addition to those of `-smp`.
        gathered.plugged_vcpus += 1
        found.carry(f"-device {kind}")
    elif _QUIET.fullmatch(kind):
        found.set_aside(f"-device {kind}")
    else:
        properties = ",".join(shown(key, held) for key, held in values.items() if key != "driver")
        what = f"-device {values.get('driver', '')} {properties}".rstrip()
        found.leave(what, _WHY_DEVICE.get(kind, ""))


def _plugged_memory(found: Description, kind: str, values: Values, gathered: _Gathered) -> None:
    """Import memory in addition to ``-m`` that is present when the machine starts."""
    name = values.get("memdev", "")
    gathered.used.add(name)
    size = values.get("requested-size", "") or gathered.objects.get(name, {}).get("size", "")
    more = _size(size, 0)
    if more is None:
        found.leave(f"-device {kind} {values.get('id', '')}".rstrip(), "its size is not given")
        return
    gathered.plugged_memory += more
    found.carry(f"-device {kind}")


def _interface(found: Description, kind: str, values: Values, gathered: _Gathered) -> None:
    name = values.get("netdev", "")
    netdev = gathered.netdevs.get(name, Values("-netdev", {}))
    gathered.used.add(name)
    if not _card(found, kind, netdev, several=values.get("mq", "") == "on"):
        return
    values.skip("driver")
    values.name = "network interface"
    found.close(values, _WHY_NIC, PLACED | {"vectors"})


def _card(found: Description, kind: str, netdev: Values, *, several: bool = False) -> bool:
    """Import a network card and its connection; return whether it is the first card."""
    queues, way = parse_whole_number(netdev.get("queues", "")), netdev.get("type", "")
    vhost = netdev.get("vhost", "")
    netdev.skip("id", "model")
    if not found.add_nic(NICS.get(kind, kind), queues):
        return False
    if several and queues is None:
        found.leave("queues of the network interface", "write `nic-queues`")
    if way == "user":
        found.options["network"] = "user"
    # QEMU uses vhost in the host's kernel only if it is asked to.
    elif way in ("tap", "bridge") and kind in NICS and vhost != "on":
        found.options["vhost"] = "off"
    elif way not in ("", "tap", "bridge"):
        found.leave(f"network by {way}", "write `network` or `switch`")
    found.close(netdev, aside=_SILENT_NETDEV)
    return True


def _size(text: str, power: int) -> int | None:
    """Return a size in bytes; a number without a unit is multiplied by two to the ``power``."""
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    unit = 1 << (_POWERS[size[3].lower()] if size[3] else power)
    if size[1].lower().startswith("0x"):
        return bytes_of(str(int(size[1], 16)), unit)
    number = bytes_of(size[1], unit)
    return None if number is None else number + round(float(size[2] or 0) * unit)


def _memory(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-m", pairs(value, "size"))
    # Without a unit, the size is in MiB (qemu-system-x86_64(1), -m).
    found.memory = _size(values.get("size", ""), 20) if "size" in values else MEMORY
    if found.memory is None:
        found.leave(f"-m {value}", "it is not a size")
    found.close(values, dict.fromkeys(values, "memory is not added while it runs"))


def _cpus(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-smp", pairs(value, "cpus"))
    levels = ("drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads")
    product = 1
    for name in levels:
        product = min(product * (parse_whole_number(values.get(name, "1")) or 1), 1 << 20)
    # QEMU uses `cpus`, else `maxcpus`, else the product (hw/core/machine-smp.c).
    most = parse_whole_number(values.get("maxcpus", ""))
    found.vcpus = parse_whole_number(values.get("cpus", "")) or most or product
    if most and most > found.vcpus:
        found.leave(f"vCPUs that may be added, up to {most}", "Tare uses the available ones")
    for name in levels:
        if name != "cores" and (parse_whole_number(values.get(name, "1")) or 1) > 1:
            what = "threads of a core" if name == "threads" else f"-smp {name}={values[name]}"
            found.leave(what, CORE_OWN)
    found.close(values)


def _machine(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-machine", pairs(value, "type"))
    if board := values.get("type", ""):
        # Proxmox appends the version of its own devices.
        found.board(board.partition("+pve")[0])
    values.skip("accel")
    for name, held in values.rest():
        if name.startswith("pflash"):
            found.leave(*FIRMWARE)
        elif name == "memory-backend":
            gathered.used.add(held)
        elif name in _SILENT_BOARD:
            found.set_aside(f"-machine {name}={held}")
        else:
            found.leave(f"-machine {shown(name, held)}")
    for name in values.read:
        found.carry(f"-machine {name}")


def _object(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-object", pairs(value, "qom-type"))
    kind = values.get("qom-type", "")
    values.skip("id")
    if kind.startswith("memory-backend"):
        _backend(found, kind, values)
        values.skip("size")
        found.close(values, aside=("dump", "x-use-canonical-path-for-ramblock-id"))
    elif kind == "throttle-group":
        limits = [key for key, held in values.items() if key.startswith(("limits", "x-")) and held]
        for key in limits:
            found.leave(f"disk limit {shown(key, values[key])}")
        found.carry(f"-object {kind}")
    elif kind == "iothread":
        values.skip("id", "qom-type")
        found.close(values)
    elif kind.startswith(("secret", "tls-", "authz", "rng-", "cryptodev", "input-linux", "pr-")):
        found.set_aside(f"-object {kind}")
    else:
        properties = ",".join(shown(key, held) for key, held in values.items() if key != "qom-type")
        found.leave(f"-object {kind} {properties}".rstrip())


def _backend(found: Description, kind: str, values: Values) -> None:
    """Import a memory backend: huge pages, preallocation, and its NUMA node."""
    path = values.get("mem-path", "")
    if values.get("hugetlb", "") in _ON or "huge" in path:
        own = values.get("hugetlbsize", "")
        found.huge_pages(_size(own, 0) if own else _page_size(path))
    elif path:
        found.leave(f"memory in the file {path}", "anonymous memory is taken")
    if values.get("prealloc", "") in _ON:
        found.touch_memory()
    nodes = ",".join(values[name] for name in values if name.startswith("host-nodes"))
    policy = values.get("policy", "")
    if nodes and policy == "bind":
        found.bind_memory(nodes)
    elif nodes or policy not in ("", "default"):
        found.leave(f"memory host-nodes={nodes},policy={policy}")


def _page_size(path: str) -> int | None:
    size = _HUGE_SIZE.search(path)
    if size is None:
        return None
    if size[1]:
        return bytes_of(size[1], 1 << 10)
    return bytes_of(size[2], 1 << 30 if size[3].upper() == "G" else 1 << 20)


def _mem_path(found: Description, value: str, gathered: _Gathered) -> None:
    if "huge" in value:
        found.huge_pages(_page_size(value))
    else:
        found.leave(f"-mem-path {value}", "anonymous memory is taken")


def _mem_prealloc(found: Description, value: str, gathered: _Gathered) -> None:
    found.touch_memory()


def _overcommit(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-overcommit", pairs(value, ""))
    for name, option in (("mem-lock", "mlock"), ("cpu-pm", "cpu_pm")):
        held = values.get(name, "")
        if held in _ON:
            found.options[option] = True
        elif held not in ("", "off", "no"):
            found.leave(f"-overcommit {name}={held}")
    found.close(values)


def _realtime(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-realtime", pairs(value, ""))
    if values.get("mlock", "on") in _ON:
        found.options["mlock"] = True
    found.close(values)


def _name(found: Description, value: str, gathered: _Gathered) -> None:
    found.name = pairs(value, "guest").get("guest", "")


def _kernel(found: Description, value: str, gathered: _Gathered) -> None:
    found.leave(*BOOTS)


def _nic(found: Description, value: str, gathered: _Gathered) -> None:
    values = Values("-nic", pairs(value, "type"))
    kind = values.get("type", "")
    if kind not in ("none", "nic"):
        default = "e1000" if found.options["machine"] == "pc" else "e1000e"
        _card(found, plain(values.get("model", default)), values)


def _net(found: Description, value: str, gathered: _Gathered) -> None:
    """Import the older options for a network card and its connection."""
    values = Values("-net", pairs(value, "type"))
    if values.get("type", "") == "nic":
        netdev = gathered.netdevs.get(values.get("netdev", ""), Values("-netdev", {}))
        gathered.used.add(values.get("netdev", ""))
        _card(found, plain(values.get("model", "e1000")), netdev)
    elif values.get("type", "") == "user":
        found.options["network"] = "user"
    elif values.get("type", "") != "none":
        found.leave(f"-net {values.get('type', '')}", "write `network`")


def _disk_file(found: Description, value: str, gathered: _Gathered) -> None:
    add_disk(found, "ide", {"file": value}, Values("-hda", {}), {})


def _flash(found: Description, value: str, gathered: _Gathered) -> None:
    found.leave(*FIRMWARE)


def _config(found: Description, value: str, gathered: _Gathered) -> None:
    found.leave(f"-readconfig {value}", "what is in that file is not read")


def _unused(found: Description, gathered: _Gathered) -> None:
    """List definitions that nothing refers to."""
    for name, netdev in gathered.netdevs.items():
        if name not in gathered.used:
            found.leave(f"-netdev {netdev.get('type', '')}", "no network interface uses it")
    attached = gathered.used | {
        held
        for values in gathered.nodes.values()
        for key, held in values.items()
        if key in ("file", "backing", "file.file", "file.file.file")
    }
    for name, values in gathered.nodes.items():
        if name not in attached and values.get("if", "none") == "none":
            holder = Backend(values, {}).holder
            if values.get("media") != "cdrom" and holder != "host_cdrom":
                found.set_aside(f"-blockdev {holder or 'file'} that no disk uses")


_SILENT_BOARD = frozenset(
    {"usb", "dump-guest-core", "graphics", "vmport", "suppress-vmdesc", "fd-bootchk", "firmware"}
    | {"kernel", "initrd", "append", "dtb", "i8042", "pcspk-audiodev", "phandle-start"}
)
"""Properties of a mainboard that have no effect on measurements."""
_SILENT_NETDEV = frozenset(
    {"ifname", "script", "downscript", "br", "helper", "fd", "fds", "vhostfd", "vhostfds", "mac"}
    | {"macaddr", "netdev", "name", "addr", "vectors", "hostfwd", "hostname", "dns", "bootindex"}
)
"""Properties that only locate a network or identify its members."""
_WHY = {
    "numa": "Tare's machines have one NUMA node",
    "readconfig": "what is in that file is not read",
    "snapshot": "the disk is new in any case",
    "global": "write `extra-args`",
}
_WHY_DEVICE = {
    "vfio-pci": "a device of the host; `network: sriov` has one of a network card",
    "virtio-balloon": "all of its memory is taken, as without a balloon",
}
_WHY_NIC = dict.fromkeys(
    ("csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "host_tso4", "host_tso6"),
    "write `nic-offloads`",
)
_GATHERED = frozenset({"netdev", "cpu", "accel", "enable-kvm", "no-kvm"})
"""Options that are read before all others, or only when another option refers to them."""

_OPTIONS: dict[str, Callable[[Description, str, _Gathered], None]] = {
    "m": _memory,
    "smp": _cpus,
    "machine": _machine,
    "M": _machine,
    "object": _object,
    "mem-path": _mem_path,
    "mem-prealloc": _mem_prealloc,
    "overcommit": _overcommit,
    "realtime": _realtime,
    "name": _name,
    "kernel": _kernel,
    "initrd": _kernel,
    "append": _kernel,
    "bios": _kernel,
    "nic": _nic,
    "net": _net,
    "hda": _disk_file,
    "hdb": _disk_file,
    "hdc": _disk_file,
    "hdd": _disk_file,
    "pflash": _flash,
    "readconfig": _config,
}
