"""The bare machine of the lab: the guest image itself, booted directly on the emulated computer.

There is no hypervisor and no separate host. Roles that are separate machines on other platforms are
here several runs of one agent in one machine, each on the CPUs where it was placed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.lab.emulator import emulator_of, node_arguments, topology_arguments
from tare.lab.options import CPU_MODEL, LabOptions
from tare.platforms.bare import BareOptions
from tare.platforms.contract import (
    TAKES_HOST,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Shape,
    Statement,
    Verdict,
)
from tare.platforms.linux.scheduling import GIVEN_VARIABLE
from tare.platforms.qemu.command import kernel_arguments
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import MIN_MEMORY, Qemu, launch

if TYPE_CHECKING:
    from tare.agent.client import Hello
    from tare.platforms.qemu.machine import QemuMachine
    from tare.study.reading.hosting import LabSpec

ALL_MEMORY = "the machine has all that the lab has"


class LabBare(Platform[BareOptions]):
    """The emulated computer without any hypervisor.

    Args:
        spec: The properties of the emulated computer.
    """

    name = "bare"
    options = BareOptions

    def __init__(self, spec: LabSpec) -> None:
        self._spec = spec
        self._qemu = Qemu()
        self._guest: _Guest | None = None

    def describe(self, options: BareOptions) -> str:
        """Return its name in reports."""
        return ", ".join(("bare emulated machine", *options.wanted_switch.words))

    def stated(self, options: BareOptions) -> Statement:
        """Return its offer: the only knob of its scheduler is the ordinary policy."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=self._spec.cpus,
                min_memory=MIN_MEMORY,
                disk=frozenset({"virtio-blk"}),
                own_cache=False,
                no_own_cache=ALL_MEMORY,
                toolbox=frozenset({"disk"}),
                knobs=frozenset({"policy"}),
                missing_knobs=dict.fromkeys(
                    ("fifo", "nice", "slice", "weight", "cap"),
                    "the bare machine of the lab uses its kernel's default scheduling",
                ),
                notes=(
                    f"memory is not limited to the shape: {ALL_MEMORY}",
                    "neighbours are loads in the same kernel, on the CPUs they are bound to, or "
                    "the least used ones",
                ),
            ),
            kernel="the guest image's",
            channel="virtio-serial port",
            needs=("qemu-system-x86_64 (package qemu-system-x86)",),
            emulated=True,
            host_boot=TAKES_HOST,
            boots_image=True,
            network=Qemu().stated(self._options).network,
            boot_s=3.0,
            emulated_boot_s=3.0,
        )

    @property
    def _options(self) -> QemuOptions:
        return QemuOptions(accelerator="tcg", cpu=CPU_MODEL)

    async def check(self, context: Context, options: BareOptions) -> Verdict:
        """Check whether the emulator is installed."""
        verdict = await self._qemu.check(context, self._options)
        wanted = (options.subject_scheduling, options.neighbours_scheduling)
        if any(each is not None and each.policy == "batch" for each in wanted):
            return replace(
                verdict,
                usable=False,
                reason="`policy: batch`: the bare machine of the lab only has `other`",
                hint="write `policy: other`",
            )
        if options.memory_limit == "shape":
            reason = f"memory cannot be limited to the shape: {ALL_MEMORY}"
            return replace(verdict, usable=False, reason=reason, hint="remove `memory-limit`")
        found = self.stated(options).capabilities
        return replace(verdict, emulated=True, capabilities=found)

    async def prepare(
        self, context: Context, options: BareOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Build or find the image, which is that of the hypervisors' guests."""
        return await self._qemu.prepare(context, self._options, shape, realtime)

    async def start(
        self, context: Context, options: BareOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start the computer for the subject; place each neighbour on CPUs of the same computer.

        Raises:
            MachineFault: It could not be started.
        """
        if spec.role != "subject":
            if self._guest is None:
                raise MachineFault(f"{spec.name}: the bare machine does not run")
            return self._guest.place(spec)
        shape = Shape(vcpus=self._spec.cpus, memory=self._spec.memory, disk=spec.shape.disk)
        # The emulator is that of the labs with a hypervisor, so that they differ only in the
        # hypervisor.
        own = LabOptions(qemu=self._spec.qemu or "")
        emulator = await emulator_of(context.builder, own, context.cache)
        changed = emulator.corrected or bool(own.qemu)
        qemu = self._options.model_copy(update={"threads": emulator.threads})
        # One thread for all of its CPUs may run on any CPU of this computer.
        cpus = () if emulator.threads == "single" else context.host.topology().online
        if self._spec.deterministic:
            qemu = qemu.model_copy(update={"clock": "instructions"})
        if self._spec.nodes > 1:
            qemu = qemu.model_copy(update={"extra_args": _nodes(self._spec)})
        machine = await launch(
            context,
            qemu,
            prepared.extra["image"],
            replace(spec, shape=shape, cpus=cpus),
            append=_kernel_words(qemu, options, counted=context.counted),
            program=emulator.program if changed else prepared.extra["program"],
        )
        self._guest = _Guest(machine, self._spec.cpus)
        return self._guest.place(spec)


def _kernel_words(
    qemu: QemuOptions, options: BareOptions, *, counted: bool
) -> tuple[str, ...] | None:
    """Return the kernel's command line if the study chooses the scheduling of workloads.

    The kernel passes unknown words to its init, which is the agent, as environment variables
    (Linux, Documentation/admin-guide/kernel-parameters.rst).
    """
    scheduling = options.subject_scheduling
    if scheduling is None or scheduling.policy is None:
        return None
    return (*kernel_arguments(qemu, counted=counted), f"{GIVEN_VARIABLE}=1")


def _nodes(spec: LabSpec) -> tuple[str, ...]:
    # QEMU uses the later of two options: the machine has the same sockets and nodes as the lab.
    return (
        *topology_arguments(spec.cpus, spec.nodes),
        *node_arguments(spec.cpus, spec.memory, spec.nodes),
    )


@dataclass
class _Guest:
    """The machine, and how many roles use each of its CPUs."""

    machine: QemuMachine
    cpus: int
    held: Counter[int] = field(default_factory=Counter)

    def place(self, spec: MachineSpec) -> LabPlace:
        """Choose CPUs as on a bare host: those that the role is bound to, or the least used."""
        if spec.cpus:
            chosen = tuple(sorted(set(list(dict.fromkeys(spec.cpus))[: spec.shape.vcpus])))
        else:
            free = sorted(range(self.cpus), key=lambda cpu: (self.held[cpu], cpu))
            chosen = tuple(sorted(free[: spec.shape.vcpus]))
        self.held.update(chosen)
        return LabPlace(spec, self.machine, chosen)


class LabPlace(Machine):
    """One role within the bare machine of the lab.

    Args:
        spec: The role and its resources.
        machine: The machine that all roles share.
        cpus: The machine's CPUs that it works on.
    """

    def __init__(self, spec: MachineSpec, machine: QemuMachine, cpus: tuple[int, ...]) -> None:
        self.name = spec.name
        self.inner_cpus = cpus
        self.agent = machine.agent
        self.died: asyncio.Future[MachineFault] = machine.died
        self.applied: Mapping[str, Any] = {"cpus_inside": list(cpus)}
        self._machine = machine
        self._first = spec.role == "subject"

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello; see :class:`tare.platforms.contract.Machine`."""
        return await self._machine.ready(timeout_s)

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the emulator's threads that run the machine's CPUs."""
        return await self._machine.vcpu_threads()

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that some of the emulator's threads have used."""
        return await self._machine.ran_s(threads)

    async def threads(self) -> dict[int, str]:
        """Return the names of the emulator's threads by id."""
        return await self._machine.threads() if self._first else {}

    async def host_cost(self) -> dict[str, float]:
        """Return the cost of the emulator; 0 for a neighbour, which shares it."""
        if not self._first:
            return {"cpu_s": 0.0, "rss_bytes": 0.0}
        cost = await self._machine.host_cost()
        return {name: cost[name] for name in ("cpu_s", "rss_bytes")}

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._machine.console_tail()

    async def stop(self) -> None:
        """Stop the machine if this is the subject; neighbours end with it."""
        if self._first:
            await self._machine.stop()
