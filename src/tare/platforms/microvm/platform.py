"""The common base of the platforms of Firecracker and Cloud Hypervisor."""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tare.errors import InputError, MachineFault, TareError, heard
from tare.hosts import Host
from tare.hosts.programs import find_program, install_command_for
from tare.images.guest_image import GuestImage
from tare.images.host_kernel import HOST
from tare.images.kernels import is_file_name
from tare.images.ship import copy_to_host
from tare.platforms.contract import (
    KVM_BOOT,
    TRIAL,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    NetworkWays,
    Platform,
    Prepared,
    SavedMachine,
    Shape,
    Statement,
    Verdict,
    Write,
)
from tare.platforms.instruction_time import LINUX as COUNTED
from tare.platforms.linux.backed_disk import backed_disk
from tare.platforms.linux.booting import image_for, prepared_by
from tare.platforms.linux.disk import LABEL
from tare.platforms.linux.process_machine import owned_directory, temporary_folder
from tare.platforms.linux.scheduling import LINUX_KNOBS, LinuxOptions, Scheduled, linux_knobs
from tare.platforms.linux.writes import FOLDER, GROUPS, NETWORK, PROCESS, SETTINGS
from tare.platforms.microvm.api import VmmApi
from tare.platforms.microvm.machine import PORT, Files, Launch, MicroVmMachine, run_script
from tare.platforms.network import Link
from tare.platforms.qemu import kvm_memory
from tare.platforms.qemu import kvm_trial as trial
from tare.platforms.qemu.confinement import Confinement
from tare.programs import TASKSET, Program

KVM = Path("/dev/kvm")
_DISK = "disk"
"""The copy of the machine's disk in the folder of its saved state."""
# Restored guests map their memory from these files, each as its own user, so nobody may write them.
_KEEP = 'cd "$1" || exit; shift; for file; do mv "$file" . && chmod 444 "${file##*/}" || exit; done'
_KEEP_DISK = 'cp --reflink=auto --sparse=always "$1" "$2" && chmod 444 "$2"'
# With conv=notrunc, the blocks of the machine's file stay reserved.
_FILL_DISK = 'dd if="$1" of="$2" bs=1M conv=notrunc status=none'
CID = 3
"""The guest's address on its vsock: the first free one, vsock(7). Each guest has its own vsock."""
MIN_MEMORY = 96 << 20
_ASK_S = 60.0
_TRIAL_SHAPE = Shape(vcpus=1, memory=256 << 20)
_LONGEST_SOCKET = 107
"""The kernel's limit in bytes, without the final NUL, unix(7)."""
_LONGEST_NAME = len("/firecracker/vm/root/vsock.sock")

O = TypeVar("O", bound=LinuxOptions)  # noqa: E741 - the options


@dataclass(frozen=True)
class MicrovmRequest:
    """The request for one guest.

    Args:
        spec: The machine.
        arguments: The kernel's command line.
        link: The connection of its network interface; None: it has none.
    """

    spec: MachineSpec
    arguments: str
    link: Link | None


class MicroVm(Platform[O]):
    """A hypervisor with one process for each guest and a REST API on a UNIX socket."""

    programs: ClassVar[tuple[Program, ...]]
    """The hypervisor's program, and the programs that start it."""
    get: ClassVar[str]
    """Where users can get them."""
    max_vcpus: ClassVar[int]
    vcpu_threads: ClassVar[re.Pattern[str]]
    """Matches the names of the vCPUs' threads; the group is the vCPU's number."""
    ends: ClassVar[tuple[str, ...]]
    """The kernel parameters that determine how the guest ends."""

    @abstractmethod
    def devices(self, options: O) -> frozenset[str]:
        """Return the needs of the guest's devices in the image, as ``images`` names them."""

    @abstractmethod
    def programs_for(self, options: O) -> tuple[Program, ...]:
        """Return the programs that an arm needs."""

    @abstractmethod
    async def runs_as(self, context: Context, options: O) -> str:
        """Describe with whose rights the hypervisor would run on a host.

        Raises:
            InputError: It cannot be run as the options request.
        """

    @abstractmethod
    async def user_for(
        self, context: Context, options: O, files: Files, network: bool
    ) -> Confinement:
        """Choose the user of one hypervisor, and give it the files that it writes.

        Args:
            context: The host on which it runs, and Tare's state there.
            options: The arm's options.
            files: The guest's files.
            network: Whether the guest has a network interface.
        """

    @abstractmethod
    async def launch(
        self, context: Context, options: O, files: Files, user: Confinement, link: Link | None
    ) -> Launch:
        """Prepare the hypervisor's folder, and return how the hypervisor is started."""

    @abstractmethod
    async def boot(
        self, api: VmmApi, options: O, guest: MicrovmRequest, files: Files, user: Confinement
    ) -> None:
        """Configure the machine over the API, and boot it."""

    @abstractmethod
    def no_saving(self, options: O) -> str:
        """Return why guests with these options cannot be saved, in words; empty: they can."""

    @abstractmethod
    async def write_state(self, api: VmmApi, options: O, machine: MicroVmMachine) -> Sequence[Path]:
        """Pause the guest, write its state, and return the state's files on the host."""

    @abstractmethod
    async def load(
        self,
        host: Host,
        api: VmmApi,
        options: O,
        guest: MicrovmRequest,
        files: Files,
        user: Confinement,
    ) -> None:
        """Load the saved state over the API; the guest is then paused."""

    @abstractmethod
    async def resume(self, api: VmmApi) -> None:
        """Let a paused guest run."""

    def common_statement(
        self, options: O, *, needs_root: bool, notes: tuple[str, ...], untested: str
    ) -> Statement:
        """Return the statement about guests, with the parts that both hypervisors share."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=self.max_vcpus,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual"}),
                knobs=LINUX_KNOBS,
                disk=frozenset({"virtio-blk"}),
                toolbox=frozenset({"disk"}),
                notes=notes,
            ),
            kernel="the guest image's",
            channel="vsock, over the hypervisor's UNIX socket",
            needs=(
                f"{' and '.join(p.names[0] for p in self.programs_for(options))} ({self.get})",
                *(("root",) if needs_root else ()),
                "taskset (package util-linux)",
                "a /dev/kvm under which a guest boots",
            ),
            untested=untested,
            confirmed="lab",
            host_boot=KVM_BOOT,
            boots_image=True,
            saves=not self.no_saving(options),
            network=NetworkWays(rooted=frozenset({"tap"}), device="/dev/net/tun"),
            boot_s=1.5,
            emulated_boot_s=15.0,
        )

    def writes(self, options: O) -> tuple[Write, ...]:
        """Return the objects that guests create on their host."""
        started = replace(PROCESS, call=f"{self.programs[0].names[0]}, as a separate user")
        return (FOLDER, started, GROUPS, SETTINGS, *NETWORK)

    async def check(self, context: Context, options: O) -> Verdict:
        """Find out whether guests can be started, by booting one once."""
        versions: dict[str, str] = {}
        knobs: frozenset[str] = frozenset()
        missing: dict[str, str] = {}
        depth: trial.Depth = "virtual"
        runs_as = ""

        def verdict(usable: bool, reason: str, hint: str = "", *, lasting: bool = True) -> Verdict:
            best = self.stated(options).capabilities
            can = replace(best, knobs=knobs, missing_knobs=missing)
            emulated = depth == "emulated"
            return Verdict(usable, reason, hint, emulated, versions, can, lasting, runs_as=runs_as)

        host = context.host
        try:
            for program in self.programs_for(options):
                if (path := await find_program(host, program)) is None:
                    return verdict(False, f"{program.names[0]} is not installed", self._advice())
                printed = await host.run([path, "--version"], timeout_s=_ASK_S)
                if not printed.ok:
                    hint = heard(self._advice(), program.names[0], printed.words())
                    return verdict(False, f"{program.names[0]} does not run", hint)
                versions[program.names[0]] = version_in(printed.stdout.decode(errors="replace"))
            if not (await host.run(["taskset", "--version"], timeout_s=_ASK_S)).ok:
                return verdict(
                    False, "taskset does not run", await install_command_for(host, TASKSET)
                )
            runs_as = await self.runs_as(context, options)
            if (
                context.kernel
                and is_file_name(context.kernel)
                and not Path(context.kernel).is_file()
            ):
                reason = f"there is no kernel file {context.kernel}"
                return verdict(False, reason, "name an existing vmlinuz")
            knobs, missing = await linux_knobs(context)
            depth = await trial.depth_of(host, context.host_agent)
            answer = await self._boots(context, options, versions, depth)
        except (InputError, MachineFault) as error:
            return verdict(False, error.message, error.hint, lasting=isinstance(error, InputError))
        if not answer.usable and not await host.exists(KVM):
            no_device = await trial.kvm_device(host)
            return verdict(False, no_device.reason, no_device.hint)
        return verdict(answer.usable, answer.reason, answer.hint, lasting=answer.sure)

    def _advice(self) -> str:
        return f"{self.get}; put the programs into /usr/local/bin"

    async def prepare(self, context: Context, options: O, shape: Shape, realtime: bool) -> Prepared:
        """Find the image in the cache, or build it.

        Raises:
            InputError: There is no such kernel, or it lacks what the devices need.
            MachineFault: The image cannot be copied to the host.
        """
        kernel = context.kernel or ("rt" if realtime else "generic")
        image = await image_for(context, kernel, self.devices(options), shape)
        # Copy it now, so that machines that start at the same moment need not wait for it.
        await _at_host(context.host, image)
        return prepared_by(image, image=image, notes=image.notes)

    async def start(
        self, context: Context, options: O, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a guest; its vCPUs run on their CPUs from their first instruction.

        Raises:
            MachineFault: The hypervisor ended or refused a request, with its own message.
        """
        return await self._start(context, options, prepared, spec, None)

    @asynccontextmanager
    async def saved(
        self, context: Context, options: O, prepared: Prepared, machine: Machine, folder: Path
    ) -> AsyncIterator[SavedMachine]:
        """Save the state of a guest that has answered, and end it; remove the state at the end.

        Raises:
            MachineFault: The guest cannot be saved. A refusal by the hypervisor is quoted.
        """
        assert isinstance(machine, MicroVmMachine)
        host, spec = context.host, machine.spec
        if reason := self.no_saving(options) or _not_kept(spec):
            raise MachineFault(f"{machine.name}: it cannot be saved: {reason}")
        async with owned_directory(host, context.ledger, folder):
            await machine.hang_up()
            async with machine.api() as api:
                written = await self.write_state(api, options, machine)
            await run_script(host, machine.name, _KEEP, folder, *written)
            if machine.disk is not None:
                await run_script(host, machine.name, _KEEP_DISK, machine.disk.file, folder / _DISK)
            await machine.stop()
            made_with = await self._made_with(context, options, prepared, spec)
            yield SavedMachine(folder, spec.shape, made_with)

    async def restore(
        self,
        context: Context,
        options: O,
        prepared: Prepared,
        spec: MachineSpec,
        saved: SavedMachine,
    ) -> Machine:
        """Start a guest from a saved state; its vCPUs are on their CPUs before they resume.

        Raises:
            MachineFault: The hypervisor ended or refused a request, or something differs from the
                saved machine.
        """
        if reason := self.no_saving(options) or _not_kept(spec):
            raise MachineFault(f"{spec.name}: it cannot be restored: {reason}")
        now = await self._made_with(context, options, prepared, spec)
        if spec.shape != saved.shape:
            raise MachineFault(f"{spec.name}: {saved.shape} was saved, not {spec.shape}")
        for key, value in saved.made_with.items():
            if (other := now.get(key)) != value:
                raise MachineFault(f"{spec.name}: it was saved with {key} {value}, not {other}")
        return await self._start(context, options, prepared, spec, saved.folder)

    async def _made_with(
        self, context: Context, options: O, prepared: Prepared, spec: MachineSpec
    ) -> Mapping[str, str]:
        """Return the facts that must be equal when a saved guest is restored, by name."""
        program = await find_program(context.host, self.programs[0])
        if program is None:
            raise MachineFault(f"{self.product} is no longer installed", self.get)
        printed = await context.host.run([program, "--version"], timeout_s=_ASK_S)
        return {
            self.product: version_in(printed.stdout.decode(errors="replace")),
            "the options": options.model_dump_json(),
            "the image": prepared.digest,
            "the toolbox": "none" if spec.toolbox is None else spec.toolbox.digest,
        }

    async def _start(
        self,
        context: Context,
        options: O,
        prepared: Prepared,
        spec: MachineSpec,
        saved: Path | None,
    ) -> Machine:
        host, ledger = context.host, context.ledger
        image = await _at_host(host, prepared.extra["image"])
        scheduled = Scheduled(context, spec.name, options.scheduling_of(spec.role))
        machine = MicroVmMachine(context, spec, scheduled)
        try:
            held = machine.held
            folder = await held.enter_async_context(owned_directory(host, ledger, spec.workdir))
            machine.disk = await held.enter_async_context(backed_disk(context, spec, "raw", None))
            if machine.disk is not None:
                # Use the disk's file system, so that the disk can be linked into the folder.
                folder = machine.disk.file.parent
            if len(str(folder)) + _LONGEST_NAME > _LONGEST_SOCKET:
                short = temporary_folder(host) / f"tare-{secrets.token_hex(6)}"
                folder = await held.enter_async_context(owned_directory(host, ledger, short))
            files = Files(
                folder,
                image.boot_kernel,
                image.initramfs,
                None if machine.disk is None else machine.disk.file,
                None if spec.toolbox is None else await copy_to_host(host, spec.toolbox.image),
                saved,
            )
            machine.files = files
            if saved is not None and files.disk is not None:
                await run_script(host, spec.name, _FILL_DISK, saved / _DISK, files.disk)
            user = await self.user_for(context, options, files, spec.network is not None)
            link = None
            if spec.network is not None:
                link = await spec.network.tap(spec.name, 1, user.uid)
            launch = await self.launch(context, options, files, user, link)
            arguments = " ".join(self._arguments(context, files, link, spec.to_save))
            guest = MicrovmRequest(spec, arguments, link)

            async def begin(api: VmmApi) -> None:
                if saved is None:
                    await self.boot(api, options, guest, files, user)
                else:
                    await self.load(host, api, options, guest, files, user)

            await machine.run(launch, begin, None if saved is None else self.resume)
            proven = await machine.prove_user(user.uid)
            machine.applied = {**machine.applied, "runs_as": {**user.record(), **proven}}
            if machine.disk is not None:
                machine.applied = {**machine.applied, "disk": self._disk_record(machine)}
            if link is not None:
                machine.applied = {**machine.applied, "nic": {"model": "virtio", "vhost": False}}
        except BaseException:
            await machine.stop()
            raise
        return machine

    def _disk_record(self, machine: MicroVmMachine) -> dict[str, Any]:
        assert machine.disk is not None
        return {
            "attached": "virtio-blk over a raw file of the host",
            "bus": "virtio-blk",
            "file_system": "ext4",
            "bytes": machine.disk.size,
            "reserved": machine.disk.reserved,
        }

    def _arguments(
        self, context: Context, files: Files, link: Link | None, to_save: bool
    ) -> Sequence[str]:
        """Return the kernel's command line; see :func:`tare.platforms.qemu.command.command`."""
        return (
            *("console=ttyS0", "quiet", "panic=-1", "noirqdebug", "no_timer_check"),
            *("cryptomgr.notests", *self.ends, f"tare.channel=vsock:{PORT}"),
            *(("tare.again=1",) if to_save else ()),
            *(COUNTED if context.counted else ()),
            *((f"tare.scratch={LABEL}",) if files.disk else ()),
            *((f"tare.net={link.word}",) if link else ()),
        )

    async def _boots(
        self, context: Context, options: O, versions: dict[str, str], depth: trial.Depth
    ) -> trial.TrialResult:
        """Boot a guest, or return the cached result; try several kernels if none is named."""
        own = () if depth == "emulated" or context.release is not None else (HOST,)
        answer = trial.TrialResult(False, "no guest could be booted to try KVM")
        for kernel in (context.kernel,) if context.kernel else (*own, "rt", "generic"):
            tried = replace(context, kernel=kernel, needs=frozenset())
            try:
                prepared = await self.prepare(tried, options, _TRIAL_SHAPE, realtime=True)
            except InputError as error:
                reason = f"no guest could be booted to try KVM: {error.message}"
                answer = trial.TrialResult(False, reason, error.hint)
                continue

            async def boot(
                tried: Context = tried, prepared: Prepared = prepared
            ) -> trial.TrialResult:
                for deadline_s in trial.BOOT_DEADLINES_S[depth]:
                    found = await self._boot_once(tried, options, prepared, deadline_s)
                    if found.usable:
                        break
                return found

            facts = {**versions, "image": prepared.digest, "options": options.model_dump_json()}
            answer = await kvm_memory.known_or_booted(
                context.cache, context.host, depth, facts, boot
            )
            if answer.usable or kernel != HOST:
                return answer
        return answer

    async def _boot_once(
        self, context: Context, options: O, prepared: Prepared, deadline_s: float
    ) -> trial.TrialResult:
        name = f"tare-probe-{secrets.token_hex(4)}"
        folder = temporary_folder(context.host) / name
        spec = MachineSpec(name, _TRIAL_SHAPE, (), folder, False, TRIAL)
        product = self.product
        try:
            machine = await self.start(context, options, prepared, spec)
        except MachineFault as fault:
            return _failed(product, fault, name)
        try:
            await machine.ready(deadline_s)
        except MachineFault as fault:
            return _failed(product, fault, name)
        finally:
            await machine.stop()
        return trial.TrialResult(True, f"a guest booted in {product}")


def _not_kept(spec: MachineSpec) -> str:
    """Return why a machine cannot be saved under any hypervisor; empty: it can."""
    if spec.network is not None:
        return "its guest keeps the addresses of a network that ends with its batch"
    if not spec.to_save:
        return "its specification does not say so, and its agent ends with its connection"
    return ""


def _failed(product: str, fault: TareError, name: str) -> trial.TrialResult:
    words = fault.message.removeprefix(f"{name}: ")
    todo = fault.hint or trial.WITHOUT_KVM.split(";")[0]
    return trial.TrialResult(
        False, f"a guest did not boot in {product}", todo, words=words, speaker="Tare"
    )


async def _at_host(host: Host, image: GuestImage) -> GuestImage:
    """Copy the files that the hypervisor reads to the host; return the image with those paths."""
    return replace(
        image,
        boot_kernel=await copy_to_host(host, image.boot_kernel),
        initramfs=await copy_to_host(host, image.initramfs),
    )


def version_in(text: str) -> str:
    """Return the version in a program's output, such as ``1.12.0`` in ``Firecracker v1.12.0``."""
    found = re.search(r"\bv?(\d+\.\d+(?:\.\d+)*\S*)", text)
    return found[1] if found else text.strip().partition("\n")[0]
