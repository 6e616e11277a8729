"""Commands that change a setting outside Tare: with QEMU, libvirt and Proxmox VE.

Sources: QEMU's manual (invocation, qemu-block-drivers, hyperv), libvirt's formatdomain, qm(1) of
Proxmox VE, the kernel's admin-guide/kernel-parameters and virt/kvm/halt-polling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tare.units import parse_duration, parse_size

_ANY = "*"
_NAMES = frozenset({"disk-volume-group"})
"""Keys without a command, because they only hold a name that another key uses."""
_NONE = "not offered"


class Commands(NamedTuple):
    """Commands for a change with each tool, and its cost or risk."""

    qemu: str
    libvirt: str
    proxmox: str
    risk: str


def _alike(text: str, risk: str) -> Commands:
    return Commands(text, text, text, risk)


def _qemu_arguments(option: str, risk: str, libvirt: str = "") -> Commands:
    """Return commands for a QEMU option that Proxmox, and libvirt by default, pass on unchanged."""
    words = " ".join(f"<qemu:arg value='{word}'/>" for word in option.split())
    passed = libvirt or f"<qemu:commandline> {words}"
    return Commands(option, passed, f"qm set VMID --args '{option}'", risk)


def _guest(argument: str, risk: str) -> Commands:
    return _alike(f"in the guest's kernel command line: {argument}", risk)


_DRIVER = "<disk> <driver {}/>"
_SCSI0 = "qm set VMID --scsi0 STORAGE:VOLUME,{}"
_NIC = "qm set VMID --net0 {},bridge=vmbr0"
_MIGRATION = "Live migration needs a target host with the same feature."

_KNOWN: Mapping[tuple[str, str], Commands] = {
    ("vhost", "on"): Commands(
        "-netdev tap,…,vhost=on",
        "<interface> <driver name='vhost'/>",
        "always on for virtio",
        "Packets use CPU time of kernel threads on the host, outside QEMU.",
    ),
    ("vhost", "off"): Commands(
        "-netdev tap,…,vhost=off",
        "<interface> <driver name='qemu'/>",
        _NONE,
        "QEMU's main loop carries all packets.",
    ),
    ("nic-queues", _ANY): Commands(
        "-netdev tap,…,queues={v} -device virtio-net-pci,mq=on,…",
        "<interface> <driver queues='{v}'/>",
        "qm set VMID --net0 virtio,bridge=vmbr0,queues={v}",
        "Each queue has its own interrupts and host thread; more queues than vCPUs are useless.",
    ),
    ("nic", "virtio"): Commands(
        "-device virtio-net-pci,…",
        "<interface> <model type='virtio'/>",
        _NIC.format("virtio"),
        "The guest needs virtio drivers.",
    ),
    ("nic", _ANY): Commands(
        "-device {v},…",
        "<interface> <model type='{v}'/>",
        _NIC.format("{v}"),
        "Each access to an emulated card's registers is an exit.",
    ),
    ("nic-offloads", "off"): Commands(
        "-device virtio-net-pci,csum=off,gso=off,host_tso4=off,guest_tso4=off,…",
        "<interface> <driver> <host csum='off' gso='off' tso4='off'/> "
        "<guest csum='off' tso4='off'/>",
        "in the guest: ethtool -K eth0 tx off tso off gso off gro off",
        "The guest's CPU cuts and checks every packet.",
    ),
    ("iothread", "on"): Commands(
        "-object iothread,id=io1 -device virtio-blk-pci,iothread=io1,…",
        "<iothreads>1</iothreads>, <disk> <driver iothread='1'/>",
        "qm set VMID --scsihw virtio-scsi-single --scsi0 STORAGE:VOLUME,iothread=1",
        "One more host thread competes for CPUs.",
    ),
    ("iothread-cpus", _ANY): Commands(
        "taskset -pc CPUS THREAD",
        "<cputune> <iothreadpin iothread='1' cpuset='CPUS'/>",
        "qm set VMID --affinity CPUS (binds all threads of the machine)",
        "The thread waits if other work runs on these CPUs.",
    ),
    ("emulator-cpus", _ANY): Commands(
        "taskset -pc CPUS THREAD",
        "<cputune> <emulatorpin cpuset='CPUS'/>",
        "qm set VMID --affinity CPUS (binds all threads of the machine)",
        "QEMU's threads wait if other work runs on these CPUs.",
    ),
    ("vhost-cpus", _ANY): _alike(
        "taskset -pc CPUS THREAD (for each thread named vhost-PID)",
        "Packets wait if other work runs on these CPUs; bind again after each start.",
    ),
    ("pin-vcpus", "off"): Commands(
        "taskset -pc 0-N THREAD",
        "<vcpu cpuset='0-N'/> (and no vcpupin)",
        "qm set VMID --delete affinity",
        "vCPUs move between CPUs and lose what their caches hold.",
    ),
    ("disk-aio", "native"): Commands(
        "-blockdev driver=file,aio=native,cache.direct=on,…",
        _DRIVER.format("io='native' cache='none'"),
        _SCSI0.format("aio=native"),
        "Needs cache none or directsync.",
    ),
    ("disk-aio", _ANY): Commands(
        "-blockdev driver=file,aio={v},…",
        _DRIVER.format("io='{v}'"),
        _SCSI0.format("aio={v}"),
        "io_uring needs Linux 5.1 and no seccomp filter against it.",
    ),
    ("disk-cache", "unsafe"): Commands(
        "-drive …,cache=unsafe",
        _DRIVER.format("cache='unsafe'"),
        _SCSI0.format("cache=unsafe"),
        "A crash of the host destroys the guest's file systems.",
    ),
    ("disk-cache", _ANY): Commands(
        "-drive …,cache={v}",
        _DRIVER.format("cache='{v}'"),
        _SCSI0.format("cache={v}"),
        "Modes with the host's page cache use host memory; writeback loses unflushed writes if the "
        "host crashes.",
    ),
    ("disk-bus", "virtio-blk"): Commands(
        "-device virtio-blk-pci,drive=…",
        "<disk> <target dev='vda' bus='virtio'/>",
        "qm set VMID --virtio0 STORAGE:VOLUME",
        "The guest needs virtio drivers, and names its disks differently.",
    ),
    ("disk-bus", "virtio-scsi"): Commands(
        "-device virtio-scsi-pci -device scsi-hd,drive=…",
        "<controller type='scsi' model='virtio-scsi'/>, <disk> <target dev='sda' bus='scsi'/>",
        "qm set VMID --scsihw virtio-scsi-single --scsi0 STORAGE:VOLUME",
        "The guest needs virtio drivers, and names its disks differently.",
    ),
    ("disk-bus", "nvme"): _qemu_arguments(
        "-device nvme,serial=1,drive=…",
        "No iothread; no live migration with some versions of QEMU.",
    ),
    ("disk-bus", "ahci"): Commands(
        "-device ahci,id=a -device ide-hd,bus=a.0,drive=…",
        "<disk> <target dev='sda' bus='sata'/>",
        "qm set VMID --sata0 STORAGE:VOLUME",
        "Each command of an emulated controller causes several exits.",
    ),
    ("disk-bus", "ide"): Commands(
        "-device ide-hd,drive=…",
        "<disk> <target dev='hda' bus='ide'/>",
        "qm set VMID --ide0 STORAGE:VOLUME",
        "Each command of an emulated controller causes several exits.",
    ),
    ("disk-format", "qcow2"): Commands(
        "qemu-img convert -O qcow2 DISK DISK.qcow2",
        _DRIVER.format("type='qcow2'"),
        "qm disk move VMID scsi0 STORAGE --format qcow2",
        "Snapshots and thin disks, but tables are read and written with the data.",
    ),
    ("disk-format", "lvm"): Commands(
        "-blockdev driver=host_device,filename=/dev/VG/LV,…",
        "<disk type='block'> <source dev='/dev/VG/LV'/>",
        "qm disk move VMID scsi0 local-lvm",
        "The disk's size is reserved on the host; files are easier to copy.",
    ),
    ("disk-format", "block"): Commands(
        "-blockdev driver=host_device,filename=/dev/DEVICE,…",
        "<disk type='block'> <source dev='/dev/DEVICE'/>",
        "qm set VMID --scsi0 /dev/DEVICE",
        "The disk's size is reserved on the host; files are easier to copy.",
    ),
    ("disk-format", _ANY): Commands(
        "qemu-img convert -O {v} DISK DISK.{v}",
        _DRIVER.format("type='{v}'"),
        "qm disk move VMID scsi0 STORAGE --format {v}",
        "The disk's size is reserved on the host.",
    ),
    ("disk-queues", _ANY): Commands(
        "-device virtio-blk-pci,num-queues={v},…",
        _DRIVER.format("queues='{v}'"),
        _SCSI0.format("queues={v}"),
        "More queues than vCPUs are of no use.",
    ),
    ("hugepages", "on"): Commands(
        "-object memory-backend-memfd,hugetlb=on,…",
        "<memoryBacking> <hugepages/>",
        "qm set VMID --hugepages 2 --numa 1",
        "The host must reserve the pages; the memory cannot be swapped, shared or overcommitted.",
    ),
    ("prealloc", "on"): Commands(
        "-object memory-backend-ram,prealloc=on,…",
        "<memoryBacking> <allocation mode='immediate'/>",
        _NONE,
        "All memory is in use from the start, and the start takes longer.",
    ),
    ("mlock", "on"): _qemu_arguments(
        "-overcommit mem-lock=on",
        "The memory cannot be swapped; the host may run out of it.",
        "<memoryBacking> <locked/>",
    ),
    ("numa-node", _ANY): Commands(
        "-object memory-backend-ram,host-nodes={v},policy=bind,…",
        "<numatune> <memory mode='strict' nodeset='{v}'/>",
        "qm set VMID --numa 1 --numa0 cpus=…,memory=…,hostnodes={v},policy=bind",
        "The machine does not start if the node has too little memory.",
    ),
    ("cpu", "host"): Commands(
        "-cpu host", "<cpu mode='host-passthrough'/>", "qm set VMID --cpu host", _MIGRATION
    ),
    ("cpu", _ANY): Commands(
        "-cpu {v}",
        "<cpu mode='custom'> <model>{v}</model>",
        "qm set VMID --cpu {v}",
        "The guest lacks instructions that are not part of the model.",
    ),
    ("cpu-features", _ANY): Commands(
        "-cpu MODEL,{v}",
        "<cpu mode='host-model'> {features}",
        "qm set VMID --args '-cpu MODEL,{v}' (replaces --cpu)",
        _MIGRATION,
    ),
    ("halt-poll", _ANY): _alike(
        "on the host: echo {ns} > /sys/module/kvm/parameters/halt_poll_ns",
        "Holds for all machines of the host; polling uses CPU time and power.",
    ),
    ("cpu-pm", "on"): _qemu_arguments(
        "-overcommit cpu-pm=on",
        "An idle machine keeps its CPUs, so use this only with pinned CPUs that nothing else uses.",
    ),
    ("enlightenments.hyperv", "on"): Commands(
        "-cpu MODEL,hv-relaxed,hv-vapic,hv-time,hv-synic,hv-stimer,…",
        "<features> <hyperv mode='passthrough'/>",
        "qm set VMID --ostype win11",
        "For Windows guests; Linux uses KVM's own interface if it sees both.",
    ),
    ("enlightenments.kvmclock", "off"): Commands(
        "-cpu MODEL,kvmclock=off,kvmclock-stable-bit=off",
        "<clock offset='utc'> <timer name='kvmclock' present='no'/>",
        "qm set VMID --args '-cpu MODEL,kvmclock=off' (replaces --cpu)",
        "The guest's time depends on a stable TSC of the host.",
    ),
    ("enlightenments.kvm", "off"): Commands(
        "-cpu MODEL,kvm=off",
        "<features> <kvm> <hidden state='on'/>",
        "qm set VMID --cpu MODEL,hidden=1",
        "The guest loses all of KVM's paravirtual features.",
    ),
    ("guest-clocksource", "tsc"): _guest(
        "clocksource=tsc tsc=reliable",
        "Time is wrong if the host's TSC stops or differs between CPUs.",
    ),
    ("guest-clocksource", _ANY): _guest("clocksource={v}", "hpet and acpi_pm exit at each read."),
    ("guest-mitigations", "off"): _guest(
        "mitigations=off",
        "Processes of the guest can read each other's and the kernel's memory.",
    ),
    ("guest-idle", "poll"): _guest(
        "idle=poll", "Each vCPU uses a host CPU all the time, at full power."
    ),
    ("guest-idle", "haltpoll"): _guest(
        "cpuidle_haltpoll.force=1",
        "An idle vCPU uses its host CPU for longer; switch off the host's own halt polling.",
    ),
    ("guest-idle", _ANY): _guest("idle={v}", "None known."),
    ("guest-huge-pages", _ANY): _guest(
        "transparent_hugepage={v}", "always may use more memory and stall to compact it."
    ),
    ("guest-pv-spinlocks", "off"): _guest(
        "nopvspin", "Spinning wastes CPU time if the host has fewer CPUs than vCPUs."
    ),
    ("guest-x2apic", "off"): _guest(
        "nox2apic", "Interrupts cost more exits, and 255 CPUs at most."
    ),
    ("nohz-full", "on"): _guest(
        "nohz_full=1-N rcu_nocbs=1-N", "System calls cost more, and the first CPU does more work."
    ),
    ("shape.vcpus", _ANY): Commands(
        "-smp {v}", "<vcpu>{v}</vcpu>", "qm set VMID --cores {v}", "The host's CPUs are shared."
    ),
    ("shape.memory", _ANY): Commands(
        "-m {mib}",
        "<memory unit='MiB'>{mib}</memory>",
        "qm set VMID --memory {mib}",
        "Memory of the host.",
    ),
    ("threads", _ANY): Commands(
        "-accel tcg,thread={v}",
        "<qemu:commandline> <qemu:arg value='-accel'/> <qemu:arg value='tcg,thread={v}'/>",
        _NONE,
        "Only for emulated processors.",
    ),
    ("machine", _ANY): Commands(
        "-machine {v}",
        "<os> <type machine='{v}'>hvm</type>",
        "qm set VMID --machine {v}",
        "The guest finds other hardware; Windows may need activation.",
    ),
}


def commands_for(keys: Mapping[str, Any]) -> Commands:
    """Return the commands that set some keys of an arm, each tool's steps in one text.

    Args:
        keys: The keys with their values, as in a study.
    """
    found = [
        _commands_for_key(key, value) for key, value in _flat(keys).items() if key not in _NAMES
    ]
    if not found:
        return Commands("–", "–", "–", "–")
    return Commands(*("; ".join(dict.fromkeys(parts)) for parts in zip(*found, strict=True)))


def _flat(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys with dotted names for nested mappings."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": each for inner, each in _flat(value).items()}
        else:
            found[key] = value
    return found


def _commands_for_key(key: str, value: Any) -> Commands:
    word = _word(value)
    known = _KNOWN.get((key, word)) or _KNOWN.get((key, _ANY))
    if known is None:
        return Commands(f"see `tare study {key}`", "–", "–", "not known to Tare")
    filled = {"{v}": word}
    if key == "halt-poll":
        filled["{ns}"] = str(round(parse_duration(value) * 1e9))
    elif key == "shape.memory":
        filled["{mib}"] = str(parse_size(value) >> 20)
    elif key == "cpu-features":
        filled["{features}"] = " ".join(map(_libvirt_feature, value))
    for name, text in filled.items():
        known = Commands(*(each.replace(name, text) for each in known))
    return known


def _libvirt_feature(feature: str) -> str:
    policy = "disable" if feature.startswith("-") else "require"
    return f"<feature policy='{policy}' name='{feature[1:]}'/>"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
