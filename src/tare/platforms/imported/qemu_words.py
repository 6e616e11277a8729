"""A command line of QEMU's; qemu-system-x86_64(1)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from tare.platforms.imported.model import CPU_OF_QEMU, Found
from tare.platforms.imported.numbers import bytes_of, whole
from tare.platforms.imported.qemu_disks import (
    CONTROLLER,
    FIRMWARE,
    add_controller,
    add_device,
    add_disk,
    add_drive,
    is_disk,
    plain,
)

SILENT = frozenset(
    {
        *("nodefaults", "no-user-config", "display", "daemonize", "pidfile", "qmp", "mon", "S"),
        *("chardev", "serial", "monitor", "vnc", "nographic", "uuid", "msg", "D", "no-shutdown"),
        *("no-reboot", "parallel", "sandbox", "boot", "vga", "k", "usb", "spice", "netdev"),
        *("rtc", "no-hpet", "runas", "id", "no-fd-bootchk", "full-screen", "qmp-pretty"),
        *("enable-fips", "only-migratable", "iscsi"),
    }
)
"""Options that say nothing of the machine, or belong to what is on its screen."""
ALONE = frozenset(
    {
        *("nodefaults", "no-user-config", "daemonize", "S", "nographic", "no-shutdown", "usb"),
        *("no-reboot", "no-hpet", "enable-kvm", "no-acpi", "snapshot", "mem-prealloc"),
        *("no-fd-bootchk", "full-screen", "alt-grab", "ctrl-grab", "no-frame", "no-quit", "sdl"),
        *("curses", "gtk", "portrait", "win2k-hack", "only-migratable", "enable-fips"),
        *("preconfig", "singlestep", "xen-attach", "xen-domid-restrict", "async-teardown"),
        *("enable-sync-profile", "perfmap", "jitdump", "nodefconfig", "no-kvm", "h", "help"),
        *("version", "no-kvm-irqchip", "no-kvm-pit", "no-kvm-pit-reinjection", "tdf"),
    }
)
"""Options without a value, of all versions (qemu-options.hx)."""
MEMORY = 128 << 20
"""The bytes of memory where nothing is said (qemu-system-x86_64(1), ``-m``)."""
NICS = {"virtio-net": "virtio"}
_PROGRAM = re.compile(r"(?:^|/)(?:qemu-system-([a-z0-9_]+)|qemu-kvm|kvm)$")
_NIC = re.compile(r"(e1000e?|rtl8139|ne2k_pci|pcnet|vmxnet3|tulip|i82\w+|virtio-net)")
_QUIET = re.compile(
    r"(isa-serial|virtio-serial|virtserialport|virtconsole|usb-.*|.*vga.*|qxl.*"
    r"|pcie-root-port|pcie-pci-bridge|pci-bridge|ahci|ich9-.*|piix.*|VGA|.*-ehci|.*-uhci"
    r"|.*xhci|ide-cd|scsi-cd|.*audio|hda-.*|intel-hda)"
)
_IMAGE = re.compile(r"[^=]*[./][^=]*")
"""A disk's image, which stands by itself before or behind all options."""
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
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return shlex.split("\n".join(lines).replace("\\\n", " "), comments=False)


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
    # What QEMU does where nothing is said.
    found.options |= {"accelerator": "tcg", "machine": "pc", "cpu": CPU_OF_QEMU}
    found.vcpus, found.memory = 1, MEMORY
    program = _PROGRAM.search(words[first])
    if program is not None and program[1] not in (None, "x86_64", "i386"):
        found.leave(f"processors of the kind {program[1]}", "Tare's machines have x86-64")
    backends: dict[str, dict[str, str]] = {}
    netdevs = _netdevs(words)
    rest = iter(words[first + 1 :])
    for word in rest:
        name = word.lstrip("-")
        if not word.startswith("-"):
            if word in (words[first + 1], words[-1]) and _IMAGE.fullmatch(word):
                _disk_file(found, word)
            else:
                # As a kernel's words are, of a line that lost its quotations.
                found.leave(word, "it is no option")
            continue
        value = "" if name in ALONE else next(rest, "")
        if name in ("drive", "blockdev"):
            said = pairs(value, "driver" if name == "blockdev" else "file")
            backends[said.get("id", said.get("node-name", ""))] = said
            if name == "drive":
                add_drive(found, said)
        elif name == "device":
            _device(found, value, backends, netdevs)
        elif name in _OPTIONS:
            _OPTIONS[name](found, value)
        elif name not in SILENT:
            found.leave(f"-{name} {value}".rstrip())
    return found


def _netdevs(words: list[str]) -> dict[str, dict[str, str]]:
    """Return what each ``-netdev`` says, which its card need not follow."""
    netdevs = (
        pairs(value, "type")
        for name, value in pairwise(words)
        if name.lstrip("-") == "netdev" and name.startswith("-")
    )
    return {said.get("id", ""): said for said in netdevs}


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


def _device(
    found: Found,
    value: str,
    backends: Mapping[str, Mapping[str, str]],
    netdevs: Mapping[str, Mapping[str, str]],
) -> None:
    said = pairs(value, "driver")
    kind = plain(said.get("driver", ""))
    if is_disk(kind):
        add_device(found, kind, said, backends)
    elif kind == CONTROLLER:
        add_controller(found, said)
    elif _NIC.fullmatch(kind):
        netdev = netdevs.get(said.get("netdev", ""), {})
        _card(found, kind, netdev, said.get("mq") == "on")
    elif not _QUIET.fullmatch(kind):
        found.leave(f"-device {said.get('driver', '')}")


def _card(found: Found, kind: str, netdev: Mapping[str, str], several: bool = False) -> None:
    """Take a network card, and what it is connected to."""
    queues, way = whole(netdev.get("queues")), netdev.get("type", "")
    if not found.add_nic(NICS.get(kind, kind), queues):
        return
    if several and queues is None:
        found.leave("queues of the network interface", "write `nic-queues`")
    if way == "user":
        found.options["network"] = "user"
    # QEMU leaves packets to the host's kernel only where it is told to.
    elif way in ("tap", "bridge") and kind in NICS and netdev.get("vhost") != "on":
        found.options["vhost"] = "off"
    elif way not in ("", "tap", "bridge"):
        found.leave(f"network by {way}", "write `network` or `switch`")


def _memory(found: Found, value: str) -> None:
    said = pairs(value, "size")
    size = _SIZE.fullmatch(said.get("size", ""))
    if size is None:
        found.memory = None
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
    if board := said.get("type"):
        found.board(board)
    for name in sorted(set(said) - {"type", "usb", "vmport", "smm", "accel", "dump-guest-core"}):
        if name.startswith("pflash"):
            found.leave(*FIRMWARE)
        elif name not in ("memory-backend", "graphics", "kernel_irqchip", "hpet", "acpi", "pcie"):
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
    for name in sorted(set(said) - {"accel", "thread"}):
        found.leave(f"-accel {name}={said[name]}")


def _processor(found: Found, value: str) -> None:
    if value in ("host", "max"):
        found.options.pop("cpu", None)
    else:
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
    said = pairs(value, "type")
    if said.get("type") != "none":
        default = "e1000" if found.options["machine"] == "pc" else "e1000e"
        _card(found, plain(said.get("model", default)), said)


def _disk_file(found: Found, value: str) -> None:
    add_disk(found, "ide", {"file": value}, {})


def _flash(found: Found, value: str) -> None:
    found.leave(*FIRMWARE)


def _config(found: Found, value: str) -> None:
    found.leave(f"-readconfig {value}", "what is in that file is not read")


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
    "pflash": _flash,
    "readconfig": _config,
}
