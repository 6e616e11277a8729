"""The command line of a lab host's QEMU, and of Xen and Linux in it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from tare.lab.emulator import EAGER_FPU, NO_AVX, Emulator
from tare.lab.image import LabImage
from tare.lab.nodes import node_arguments, topology_arguments
from tare.lab.options import CPU_MODEL, MIB, LabOptions
from tare.platforms import counted_time as counting
from tare.platforms.qemu.command import SANDBOX

PROGRAM = "qemu-system-x86_64"
UNKNOWN = Emulator()

XEN_CPU_MODEL = f"{CPU_MODEL},-smap,-smep,-monitor,+invtsc"
"""Without what Xen 4.17 cannot bear under emulation.

Found by trying: with SMAP on, dom0 dies of a page fault in Xen's create_bounce_frame; with MONITOR
on, Xen's idle loop panics at MWAIT; without the invariant TSC Xen gives its guests a slow clock.
"""

SSH_PORT = 22


@dataclass(frozen=True)
class Places:
    """Where a lab host's files and sockets are, all in one folder of this computer."""

    folder: Path

    @property
    def initramfs(self) -> Path:
        """What Linux unpacks first; holds the private host key."""
        return self.folder / "initramfs"

    @property
    def room(self) -> Path:
        """The disk that everything is written to."""
        return self.folder / "room"

    @property
    def key(self) -> Path:
        """The private key that opens the lab host."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        """The file that names the lab host's key."""
        return self.folder / "known_hosts"

    @property
    def console(self) -> Path:
        """The socket of its console."""
        return self.folder / "console.sock"

    @property
    def log(self) -> Path:
        """All that it wrote on its console."""
        return self.folder / "console.log"

    @property
    def qmp(self) -> Path:
        """The socket of QEMU's monitor."""
        return self.folder / "qmp.sock"

    @property
    def errors(self) -> Path:
        """What QEMU itself said."""
        return self.folder / "errors"

    @property
    def identity(self) -> str:
        """What its firmware says it is, by which its QEMU is told from others of this computer."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, str(self.folder)))


def cpu_model(options: LabOptions, emulator: Emulator) -> str:
    """Return the processor of a lab host, in QEMU's words."""
    if options.hypervisor != "xen":
        return CPU_MODEL
    return f"{XEN_CPU_MODEL},{NO_AVX}" if NO_AVX in emulator.workarounds else XEN_CPU_MODEL


def clock_arguments(options: LabOptions) -> tuple[str, ...]:
    """Return how the emulation runs and where its time comes from."""
    return counting.QEMU if options.deterministic else ("-accel", "tcg,thread=multi")


def linux_arguments(options: LabOptions) -> tuple[str, ...]:
    """Return the command line of the lab host's Linux."""
    return (
        "console=hvc0" if options.hypervisor == "xen" else "console=ttyS0",
        "quiet",
        "panic=-1",
        # As for guests: an emulated device interrupts far more often than a real one.
        "noirqdebug",
        "no_timer_check",
        "cryptomgr.notests",
        "net.ifnames=0",
        *(("nokaslr", *counting.LINUX) if options.deterministic else ()),
        *options.kernel_arguments,
    )


def xen_arguments(options: LabOptions, emulator: Emulator = UNKNOWN) -> tuple[str, ...]:
    """Return Xen's command line, without its name in front."""
    scheduler = (f"sched={options.scheduler}",) if options.scheduler else ()
    memory = f"{options.dom0_memory // MIB}M"
    return (
        "console=com1",
        "com1=115200,8n1",
        "loglvl=warning",
        "guest_loglvl=warning",
        f"dom0_mem={memory},max:{memory}",
        f"dom0_max_vcpus={options.dom0_cpus}",
        "dom0_vcpus_pin",
        # Sleep states of emulated CPUs save nothing, and Xen's drivers for them do not load.
        "cpuidle=0",
        *((EAGER_FPU,) if EAGER_FPU in emulator.workarounds else ()),
        *scheduler,
        *options.xen_arguments,
    )


def command(
    options: LabOptions,
    image: LabImage,
    places: Places,
    name: str,
    emulator: Emulator = UNKNOWN,
) -> list[str]:
    """Return QEMU's arguments, the program first; the computer waits for ``cont``.

    Its network is a closed one: nothing in it reaches out, and only its SSH server is reached,
    at a free port of this computer's loopback that the monitor tells.

    Args:
        options: What the lab host is to be.
        image: What it boots.
        places: Its files and sockets.
        name: Its name.
        emulator: The QEMU that emulates it.
    """
    return [
        emulator.program,
        *("-name", f"{name},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-display", "none"),
        # What it boots is of a study's choosing, and runs in here.
        *(("-sandbox", SANDBOX) if emulator.filters else ()),
        *(() if options.reboots else ("-no-reboot",)),
        # Linux stirs what firmware says into its random numbers, which are to be the same there.
        *(() if options.deterministic else ("-uuid", places.identity)),
        *("-machine", "q35,smm=off,vmport=off,usb=off"),
        *clock_arguments(options),
        *("-cpu", cpu_model(options, emulator)),
        *topology_arguments(options.cpus, options.nodes),
        *("-m", f"{options.memory // MIB}M"),
        *node_arguments(options.cpus, options.memory, options.nodes),
        *_boot(options, image, places, emulator),
        *("-chardev", f"socket,id=qmp,path={escaped(places.qmp)},server=on,wait=off"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=console,path={escaped(places.console)},server=on,wait=off"),
        *("-device", "isa-serial,chardev=console,index=0"),
        *_disk("base", image.disk, "read-only=on"),
        *_disk("room", places.room, "cache.no-flush=on,discard=unmap"),
        *("-netdev", f"user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:0-:{SSH_PORT}"),
        *("-device", "virtio-net-pci,netdev=net,romfile="),
        "-S",
    ]


def _boot(
    options: LabOptions, image: LabImage, places: Places, emulator: Emulator
) -> tuple[str, ...]:
    linux = " ".join(linux_arguments(options))
    if options.hypervisor != "xen":
        return (
            *("-kernel", str(image.kernel), "-initrd", str(places.initramfs)),
            *("-append", linux),
        )
    # The modules of a multiboot kernel: Linux with its arguments, and its initramfs. QEMU puts
    # Xen's own file name in front of what -append says.
    parts = (f"{image.kernel} {linux}", str(places.initramfs))
    modules = ",".join(part.replace(",", ",,") for part in parts)
    return (
        *("-kernel", str(image.xen), "-initrd", modules),
        *("-append", " ".join(xen_arguments(options, emulator))),
    )


def _disk(name: str, file: Path, *words: str) -> tuple[str, ...]:
    return (
        "-blockdev",
        ",".join(["driver=file", f"node-name={name}", f"filename={escaped(file)}", *words]),
        "-device",
        f"virtio-blk-pci,drive={name}",
    )


def escaped(path: Path) -> str:
    """Return a path as QEMU's option lists take it: a comma within a value is written twice."""
    return str(path).replace(",", ",,")
