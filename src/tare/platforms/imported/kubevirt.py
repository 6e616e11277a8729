"""KubeVirt's VirtualMachine and VirtualMachineInstance, as ``kubectl get -o yaml`` prints them.

Source: KubeVirt's API reference, kubevirt.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tare.platforms.imported.ledger import Said, shown
from tare.platforms.imported.model import BOOTS, FIRMWARE, Disk, Found
from tare.platforms.imported.numbers import bytes_of, fraction, whole
from tare.platforms.imported.processor import take_model
from tare.platforms.imported.tree import leaves

KINDS = frozenset({"VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"})
_QUANTITY = re.compile(r"([0-9]{1,15})(\.[0-9]{1,9})?(m|[kKMGTP]i?)?")
_UNITS = {
    "": 1,
    "m": 1,
    **{unit: 1000**power for power, unit in enumerate(("k", "M", "G", "T", "P"), start=1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTP", start=1)},
    "K": 1000,
}
_TRUE = frozenset({"true", "on", "True"})
_HYPERV = {
    "relaxed": "hv-relaxed",
    "vapic": "hv-vapic",
    "vpindex": "hv-vpindex",
    "runtime": "hv-runtime",
    "synic": "hv-synic",
    "synictimer": "hv-stimer",
    "reset": "hv-reset",
    "frequencies": "hv-frequencies",
    "reenlightenment": "hv-reenlightenment",
    "tlbflush": "hv-tlbflush",
    "ipi": "hv-ipi",
    "evmcs": "hv-evmcs",
}
_ASIDE = (
    *("metadata", "status", "apiVersion", "kind", "spec.running", "spec.runStrategy", "networks"),
    *("volumes", "accessCredentials", "hostname", "subdomain", "nodeSelector", "tolerations"),
    *("affinity", "livenessProbe", "readinessProbe", "terminationGracePeriodSeconds", "dnsPolicy"),
    *("dnsConfig", "evictionStrategy", "schedulerName", "priorityClassName", "startStrategy"),
    *(
        "topologySpreadConstraints",
        "spec.dataVolumeTemplates",
        "spec.template.metadata",
        "selector",
    ),
    *("domain.devices.rng", "domain.devices.inputs", "domain.devices.watchdog", "spec.replicas"),
    *("domain.devices.clientPassthrough", "domain.devices.sound", "domain.devices.tpm"),
    *("domain.devices.autoattachGraphicsDevice", "domain.devices.autoattachSerialConsole"),
    *("domain.devices.autoattachInputDevice", "domain.devices.logSerialConsole"),
    *("domain.devices.autoattachPodInterface", "domain.devices.autoattachVSOCK"),
    *("domain.features.acpi", "domain.features.apic.enabled", "domain.chassis", "architecture"),
    *("domain.devices.downwardMetrics", "domain.devices.disableHotplug", "domain.clock"),
    *("domain.ioThreads", "domain.devices.video"),
)
"""Places without effect on what is measured; the values at some are secrets."""
_WHY = {
    "instancetype": "`kubectl get` it: it has vCPUs and memory of its own",
    "preference": "`kubectl get` it: it has devices of its own",
    "domain.devices.hostDevices": "Tare's machines have no device of the host's",
    "domain.devices.gpus": "Tare's machines have no device of the host's",
    "domain.memory.maxGuest": "memory is not added while it runs",
    "domain.cpu.numa": "Tare's machines have one NUMA node",
    "domain.launchSecurity": "Tare's machines are not encrypted",
    "domain.resources": "write `scheduling`, where it limits the CPU",
    "domain.devices.filesystems": "Tare's machines have no file system of the host's",
}


class _Loader(yaml.BaseLoader):
    """YAML without types, and without aliases, which make much of a short text."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases."""
        if self.check_event(yaml.AliasEvent):
            raise ValueError("has an alias of YAML, which no description of KubeVirt's has")
        return super().compose_node(parent, index)


def is_kubevirt(text: str) -> bool:
    """Return whether a text looks like an object of Kubernetes."""
    return re.search(r"^\s*-?\s*\"?apiVersion\"?\s*:", text, re.MULTILINE) is not None


def documents(text: str) -> list[Any]:
    """Return the documents in a text of YAML.

    Raises:
        ValueError: It is no YAML.
    """
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f"line {mark.line + 1} " if mark is not None else ""
        raise ValueError(f"{place}is not YAML") from None


def read_kubevirt(several: Iterable[Any]) -> Found:
    """Return what the first virtual machine among some objects of Kubernetes says.

    Raises:
        ValueError: There is none, or it is too large.
    """
    machines = [each for each in _objects(several) if each.get("kind") in KINDS]
    if not machines:
        raise ValueError("has no VirtualMachine or VirtualMachineInstance of KubeVirt's")
    machine = machines[0]
    said = Said("", {_short(key): value for key, value in leaves(dict(machine))})
    found = Found(described=True, name=said.get("metadata.name", ""))
    for other in machines[1:]:
        name = str(dict(other.get("metadata") or {}).get("name", ""))
        found.leave(f"machine {name}", "only the first is taken")
    found.options |= {"accelerator": "kvm", "machine": "q35"}
    if board := said.get("domain.machine.type", ""):
        found.board(board)
    _size(found, said)
    _processor(found, said)
    _memory(found, said)
    _disks(found, said)
    _interfaces(found, said)
    if any(key.startswith("domain.firmware.bootloader.efi") for key in said):
        found.leave(*FIRMWARE)
    found.leave(*BOOTS)
    _finish(found, said)
    return found


def _objects(several: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for each in several:
        if isinstance(each, dict):
            yield each
            items = each.get("items")
            if isinstance(items, list):
                yield from (item for item in items if isinstance(item, dict))


def _short(key: str) -> str:
    """Return a place as it is in a VirtualMachineInstance, whichever kind it is of."""
    if key.startswith(("spec.template.spec.", "spec.domain.")):
        return key.removeprefix("spec.template.spec.").removeprefix("spec.")
    inner = ("spec.volumes.", "spec.networks.", "spec.accessCredentials.")
    return key.removeprefix("spec.") if key.startswith(inner) else key


def _size(found: Found, said: Said) -> None:
    """Take vCPUs and memory: the domain's own, or what it requests of Kubernetes."""
    parts = [said.get(f"domain.cpu.{name}", "") for name in ("cores", "sockets", "threads")]
    if any(parts):
        found.vcpus = 1
        for part in parts:
            found.vcpus = min(found.vcpus * (whole(part or "1") or 1), 1 << 20)
        if (whole(parts[2]) or 1) > 1:
            found.leave("threads of a core", "each vCPU is a core of its own")
        if (whole(parts[1]) or 1) > 1:
            found.leave(f"domain.cpu.sockets {parts[1]}", "all vCPUs are in one socket")
    for name in ("limits", "requests"):
        cpus, memory = (
            said.get(f"domain.resources.{name}.{what}", "") for what in ("cpu", "memory")
        )
        if not any(parts) and found.vcpus is None and cpus:
            found.vcpus = _cpus(cpus)
        if found.memory is None and memory:
            found.memory = _bytes(memory)
    if guest := said.get("domain.memory.guest", ""):
        found.memory = _bytes(guest)
    if not any(key.startswith("spec.instancetype") for key in said):
        found.vcpus = found.vcpus or 1
    most = whole(said.get("domain.cpu.maxSockets", ""))
    if most and most > (whole(parts[1]) or 1):
        found.leave(f"sockets that may be added, up to {most}", "those that are there are taken")


def _cpus(text: str) -> int | None:
    """Return a number of CPUs, rounded up as KubeVirt does; ``500m`` is half a CPU."""
    number = fraction(text.removesuffix("m"))
    if number is None:
        return None
    cpus = number / 1000 if text.endswith("m") else number
    return max(1, -int(-cpus // 1))


def _bytes(text: str) -> int | None:
    size = _QUANTITY.fullmatch(text)
    if size is None:
        return None
    unit = _UNITS[size[3] or ""]
    number = bytes_of(size[1], unit)
    return None if number is None else number + round(float(size[2] or 0) * unit)


def _processor(found: Found, said: Said) -> None:
    model = said.get("domain.cpu.model", "host-model")
    flags = []
    for number in range(_count(said, "domain.cpu.features")):
        part = f"domain.cpu.features.{number}"
        policy = said.get(f"{part}.policy", "require")
        sign = "-" if policy in ("disable", "forbid") else "+"
        flags.append(f"{sign}{said.get(f'{part}.name', '')}")
    flags += _features(said)
    if model == "host-model":
        found.leave("CPU host-model", "the host's own processor is taken")
    take_model(found, "host" if model in ("host-model", "host-passthrough") else model, flags)
    if said.get("domain.cpu.dedicatedCpuPlacement", "") in _TRUE:
        found.pinned = True
        if said.get("domain.cpu.isolateEmulatorThread", "") in _TRUE:
            found.options["emulator_cpus"] = "other"
    if any(key.startswith("domain.cpu.realtime") for key in said):
        found.schedule(policy="fifo", priority=1)
        found.options["mlock"] = True
        said.skip(*(key for key in said if key.startswith("domain.cpu.realtime")))


def _features(said: Said) -> list[str]:
    flags = []
    for key in said:
        parts = key.split(".")
        if parts[:3] != ["domain", "features", "hyperv"] or len(parts) < 4:
            continue
        name = parts[3]
        if name == "spinlocks":
            if parts[4:] == ["spinlocks"] and (retries := whole(said[key])) is not None:
                flags.append(f"hv-spinlocks={retries:#x}")
            said.skip(key)
        elif name in _HYPERV and parts[4:] in ([], ["enabled"]):
            flags.append(f"{_HYPERV[name]}={'off' if said[key] in ('false', 'off') else 'on'}")
        elif name == "vendorid" and parts[4:] == ["vendorid"]:
            flags.append(f"hv-vendor-id={said[key]}")
    if said.get("domain.features.kvm.hidden", "") in _TRUE:
        flags.append("kvm=off")
    if (spin := said.get("domain.features.pvspinlock.enabled", "")) != "":
        flags.append(f"kvm-pv-unhalt={'on' if spin in _TRUE else 'off'}")
    return flags


def _memory(found: Found, said: Said) -> None:
    if pages := said.get("domain.memory.hugepages.pageSize", ""):
        found.huge_pages(_bytes(pages))


def _disks(found: Found, said: Said) -> None:
    sizes = _sizes(said)
    kinds = _volumes(said)
    policy = said.get("domain.ioThreadsPolicy", "")
    queues = said.get("domain.devices.blockMultiQueue", "") in _TRUE
    for number in range(_count(said, "domain.devices.disks")):
        part = f"domain.devices.disks.{number}"
        name = said.get(f"{part}.name", "")
        bus = said.get(f"{part}.disk.bus", said.get(f"{part}.lun.bus", "sata"))
        own = [key for key in said if key.startswith(f"{part}.")]
        if any(key.startswith(f"{part}.cdrom") for key in own):
            said.skip(*own)
            found.set_aside(f"disk {name} (a CD)")
            continue
        # Without a word on it KubeVirt goes past the host's page cache where the storage can.
        cache, aio = said.get(f"{part}.cache", "none"), said.get(f"{part}.io", "")
        volume = kinds.get(name, "")
        if volume.startswith("cloudInit"):
            said.skip(*own)
            found.set_aside(f"disk {name} ({volume})")
            continue
        disk = Disk(bus, cache, aio, sizes.get(name), boot=whole(said.get(f"{part}.bootOrder", "")))
        if f"{part}.cache" not in said:
            disk.leave("how the disk is cached is not said", "KubeVirt takes `none` where it can")
        if not aio:
            disk.leave("how the disk is driven is not said", "KubeVirt takes native where it can")
        dedicated = said.get(f"{part}.dedicatedIOThread", "") in _TRUE
        disk.thread = "own" if dedicated or policy else ""
        disk.queues = found.vcpus if queues and bus == "virtio" else None
        if volume not in ("", "dataVolume", "persistentVolumeClaim", "emptyDisk", "hostDisk"):
            disk.leave(f"a disk by {volume}", "a file of the host is taken")
        found.add_disk(disk)


def _volumes(said: Said) -> dict[str, str]:
    """Return what kind of volume each disk has, by the disk's name."""
    kinds: dict[str, str] = {}
    for number in range(_count(said, "volumes")):
        part = f"volumes.{number}."
        inner = {key.removeprefix(part).split(".")[0] for key in said if key.startswith(part)}
        kinds[said.get(f"{part}name", "")] = next(iter(sorted(inner - {"name"})), "")
    return kinds


def _sizes(said: Said) -> dict[str, int | None]:
    """Return the sizes of volumes, where the machine's own templates say them."""
    templates: dict[str, int | None] = {}
    for number in range(_count(said, "spec.dataVolumeTemplates")):
        part = f"spec.dataVolumeTemplates.{number}"
        for place in ("storage", "pvc"):
            size = said.get(f"{part}.spec.{place}.resources.requests.storage", "")
            if size:
                templates[said.get(f"{part}.metadata.name", "")] = _bytes(size)
    sizes: dict[str, int | None] = {}
    for number in range(_count(said, "volumes")):
        part = f"volumes.{number}"
        name = said.get(f"{part}.name", "")
        if (template := said.get(f"{part}.dataVolume.name", "")) in templates:
            sizes[name] = templates[template]
        elif capacity := said.get(f"{part}.emptyDisk.capacity", ""):
            sizes[name] = _bytes(capacity)
    return sizes


def _interfaces(found: Found, said: Said) -> None:
    several = said.get("domain.devices.networkInterfaceMultiqueue", "") in _TRUE
    for number in range(_count(said, "domain.devices.interfaces")):
        part = f"domain.devices.interfaces.{number}"
        model = said.get(f"{part}.model", "virtio")
        own = [key for key in said if key.startswith(f"{part}.")]
        if any(key.startswith(f"{part}.sriov") for key in own):
            found.leave("network interface by sriov", "write `network: sriov`")
        found.add_nic(
            "virtio" if model.startswith("virtio") else model, found.vcpus if several else 1
        )
        names = ("name", "macAddress", "bootOrder", "bridge", "masquerade", "sriov", "pciAddress")
        said.skip(*(key for key in own if key.removeprefix(f"{part}.").split(".")[0] in names))


def _finish(found: Found, said: Said) -> None:
    for key in said.read:
        found.carry(key)
    for key, value in said.rest():
        if _under(key, _ASIDE):
            found.set_aside(key)
        else:
            why = next((reason for place, reason in _WHY.items() if _under(key, (place,))), "")
            found.leave(shown(key, value), why)


def _under(key: str, places: Iterable[str]) -> bool:
    return any(key == place or key.startswith((f"{place}.", f"spec.{place}.")) for place in places)


def _count(said: Said, place: str) -> int:
    numbers = [
        whole(key.removeprefix(f"{place}.").split(".")[0])
        for key in said
        if key.startswith(f"{place}.")
    ]
    return max((number + 1 for number in numbers if number is not None), default=0)
