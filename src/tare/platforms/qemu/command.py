"""The command line of a QEMU machine, and of the guest's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tare.images.guest_image import GuestImage
from tare.platforms import instruction_time as counting
from tare.platforms.contract import Shape
from tare.platforms.linux.disk import LABEL
from tare.platforms.network import Link
from tare.platforms.qemu import drive, nic
from tare.platforms.qemu.disk_options import MICROVM
from tare.platforms.qemu.drive import escaped
from tare.platforms.qemu.memory import MEMORY, memory_arguments, own_backend
from tare.platforms.qemu.options import QemuOptions
from tare.programs import QEMU

PROGRAM = "qemu-system-x86_64"
PORT = "tare.agent"
SERIAL = "/dev/ttyS1"
_MODERN = ("-global", "virtio-mmio.force-legacy=false")
"""By default QEMU offers the virtio-mmio version that predates virtio 1.0
(docs/system/i386/microvm.rst)."""
SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
"""QEMU's own system call filter. It denies obsolete calls, gaining privileges, starting programs
and changing priorities."""


@dataclass(frozen=True)
class MachinePaths:
    """The paths of a machine's sockets and logs on its host."""

    qmp: Path
    agent: Path
    console: Path
    errors: Path
    disk: Path | None = None
    toolbox: Path | None = None

    @property
    def disk_parts(self) -> tuple[Path, ...]:
        """The disk's file and its folder; empty without a disk."""
        return () if self.disk is None else (self.disk, self.disk.parent)


def kernel_arguments(
    options: QemuOptions, channel: str | None = None, *, counted: bool = False
) -> tuple[str, ...]:
    """Return the kernel command line: only arguments that speed up booting or end a dead guest.

    No argument changes what a workload measures: timer frequency, tickless modes, mitigations and
    the clock keep the kernel's defaults. The agent's proof records all of them.

    Args:
        options: The machine's options.
        channel: The guest's name of the agent's channel; None: the one that fits the devices.
        counted: Whether the host's time counts instructions.
    """
    if channel is None:
        channel = PORT if options.devices == "paravirtual" else SERIAL
    return (
        "console=ttyS0",
        "quiet",
        # With -no-reboot a panic ends QEMU at once, instead of leaving a silent guest.
        "panic=-1",
        # An emulated UART interrupts once per byte. The kernel takes 100,000 interrupts that a
        # thread had already handled for a broken device, and disables it.
        "noirqdebug",
        # Linux counts timer interrupts for a moment at boot, and hangs if a busy host delivers
        # none in that time. Under KVM it skips this by itself (kvm_guest_init).
        "no_timer_check",
        # Skip the self-tests of ciphers, which take 0.2 s at every boot under emulation.
        "cryptomgr.notests",
        f"tare.channel={channel}",
        *(counting.LINUX if counted or options.clock == "instructions" else ()),
    )


def command(
    options: QemuOptions,
    image: GuestImage,
    name: str,
    shape: Shape,
    places: MachinePaths,
    *,
    append: Sequence[str],
    link: Link | None = None,
    vhost: bool = False,
) -> list[str]:
    """Return QEMU's arguments, the program first; the guest waits for ``cont``.

    Args:
        options: The machine's options.
        image: The image that it boots.
        name: The machine's name.
        shape: vCPUs and memory.
        places: The paths of its sockets, logs and disks.
        append: The kernel command line, as :func:`kernel_arguments` returns it.
        link: The connection of its network interface; None: it is connected to nothing.
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
        *_sandbox(options),
        *("-machine", _machine(options)),
        *_accelerator(options),
        *("-cpu", options.processor),
        *_overcommit(options),
        *("-smp", f"{shape.vcpus},sockets=1,cores={shape.vcpus},threads=1"),
        *memory_arguments(options, shape),
        *("-kernel", str(image.boot_kernel), "-initrd", str(image.initramfs)),
        *("-append", " ".join(booted)),
        *("-chardev", f"socket,id=qmp,path={escaped(places.qmp)},server=on,wait=off"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=console,path={escaped(places.console)},server=on,wait=off"),
        *("-device", "isa-serial,chardev=console,index=0"),
        *("-chardev", f"socket,id=agent,path={escaped(places.agent)},server=on,wait=off"),
        # A port with nothing behind it, and a disk of zeros: no traffic, no file.
        *(("-netdev", nic.netdev(options, link, vhost)) if _has_netdev(link) else ()),
        *(("-object", f"iothread,id={drive.DISK_THREAD}") if options.iothread else ()),
        *("-blockdev", drive.backend(options, places.disk)),
        *_devices(options, link),
        *drive.toolbox(options, places.toolbox),
        *options.extra_args,
        "-S",
    ]


def _has_netdev(link: Link | None) -> bool:
    """Check whether QEMU or the host's kernel carries packets; a virtual function needs neither."""
    return link is None or link.function is None


def device_types(options: QemuOptions) -> tuple[str, ...]:
    """Return QEMU's names of the devices that a machine has with these options."""
    return tuple(
        word.split(",")[0] for option, word in pairwise(_devices(options)) if option == "-device"
    )


def trial(options: QemuOptions, program: str = PROGRAM) -> list[str]:
    """Return the arguments of a QEMU that parses the options, runs no guest, and obeys stdin."""
    return [
        program,
        *("-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio"),
        *_sandbox(options),
        *("-machine", _board(options), "-m", "16M"),
        *_accelerator(options),
        *("-cpu", options.processor),
        *_overcommit(options),
        *options.extra_args,
    ]


def without_name(line: str) -> str:
    """Remove the program's name from the start of a line of QEMU's errors."""
    for name in QEMU.names:
        line = line.removeprefix(f"{name}: ")
    return line


def _sandbox(options: QemuOptions) -> tuple[str, ...]:
    return ("-sandbox", SANDBOX) if options.confined else ()


def _machine(options: QemuOptions) -> str:
    backend = f",memory-backend={MEMORY}" if own_backend(options) else ""
    return f"{_board(options)}{backend}"


def _board(options: QemuOptions) -> str:
    if options.machine == MICROVM:
        # With ACPI the guest finds its devices without arguments on its command line.
        return f"{MICROVM},acpi=on,usb=off,pcie=off"
    # System management mode is of no use to the guest, and slow to emulate.
    return f"{options.machine},smm=off,vmport=off,usb=off"


def _accelerator(options: QemuOptions) -> tuple[str, ...]:
    if options.accelerator == "kvm":
        return ("-accel", "kvm")
    if options.clock == "instructions":
        return counting.QEMU
    return ("-accel", f"tcg,thread={options.threads}")


def _overcommit(options: QemuOptions) -> tuple[str, ...]:
    words = ["mem-lock=on"] * options.mlock + ["cpu-pm=on"] * options.cpu_pm
    return ("-overcommit", ",".join(words)) if words else ()


def _devices(options: QemuOptions, link: Link | None = None) -> tuple[str, ...]:
    card = ("-device", nic.device(options, link))
    if options.devices == "paravirtual":
        transport = "device" if options.machine == MICROVM else "pci"
        return (
            *_MODERN * (options.machine == MICROVM),
            *("-device", f"virtio-serial-{transport}"),
            *("-device", f"virtserialport,chardev=agent,name={PORT}"),
            *card,
            *drive.front(options),
        )
    return ("-device", "isa-serial,chardev=agent,index=1", *card, *drive.front(options))
