"""Cloud Hypervisor, run as a separate user and with its system call filter.

Sources: Cloud Hypervisor's documents on its API, vsock and seccomp, and the description of its
API (vmm/src/api/openapi/cloud-hypervisor.yaml).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from tare.errors import MachineFault
from tare.hosts import Host
from tare.hosts.programs import find_program
from tare.platforms.contract import Context, HostAccess, Statement, Variant
from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.microvm.api import VmmApi
from tare.platforms.microvm.machine import Files, Launch, MicroVmMachine, run_script
from tare.platforms.microvm.platform import CID, KVM, MicroVm, MicrovmRequest
from tare.platforms.network import Link
from tare.platforms.qemu.confinement import TUN, Confinement, confined_as, confinement
from tare.programs import Program

CLOUD_HYPERVISOR = Program(
    ("cloud-hypervisor",), "virtual machines (platform cloud-hypervisor)", {}
)
_API = "/api/v1"
_CONFIGURATION = "config.json"
_STATE = ("state.json", "memory-ranges")
"""The other files of a saved state."""
_OWN_FOLDER = 'mkdir "$1" && chown --reference="${1%/*}" "$1"'
_LINK = """
mkdir "$1" && chmod 755 "$1" && cd "$1" || exit
shift
for file; do
    ln "$file" . 2>/dev/null || { cp --reflink=auto "$file" . && chmod 444 "${file##*/}"; } || exit
done
"""


class CloudHypervisorOptions(LinuxOptions):
    """Options of the platform ``cloud-hypervisor``."""

    disk_direct: bool = Field(
        default=False,
        description="Bypass the host's page cache for the machine's disk (O_DIRECT).",
    )
    confined: bool = Field(
        default=True,
        description="Run Cloud Hypervisor as a separate user, with its system call filter "
        "(`--seccomp true`).",
    )

    @property
    def wanted_devices(self) -> str:
        """The device models; it has only virtio devices."""
        return "paravirtual"

    @property
    def locks_memory(self) -> bool:
        """Whether it locks the guest's memory; always False."""
        return False


class CloudHypervisor(MicroVm[CloudHypervisorOptions]):
    """Cloud Hypervisor: guests on KVM with virtio devices, driven over its REST API."""

    name = "cloud-hypervisor"
    product = "Cloud Hypervisor"
    options = CloudHypervisorOptions
    variants = (Variant(),)
    programs = (CLOUD_HYPERVISOR,)
    get = "a release from https://github.com/cloud-hypervisor/cloud-hypervisor/releases"
    max_vcpus = 254
    vcpu_threads = re.compile(r"vcpu(\d+)")
    ends = ()

    def describe(self, options: CloudHypervisorOptions) -> str:
        """Return a phrase such as ``Cloud Hypervisor, paravirtual devices``."""
        parts = ["Cloud Hypervisor, paravirtual devices"]
        if options.disk_direct:
            parts.append("disk past the host's page cache")
        if not options.confined:
            parts.append("not confined")
        return ", ".join((*parts, *options.scheduling_words))

    def stated(self, options: CloudHypervisorOptions) -> Statement:
        """Return the statement about guests, without testing anything on this host."""
        return self.common_statement(
            options,
            needs_root=False,
            notes=(
                "With a network interface it keeps the capability to configure networks "
                "(CAP_NET_ADMIN), which it needs to open a tap.",
                "Cloud Hypervisor processes packets itself: it has no vhost-net.",
                "A guest can be saved and restored only without a network. Whether its clock then "
                "continues from that time or is set forward depends on the version. Guests are not "
                "notified of a restore, so all guests of one snapshot at first draw the same "
                "random numbers.",
            ),
            untested="Tested only in the lab, built from its sources (54.0.0).",
        )

    def host_access(self, options: CloudHypervisorOptions) -> tuple[HostAccess, ...]:
        """Return an entry if Cloud Hypervisor is not confined."""
        if options.confined:
            return ()
        effect = "runs Cloud Hypervisor as Tare's own user and with all system calls"
        return (HostAccess("confined", "false", effect),)

    def devices(self, options: CloudHypervisorOptions) -> frozenset[str]:
        """Return the image's needs: the drivers of virtio on PCI, and of vsock."""
        return frozenset({"virtio", "vsock"})

    def programs_for(self, options: CloudHypervisorOptions) -> tuple[Program, ...]:
        """Return the program of Cloud Hypervisor."""
        return self.programs

    async def runs_as(self, context: Context, options: CloudHypervisorOptions) -> str:
        """Describe with whose rights the hypervisor runs."""
        program = await find_program(context.host, CLOUD_HYPERVISOR)
        named = program or self.programs[0].names[0]
        return await confined_as(context.host, options, [KVM], named)

    async def user_for(
        self, context: Context, options: CloudHypervisorOptions, files: Files, network: bool
    ) -> Confinement:
        """Choose a user, and give it the folder and the disk."""
        disk = () if files.disk is None else (files.disk, files.disk.parent)
        found = await confinement(
            context.host,
            options,
            own=[*dict.fromkeys((files.folder, *disk))],
            files=files.read,
            devices=[KVM, *([TUN] * network)],
            program=await find_program(context.host, CLOUD_HYPERVISOR) or "cloud-hypervisor",
        )
        if network and found.uid is not None:
            return replace(found, capabilities=("net_admin",))
        return found

    async def launch(
        self,
        context: Context,
        options: CloudHypervisorOptions,
        files: Files,
        user: Confinement,
        link: Link | None,
    ) -> Launch:
        """Return the command line; the machine itself is described over the API."""
        program = await find_program(context.host, CLOUD_HYPERVISOR)
        if program is None:
            raise MachineFault("Cloud Hypervisor is no longer installed", self.get)
        api = files.folder / "api.sock"
        argv = [
            *(program, "--api-socket", f"path={api}"),
            *("--seccomp", "true" if options.confined else "false"),
        ]
        around = ["nsenter", f"--net=/run/netns/{link.within}"] if link and link.within else []
        return Launch(
            self.product,
            [*around, *user.around(argv, files.read)],
            files.folder / "cloud-hypervisor.log",
            api,
            files.folder / "vsock.sock",
            self.vcpu_threads,
        )

    async def boot(
        self,
        api: VmmApi,
        options: CloudHypervisorOptions,
        guest: MicrovmRequest,
        files: Files,
        user: Confinement,
    ) -> None:
        """Create the machine and boot it."""
        await api.put(f"{_API}/vm.create", configuration(options, guest, files, user))
        await api.put(f"{_API}/vm.boot")

    def no_saving(self, options: CloudHypervisorOptions) -> str:
        """Return an empty reason, because all guests can be saved."""
        return ""

    async def write_state(
        self, api: VmmApi, options: CloudHypervisorOptions, machine: MicroVmMachine
    ) -> Sequence[Path]:
        """Pause the guest and write its state into a folder that the hypervisor's user owns."""
        await api.put(f"{_API}/vm.pause")
        folder = machine.folder / "state"
        await run_script(machine.host, machine.name, _OWN_FOLDER, folder)
        await api.put(f"{_API}/vm.snapshot", {"destination_url": f"file://{folder}"})
        return [folder / name for name in (_CONFIGURATION, *_STATE)]

    async def load(
        self,
        host: Host,
        api: VmmApi,
        options: CloudHypervisorOptions,
        guest: MicrovmRequest,
        files: Files,
        user: Confinement,
    ) -> None:
        """Restore the state, with the files and CPUs of the new machine."""
        assert files.saved is not None
        folder, name = files.folder / "state", guest.spec.name
        links = [files.saved / file for file in _STATE]
        await run_script(host, name, _LINK, folder, *links)
        stored = json.loads(await host.read(files.saved / _CONFIGURATION))
        own = replaced(stored, configuration(options, guest, files, user))
        await host.write(folder / _CONFIGURATION, json.dumps(own).encode())
        await run_script(host, name, 'chmod 444 "$1"', folder / _CONFIGURATION)
        await api.put(f"{_API}/vm.restore", {"source_url": f"file://{folder}"})

    async def resume(self, api: VmmApi) -> None:
        """Let a paused guest run."""
        await api.put(f"{_API}/vm.resume")


def replaced(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved guest's configuration with the files and CPUs of another machine.

    Args:
        stored: The configuration that Cloud Hypervisor wrote, with all its defaults.
        wanted: The configuration with which the other machine would be created.
    """
    changed = {
        "cpus": {"affinity": wanted["cpus"].get("affinity")},
        "payload": wanted["payload"],
        "vsock": wanted["vsock"],
    }
    own = {
        **stored,
        **{key: {**(stored.get(key) or {}), **value} for key, value in changed.items()},
    }
    if "disks" in wanted:
        disks = zip(stored["disks"], wanted["disks"], strict=True)
        own["disks"] = [{**disk, "path": new["path"]} for disk, new in disks]
    return own


def configuration(
    options: CloudHypervisorOptions, guest: MicrovmRequest, files: Files, user: Confinement
) -> dict[str, Any]:
    """Return the body of ``vm.create``."""
    spec, seen = guest.spec, user.seen(files.read)
    cpus: dict[str, Any] = {"boot_vcpus": spec.shape.vcpus, "max_vcpus": spec.shape.vcpus}
    if spec.cpus:
        cpus["affinity"] = [
            {"vcpu": number, "host_cpus": [spec.cpus[number % len(spec.cpus)]]}
            for number in range(spec.shape.vcpus)
        ]
    disks: list[dict[str, Any]] = []
    if files.disk is not None:
        disk = {"path": str(files.disk), "direct": options.disk_direct, "image_type": "Raw"}
        disks.append(disk)
    if files.toolbox is not None:
        toolbox = {"path": str(seen[files.toolbox]), "readonly": True, "image_type": "Raw"}
        disks.append(toolbox)
    wanted: dict[str, Any] = {
        "cpus": cpus,
        "memory": {"size": spec.shape.memory},
        "payload": {
            "kernel": str(seen[files.kernel]),
            "initramfs": str(seen[files.initramfs]),
            "cmdline": guest.arguments,
        },
        "serial": {"mode": "Tty"},
        "console": {"mode": "Off"},
        "vsock": {"cid": CID, "socket": str(files.folder / "vsock.sock")},
    }
    if disks:
        wanted["disks"] = disks
    if guest.link is not None:
        wanted["net"] = [{"tap": guest.link.interface, "mac": guest.link.mac}]
    return wanted
