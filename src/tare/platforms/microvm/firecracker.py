"""Firecracker, in the jail that its developers recommend.

Sources: Firecracker's documents on its jailer, vsock and production hosts, and the description
of its API (src/firecracker/swagger/firecracker.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tare.errors import InputError, MachineFault
from tare.hosts import Host
from tare.hosts.programs import find_program
from tare.platforms.contract import Context, HostAccess, Statement, Variant
from tare.platforms.linux.rights import as_tare, uid_of
from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.microvm.api import VmmApi
from tare.platforms.microvm.machine import Files, Launch, MicroVmMachine
from tare.platforms.microvm.platform import CID, MicroVm, MicrovmRequest
from tare.platforms.network import Link
from tare.platforms.qemu.confinement import Confinement, unused_uid
from tare.programs import Program

FIRECRACKER = Program(("firecracker",), "virtual machines (platform firecracker)", {})
JAILER = Program(("jailer",), "confining Firecracker", {})
_ID = "vm"
"""Each jail is in a separate folder, so that its id can be the same for all."""
_STATE, _MEMORY = "state", "memory"
"""The files of a saved state."""
_JAIL_S = 120.0
# Files that others may read are linked if possible, and keep their owner. Others are copied.
_FILL = """
root=$1 uid=$2
shift 2
mkdir -p "$root" || exit 1
while [ $# -gt 1 ]; do
    if [ "$1" = disk ]; then
        ln "$2" "$root/$1" && chown "$uid:$uid" "$root/$1" || exit 1
    elif [ -z "$(find "$2" -perm -004)" ] || ! ln "$2" "$root/$1" 2>/dev/null; then
        cp --reflink=auto "$2" "$root/$1" && chmod 444 "$root/$1" || exit 1
    fi
    shift 2
done
"""


class FirecrackerOptions(LinuxOptions):
    """Options of the platform ``firecracker``."""

    transport: Literal["mmio", "pci"] = Field(
        default="mmio",
        description="The transport of the guest's virtio devices: `mmio`, Firecracker's default, "
        "or `pci` (`--enable-pci`; version 1.13 or later).",
    )
    disk_cache: Literal["writeback", "unsafe"] = Field(
        default="writeback",
        description="`writeback`: flush the host's disk when the guest flushes its disk. `unsafe`, "
        "Firecracker's default: never flush it.",
    )
    jailed: bool = Field(
        default=True,
        description="Run Firecracker under its jailer, as its developers recommend: as a separate "
        "user, in a separate root directory.",
    )

    @property
    def wanted_devices(self) -> str:
        """The device models; it has only virtio devices."""
        return "paravirtual"


class Firecracker(MicroVm[FirecrackerOptions]):
    """Firecracker: microVMs on KVM, each in a jail, driven over its REST API."""

    name = "firecracker"
    product = "Firecracker"
    options = FirecrackerOptions
    variants = (Variant(),)
    programs = (FIRECRACKER, JAILER)
    get = "a release from https://github.com/firecracker-microvm/firecracker/releases"
    max_vcpus = 32
    vcpu_threads = re.compile(r"fc_vcpu (\d+)")
    # Its ACPI cannot switch a guest off. A restart by the keyboard controller ends the guest.
    ends = ("reboot=k", "tare.off=reboot", "i8042.noaux", "i8042.nomux", "i8042.dumbkbd")

    def describe(self, options: FirecrackerOptions) -> str:
        """Return a phrase such as ``Firecracker, virtio by mmio``."""
        parts = [f"Firecracker, virtio by {options.transport}"]
        if options.disk_cache != "writeback":
            parts.append(f"disk {options.disk_cache}")
        if not options.jailed:
            parts.append("without its jailer")
        return ", ".join((*parts, *options.scheduling_words))

    def stated(self, options: FirecrackerOptions) -> Statement:
        """Return the statement about guests, without testing anything on this host."""
        return self.common_statement(
            options,
            needs_root=options.jailed,
            notes=(
                "A guest's vCPUs start on all of its CPUs, and each is pinned to one CPU some "
                "milliseconds later: Firecracker does not start guests paused.",
                "Firecracker processes packets itself: it has no vhost.",
                "A guest can be saved and restored only without a network and with the jailer. Its "
                "clock continues from the time of the snapshot. Firecracker announces a new "
                "generation (VMGenID): guests with Linux 5.18 or later and ACPI then reseed their "
                "random numbers.",
            ),
            untested="Tested only in the lab, built from its sources (1.17.0-dev) without the "
            "system call filter of its releases.",
        )

    def host_access(self, options: FirecrackerOptions) -> tuple[HostAccess, ...]:
        """Return an entry if Firecracker is not jailed."""
        if options.jailed:
            return ()
        effect = "runs Firecracker as Tare's own user, in the host's own root directory"
        return (HostAccess("jailed", "false", effect),)

    def devices(self, options: FirecrackerOptions) -> frozenset[str]:
        """Return the image's needs: the drivers of virtio and of vsock."""
        return frozenset({"virtio" if options.transport == "pci" else "virtio-mmio", "vsock"})

    def programs_for(self, options: FirecrackerOptions) -> tuple[Program, ...]:
        """Return Firecracker's program, and its jailer's if that is used."""
        return self.programs if options.jailed else self.programs[:1]

    async def runs_as(self, context: Context, options: FirecrackerOptions) -> str:
        """Describe with whose rights it runs; raises InputError if the jailer lacks root."""
        if not options.jailed:
            why = "the arm says `jailed: false`"
            return f"{await as_tare(context.host, why)}; Firecracker filters its system calls"
        if await uid_of(context.host):
            raise InputError("Firecracker's jailer needs root", "run as root")
        return "a user of its own in a jail; Firecracker filters its system calls"

    async def user_for(
        self, context: Context, options: FirecrackerOptions, files: Files, network: bool
    ) -> Confinement:
        """Choose an otherwise unused user id; :meth:`launch` fills the jail."""
        if not options.jailed:
            return Confinement(reason="the arm says `jailed: false`")
        return Confinement(sandbox=True, uid=unused_uid())

    async def launch(
        self,
        context: Context,
        options: FirecrackerOptions,
        files: Files,
        user: Confinement,
        link: Link | None,
    ) -> Launch:
        """Fill the jail, and return the jailer's command line."""
        program = await find_program(context.host, FIRECRACKER)
        jailer = await find_program(context.host, JAILER)
        if program is None or (options.jailed and jailer is None):
            raise MachineFault("Firecracker is no longer installed", self.get)
        root = files.folder
        flags = [
            "--api-sock",
            "/api.sock",
            "--level",
            "Warning",
            *(["--enable-pci"] * (options.transport == "pci")),
        ]
        if options.jailed:
            root = files.folder / Path(program).name / _ID / "root"
            names = {"kernel": files.kernel, "initramfs": files.initramfs}
            names |= {"disk": files.disk} if files.disk else {}
            names |= {"toolbox": files.toolbox} if files.toolbox else {}
            if files.saved is not None:
                names |= {name: files.saved / name for name in (_STATE, _MEMORY)}
            pairs = [word for name, file in names.items() for word in (name, str(file))]
            filled = await context.host.run(
                ["sh", "-c", _FILL, "sh", str(root), str(user.uid), *pairs], timeout_s=_JAIL_S
            )
            if not filled.ok:
                raise MachineFault(f"Firecracker's jail cannot be filled: {filled.words()}")
            assert jailer is not None
            argv = [
                *(jailer, "--id", _ID, "--exec-file", program),
                *("--uid", str(user.uid), "--gid", str(user.uid)),
                *("--chroot-base-dir", str(files.folder)),
                *(["--netns", f"/run/netns/{link.within}"] if link and link.within else []),
                *("--", *flags),
            ]
        else:
            flags[1] = str(root / "api.sock")
            around = ["nsenter", f"--net=/run/netns/{link.within}"] if link and link.within else []
            argv = [*around, program, *flags]
        return Launch(
            self.product,
            argv,
            files.folder / "firecracker.log",
            root / "api.sock",
            root / "vsock.sock",
            self.vcpu_threads,
        )

    async def boot(
        self,
        api: VmmApi,
        options: FirecrackerOptions,
        guest: MicrovmRequest,
        files: Files,
        user: Confinement,
    ) -> None:
        """Configure the machine and start it."""

        def seen(name: str, file: Path) -> str:
            return f"/{name}" if options.jailed else str(file)

        shape = guest.spec.shape
        await api.put(
            "/machine-config",
            {"vcpu_count": shape.vcpus, "mem_size_mib": -(-shape.memory // (1 << 20))},
        )
        await api.put(
            "/boot-source",
            {
                "kernel_image_path": seen("kernel", files.kernel),
                "initrd_path": seen("initramfs", files.initramfs),
                "boot_args": guest.arguments,
            },
        )
        if files.disk is not None:
            cache = options.disk_cache.capitalize()
            await api.put(
                "/drives/disk", _drive("disk", seen("disk", files.disk), cache_type=cache)
            )
        if files.toolbox is not None:
            path = seen("toolbox", files.toolbox)
            await api.put("/drives/toolbox", _drive("toolbox", path, is_read_only=True))
        if guest.link is not None:
            card = {"host_dev_name": guest.link.interface, "guest_mac": guest.link.mac}
            await api.put("/network-interfaces/net", {"iface_id": "net", **card})
        socket = "/vsock.sock" if options.jailed else str(files.folder / "vsock.sock")
        await api.put("/vsock", {"guest_cid": CID, "uds_path": socket})
        await api.put("/actions", {"action_type": "InstanceStart"})

    def no_saving(self, options: FirecrackerOptions) -> str:
        """Return why guests cannot be saved: outside a jail, the state names other file paths."""
        return "" if options.jailed else "without its jailer, Firecracker's state names other files"

    async def write_state(
        self, api: VmmApi, options: FirecrackerOptions, machine: MicroVmMachine
    ) -> Sequence[Path]:
        """Pause the guest and write its state and memory into the jail."""
        await api.request("PATCH", "/vm", {"state": "Paused"})
        files = {"snapshot_path": f"/{_STATE}", "mem_file_path": f"/{_MEMORY}"}
        await api.put("/snapshot/create", {"snapshot_type": "Full", **files})
        return [machine.folder / _STATE, machine.folder / _MEMORY]

    async def load(
        self,
        host: Host,
        api: VmmApi,
        options: FirecrackerOptions,
        guest: MicrovmRequest,
        files: Files,
        user: Confinement,
    ) -> None:
        """Load the state; the guest's memory is read from its file when it is first used."""
        memory = {"backend_type": "File", "backend_path": f"/{_MEMORY}"}
        wanted = {"snapshot_path": f"/{_STATE}", "mem_backend": memory, "resume_vm": False}
        await api.put("/snapshot/load", wanted)

    async def resume(self, api: VmmApi) -> None:
        """Let a paused guest run."""
        await api.request("PATCH", "/vm", {"state": "Resumed"})


def _drive(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "drive_id": name,
        "path_on_host": path,
        "is_root_device": False,
        "is_read_only": False,
        **more,
    }
