"""A command line of QEMU's; qemu-system-x86_64(1)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import bytes_of, whole

SILENT = frozenset(
    {
        *("nodefaults", "no-user-config", "display", "daemonize", "pidfile", "qmp", "mon", "S"),
        *("chardev", "serial", "monitor", "vnc", "nographic", "uuid", "msg", "D", "no-shutdown"),
        *("no-reboot", "parallel", "sandbox", "boot", "vga", "k", "usb", "spice", "netdev"),
        *("rtc", "no-hpet", "global", "runas", "readconfig"),
    }
)
"""Options that say nothing of the machine, or belong to what is on its screen."""
ALONE = frozenset(
    {
        *("nodefaults", "no-user-config", "daemonize", "S", "nographic", "no-shutdown", "usb"),
        *("no-reboot", "no-hpet", "enable-kvm", "no-acpi", "snapshot", "mem-prealloc"),
    }
)
"""Options without a value."""
DISKS = {
    "virtio-blk": "virtio",
    "virtio-blk-pci": "virtio",
    "scsi-hd": "scsi",
    "nvme": "nvme",
    "ide-hd": "ide",
}
NICS = {"virtio-net-pci": "virtio", "virtio-net": "virtio"}
_PROGRAM = re.compile(r"(?:^|/)(?:qemu-system-[a-z0-9_]+|qemu-kvm|kvm)$")
_NIC = re.compile(r"(e1000e?|rtl8139|ne2k_pci|pcnet|vmxnet3|tulip|i82\w+|virtio-net(-pci)?)")
_QUIET = re.compile(
    r"(isa-serial|virtio-serial(-pci|-device)?|virtserialport|virtconsole|usb-.*|.*vga.*|qxl.*"
    r"|pcie-root-port|pcie-pci-bridge|virtio-scsi-pci|ahci|ich9-.*|piix.*|VGA|.*-ehci|.*-uhci"
    r"|.*xhci|ide-cd|scsi-cd|.*audio|hda-.*|intel-hda)"
)
_SIZE = re.compile(r"([0-9]{1,15})([kKMGT]?)(i?B)?")


def is_command(text: str) -> bool:
    """Return whether a text looks like a command line of QEMU's."""
    return any(_PROGRAM.search(word) for word in text.replace("\0", " ").split()[:50])


def words_of(text: str) -> list[str]:
    """Return a command line's words: as a shell has them, or as ``/proc/PID/cmdline`` has.

    Raises:
        ValueError: A quotation does not end.
    """
    if "\0" in text:
        return text.rstrip("\0\n").split("\0")
    return shlex.split(text.replace("\\\n", " "), comments=False)


def read_words(text: str) -> Found:
    """Return what a command line says.

    Raises:
        ValueError: It is no command line of QEMU's: a quotation does not end, or there is no
            QEMU in it.
    """
    words = words_of(text)
    first = next((place for place, word in enumerate(words) if _PROGRAM.search(word)), None)
    if first is None:
        raise ValueError("there is no QEMU in it")
    found = Found()
    found.options["accelerator"] = "tcg"
    backends: dict[str, dict[str, str]] = {}
    queues = _queues_of(words)
    rest = iter(words[first + 1 :])
    for word in rest:
        name = word.lstrip("-")
        if not word.startswith("-"):
            found.leave(word, "it is no option")
            continue
        value = "" if name in ALONE else next(rest, "")
        if name in ("drive", "blockdev"):
            said = pairs(value, "driver" if name == "blockdev" else "file")
            backends[said.get("id", said.get("node-name", ""))] = said
            if name == "drive" and said.get("media") != "cdrom" and said.get("if") != "none":
                _drive(found, said.get("if", "ide"), said)
        elif name == "device":
            _device(found, value, backends, queues)
        elif name in _OPTIONS:
            _OPTIONS[name](found, value)
        elif name not in SILENT:
            found.leave(f"-{name} {value}".rstrip())
    return found


def _queues_of(words: list[str]) -> dict[str, int | None]:
    """Return the pairs of queues of each ``-netdev``, which its card need not follow."""
    netdevs = (
        pairs(value, "type")
        for name, value in pairwise(words)
        if name.lstrip("-") == "netdev" and name.startswith("-")
    )
    return {said.get("id", ""): whole(said.get("queues")) for said in netdevs}


def pairs(value: str, first: str) -> dict[str, str]:
    """Return an option's properties; ``first`` names what stands without a name.

    Newer versions of libvirt write them as JSON.
    """
    if value.startswith("{"):
        return dict(_flat(json.loads(value)))
    said: dict[str, str] = {}
    # A comma within a value is written twice.
    for number, part in enumerate(value.replace(",,", "\0").split(",")):
        key, equals, held = part.replace("\0", ",").partition("=")
        if equals:
            said[key] = held
        elif number == 0:
            said[first] = key
        elif key:
            said[key] = "on"
    return said


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, held in value.items():
            yield from _flat(held, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, held in enumerate(value):
            yield from _flat(held, f"{name}.{number}")
    elif isinstance(value, bool):
        yield name, "on" if value else "off"
    elif isinstance(value, str | int):
        yield name, str(value)


def _whole_backend(name: str, backends: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return what is said of a disk: of its format, and of the file below it, as libvirt splits it.

    What its format says goes before what its file says.
    """
    said = dict(backends.get(name, {}))
    below = backends.get(said.get("file", ""), {})
    return {**{key: value for key, value in below.items() if key != "driver"}, **said}


def _drive(found: Found, bus: str, said: Mapping[str, str]) -> None:
    cache = said.get("cache", "")
    if said.get("cache.direct") == "on":
        cache = "none"
    first = found.disks == 0
    found.add_disk(bus, cache, said.get("aio", said.get("file.aio", "")))
    form = said.get("format", said.get("driver", "raw"))
    if first:
        found.disk_kept_as("raw" if form in ("file", "host_device") else form)
    for name in sorted(key for key in said if key.startswith("throttling")):
        found.leave(f"disk {name}={said[name]}")


def _device(
    found: Found,
    value: str,
    backends: Mapping[str, Mapping[str, str]],
    queues: Mapping[str, int | None],
) -> None:
    said = pairs(value, "driver")
    kind = said.get("driver", "")
    if kind in DISKS:
        first = found.disks == 0
        _drive(found, DISKS[kind], _whole_backend(said.get("drive", ""), backends))
        if first and (several := whole(said.get("num-queues"))):
            found.options["disk_queues"] = several
        if first and said.get("iothread"):
            found.options["iothread"] = True
    elif _NIC.fullmatch(kind):
        pairs_of_queues = queues.get(said.get("netdev", ""))
        found.add_nic(NICS.get(kind, kind), pairs_of_queues)
        if said.get("mq") == "on" and pairs_of_queues is None:
            found.leave("queues of the network interface", "write `nic-queues`")
    elif not _QUIET.fullmatch(kind):
        found.leave(f"-device {kind}")


def _memory(found: Found, value: str) -> None:
    said = pairs(value, "size")
    size = _SIZE.fullmatch(said.get("size", ""))
    if size is None:
        found.leave(f"-m {value}")
        return
    # Without a unit it is in MiB (qemu-system-x86_64(1), -m).
    unit = {"k": 10, "K": 10, "": 20, "M": 20, "G": 30, "T": 40}[size[2]]
    found.memory = bytes_of(size[1], 1 << unit)
    if set(said) - {"size"}:
        found.leave(f"-m {value}", "memory is not added while it runs")


def _cpus(found: Found, value: str) -> None:
    said = pairs(value, "cpus")
    found.vcpus = whole(said.get("cpus"))
    if found.vcpus is None:
        parts = [whole(said.get(name, "1")) or 1 for name in ("sockets", "cores", "threads")]
        found.vcpus = min(parts[0] * parts[1] * parts[2], 1 << 20)
    if (whole(said.get("threads")) or 1) > 1:
        found.leave("threads of a core", "each vCPU is a core of its own")


def _machine(found: Found, value: str) -> None:
    said = pairs(value, "type")
    found.board(said.get("type", ""))
    for name in sorted(set(said) - {"type", "usb", "vmport", "smm", "accel", "dump-guest-core"}):
        if name not in ("memory-backend", "graphics", "kernel_irqchip", "hpet"):
            found.leave(f"-machine {name}={said[name]}")
    if accel := said.get("accel"):
        _accelerator(found, accel)


def _accelerator(found: Found, value: str) -> None:
    said = pairs(value, "accel")
    kind = said.get("accel", "").partition(":")[0]
    if kind in ("kvm", "tcg"):
        found.options["accelerator"] = kind
    else:
        found.leave(f"-accel {kind}")
    if kind == "tcg" and said.get("thread") == "single":
        found.options["threads"] = "single"


def _processor(found: Found, value: str) -> None:
    if value not in ("host", "max"):
        found.options["cpu"] = value


def _object(found: Found, value: str) -> None:
    said = pairs(value, "qom-type")
    kind = said.get("qom-type", "")
    if kind.startswith("memory-backend"):
        if said.get("hugetlb") == "on" or kind == "memory-backend-file":
            found.options["hugepages"] = True
        elif said.get("prealloc") in ("on", "yes"):
            found.options["prealloc"] = True
        nodes = said.get("host-nodes", said.get("host-nodes.0", ""))
        if nodes and said.get("policy") == "bind" and "host-nodes.1" not in said:
            found.bind_memory(nodes)
        elif nodes or "policy" in said:
            found.leave(f"memory host-nodes={nodes},policy={said.get('policy', '')}")
    elif kind not in ("iothread", "secret", "rng-random"):
        found.leave(f"-object {kind}")


def _mem_path(found: Found, value: str) -> None:
    if "hugepages" in value:
        found.options["hugepages"] = True
        found.options.pop("prealloc", None)
    else:
        found.leave(f"-mem-path {value}")


def _mem_prealloc(found: Found, value: str) -> None:
    # Tare touches huge pages in any case.
    if "hugepages" not in found.options:
        found.options["prealloc"] = True


def _overcommit(found: Found, value: str) -> None:
    said = pairs(value, "")
    for name, option in (("mem-lock", "mlock"), ("cpu-pm", "cpu_pm")):
        if said.get(name) == "on":
            found.options[option] = True


def _name(found: Found, value: str) -> None:
    said = pairs(value, "guest")
    found.name = said.get("guest", "")


def _kernel(found: Found, value: str) -> None:
    found.leave("what it boots", "the kernel of the study is booted")


def _kvm(found: Found, value: str) -> None:
    found.options["accelerator"] = "kvm"


def _nic(found: Found, value: str) -> None:
    model = pairs(value, "kind").get("model", "e1000")
    found.add_nic(NICS.get(model, model))


def _disk_file(found: Found, value: str) -> None:
    _drive(found, "ide", {})


_OPTIONS: dict[str, Callable[[Found, str], None]] = {
    "m": _memory,
    "smp": _cpus,
    "machine": _machine,
    "M": _machine,
    "accel": _accelerator,
    "enable-kvm": _kvm,
    "cpu": _processor,
    "object": _object,
    "mem-path": _mem_path,
    "mem-prealloc": _mem_prealloc,
    "overcommit": _overcommit,
    "name": _name,
    "kernel": _kernel,
    "initrd": _kernel,
    "append": _kernel,
    "bios": _kernel,
    "nic": _nic,
    "hda": _disk_file,
}
