"""Xen on a host, driven by ``xl`` in dom0: guests of type PV, PVH and HVM."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tare.errors import InputError, MachineFault, TareError, heard
from tare.hosts import Host
from tare.images.guest_image import GuestImage
from tare.images.kernels import is_file_name
from tare.images.ship import copy_to_host
from tare.platforms.contract import (
    Capabilities,
    Context,
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
    undo_setting,
)
from tare.platforms.linux.booting import image_for, prepared_by
from tare.platforms.linux.thread_cpus import lacking_cpus
from tare.platforms.linux.tickless import require_tickless, tickless_arguments, tickless_cpus
from tare.platforms.linux.writes import PROCESS_MACHINE
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.guest import Boots, guest_file, kernel_arguments
from tare.platforms.xen.hypervisor import XEN
from tare.platforms.xen.machine import XenMachine
from tare.platforms.xen.options import CREDIT_SCHEDULERS, WITH_SLICE, XenOptions
from tare.platforms.xen.rtds import SCHEDULER
from tare.platforms.xen.scheduling import pool_of
from tare.platforms.xen.settings import XenSetting, setting_of

if TYPE_CHECKING:
    from tare.platforms.contract import Machine
    from tare.study.planning.host_cpus import HostCpus

MAX_VCPUS = 128
"""Xen's limit for a HVM guest (HVM_MAX_VCPUS, xen/include/public/hvm/hvm_info_table.h)."""
MIN_MEMORY = 160 << 20
"""The least memory in bytes with which the real-time image boots to the agent's hello."""


@dataclass(frozen=True)
class _Found:
    """The findings of :meth:`Xen.check`."""

    problem: str = ""
    hint: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    scheduler: str = ""
    cpus: int = 0
    emulated: bool = False


class Xen(Platform[XenOptions]):
    """Xen, driven by ``xl`` in its dom0."""

    name = "xen"
    known_as: ClassVar[Mapping[str, str]] = {
        "xl": "",
        "dom0": "",
        "xen-pv": "type: pv",
        "xen-pvh": "type: pvh",
        "xen-hvm": "type: hvm",
    }
    options = XenOptions
    variants = tuple(Variant(name, {"type": name}) for name in ("pv", "pvh", "hvm"))
    host_hypervisors = (XEN,)
    undoers = MappingProxyType(
        {
            xen.DomainResource.kind: undo_resource(xen.domain_of),
            XenSetting.kind: undo_setting(setting_of),
        }
    )

    def describe(self, options: XenOptions) -> str:
        """Return a phrase such as ``Xen PV, credit, slice 1 ms``."""
        return options.words()

    def stated(self, options: XenOptions) -> Statement:
        """Return the statement about Xen for a host that lacks nothing."""
        needs = [
            "Xen with dom0 (xen-system-amd64)",
            *(["qemu-system-xen"] if options.type == "hvm" else []),
            *(["a processor with virtualization"] if options.type != "pv" else []),
        ]
        return Statement(
            runs_as="root in dom0, as Xen asks of `xl`; a guest's device model as `xl` starts it",
            capabilities=_capabilities(options, options.wanted_scheduler or WITH_SLICE),
            kernel="the study's, booted by Xen itself",
            channel="Xen's console",
            needs=tuple(needs),
            untested="Tested only in the lab, with Xen 4.17.",
            confirmed="lab",
            host_boot=_host_boot(options),
            boots_image=True,
            # As a PV guest, that kernel was seen to spin for ever. All types use one kernel, so
            # that they can be compared.
            realtime_kernel=False,
            network=NetworkWays(rooted=frozenset({"vif"})),
            boot_s=5.0,
            emulated_boot_s=12.0,
        )

    def writes(self, options: XenOptions) -> tuple[Write, ...]:
        """Return the objects and settings that domains need in their dom0."""
        return (
            *PROCESS_MACHINE,
            Write("domain", "xl create tare-…, xl sched-… --domain=tare-…", "xl destroy tare-…"),
            Write("xen-setting", "xl sched-credit[2] --schedparam", "the same, with what it was"),
        )

    async def check(self, context: Context, options: XenOptions) -> Verdict:
        """Find out whether domains can be started, without starting one."""
        sure = True
        try:
            found = await _look(context.host, options)
        except (TareError, OSError) as error:
            sure = isinstance(error, InputError)
            hint = error.hint if isinstance(error, TareError) else ""
            found = _Found(error.message if isinstance(error, TareError) else str(error), hint)
        kernel = _kernel(context)
        if not found.problem and is_file_name(kernel) and not Path(kernel).is_file():
            found = replace(
                found,
                problem=f"there is no kernel file {kernel}",
                hint="name an existing vmlinuz",
            )
        capabilities = _capabilities(options, found.scheduler)
        return Verdict(
            usable=not found.problem,
            reason=found.problem or f"Xen's toolstack answers; scheduler {found.scheduler}",
            hint=found.hint,
            emulated=found.emulated,
            versions=found.versions,
            capabilities=capabilities,
            lasting=sure,
        )

    async def prepare(
        self, context: Context, options: XenOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Find the image in the cache or build it, and copy it to the host.

        Raises:
            InputError: There is no such kernel, or it lacks what the devices need.
        """
        image = await image_for(context, _kernel(context), options.needs, shape)
        require_tickless(options.nohz_full, image, shape.vcpus)
        try:
            await _brought(context.host, options, image)
        except (MachineFault, OSError) as error:
            # The copy is tried again when a machine starts, which then fails itself.
            notes: tuple[str, ...] = (f"the image could not be brought to the host: {error}",)
        else:
            notes = ()
        return prepared_by(image, image=image, notes=(*image.notes, *notes))

    async def start(
        self, context: Context, options: XenOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a domain; its vCPUs are pinned before its first instruction.

        Raises:
            MachineFault: Xen refused, with its message.
        """
        return await launch(context, options, prepared.extra["image"], spec)


async def launch(
    context: Context,
    options: XenOptions,
    image: GuestImage,
    spec: MachineSpec,
    *,
    append: Sequence[str] | None = None,
) -> XenMachine:
    """Start a domain with an image and connect to it.

    Args:
        context: The host to work on, and Tare's state there.
        options: The machine's options.
        image: The image that it boots.
        spec: Name, shape, pinning and folder.
        append: The kernel command line, if it differs from the usual one.

    Raises:
        MachineFault: Xen refused, with its message; or its console is not served.
    """
    boots = await _brought(context.host, options, image)
    words = kernel_arguments(options, counted=context.counted) if append is None else append
    words = (*words, *tickless_arguments(options.nohz_full, spec.shape.vcpus))
    machine = XenMachine(context, options, spec)
    machine.inner_cpus = tickless_cpus(options.nohz_full, spec.shape.vcpus)
    try:
        link = None if spec.network is None else await spec.network.vif(spec.name)
        await machine.run(
            lambda uuid, disks: guest_file(
                options, spec, boots, uuid, disks=disks, link=link, append=words
            )
        )
    except BaseException:
        # Report the first fault, not a later one from the clean-up.
        with contextlib.suppress(MachineFault):
            await machine.stop()
        raise
    return machine


async def host_cpus(host: Host) -> HostCpus:
    """Return the CPUs of a host under Xen: dom0's kernel sees only its own vCPUs.

    Raises:
        InputError: Xen's tools are not installed.
        MachineFault: Xen's toolstack does not answer, or lists no CPUs.
    """
    found = xen_output.topology(await xen.asked(host, "info", "-n"))
    if found is None:
        raise MachineFault(f"{host.name}: `xl info -n` lists no CPUs")
    return found


async def _brought(host: Host, options: XenOptions, image: GuestImage) -> Boots:
    # A HVM guest's kernel is loaded by the firmware of its PC, which needs a bzImage.
    kernel = image.kernel if options.type == "hvm" else image.boot_kernel
    files = (copy_to_host(host, kernel), copy_to_host(host, image.initramfs))
    return Boots(*await asyncio.gather(*files))


def _host_boot(options: XenOptions) -> str:
    """Return ``xen``, or ``xen:credit`` if that scheduler must run the default pool."""
    must = options.wanted_scheduler
    chosen_at_boot = must in (WITH_SLICE, SCHEDULER) and options.cpupool is None
    return f"xen:{must}" if chosen_at_boot else "xen"


def _kernel(context: Context) -> str:
    # Do not use Debian's real-time kernel, even for a real-time workload: as a PV guest on a busy
    # host it was seen to spin in its timer interrupt for ever.
    return context.kernel or "generic"


def _capabilities(options: XenOptions, scheduler: str) -> Capabilities:
    knobs = set()
    missing = {
        name: f"Xen's schedulers do not support {name}" for name in ("policy", "fifo", "nice")
    }
    for knob, having in (
        ("reservation", (SCHEDULER,)),
        ("weight", CREDIT_SCHEDULERS),
        ("cap", CREDIT_SCHEDULERS),
        ("slice", (WITH_SLICE,)),
    ):
        if scheduler in having:
            knobs.add(knob)
        else:
            missing[knob] = f"the scheduler {scheduler or 'here'} has no {knob} that can be set"
    if "reservation" in missing:
        missing["reservation"] += "; RTDS has (`scheduler: rtds`)"
    return Capabilities(
        pinning=True,
        max_vcpus=MAX_VCPUS,
        min_memory=MIN_MEMORY,
        devices=frozenset(
            {"paravirtual", "emulated"} if options.type == "hvm" else {"paravirtual"}
        ),
        neighbours=True,
        disk=frozenset({"xvd"} if options.devices == "paravirtual" else {"ide"}),
        toolbox=frozenset({"disk"}),
        notes=(
            "The CPU time of a domain has a resolution of 0.1 s.",
            "dom0's work for machines is counted as dom0_cpu_s, for all machines together.",
            *(
                ("The kernel's console is also the agent's channel.",)
                if options.type != "hvm"
                else ()
            ),
        ),
        knobs=frozenset(knobs),
        missing_knobs=missing,
    )


async def _look(host: Host, options: XenOptions) -> _Found:
    machine = (await host.run(["uname", "-m"], timeout_s=LOOK_S)).stdout.decode().strip()
    if machine != "x86_64":
        return _Found(f"the host is {machine}; guests are x86_64 so far")
    if problem := await why_not_dom0(host):
        return _Found(*problem)
    # If xenstored does not answer, xl waits for ever.
    if problem := await no_xenstored(host):
        return _Found(*problem)
    facts = xen_output.info(await xen.asked(host, "info"))
    found = _Found(
        versions={"xen": xen_output.version(facts), "xl": await _xl_version(host, facts)},
        cpus=int(facts.get("nr_cpus", "0")),
        emulated=await _is_emulated(host),
    )
    capable = facts.get("virt_caps", "").split()
    if options.type != "pv" and "hvm" not in capable:
        return replace(
            found,
            problem="Xen has no hardware virtualization here (virt_caps: "
            f"{' '.join(capable) or 'none'})",
            hint="turn virtualization on in the firmware, or use `type: pv`",
        )
    if options.type == "hvm" and (problem := await no_device_model(host)):
        return replace(found, problem=problem[0], hint=problem[1])
    if options.card != "netfront" and not await host.exists("/dev/net/tun"):
        lacking = "there is no /dev/net/tun, by which QEMU connects an emulated network card"
        return replace(found, problem=lacking, hint="modprobe tun")
    if problem := lacking_cpus(options.host_cpus, range(found.cpus)):
        return replace(found, problem=problem[0], hint=problem[1])
    pool = await pool_of(host, options)
    if pool is None:
        return replace(
            found,
            problem=f"Xen has no CPU pool {options.pool}",
            hint=f"xl cpupool-create name='\"{options.pool}\"' …",
        )
    found = replace(found, scheduler=pool.scheduler)
    wanted = options.wanted_scheduler
    if wanted in (None, pool.scheduler):
        lacking = options.lacks(pool.scheduler)
        if not lacking:
            return found
        runs = f"Xen's {pool.name} runs the scheduler {pool.scheduler}"
        return replace(found, problem=f"{runs}, which has no {lacking}")
    built = " (Debian's Xen is built without it: `tare help xen`)" if wanted == SCHEDULER else ""
    return replace(
        found,
        problem=f"Xen's {pool.name} runs the scheduler {pool.scheduler}, not {wanted}",
        hint=f"boot Xen with sched={wanted} on its command line{built}, or name a CPU pool that "
        f"runs {wanted} by `cpupool:`; or measure with the scheduler that runs: "
        f"--set arms.ARM.scheduler={pool.scheduler}",
    )


LOOK_S = 20.0
_DOM0 = "control_d"
_SERVICES = "systemctl start xenstored xenconsoled xen-init-dom0"
_NO_XEN = "this host does not run under Xen"


async def why_not_dom0(host: Host) -> tuple[str, str] | None:
    """Return why a host is not a dom0, and what to do; None if it is one."""
    try:
        kind = (await host.read("/sys/hypervisor/type")).decode().strip()
    except OSError:
        kind = ""
    if kind != "xen":
        return _NO_XEN, xen.INSTALL
    with contextlib.suppress(OSError):
        if _DOM0 in (await host.read("/proc/xen/capabilities")).decode():
            return None
        return "this host is itself a guest of Xen, not its control domain (dom0)", ""
    return "/proc/xen is not mounted", "mount -t xenfs xenfs /proc/xen"


async def no_xenstored(host: Host) -> tuple[str, str] | None:
    """Return why Xen's toolstack would not answer, and what to do; None if it would."""
    try:
        answer = await host.run(["xenstore-read", "domid"], timeout_s=LOOK_S)
    except InputError:
        return "Xen's tools are not installed here: there is no xenstore-read", xen.INSTALL
    except MachineFault as fault:
        if "did not end" not in fault.message:
            raise
        return "xenstored does not answer: Xen's toolstack is not running", _SERVICES
    if not answer.ok and b"omid" not in answer.stderr:
        return "xenstored does not answer", heard(_SERVICES, "xenstore-read", answer.words())
    return None


async def no_device_model(host: Host) -> tuple[str, str] | None:
    """Return the problem and what to do if there is no QEMU for HVM guests; None if not."""
    for path in ("/usr/libexec/xen-qemu-system-i386", "/usr/lib/xen/bin/qemu-system-i386"):
        if await host.exists(path):
            return None
    shown = await host.run(["sh", "-c", "command -v qemu-system-i386 xen-qemu-system-i386"])
    if shown.stdout.strip():
        return None
    return (
        "there is no QEMU for Xen, which emulates a HVM guest's devices",
        "apt-get install --no-remove qemu-system-xen",
    )


async def _xl_version(host: Host, facts: dict[str, str]) -> str:
    # xl does not report its own version: it is built with the Xen of its package.
    shown = await host.run(
        ["sh", "-c", 'readlink -f "$(command -v xl)"; ls -d /usr/lib/xen-*'], timeout_s=LOOK_S
    )
    for word in shown.stdout.decode(errors="replace").split():
        name = word.rpartition("xen-")[2].split("/")[0]
        if name[:1].isdigit():
            return name
    return xen_output.version(facts)


async def _is_emulated(host: Host) -> bool:
    """Check whether the host's own processor is emulated; times then show behaviour only."""
    with contextlib.suppress(OSError):
        return (await host.read("/sys/class/dmi/id/sys_vendor")).decode().strip() == "QEMU"
    return False
