"""KubeVirt's VirtualMachine and VirtualMachineInstance, as printed by ``kubectl get -o yaml``.

Source: KubeVirt's API reference, kubevirt.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tare.platforms.imported.model import BOOTS, FIRMWARE, Description, Disk
from tare.platforms.imported.notes import Values
from tare.platforms.imported.parsing import bytes_of, fraction, leaves, parse_whole_number
from tare.platforms.imported.processor import take_model

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
    "domain.devices.video",
)
"""Places that have no effect on measurements; the values at some of them are secrets."""
_WHY = {
    "instancetype": "`kubectl get` it: it has vCPUs and memory of its own",
    "preference": "`kubectl get` it: it has devices of its own",
    "domain.devices.hostDevices": "Tare's machines have no device of the host's",
    "domain.devices.gpus": "Tare's machines have no device of the host's",
    "domain.memory.maxGuest": "memory is not added while it runs",
    "domain.cpu.numa": "Tare's machines have one NUMA node",
    "domain.launchSecurity": "Tare's machines are not encrypted",
    "domain.resources": "write `scheduling`, where it limits the CPU",
    "domain.ioThreads": "Tare's disk has one I/O thread",
    "domain.devices.filesystems": "Tare's machines have no file system of the host's",
}


class _Loader(yaml.BaseLoader):
    """Load YAML without types and without aliases, which can expand a short text enormously."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Reject aliases; construct other nodes as usual."""
        if self.check_event(yaml.AliasEvent):
            raise ValueError("has an alias of YAML, which no description of KubeVirt's has")
        return super().compose_node(parent, index)


def is_kubevirt(text: str) -> bool:
    """Return whether a text looks like a Kubernetes object."""
    return re.search(r"^\s*-?\s*\"?apiVersion\"?\s*:", text, re.MULTILINE) is not None


def documents(text: str) -> list[Any]:
    """Return the documents in a text of YAML.

    Raises:
        ValueError: The text is not YAML.
    """
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f"line {mark.line + 1} " if mark is not None else ""
        raise ValueError(f"{place}is not YAML") from None


def read_kubevirt(several: Iterable[Any]) -> Description:
    """Convert the first virtual machine among Kubernetes objects to a description.

    Raises:
        ValueError: There is no virtual machine, or it is too large.
    """
    machines = [each for each in _objects(several) if each.get("kind") in KINDS]
    if not machines:
        raise ValueError("has no VirtualMachine or VirtualMachineInstance of KubeVirt's")
    machine = machines[0]
    values = Values("", {_short(key): value for key, value in leaves(dict(machine))})
    found = Description(described=True, name=values.get("metadata.name", ""))
    for other in machines[1:]:
        name = str(dict(other.get("metadata") or {}).get("name", ""))
        found.leave(f"machine {name}", "only the first is taken")
    found.options |= {"accelerator": "kvm", "machine": "q35"}
    if board := values.get("domain.machine.type", ""):
        found.board(board)
    _size(found, values)
    _processor(found, values)
    _memory(found, values)
    _disks(found, values)
    _interfaces(found, values)
    if any(key.startswith("domain.firmware.bootloader.efi") for key in values):
        found.leave(*FIRMWARE)
    found.leave(*BOOTS)
    _finish(found, values)
    return found


def _objects(several: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for each in several:
        if isinstance(each, dict):
            yield each
            items = each.get("items")
            if isinstance(items, list):
                yield from (item for item in items if isinstance(item, dict))


def _short(key: str) -> str:
    """Convert a place to its form in a VirtualMachineInstance, for all kinds of objects."""
    if key.startswith(("spec.template.spec.", "spec.domain.")):
        return key.removeprefix("spec.template.spec.").removeprefix("spec.")
    inner = ("spec.volumes.", "spec.networks.", "spec.accessCredentials.")
    return key.removeprefix("spec.") if key.startswith(inner) else key


def _size(found: Description, values: Values) -> None:
    """Import vCPUs and memory: the domain's own, or its requests to Kubernetes."""
    parts = [values.get(f"domain.cpu.{name}", "") for name in ("cores", "sockets", "threads")]
    if any(parts):
        found.vcpus = 1
        for part in parts:
            found.vcpus = min(found.vcpus * (parse_whole_number(part or "1") or 1), 1 << 20)
        if (parse_whole_number(parts[2]) or 1) > 1:
            found.leave("threads of a core", "each vCPU is a separate core")
        if (parse_whole_number(parts[1]) or 1) > 1:
            found.leave(f"domain.cpu.sockets {parts[1]}", "all vCPUs are in one socket")
    for name in ("limits", "requests"):
        cpus, memory = (
            values.get(f"domain.resources.{name}.{what}", "") for what in ("cpu", "memory")
        )
        if not any(parts) and found.vcpus is None and cpus:
            found.vcpus = _cpus(cpus)
        if found.memory is None and memory:
            found.memory = _bytes(memory)
    if guest := values.get("domain.memory.guest", ""):
        found.memory = _bytes(guest)
    if not any(key.startswith("spec.instancetype") for key in values):
        found.vcpus = found.vcpus or 1
    most = parse_whole_number(values.get("domain.cpu.maxSockets", ""))
    if most and most > (parse_whole_number(parts[1]) or 1):
        found.leave(f"sockets that may be added, up to {most}", "Tare uses the available ones")


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


def _processor(found: Description, values: Values) -> None:
    model = values.get("domain.cpu.model", "host-model")
    flags = []
    for number in range(values.count("domain.cpu.features")):
        part = f"domain.cpu.features.{number}"
        policy = values.get(f"{part}.policy", "require")
        sign = "-" if policy in ("disable", "forbid") else "+"
        flags.append(f"{sign}{values.get(f'{part}.name', '')}")
    flags += _features(values)
    if model == "host-model":
        found.leave("CPU host-model", "the host's own processor is taken")
    take_model(found, "host" if model in ("host-model", "host-passthrough") else model, flags)
    if values.get("domain.cpu.dedicatedCpuPlacement", "") in _TRUE:
        found.pinned = True
        if values.get("domain.cpu.isolateEmulatorThread", "") in _TRUE:
            found.options["emulator_cpus"] = "other"
    if any(key.startswith("domain.cpu.realtime") for key in values):
        found.schedule(policy="fifo", priority=1)
        found.options["mlock"] = True
        if mask := values.get("domain.cpu.realtime.mask", ""):
            found.leave(
                f"domain.cpu.realtime.mask={mask}", "all vCPUs are scheduled in the same way"
            )
        values.skip(*(key for key in values if key.startswith("domain.cpu.realtime")))


def _features(values: Values) -> list[str]:
    flags = []
    for key in values:
        parts = key.split(".")
        if parts[:3] != ["domain", "features", "hyperv"] or len(parts) < 4:
            continue
        name = parts[3]
        if name == "spinlocks":
            if (
                parts[4:] == ["spinlocks"]
                and (retries := parse_whole_number(values[key])) is not None
            ):
                flags.append(f"hv-spinlocks={retries:#x}")
            values.skip(key)
        elif name in _HYPERV and parts[4:] in ([], ["enabled"]):
            flags.append(f"{_HYPERV[name]}={'off' if values[key] in ('false', 'off') else 'on'}")
        elif name == "vendorid" and parts[4:] == ["vendorid"]:
            flags.append(f"hv-vendor-id={values[key]}")
    if values.get("domain.features.kvm.hidden", "") in _TRUE:
        flags.append("kvm=off")
    if (spin := values.get("domain.features.pvspinlock.enabled", "")) != "":
        flags.append(f"kvm-pv-unhalt={'on' if spin in _TRUE else 'off'}")
    return flags


def _memory(found: Description, values: Values) -> None:
    if pages := values.get("domain.memory.hugepages.pageSize", ""):
        found.huge_pages(_bytes(pages))


def _disks(found: Description, values: Values) -> None:
    sizes = _sizes(values)
    kinds = _volumes(values)
    policy = values.get("domain.ioThreadsPolicy", "")
    queues = values.get("domain.devices.blockMultiQueue", "") in _TRUE
    for number in range(values.count("domain.devices.disks")):
        part = f"domain.devices.disks.{number}"
        name = values.get(f"{part}.name", "")
        bus = values.get(f"{part}.disk.bus", values.get(f"{part}.lun.bus", "sata"))
        own = [key for key in values if key.startswith(f"{part}.")]
        if any(key.startswith(f"{part}.cdrom") for key in own):
            values.skip(*own)
            found.set_aside(f"disk {name} (a CD)")
            continue
        # By default, KubeVirt bypasses the host's page cache if the storage supports that.
        cache, aio = values.get(f"{part}.cache", "none"), values.get(f"{part}.io", "")
        volume = kinds.get(name, "")
        if volume.startswith("cloudInit"):
            values.skip(*own)
            found.set_aside(f"disk {name} ({volume})")
            continue
        disk = Disk(
            bus,
            cache,
            aio,
            sizes.get(name),
            boot=parse_whole_number(values.get(f"{part}.bootOrder", "")),
        )
        if f"{part}.cache" not in values:
            disk.leave("how the disk is cached is not given", "KubeVirt takes `none` where it can")
        if not aio:
            disk.leave("how the disk is driven is not given", "KubeVirt takes native where it can")
        dedicated = values.get(f"{part}.dedicatedIOThread", "") in _TRUE
        disk.thread = "own" if dedicated or policy else ""
        disk.queues = found.vcpus if queues and bus == "virtio" else None
        if volume not in ("", "dataVolume", "persistentVolumeClaim", "emptyDisk", "hostDisk"):
            disk.leave(f"a disk by {volume}", "a file of the host is taken")
        found.add_disk(disk)


def _volumes(values: Values) -> dict[str, str]:
    """Return the kind of each volume, by the name of its disk."""
    kinds: dict[str, str] = {}
    for number in range(values.count("volumes")):
        part = f"volumes.{number}."
        inner = {key.removeprefix(part).split(".")[0] for key in values if key.startswith(part)}
        kinds[values.get(f"{part}name", "")] = next(iter(sorted(inner - {"name"})), "")
    return kinds


def _sizes(values: Values) -> dict[str, int | None]:
    """Return the sizes of volumes for which the machine's own templates give one."""
    templates: dict[str, int | None] = {}
    for number in range(values.count("spec.dataVolumeTemplates")):
        part = f"spec.dataVolumeTemplates.{number}"
        for place in ("storage", "pvc"):
            size = values.get(f"{part}.spec.{place}.resources.requests.storage", "")
            if size:
                templates[values.get(f"{part}.metadata.name", "")] = _bytes(size)
    sizes: dict[str, int | None] = {}
    for number in range(values.count("volumes")):
        part = f"volumes.{number}"
        name = values.get(f"{part}.name", "")
        if (template := values.get(f"{part}.dataVolume.name", "")) in templates:
            sizes[name] = templates[template]
        elif capacity := values.get(f"{part}.emptyDisk.capacity", ""):
            sizes[name] = _bytes(capacity)
    return sizes


def _interfaces(found: Description, values: Values) -> None:
    several = values.get("domain.devices.networkInterfaceMultiqueue", "") in _TRUE
    for number in range(values.count("domain.devices.interfaces")):
        part = f"domain.devices.interfaces.{number}"
        model = values.get(f"{part}.model", "virtio")
        own = [key for key in values if key.startswith(f"{part}.")]
        if any(key.startswith(f"{part}.sriov") for key in own):
            found.leave("network interface by sriov", "write `network: sriov`")
        found.add_nic(
            "virtio" if model.startswith("virtio") else model, found.vcpus if several else 1
        )
        names = ("name", "macAddress", "bootOrder", "bridge", "masquerade", "sriov", "pciAddress")
        values.skip(*(key for key in own if key.removeprefix(f"{part}.").split(".")[0] in names))


def _finish(found: Description, values: Values) -> None:
    def why(key: str, _: str) -> str | None:
        if _is_below(key, _ASIDE):
            return None
        return next((reason for place, reason in _WHY.items() if _is_below(key, (place,))), "")

    found.close_each(values, why)


def _is_below(key: str, places: Iterable[str]) -> bool:
    return any(key == place or key.startswith((f"{place}.", f"spec.{place}.")) for place in places)
