"""A run in the lab: an emulated host that is booted with each hypervisor in every block."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from tare.errors import HostFroze, InputError, MachineFault, TareError
from tare.hosts.ledger.ledger import Ledger
from tare.platforms.contract import ANY_BOOT, KVM_BOOT, NO_HYPERVISOR, TAKES_HOST
from tare.platforms.linux.process_machine import temporary_folder
from tare.run.hosts.contract import no_tracing
from tare.run.hosts.lab_bare import LabBare
from tare.study.model.lab_nodes import node_of_each
from tare.study.model.releases import release_words
from tare.study.planning.host_cpus import HostCpus
from tare.units import format_size

if TYPE_CHECKING:
    from tare.lab.host import Lab
    from tare.lab.image import LabImage
    from tare.platforms.contract import Context, Platform
    from tare.run.probes.host_trace import HostTracing
    from tare.study.model.releases import Release
    from tare.study.reading.hosting import LabSpec

LAB_MACHINE_S = 300.0
"""Seconds a machine in an emulated host may take until its agent says hello: a Xen HVM guest takes
60 on an idle computer."""
LAB_BOOT_S = 20.0
BOOTED: Mapping[str, str] = {
    "kvm": "KVM",
    "xen": "Xen",
    "xen:credit": "Xen and its credit scheduler",
    "xen:rtds": "Xen and its real-time scheduler RTDS",
}
"""The boots of a lab, with their names for users."""


def lab_name(spec: LabSpec) -> str:
    """Return the name of a lab; equal for equal labs."""
    own = (("Xen", spec.xen), ("Linux", spec.kernel), ("QEMU", spec.qemu))
    words = [
        *(["deterministic"] if spec.deterministic else []),
        *([f"{spec.nodes} NUMA nodes"] if spec.nodes > 1 else []),
        *([f"{spec.dom0_cpus} CPUs for dom0"] if spec.dom0_cpus > 1 else []),
        *([release_words(spec.release)] if spec.release else []),
        *([f"with {', '.join(sorted(spec.packages))}"] if spec.packages else []),
        *(f"{what} {file}" for what, file in own if file is not None),
    ]
    return ", ".join([f"lab of {spec.cpus} CPUs", format_size(spec.memory), *words])


def lab_facts(spec: LabSpec) -> dict[str, Any]:
    """Return the facts that identify a lab in a report, with digests of the user's own files."""
    from tare.images.cache import file_digest

    facts: dict[str, Any] = {
        "cpus": spec.cpus,
        "memory": spec.memory,
        "deterministic": spec.deterministic,
        **({"nodes": spec.nodes} if spec.nodes > 1 else {}),
        **({"dom0_cpus": spec.dom0_cpus} if spec.dom0_cpus > 1 else {}),
        **({"release": spec.release} if spec.release else {}),
        **({"packages": sorted(spec.packages)} if spec.packages else {}),
    }
    for what, file in (("xen", spec.xen), ("kernel", spec.kernel), ("qemu", spec.qemu)):
        if file is not None and "/" in file:
            facts[what] = {"file": file, "sha256": file_digest(Path(file))}
    return facts


def lab_crowding(spec: LabSpec, here: HostCpus) -> str:
    """Return how a lab's CPUs share those of this computer; empty if each has its own."""
    own = len(here.online)
    if spec.cpus <= own:
        return ""
    return f"on {spec.cpus} emulated CPUs that share {own} of this computer (overcommitted)"


def lab_cpus(spec: LabSpec) -> HostCpus:
    """Return the CPUs of a lab."""
    return HostCpus(online=tuple(range(spec.cpus)), nodes=node_of_each(spec.cpus, spec.nodes))


def lab_platforms(
    platforms: Mapping[str, Platform[Any]], spec: LabSpec
) -> Mapping[str, Platform[Any]]:
    """Return the platforms of a lab, in which ``bare`` is the emulated computer itself."""
    here: dict[str, Platform[Any]] = {**platforms, LabBare.name: LabBare(spec)}
    return MappingProxyType(here)


def lab_boot(platform: Platform[Any], options: Any, release: Release | None = None) -> str:
    """Return the boot of a lab; the one of KVM serves all that need no hypervisor below.

    Args:
        platform: The platform.
        options: An arm's options.
        release: The release of the lab, appended after ``@``, as in ``xen:credit@trixie``.
    """
    wanted = platform.stated(options).host_boot
    if wanted == TAKES_HOST:
        return wanted
    boot = KVM_BOOT if wanted in (ANY_BOOT, NO_HYPERVISOR) else wanted
    return boot if release is None else f"{boot}@{release}"


class LabRunHost:
    """The emulated host of a run. Only one lab runs at a time, so that none disturbs another.

    Args:
        context: This computer, on which the lab runs.
        platforms: All platforms by name; ``bare`` becomes the guest image without a hypervisor.
        facts: The facts that identify this computer.
        spec: The properties of the emulated computer.
        say: Shows the user a sentence about slow steps.
    """

    here = True
    emulated = True
    hypervisor = ""
    boot_s = LAB_BOOT_S
    machine_s = LAB_MACHINE_S

    def __init__(
        self,
        context: Context,
        platforms: Mapping[str, Platform[Any]],
        facts: Mapping[str, Any],
        spec: LabSpec,
        say: Callable[[str], None],
    ) -> None:
        self.context = context
        self.name = lab_name(spec)
        self.platforms = lab_platforms(platforms, spec)
        self.facts: Mapping[str, Any] = {**facts, "lab": lab_facts(spec)}
        self.counts_instructions = spec.deterministic
        self._spec = spec
        self._say = say
        self._lab: Lab | None = None
        self._inside: Context | None = None
        self._booted = ("", 0)
        self._watch: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[MachineFault] | None = None

    @property
    def crowding(self) -> str:
        """How its CPUs share those of this computer; empty if each has its own."""
        return lab_crowding(self._spec, self.context.host.topology())

    @property
    def cpus(self) -> HostCpus:
        """The emulated computer's CPUs."""
        return lab_cpus(self._spec)

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """A future that is set when the lab's QEMU ends by itself, or the lab freezes."""
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
        return self._lost

    def boot_of(self, platform: Platform[Any], options: Any, release: Release | None = None) -> str:
        """Return the boot that the platform needs."""
        return lab_boot(platform, options, release)

    async def under(self, boot: str, block: int) -> Context:
        """Return the context of the platforms: a lab that was booted for this block.

        Raises:
            InputError: This computer cannot run a lab.
            MachineFault: It did not come up.
        """
        if self._lab is not None and self.lost.done():
            await self._stop()
        if boot == TAKES_HOST:
            await self._stop()
            return self.context
        was, of = self._booted
        # A lab in which arms were only checked needs no reboot.
        if self._inside is not None and was == boot and of in (0, block):
            self._booted = (boot, block)
            return self._inside
        await self._stop()
        return await self._start(boot, block)

    async def froze(self) -> HostFroze | None:
        """Check whether the lab froze; :meth:`under` then boots it again."""
        if self._lab is None:
            # The bare machine uses the emulated computer itself, so no lab runs.
            return None
        fault = await self._lab.froze()
        if fault is not None and not self.lost.done():
            self.lost.set_result(fault)
        return fault

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Record nothing: this computer schedules the emulator, not the machines."""
        return no_tracing(
            self.context.host, "this computer schedules the emulator, not the machine"
        )

    async def close(self) -> None:
        """Stop the lab."""
        await self._stop()

    async def _start(self, boot: str, block: int) -> Context:
        # Imported here, because a run on other hosts does not need it.
        from tare.lab.host import lab_up
        from tare.lab.options import LabOptions

        booted, _, release = boot.partition("@")
        kind, _, scheduler = booted.partition(":")
        if booted not in BOOTED:
            raise InputError(
                f"needs a host booted with {booted}, but a lab is booted with KVM or Xen",
                "run it on a host over SSH that is booted with it, see `tare help hosts`",
            )
        options = LabOptions(
            hypervisor=cast(Literal["kvm", "xen", "none"], kind),
            cpus=self._spec.cpus,
            memory=self._spec.memory,
            scheduler=cast(Literal["credit", "credit2", "rtds"], scheduler) if scheduler else None,
            deterministic=self._spec.deterministic,
            kernel=self._spec.kernel or "generic",
            xen=self._spec.xen or "",
            qemu=self._spec.qemu or "",
            release=cast("Release", release) if release else None,
            nodes=self._spec.nodes,
            dom0_cpus=self._spec.dom0_cpus,
            packages=self._spec.packages,
        )
        self._say(f"booting the lab with {_words(boot)}")
        folder = temporary_folder(self.context.host) / f"tare-lab-{secrets.token_hex(4)}"
        self._lost = None
        lab = await lab_up(self.context, options, folder, tell=self._say)
        try:
            # Everything made in the lab ends with it, so its ledger is in its folder.
            ledger = Ledger(
                folder / "ledger.jsonl", host=lab.host.name, boot=lambda: lab.host.boot_id()
            )
        except BaseException:
            await lab.stop()
            raise
        self._lab = lab
        self._booted = (boot, block)
        grown = lab_grown(self.facts["lab"], release, lab.image)
        grown["emulator"] = lab.emulator.description
        if kind == "xen":
            # With KVM, and for the bare machine, there are no workarounds.
            grown["workarounds"] = " ".join(lab.emulator.workarounds) or "none"
        self.facts = {**self.facts, "lab": grown}
        self._watch = asyncio.create_task(self._follow(lab))
        self._inside = replace(
            self.context,
            host=lab.host,
            ledger=ledger,
            here=self.context.builder,
            counted=self._spec.deterministic,
        )
        return self._inside

    async def _follow(self, lab: Lab) -> None:
        fault = await asyncio.shield(lab.died)
        if isinstance(fault, HostFroze):
            lost: MachineFault = fault
        else:
            tail = fault.console_tail
            lost = MachineFault(
                f"the lab ended: {fault.message}", console_tail=tail, transient=True
            )
        if not self.lost.done():
            self.lost.set_result(lost)

    async def _stop(self) -> None:
        lab, inside, watch = self._lab, self._inside, self._watch
        self._lab = self._inside = self._watch = None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if inside is not None:
            inside.ledger.close()
        if lab is not None:
            with contextlib.suppress(TareError, OSError):
                await lab.stop()


def lab_grown(known: Mapping[str, Any], release: str, image: LabImage) -> dict[str, Any]:
    """Return the facts of a lab with those of its current boot added.

    Args:
        known: The facts so far.
        release: The release of the boot; empty: this computer's own.
        image: The image that it booted.
    """
    grown = dict(known)
    if image.built is not None:
        grown["xen"] = dict(image.built)
    if release:
        made = {"kernel": image.kernel_version, **image.versions}
        grown["releases"] = {**known.get("releases", {}), release: made}
    return grown


def _words(boot: str) -> str:
    booted, _, release = boot.partition("@")
    hypervisor = BOOTED[booted]
    of = f" of {release_words(cast('Release', release))}" if release else ""
    return f"{hypervisor}{of}"
