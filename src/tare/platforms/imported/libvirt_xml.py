"""Import libvirt's domain XML from ``virsh dumpxml``; libvirt.org, "Domain XML format"."""

from __future__ import annotations

from collections.abc import Callable

from tare.platforms.imported.cpu_tuning import read_tuning
from tare.platforms.imported.libvirt_devices import ASIDE as DEVICES_ASIDE
from tare.platforms.imported.libvirt_devices import WHY as DEVICES_WHY
from tare.platforms.imported.libvirt_devices import read_devices
from tare.platforms.imported.model import BOOTS, FIRMWARE, Description
from tare.platforms.imported.notes import Node
from tare.platforms.imported.parsing import UNITS, bytes_of, parse_whole_number
from tare.platforms.imported.processor import CPU_OF_QEMU, take_model

ASIDE = DEVICES_ASIDE | {
    *("uuid", "title", "description", "metadata", "resource", "genid", "seclabel", "sysinfo"),
    *("on_poweroff", "on_reboot", "on_crash", "on_lockfailure", "pm", "hwuuid", "@id", "keywrap"),
    *("os/smbios", "os/bios", "os/bootmenu", "os/boot", "os/nvram", "os/type@arch"),
    *("features/acpi", "features/apic", "features/pae", "features/vmport", "memtune@id"),
    *("features/vmcoreinfo", "iothreads", "iothreadids", "features/capabilities"),
    *("vcpu@placement", "cpu@match", "cpu@check", "cpu/model@fallback", "bootloader"),
    *("bootloader_args", "backupid", "features/ps2", "perf"),
}
"""Elements and attributes that have no effect on a measurement, or repeat another part."""
WHY = DEVICES_WHY | {
    "features/smm": FIRMWARE[1],
    "cpu/numa": "Tare's machines have one NUMA node",
    "numatune/memnode": "Tare's machines have one NUMA node",
    "cpu/cache": "the host's caches are not shown to the guest",
    "launchSecurity": "Tare's machines are not encrypted",
    "maxMemory": "memory is not added while it runs",
    "vcpus": "Tare's machines have all of their vCPUs from the start",
    "blkiotune": "no option of an arm limits the disk's rate",
}


CONTAINERS = frozenset({"lxc", "openvz", "vz"})
"""Types of domains that share the host's kernel."""


def read_domain(root: Node) -> Description:
    """Convert a domain to a description.

    Args:
        root: The element ``domain``.

    Raises:
        ValueError: The domain is a container.
    """
    found = Description(described=True)
    root.touched = True
    kind = root.get("type")
    if kind in CONTAINERS:
        raise ValueError("describes a container, which `platform: oci` or `incus` has")
    kinds = {"kvm": "kvm", "qemu": "tcg", "hvf": "kvm"}
    found.options["accelerator"] = kinds.get(kind, "kvm")
    if kind not in ("kvm", "qemu"):
        found.leave(f"type {kind}", "QEMU with KVM is taken")
    if (arch := root.value("os/type", "arch")) not in ("", "x86_64", "i686"):
        found.leave(f"processors of the kind {arch}", "Tare's machines have x86-64")
    # This is QEMU's default machine type.
    found.options["machine"] = "pc"
    # Read the mainboard first, because the meaning of a bus depends on it.
    if board := root.value("os/type", "machine"):
        found.board(board)
    # Read the memory size before the balloon, whose size is compared with it.
    for part in sorted(root.parts, key=lambda part: part.tag != "memory"):
        if part.tag in _PARTS:
            part.touched = True
            _PARTS[part.tag](found, part)
    _processor(found, root)
    # At this point the disk's thread and the number of vCPUs are known.
    read_tuning(found, root)
    root.close(found.ledger, ASIDE, WHY)
    return found


def _commandline(found: Description, part: Node) -> None:
    words = (each.get("value") for each in part.parts if each.tag == "arg")
    options = [word for word in words if word.startswith("-")]
    part.take()
    found.leave(f"<qemu:commandline> {' '.join(options)}".rstrip(), "write `extra-args`")


def _name(found: Description, part: Node) -> None:
    found.name = part.text


def _memory(found: Description, part: Node) -> None:
    found.memory = bytes_of(part.text, UNITS.get(part.get("unit", "KiB")))
    if found.memory is None:
        found.leave("<memory>", "it is not a size")


def _balloon(found: Description, part: Node) -> None:
    """List memory that a balloon takes away, because Tare's machines have no balloon."""
    size = bytes_of(part.text, UNITS.get(part.get("unit", "KiB")))
    if size is not None and size != found.memory:
        found.leave(
            f"currentMemory of {size >> 20} MiB", "all of its memory is taken, as without a balloon"
        )


def _vcpu(found: Description, part: Node) -> None:
    most = parse_whole_number(part.text)
    found.vcpus = parse_whole_number(part.get("current")) or most
    if most is not None and found.vcpus is not None and most > found.vcpus:
        found.leave(f"vCPUs that may be added, up to {most}", "Tare uses the available ones")


def _backing(found: Description, part: Node) -> None:
    for each in part.parts:
        if each.tag == "hugepages":
            found.huge_pages()
            pages = each.all("page")
            each.touched = True
            if pages and (unit := UNITS.get(pages[0].get("unit", "KiB"))):
                size = bytes_of(pages[0].get("size"), unit)
                if size is not None:
                    found.options["hugepage_size"] = size
            if len(pages) > 1:
                found.leave(f"{len(pages)} sizes of huge pages", "the first is taken")
        elif each.tag == "locked":
            each.touched = True
            found.options["mlock"] = True
        elif each.tag == "allocation" and each.get("mode") == "immediate":
            found.touch_memory()


def _nodes(found: Description, part: Node) -> None:
    for each in part.all("memory"):
        mode, nodes = each.get("mode", "strict"), each.get("nodeset")
        if mode == "strict" and nodes:
            found.bind_memory(nodes)
        else:
            found.leave(f"<numatune> memory mode={mode} {nodes}".rstrip())


def _system(found: Description, part: Node) -> None:
    if part.get("firmware") or part.all("loader") or part.all("nvram"):
        found.leave(*FIRMWARE)
    for each in part.parts:
        if each.tag in (
            "loader",
            "nvram",
            "firmware",
            "kernel",
            "initrd",
            "cmdline",
            "dtb",
            "boot",
        ):
            each.take()
    if kind := part.find("type"):
        kind.text  # noqa: B018 - it is read, and means a whole machine
    found.leave(*BOOTS)


def _resource(found: Description, part: Node) -> None:
    part.take()
    found.set_aside(f"<resource> {part.words().removeprefix('resource').strip()}")


def _processor(found: Description, root: Node) -> None:
    """Import the processor, with the additions of ``features`` and ``clock`` to QEMU's ``-cpu``."""
    part = root.find("cpu")
    mode, model, flags = "custom", "", processor_flags(found, root)
    if part is not None:
        mode = part.get("mode", "custom")
        named = part.find("model")
        model = "" if named is None else named.text
        topology = part.find("topology")
        if topology is not None:
            _topology(found, topology)
        own = [
            f"{'-' if each.get('policy') in ('disable', 'forbid') else '+'}{each.get('name')}"
            for each in part.all("feature")
        ]
        flags = [*own, *flags]
    if mode == "host-model":
        found.leave("CPU host-model", "the host's own processor is taken")
    name = {"custom": model or CPU_OF_QEMU, "maximum": "max"}.get(mode, "host")
    migratable = "" if part is None else part.get("migratable")
    if name == "host" and migratable:
        flags.append(f"migratable={migratable}")
    take_model(found, name, flags)


def _topology(found: Description, topology: Node) -> None:
    for name in ("sockets", "dies", "clusters", "cores", "threads"):
        number = parse_whole_number(topology.get(name, "1"))
        if name != "cores" and number not in (None, 1):
            what = "threads of a core" if name == "threads" else f"<topology> {name}={number}"
            found.leave(what, "each vCPU is a separate core")


_PARTS: dict[str, Callable[[Description, Node], None]] = {
    "name": _name,
    "memory": _memory,
    "currentMemory": _balloon,
    "commandline": _commandline,
    "vcpu": _vcpu,
    "memoryBacking": _backing,
    "numatune": _nodes,
    "os": _system,
    "devices": read_devices,
    "resource": _resource,
}


_ON = "on"
_HYPERV = {
    "relaxed": "hv-relaxed",
    "vapic": "hv-vapic",
    "vpindex": "hv-vpindex",
    "runtime": "hv-runtime",
    "synic": "hv-synic",
    "reset": "hv-reset",
    "frequencies": "hv-frequencies",
    "reenlightenment": "hv-reenlightenment",
    "tlbflush": "hv-tlbflush",
    "ipi": "hv-ipi",
    "evmcs": "hv-evmcs",
    "avic": "hv-avic",
    "emsr_bitmap": "hv-emsr-bitmap",
    "xmm_input": "hv-xmm-input",
    "stimer": "hv-stimer",
}
_INNER = {
    ("stimer", "direct"): "hv-stimer-direct",
    ("tlbflush", "direct"): "hv-tlbflush-direct",
    ("tlbflush", "extended"): "hv-tlbflush-ext",
}
_KVM = {
    "hint-dedicated": "kvm-hint-dedicated",
    "poll-control": "kvm-poll-control",
    "pv-ipi": "kvm-pv-ipi",
}
_TIMERS = {"kvmclock": "kvmclock", "hypervclock": "hv-time"}


def processor_flags(found: Description, root: Node) -> list[str]:
    """Return the flags, in QEMU's syntax, that other parts of a domain add to the processor.

    Args:
        found: The description read so far.
        root: The element ``domain``.
    """
    flags: list[str] = []
    features = root.find("features")
    if features is not None:
        for part in features.all("hyperv"):
            flags += _hyperv(part)
        for part in features.all("kvm"):
            flags += _kvm(part)
        for part in features.all("pvspinlock"):
            flags.append(f"kvm-pv-unhalt={part.get('state', _ON)}")
        for part in features.parts:
            if part.tag == "apic" and part.get("eoi"):
                flags.append(f"kvm-pv-eoi={part.get('eoi')}")
    return flags + _clock(root)


def _hyperv(part: Node) -> list[str]:
    if part.get("mode") == "passthrough":
        return ["hv-passthrough=on"]
    flags = []
    for each in part.parts:
        if each.tag == "spinlocks":
            retries = parse_whole_number(each.get("retries", "4095"))
            if each.get("state", _ON) == _ON and retries is not None:
                flags.append(f"hv-spinlocks={retries:#x}")
        elif each.tag == "vendor_id":
            if each.get("state", _ON) == _ON:
                flags.append(f"hv-vendor-id={each.get('value')}")
        elif each.tag in _HYPERV:
            on = each.get("state", _ON)
            flags.append(f"{_HYPERV[each.tag]}={on}")
            for inner in each.parts:
                if (flag := _INNER.get((each.tag, inner.tag))) is not None:
                    flags.append(f"{flag}={inner.get('state', _ON)}")
    return flags


def _kvm(part: Node) -> list[str]:
    flags = []
    for each in part.parts:
        if each.tag == "hidden":
            flags += ["kvm=off"] if each.get("state") == _ON else []
        elif each.tag in _KVM:
            flags.append(f"{_KVM[each.tag]}={each.get('state', _ON)}")
    return flags


def _clock(root: Node) -> list[str]:
    """Return the flags of timers that are a part of the processor; other timers are listed."""
    flags = []
    for clock in (each for each in root.parts if each.tag == "clock"):
        for timer in clock.parts:
            flag = _TIMERS.get(timer.peek("name")) if timer.peek("present") else None
            if flag is not None:
                clock.touched = True
                timer.get("name")
                flags.append(f"{flag}={'on' if timer.get('present') == 'yes' else 'off'}")
    return flags
