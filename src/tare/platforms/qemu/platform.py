"""QEMU on a host: KVM if a guest really boots there, or TCG, which emulates the processor."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tare.errors import InputError, MachineFault, TareError
from tare.hosts import Host
from tare.images.guest_image import GuestImage, build_guest_image
from tare.images.host_kernel import HOST
from tare.images.kernels import is_file_name
from tare.images.ship import copy_to_host
from tare.platforms.contract import (
    ANY_BOOT,
    KVM_BOOT,
    TRIAL,
    Capabilities,
    Context,
    GuestKernels,
    HostAccess,
    MachineSpec,
    NetworkWays,
    Platform,
    Prepared,
    Shape,
    Statement,
    Variant,
    Verdict,
    Write,
    undo_resource,
)
from tare.platforms.linux.backed_disk import VOLUME, backing_writes, volume_of
from tare.platforms.linux.booting import image_for, prepared_by
from tare.platforms.linux.scheduling import LINUX_KNOBS, Scheduled, linux_knobs
from tare.platforms.linux.sriov import FUNCTION, FUNCTION_WRITE, rebind
from tare.platforms.linux.tickless import require_tickless, tickless_arguments, tickless_cpus
from tare.platforms.linux.writes import FOLDER, GROUPS, NETWORK, PROCESS, SETTINGS
from tare.platforms.qemu import kvm_memory, nested, nic
from tare.platforms.qemu import kvm_trial as probe
from tare.platforms.qemu.argument_safety import passed_on
from tare.platforms.qemu.command import PROGRAM, MachinePaths, command, kernel_arguments, trial
from tare.platforms.qemu.confinement import KVM, TUN, confined_as, confinement
from tare.platforms.qemu.disk_options import MICROVM
from tare.platforms.qemu.huge_pages import require_whole_pages
from tare.platforms.qemu.machine import QemuMachine, fits_socket
from tare.platforms.qemu.microvm import frequency_words
from tare.platforms.qemu.nic import link_of, take_function
from tare.platforms.qemu.offer import Offer, offer_of
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.own_kernel import guest_kernels, trial_facts
from tare.platforms.qemu.unmet_settings import lacking_here

if TYPE_CHECKING:
    from tare.platforms.contract import Machine

MAX_VCPUS = 255
"""The limit of 8-bit APIC identifiers; more would need an emulated IOMMU."""

MIN_MEMORY = 96 << 20
"""The least memory in bytes with which the real-time image boots to the agent's hello (`tare help
images`)."""

_PROBE_SHAPE = Shape(vcpus=1, memory=256 << 20)
_WAYS = NetworkWays(
    rooted=frozenset({"tap", "macvtap", "sriov", "user"}),
    unprivileged=frozenset({"user"}),
    device="/dev/net/tun",
)
INNER_ALONE = "a machine in a machine has neither disks nor a network; measure it without"
_CREATED = "/dev/kvm opens and creates a virtual machine"
_EMULATED = "QEMU emulates a processor here"


class Qemu(Platform[QemuOptions]):
    """QEMU: guests on the processor itself (KVM), or on one that QEMU emulates (TCG)."""

    name = "qemu"
    known_as: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("kvm", "qemu-kvm"), "accelerator: kvm"),
        **dict.fromkeys(("tcg", "emulated"), "accelerator: tcg"),
        "microvm": "machine: microvm",
    }
    options = QemuOptions
    variants = tuple(Variant(name, {"accelerator": name}) for name in ("tcg", "kvm"))
    undoers = MappingProxyType({VOLUME: undo_resource(volume_of), FUNCTION: rebind})

    def describe(self, options: QemuOptions) -> str:
        """Return a phrase such as ``QEMU TCG, paravirtual devices``."""
        parts = [f"QEMU {options.accelerator.upper()}", f"{options.devices} devices"]
        if options.machine != "q35":
            parts.append(f"machine {options.machine}")
        parts += (*options.processor_words, *options.guest_kernel_words)
        if not options.pin_vcpus:
            parts.append("vCPUs on any CPU")
        if options.emulator_cpus != "any":
            parts.append(f"emulator on {options.emulator_words}")
        parts += options.disk_words
        parts += [word for asked, word in (*options.nic_words, *options.memory_words) if asked]
        if options.extra_args:
            words = " ".join(options.extra_args)
            parts.append(f"extra arguments that Tare does not interpret: {words}")
        parts += options.scheduling_words
        return ", ".join(parts)

    def stated(self, options: QemuOptions) -> Statement:
        """Return the statement about guests, without testing anything on this host."""
        kvm = options.accelerator == "kvm"
        notes = [
            "Kernels start at their fixed address, without address-space randomisation (KASLR)."
        ]
        if not kvm:
            notes.append("The processor is emulated in software.")
        return Statement(
            capabilities=Capabilities(
                pinning=options.pin_vcpus and (kvm or options.threads == "multi"),
                max_vcpus=MAX_VCPUS,
                min_memory=MIN_MEMORY,
                devices=options.kinds,
                neighbours=True,
                notes=tuple(notes),
                knobs=LINUX_KNOBS,
                disk=frozenset() if options.nested else frozenset({options.bus}),
                no_disk=INNER_ALONE if options.nested else "",
                toolbox=frozenset() if options.nested else frozenset({"disk"}),
                no_network=INNER_ALONE if options.nested else "",
            ),
            kernel="the guest image's",
            channel="virtio-serial port; with emulated devices a second serial port",
            needs=(
                "qemu-system-x86_64 (package qemu-system-x86)",
                "taskset (package util-linux)",
                *(("a /dev/kvm under which a guest boots",) if kvm else ()),
            ),
            untested="Tested only in the lab, on an emulated processor." if kvm else "",
            confirmed="lab" if kvm else "hardware",
            emulated=not kvm,
            host_boot=KVM_BOOT if kvm else ANY_BOOT,
            boots_image=True,
            network=NetworkWays() if options.nested else _WAYS,
            boot_s=10.0 if options.nested else 2.5,
            emulated_boot_s=180.0 if options.nested else 10.0,
        )

    def writes(self, options: QemuOptions) -> tuple[Write, ...]:
        """Return the objects that QEMU's guests create on their host."""
        kept = backing_writes(options.disk_format, options.disk_volume_group)
        started = replace(PROCESS, call=f"{PROGRAM} -name tare-… as a separate user")
        functions = (FUNCTION_WRITE,) if options.network == "sriov" else ()
        return (FOLDER, started, GROUPS, SETTINGS, *kept, *NETWORK, *functions)

    def host_access(self, options: QemuOptions) -> tuple[HostAccess, ...]:
        """Return the arguments that reach the host, and an entry if QEMU is not confined."""
        found = passed_on(options.extra_args)
        if options.confined:
            return found
        effect = "runs QEMU as Tare's own user and with all system calls"
        return (*found, HostAccess("confined", "false", effect))

    async def check(self, context: Context, options: QemuOptions) -> Verdict:
        """Find out whether guests can be started; with KVM, boot one once."""
        versions: dict[str, str] = {}
        knobs: frozenset[str] = frozenset()
        missing: dict[str, str] = {}
        depth: probe.Depth = "virtual"
        runs_as = ""

        def verdict(usable: bool, reason: str, hint: str = "", *, lasting: bool = True) -> Verdict:
            best = self.stated(options).capabilities
            can = replace(best, knobs=knobs, missing_knobs=missing)
            # On an emulated processor even the best hypervisor shows behaviour only.
            emulated = self.emulated(options) or depth == "emulated"
            return Verdict(usable, reason, hint, emulated, versions, can, lasting, runs_as=runs_as)

        def refused(error: TareError, reason: str) -> Verdict:
            # A host that did not answer in time may answer when it is asked again.
            return verdict(False, reason, error.hint, lasting=isinstance(error, InputError))

        try:
            machine = (
                (await context.host.run(["uname", "-m"], timeout_s=30)).stdout.decode().strip()
            )
            if machine != "x86_64":
                return verdict(False, f"the host is {machine}; guests are x86_64 so far")
            offer = await offer_of(context.host, context.cache, options.accelerator)
            versions["qemu"] = offer.version
            devices = [KVM] if options.accelerator == "kvm" else []
            problem, scheduling, rights = await asyncio.gather(
                lacking_here(context.host, options, offer, context.memories),
                linux_knobs(context),
                confined_as(context.host, options, devices, offer.program),
            )
            if problem:
                return verdict(False, *problem)
            (knobs, missing), runs_as = scheduling, rights
        except (InputError, MachineFault) as error:
            return refused(error, error.message)
        kernel = _kernel(context, True)
        if is_file_name(kernel) and not Path(kernel).is_file():
            return verdict(False, f"there is no kernel file {kernel}", "name an existing vmlinuz")
        if options.accelerator == "tcg":
            if _needs_trial(options):
                answer = await _taken(context, options, offer.program)
                if not answer.usable:
                    return verdict(False, answer.reason, answer.hint, lasting=answer.sure)
            return verdict(True, "TCG emulates the processor: behaviour, not hardware speed")
        try:
            depth = await probe.depth_of(context.host, context.host_agent)
            answer = await probe.kvm_device(context.host, depth, offer.program)
            if answer.usable:
                answer = await _taken(context, options, offer.program, depth)
            if answer.usable:
                answer = await self._boots(context, options, offer, depth)
        except (InputError, MachineFault) as error:
            return refused(error, f"KVM could not be tried: {error.message}")
        await kvm_memory.note(context.cache, context.host, options, answer)
        return verdict(answer.usable, answer.reason, answer.hint, lasting=answer.sure)

    async def prepare(
        self, context: Context, options: QemuOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Find the image in the cache, or build it.

        Raises:
            InputError: There is no such kernel, or it lacks what the devices need; or the shape
                is impossible with the options; or there is no QEMU.
            MachineFault: The image cannot be copied to the host.
        """
        await require_whole_pages(context.host, options, shape)
        image = await image_for(context, _kernel(context, realtime), options.needs, shape)
        require_tickless(options.nohz_full, image, shape.vcpus)
        if options.nested:
            outer = await build_guest_image(
                context.builder,
                _kernel(context, realtime),
                needs=nested.NEEDS,
                agent=context.agent,
                cache=context.cache,
                release=context.release,
                runs_on=context.host,
            )
            image = await nested.outer_image(context.builder, outer, image, context.cache)
        # Copy it now, so that machines that start at the same moment need not wait for it.
        await _at_host(context.host, image)
        offer = await offer_of(context.host, context.cache, options.accelerator)
        return prepared_by(image, image=image, notes=image.notes, program=offer.program)

    async def start(
        self, context: Context, options: QemuOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a guest; its vCPUs are pinned before its first instruction.

        Raises:
            MachineFault: QEMU ended, with its own message; or its monitor cannot be used.
        """
        image, program = prepared.extra["image"], prepared.extra["program"]
        return await launch(context, options, image, spec, program=program)

    async def guest_kernels(self, context: Context, options: QemuOptions) -> GuestKernels:
        """Find out whether the host's own kernel boots as a guest, by booting it once."""
        # Whether a kernel boots at all does not depend on the other options.
        plain = QemuOptions(accelerator=options.accelerator, cpu=options.cpu)

        async def prepare(own: Context) -> Prepared:
            own = replace(own, needs=frozenset())
            return await self.prepare(own, plain, _PROBE_SHAPE, realtime=False)

        async def boot(prepared: Prepared, deadline_s: float) -> probe.TrialResult:
            return await _boot_once(context, plain, prepared, "virtual", deadline_s)

        offer = await offer_of(context.host, context.cache)
        return await guest_kernels(
            context, options, _PROBE_SHAPE, prepare=prepare, boot=boot, qemu=offer.version
        )

    async def _boots(
        self, context: Context, options: QemuOptions, offer: Offer, depth: probe.Depth
    ) -> probe.TrialResult:
        """Boot a guest under KVM, or return the cached result.

        If the study names no kernel, any that boots will do. The host's own, which needs no
        packages, is tried first. Not in a lab, whose own kernel is the general one: machines there
        boot the real-time kernel anyway.
        """
        # Whether KVM runs a guest at all does not depend on the other options.
        plain = QemuOptions(accelerator="kvm", cpu=options.cpu)
        own = () if depth == "emulated" or context.release is not None else (HOST,)
        refusal: probe.TrialResult | None = None
        for kernel in (context.kernel,) if context.kernel else (*own, "rt", "generic"):
            tried = replace(context, kernel=kernel)
            try:
                prepared = await self.prepare(tried, plain, _PROBE_SHAPE, realtime=True)
            except InputError as error:
                found = f"no guest could be booted to try KVM: {error.message}"
                refusal = refusal or probe.TrialResult(False, found, error.hint)
                continue
            answer = await self._boots_prepared(tried, plain, prepared, offer, depth)
            if answer.usable or kernel != HOST:
                return answer
            # The cause may be this kernel, which does not boot as a guest, rather than KVM.
            refusal = answer
        return refusal or probe.TrialResult(False, "no guest could be booted to try KVM")

    async def _boots_prepared(
        self,
        context: Context,
        plain: QemuOptions,
        prepared: Prepared,
        offer: Offer,
        depth: probe.Depth,
    ) -> probe.TrialResult:
        async def boot() -> probe.TrialResult:
            for deadline_s in probe.BOOT_DEADLINES_S[depth]:
                answer = await _boot_once(context, plain, prepared, depth, deadline_s)
                if answer.usable:
                    break
            return answer

        facts = trial_facts(offer.version, prepared, plain)
        answer = await kvm_memory.known_or_booted(context.cache, context.host, depth, facts, boot)
        # The notes may show the cause, such as a kernel without its modules.
        notes = " ".join(prepared.extra["notes"])
        if answer.usable or not notes:
            return answer
        return replace(answer, reason=f"{answer.reason}. {notes}".rstrip("."))


async def _taken(
    context: Context, options: QemuOptions, program: str, depth: probe.Depth = "real"
) -> probe.TrialResult:
    """Find out whether QEMU accepts the options, with the same rights as a machine's QEMU."""
    devices = [KVM] if options.accelerator == "kvm" else []
    confined = await confinement(
        context.host, options, own=[], files=[], devices=devices, program=program
    )
    return await probe.taken(context.host, trial(options, program), depth, confined.around)


async def _boot_once(
    context: Context,
    options: QemuOptions,
    prepared: Prepared,
    depth: probe.Depth,
    deadline_s: float,
) -> probe.TrialResult:
    token = secrets.token_hex(4)
    workdir = Path("/tmp") / f"tare-probe-{token}"
    spec = MachineSpec(f"tare-probe-{token}", _PROBE_SHAPE, (), workdir, False, TRIAL)
    words = kernel_arguments(options)
    # The kernel logs its whole boot, to show how far it got. On an emulated host each logged byte
    # costs milliseconds, so there it logs only errors.
    spoken = words if depth == "emulated" else [word for word in words if word != "quiet"]
    append = ("earlyprintk=ttyS0", *spoken)
    kvm = options.accelerator == "kvm"
    works = _CREATED if kvm else _EMULATED
    try:
        image, program = prepared.extra["image"], prepared.extra["program"]
        machine = await launch(context, options, image, spec, append=append, program=program)
    except MachineFault as fault:
        return _ended(fault, spec, works)
    try:
        await machine.ready(deadline_s)
    except MachineFault as fault:
        if machine.died.done():
            return _ended(fault, spec, works)
        tail = machine.console_tail()
        silent = "" if tail else ", and its console stayed empty"
        late = probe.TrialResult(
            False,
            f"{works}, but a guest did not boot within {deadline_s:g} s{silent}",
            probe.WITHOUT_KVM if kvm else "",
            words=tail[-1] if tail else "",
            speaker="its console",
        )
        ran = (await machine.host_cost())["vcpu_cpu_s"]
        # A guest that boots needs no more than a quarter of the deadline.
        if ran > deadline_s / 3:
            return late
        busy = f"{late.reason}; the host was busy: the guest ran for {ran:.1f} s of them"
        return replace(late, reason=busy, todo="try again when the host is idle", sure=False)
    finally:
        await machine.stop()
    return probe.TrialResult(True, f"a guest booted under {options.accelerator.upper()}")


def _ended(fault: MachineFault, spec: MachineSpec, works: str) -> probe.TrialResult:
    words = fault.message.removeprefix(f"{spec.name}: ")
    return probe.TrialResult(
        False,
        f"{works}, but a guest ended before it had booted",
        probe.WITHOUT_KVM if works == _CREATED else "",
        words=words,
        speaker="Tare",
    )


async def launch(
    context: Context,
    options: QemuOptions,
    image: GuestImage,
    spec: MachineSpec,
    *,
    append: tuple[str, ...] | None = None,
    program: str = PROGRAM,
) -> QemuMachine:
    """Start QEMU with an image and connect to it.

    Args:
        context: The host to work on, and Tare's state there.
        options: The machine's options.
        image: The image that it boots.
        spec: Name, shape, pinning and folder.
        append: The kernel command line, if it differs from the usual one.
        program: The name of the QEMU to run.

    Raises:
        MachineFault: QEMU ended, with its own message; or its monitor cannot be used.
    """
    sockets = spec.workdir
    if not fits_socket(sockets):
        sockets = Path("/tmp") / f"tare-{secrets.token_hex(6)}"
    places = MachinePaths(
        qmp=sockets / "qmp.sock",
        agent=sockets / "agent.sock",
        console=sockets / "console.sock",
        errors=spec.workdir / "qemu.log",
    )
    scheduled = Scheduled(context, spec.name, options.scheduling_of(spec.role))
    machine = QemuMachine(context, options, spec, places, scheduled)
    machine.inner_cpus = tickless_cpus(options.nohz_full, spec.shape.vcpus)
    there = await _at_host(context.host, image)
    try:
        for folder in dict.fromkeys((spec.workdir, sockets)):
            await machine.make_folder(folder)
        places = replace(places, disk=await machine.make_disk(context, spec))
        if spec.toolbox is not None:
            places = replace(places, toolbox=await copy_to_host(context.host, spec.toolbox.image))
        files = [there.boot_kernel, there.initramfs, *([places.toolbox] if places.toolbox else [])]
        taken = await take_function(context, machine.held, spec, options)
        vhost = await nic.uses_vhost(context.host, options, spec.way)
        machine.vhost = vhost
        confined = await confinement(
            context.host,
            options,
            own=[*dict.fromkeys((spec.workdir, sockets)), *places.disk_parts, *taken.own],
            files=files,
            devices=[
                *([KVM] * (options.accelerator == "kvm")),
                *([TUN] * (spec.way == "tap")),
                *([Path(nic.VHOST)] * vhost),
                *taken.devices,
            ],
            program=program,
        )
        link = await link_of(spec, options, confined.uid, taken)
        words = kernel_arguments(options, counted=context.counted) if append is None else append
        words += await frequency_words(context.host, options)
        words += tickless_arguments(options.nohz_full, spec.shape.vcpus)
        words += options.guest_arguments
        shape = spec.shape
        if options.nested:
            outside = kernel_arguments(options, counted=context.counted)
            words = nested.outer_arguments(outside, words, shape)
            shape = nested.outer_shape(shape)
        argv = command(
            options, there, spec.name, shape, places, append=words, link=link, vhost=vhost
        )
        argv[0] = program
        around = nic.around(link)
        await machine.run(
            [*around, *confined.around(argv, files)], spec.cpus, confined, spec.within
        )
        if link is not None:
            machine.applied = {**machine.applied, "nic": nic.record(options, vhost, link)}
    except BaseException:
        await machine.stop()
        raise
    return machine


async def _at_host(host: Host, image: GuestImage) -> GuestImage:
    """Copy the files that QEMU reads to the host, and return the image with their paths there."""
    return replace(
        image,
        boot_kernel=await copy_to_host(host, image.boot_kernel),
        initramfs=await copy_to_host(host, image.initramfs),
    )


def _kernel(context: Context, realtime: bool) -> str:
    return context.kernel or ("rt" if realtime else "generic")


def _needs_trial(options: QemuOptions) -> bool:
    """Check whether QEMU must be tried, to see if it accepts the options with TCG."""
    asked = (options.cpu, options.cpu_features, options.mlock, options.extra_args)
    return any(asked) or options.machine == MICROVM
