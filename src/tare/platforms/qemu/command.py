"""The command line of a QEMU machine, and of the kernel in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.images.guest_image import GuestImage
from tare.platforms import counted_time as counting
from tare.platforms.contract import Shape
from tare.platforms.linux.disk import LABEL
from tare.platforms.linux.network import Link
from tare.platforms.qemu import nic
from tare.platforms.qemu.options import QemuOptions

PROGRAM = "qemu-system-x86_64"
PORT = "tare.agent"
SERIAL = "/dev/ttyS1"
DISK_NODE = "disk"
DISK_DEVICE = "tare-disk"
DISK_THREAD = "tare-disk-thread"
SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
"""QEMU's own filter of system calls: nothing old, no other rights, no programs, no priorities."""
_DISK_BYTES = 64 << 20


@dataclass(frozen=True)
class Places:
    """Where a machine's sockets and logs are, on its host."""

    qmp: Path
    agent: Path
    console: Path
    errors: Path
    disk: Path | None = None
    toolbox: Path | None = None

    @property
    def disk_parts(self) -> tuple[Path, ...]:
        """The disk's file and its folder, where there is one."""
        return () if self.disk is None else (self.disk, self.disk.parent)


def kernel_arguments(
    options: QemuOptions, channel: str | None = None, *, counted: bool = False
) -> tuple[str, ...]:
    """Return the kernel command line: only what makes booting faster, or ends a dead guest.

    Nothing here changes what a workload measures (timer frequency, tickless modes, mitigations
    and the clock stay as the kernel decides), and the agent's proof records all of it.

    Args:
        options: The machine's options.
        channel: Where the agent finds its channel; by default what the devices offer.
        counted: Whether its host's time counts instructions.
    """
    if channel is None:
        channel = PORT if options.devices == "paravirtual" else SERIAL
    return (
        "console=ttyS0",
        "quiet",
        # With -no-reboot a panic ends QEMU at once, instead of leaving a guest that is silent.
        "panic=-1",
        # An emulated UART interrupts once per byte, and the kernel takes 100,000 interrupts that a
        # thread had handled already for a broken device, and disables it.
        "noirqdebug",
        # Linux counts timer interrupts for a moment at boot, and hangs where a busy host let none
        # through. Under KVM it leaves that out by itself (kvm_guest_init).
        "no_timer_check",
        # Self-tests of ciphers at every boot: 0.2 s under emulation.
        "cryptomgr.notests",
        f"tare.channel={channel}",
        *(counting.LINUX if counted or options.clock == "instructions" else ()),
    )


def command(
    options: QemuOptions,
    image: GuestImage,
    name: str,
    shape: Shape,
    places: Places,
    *,
    append: Sequence[str],
    link: Link | None = None,
    vhost: bool = False,
) -> list[str]:
    """Return QEMU's arguments, the program first; the guest waits for ``cont``.

    Args:
        options: The machine's options.
        image: What it boots.
        name: The machine's name.
        shape: vCPUs and memory.
        places: Its sockets and logs.
        append: The kernel command line, as :func:`kernel_arguments` returns it.
        link: What its network interface is connected to; by default nothing.
        vhost: Whether the host's kernel carries its packets.
    """
    booted = [*append]
    if places.disk is not None:
        booted.append(f"tare.scratch={LABEL}")
    if link is not None:
        booted.append(f"tare.net={link.word}")
    return [
        PROGRAM,
        *("-name", f"{name},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *(("-sandbox", SANDBOX) if options.confined else ()),
        *("-machine", _machine(options)),
        *_accelerator(options),
        *("-cpu", options.processor),
        *_overcommit(options),
        *("-smp", f"{shape.vcpus},sockets=1,cores={shape.vcpus},threads=1"),
        *_memory(options, shape),
        *("-kernel", str(image.boot_kernel), "-initrd", str(image.initramfs)),
        *("-append", " ".join(booted)),
        *("-chardev", f"socket,id=qmp,path={escaped(places.qmp)},server=on,wait=off"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=console,path={escaped(places.console)},server=on,wait=off"),
        *("-device", "isa-serial,chardev=console,index=0"),
        *("-chardev", f"socket,id=agent,path={escaped(places.agent)},server=on,wait=off"),
        # A port with nothing behind it, and a disk of zeros: no traffic, no file.
        *("-netdev", nic.netdev(options, link, vhost)),
        *(("-object", f"iothread,id={DISK_THREAD}") if options.iothread else ()),
        *("-blockdev", _disk(options, places.disk)),
        *_devices(options, link),
        *_toolbox(options, places.toolbox),
        *options.extra_args,
        "-S",
    ]


def trial(options: QemuOptions) -> list[str]:
    """Return the arguments of a QEMU that takes the options in, runs nothing, and obeys stdin."""
    return [
        PROGRAM,
        *("-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio"),
        *("-machine", _board(options), "-m", "16M"),
        *_accelerator(options),
        *("-cpu", options.processor),
        *_overcommit(options),
        *options.extra_args,
    ]


def _machine(options: QemuOptions) -> str:
    backend = ",memory-backend=memory" if options.hugepages or options.prealloc else ""
    return f"{_board(options)}{backend}"


def _board(options: QemuOptions) -> str:
    # System management mode is of no use to the guest, and slow to emulate.
    return f"{options.machine},smm=off,vmport=off,usb=off"


def _disk(options: QemuOptions, file: Path | None) -> str:
    if file is None:
        return f"null-co,node-name={DISK_NODE},size={_DISK_BYTES},read-zeroes=on"
    cache = caching(options)
    aio = "" if options.disk_aio == "default" else f",file.aio={options.disk_aio}"
    direct, no_flush = ("on" if cache[name] else "off" for name in ("direct", "no-flush"))
    return (
        f"raw,node-name={DISK_NODE},cache.direct={direct},cache.no-flush={no_flush},"
        f"file.driver=file,file.filename={escaped(file)}{aio}"
    )


def caching(options: QemuOptions) -> dict[str, bool]:
    """Return what a cache mode means, as QMP tells it.

    Source: QEMU's documentation of ``-drive cache=`` (qemu-options.hx), the table of modes.
    """
    mode = options.disk_cache
    return {
        "writeback": mode not in ("writethrough", "directsync"),
        "direct": mode in ("none", "directsync"),
        "no-flush": mode == "unsafe",
    }


def _disk_device(options: QemuOptions) -> str:
    write_cache = "on" if caching(options)["writeback"] else "off"
    # By default QEMU stops a guest whose disk finds the host's full, which looks like a hang.
    usual = f"id={DISK_DEVICE},drive={DISK_NODE},write-cache={write_cache}"
    queues = f",num-queues={options.disk_queues}" if options.disk_queues else ""
    thread = f",iothread={DISK_THREAD}" if options.iothread else ""
    return f"{usual},werror=report,rerror=report{queues}{thread}"


def _accelerator(options: QemuOptions) -> tuple[str, ...]:
    if options.accelerator == "kvm":
        return ("-accel", "kvm")
    if options.clock == "instructions":
        return counting.QEMU
    return ("-accel", f"tcg,thread={options.threads}")


def _overcommit(options: QemuOptions) -> tuple[str, ...]:
    words = ["mem-lock=on"] * options.mlock + ["cpu-pm=on"] * options.cpu_pm
    return ("-overcommit", ",".join(words)) if words else ()


def _memory(options: QemuOptions, shape: Shape) -> tuple[str, ...]:
    size = f"{shape.memory >> 10}K"
    if options.hugepages:
        pages = f",hugetlbsize={options.hugepage_size}" if options.hugepage_size else ""
        backend = f"memory-backend-memfd,id=memory,hugetlb=on{pages},size={size},prealloc=on"
    elif options.prealloc:
        backend = f"memory-backend-ram,id=memory,size={size},prealloc=on"
    else:
        return ("-m", size)
    return ("-m", size, "-object", backend)


def _devices(options: QemuOptions, link: Link | None = None) -> tuple[str, ...]:
    card = ("-device", nic.device(options, link))
    if options.devices == "paravirtual":
        return (
            *("-device", "virtio-serial-pci"),
            *("-device", f"virtserialport,chardev=agent,name={PORT}"),
            *card,
            *("-device", f"virtio-blk-pci,{_disk_device(options)}"),
        )
    return (
        *("-device", "isa-serial,chardev=agent,index=1"),
        *card,
        *("-device", f"ide-hd,bus=ide.0,{_disk_device(options)}"),
    )


def _toolbox(options: QemuOptions, image: Path | None) -> tuple[str, ...]:
    if image is None:
        return ()
    if options.devices == "paravirtual":
        file = f"driver=file,node-name=toolbox,read-only=on,filename={escaped(image)}"
        return ("-blockdev", file, "-device", "virtio-blk-pci,drive=toolbox,serial=tare-toolbox")
    # An IDE disk cannot be read-only, so what would be written goes to a file without a name.
    bus = "ide.3" if options.machine == "q35" else "ide.1,unit=1"
    drive = f"if=none,id=toolbox,format=raw,snapshot=on,file={escaped(image)}"
    return ("-drive", drive, "-device", f"ide-hd,drive=toolbox,bus={bus},serial=tare-toolbox")


def escaped(path: Path) -> str:
    """Return a path as it stands in QEMU's lists of options: a comma in it is written twice."""
    return str(path).replace(",", ",,")
