"""The command line of a lab host's QEMU, and of Xen and Linux in it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from tare.lab.emulator import EAGER_FPU, NO_AVX, Emulator, node_arguments, topology_arguments
from tare.lab.image import LabImage
from tare.lab.options import CPU_MODEL, MIB, LabOptions
from tare.platforms import instruction_time as counting
from tare.platforms.qemu.command import SANDBOX

PROGRAM = "qemu-system-x86_64"
UNKNOWN = Emulator()

XEN_CPU_MODEL = f"{CPU_MODEL},-smap,-smep,-monitor,+invtsc"
"""The processor without the features that Xen 4.17 does not survive under emulation.

Found by experiment: with SMAP on, dom0 dies of a page fault in Xen's create_bounce_frame. With
MONITOR on, Xen's idle loop panics at MWAIT. Without the invariant TSC, Xen gives its guests a slow
clock.
"""

SSH_PORT = 22


@dataclass(frozen=True)
class LabPaths:
    """The paths of a lab host's files and sockets, all in one folder of this computer."""

    folder: Path

    @property
    def initramfs(self) -> Path:
        """The initramfs, which holds the private host key."""
        return self.folder / "initramfs"

    @property
    def room(self) -> Path:
        """The disk for all writes."""
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
        """The socket of the lab host's console."""
        return self.folder / "console.sock"

    @property
    def log(self) -> Path:
        """The log of the lab host's console."""
        return self.folder / "console.log"

    @property
    def qmp(self) -> Path:
        """The socket of QEMU's monitor."""
        return self.folder / "qmp.sock"

    @property
    def errors(self) -> Path:
        """QEMU's own messages."""
        return self.folder / "errors"

    @property
    def identity(self) -> str:
        """The UUID in the lab host's firmware, which identifies its QEMU on this computer."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, str(self.folder)))


def cpu_model(options: LabOptions, emulator: Emulator) -> str:
    """Return QEMU's value of ``-cpu`` for a lab host."""
    if options.hypervisor != "xen":
        return CPU_MODEL
    return f"{XEN_CPU_MODEL},{NO_AVX}" if NO_AVX in emulator.workarounds else XEN_CPU_MODEL


def clock_arguments(options: LabOptions, emulator: Emulator = UNKNOWN) -> tuple[str, ...]:
    """Return QEMU's options for the emulation's threads and clock."""
    if options.deterministic:
        return counting.QEMU
    # Without a hypervisor in it, no lab was seen to fail with a thread for each CPU.
    threads = "multi" if options.hypervisor == "none" else emulator.threads
    return ("-accel", f"tcg,thread={threads}")


def linux_arguments(options: LabOptions) -> tuple[str, ...]:
    """Return the command line of the lab host's Linux."""
    return (
        "console=hvc0" if options.hypervisor == "xen" else "console=ttyS0",
        "quiet",
        "panic=-1",
        # Guests get the same arguments: an emulated device interrupts far more often than a real
        # one.
        "noirqdebug",
        "no_timer_check",
        "cryptomgr.notests",
        "net.ifnames=0",
        *(("nokaslr", *counting.LINUX) if options.deterministic else ()),
        *options.kernel_arguments,
    )


def xen_arguments(options: LabOptions, emulator: Emulator = UNKNOWN) -> tuple[str, ...]:
    """Return Xen's command line, without the file name at its beginning."""
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
    places: LabPaths,
    name: str,
    emulator: Emulator = UNKNOWN,
) -> list[str]:
    """Return QEMU's arguments, the program first; the computer waits for ``cont``.

    The network is closed: nothing in the lab reaches out, and only its SSH server can be reached,
    at a free port of this computer's loopback that the monitor reports.

    Args:
        options: The lab host's options.
        image: The image that it boots.
        places: Its files and sockets.
        name: Its name.
        emulator: The QEMU that emulates it.
    """
    return [
        emulator.program,
        *("-name", f"{name},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-display", "none"),
        # A study chooses what it boots, and that code runs in this process.
        *(("-sandbox", SANDBOX) if emulator.filters else ()),
        *(() if options.reboots else ("-no-reboot",)),
        # Linux mixes firmware data into its random numbers, which must not differ there.
        *(() if options.deterministic else ("-uuid", places.identity)),
        *("-machine", "q35,smm=off,vmport=off,usb=off"),
        *clock_arguments(options, emulator),
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
    options: LabOptions, image: LabImage, places: LabPaths, emulator: Emulator
) -> tuple[str, ...]:
    linux = " ".join(linux_arguments(options))
    if options.hypervisor != "xen":
        return (
            *("-kernel", str(image.kernel), "-initrd", str(places.initramfs)),
            *("-append", linux),
        )
    # The modules of a multiboot kernel: Linux with its arguments, and its initramfs. QEMU puts
    # Xen's own file name in front of the value of -append.
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
    """Return a path for QEMU's option lists, in which a comma within a value is doubled."""
    return str(path).replace(",", ",,")
