"""The bare host: the agent runs as an ordinary process, the baseline of every comparison."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from tare.errors import InputError, TareError, heard
from tare.hosts import start_owned
from tare.hosts.granted_cpus import granted_cpus
from tare.hosts.trace.threads import threads_of
from tare.platforms.contract import (
    NO_HYPERVISOR,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    NetworkWays,
    Platform,
    Prepared,
    Shape,
    Statement,
    Verdict,
    Write,
)
from tare.platforms.linux.cpu_groups import require_member
from tare.platforms.linux.disk import disk_variable, mounted_disk, require_room
from tare.platforms.linux.memory_group import (
    MemoryGroup,
    lacks_memory_groups,
    memory_group,
)
from tare.platforms.linux.process_cost import tree_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    ProcessMachine,
    kernel_release,
    owned_directory,
)
from tare.platforms.linux.rights import as_tare
from tare.platforms.linux.scheduling import (
    LINUX_KNOBS,
    LinuxOptions,
    Scheduled,
    linux_knobs,
    own_policy,
)
from tare.platforms.linux.switch_options import SwitchedOptions
from tare.platforms.linux.toolbox import tree_environment
from tare.platforms.linux.writes import PROCESS_MACHINE
from tare.platforms.network import Link

CHECK_S = 20.0
MIN_MEMORY = 16 << 20
NEEDS_ROOT = "real-time priority, control groups and disks need it"
NOT_WANTED = "the study says `memory-limit: none`"
NO_FIFO = "real-time work runs under the ordinary policy, because SCHED_FIFO is refused here"


class BareOptions(SwitchedOptions, LinuxOptions):
    """Options of the bare host: how it schedules its processes, and how much memory they get."""

    memory_limit: Literal["auto", "shape", "none"] = Field(
        default="auto",
        description="Whether a control group limits the bare host's processes to the shape's "
        "memory, including the page cache and without swap, like a guest. `auto`: only where a "
        "workload of the scenario uses a disk and the host supports it; otherwise the host would "
        "cache files that a guest cannot. `shape`: always; on a host without support the arm is "
        "left out. `none`: never, except for the machines of a cluster.",
    )

    @property
    def memory_words(self) -> tuple[str, ...]:
        """The words that reports add to an arm's description."""
        limits = {
            "shape": "kept to the shape's memory",
            "none": "with all the host's memory",
        }
        return (limits[self.memory_limit],) if self.memory_limit in limits else ()


class Bare(Platform[BareOptions]):
    """The host itself, without any hypervisor in between."""

    name = "bare"
    known_as = dict.fromkeys(
        ("native", "metal", "baremetal", "bare-metal", "physical", "host", "none"), ""
    )
    options = BareOptions

    def describe(self, options: BareOptions) -> str:
        """Return the name that reports use for the arm."""
        words = (
            *options.memory_words,
            *options.wanted_switch.words,
            *options.scheduling_words,
        )
        return ", ".join(("bare host", *words))

    def stated(self, options: BareOptions) -> Statement:
        """Return the statement about the bare host, without testing anything on this host."""
        unlimited = options.memory_limit == "none"
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                knobs=LINUX_KNOBS,
                disk=frozenset({"mounted"}),
                own_cache=not unlimited,
                no_own_cache=NOT_WANTED if unlimited else "",
                toolbox=frozenset({"tree"}),
                reaches_out=True,
                notes=(
                    "a control group limits the processes of disk workloads to the shape's memory, "
                    "page cache included; other workloads may use all of the host's memory",
                    "a machine that is not pinned uses the least busy CPUs, one for each vCPU",
                ),
            ),
            kernel="the host's own",
            channel="pipes of the agent's process",
            confirmed="hardware",
            host_boot=NO_HYPERVISOR,
            is_host=True,
            network=NetworkWays(
                rooted=frozenset({"bridge", "loopback"}), unprivileged=frozenset({"loopback"})
            ),
            boot_s=0.1,
            emulated_boot_s=3.0,
        )

    def writes(self, options: BareOptions) -> tuple[Write, ...]:
        """Return the objects that an agent creates on the bare host."""
        return PROCESS_MACHINE

    async def check(self, context: Context, options: BareOptions) -> Verdict:
        """Run the agent once, and report what the bare host cannot do."""
        versions: dict[str, str] = {}
        agent = str(context.host_agent)
        try:
            versions["linux"] = await kernel_release(context.host)
            proof = await context.host.run([agent, "proof"], timeout_s=CHECK_S)
            fifo = await context.host.run(
                [agent, "exec", "--fifo", "1", "--", agent, "version"], timeout_s=CHECK_S
            )
        except TareError as error:
            nothing = Capabilities(pinning=False, max_vcpus=0, min_memory=MIN_MEMORY)
            sure = isinstance(error, InputError)
            return Verdict(False, error.message, error.hint, False, versions, nothing, sure)
        knobs, missing = await linux_knobs(context)
        best = self.stated(options).capabilities
        no_own_cache = best.no_own_cache or await lacks_memory_groups(context.host)
        capabilities = replace(
            best,
            knobs=knobs,
            missing_knobs=missing,
            max_vcpus=len(context.host.topology().machines),
            own_cache=not no_own_cache,
            no_own_cache=no_own_cache,
            notes=(
                *best.notes,
                *([] if fifo.ok else [f"{NO_FIFO} ({fifo.words()})"]),
                *([f"here they are not: {no_own_cache}"] if no_own_cache else []),
            ),
        )
        if no_own_cache and options.memory_limit == "shape":
            reason = f"memory cannot be kept to the shape: {no_own_cache}"
            hint = "write `memory-limit: auto` to measure without that limit; the report notes it"
            return Verdict(False, reason, hint, False, versions, capabilities)
        if not proof.ok:
            hint = heard(f"try it: {agent} proof", "it", proof.words())
            return Verdict(
                False, "the agent does not run here", hint, False, versions, capabilities
            )
        runs_as = await as_tare(context.host, NEEDS_ROOT)
        reason = "the agent runs here"
        if no_own_cache and options.memory_limit == "auto":
            reason += f", but is not kept to a study's memory: {no_own_cache}"
        return Verdict(True, reason, "", False, versions, capabilities, runs_as=runs_as)

    async def prepare(
        self, context: Context, options: BareOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return the running kernel; nothing has to be built."""
        await require_room(context.host, shape.disk)
        release = await kernel_release(context.host)
        return Prepared(kernel=release, digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: BareOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start the agent on as many CPUs as the machine has vCPUs."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            wanted = own_policy(options.scheduling_of(spec.role))
            disk = await held.enter_async_context(mounted_disk(context, spec))
            scheduled = Scheduled(context, spec.name, wanted)
            await scheduled.hold(held, realtime=spec.realtime)
            tools = await tree_environment(context, spec, held)
            link, around = await _joined(spec)
            kept, given = await _kept(context, options, spec, scheduled, held)
            log = spec.workdir / CONSOLE
            shared = spec.within or context.host.topology().roaming
            cpus = granted_cpus(shared, context.ledger, spec.cpus, spec.shape.vcpus)
            process = await start_owned(
                context.host,
                context.ledger,
                [
                    *_group_prefix(context, kept),
                    *scheduled.around([*around, str(context.host_agent), "serve"], threads=True),
                ],
                log=log,
                env={
                    **scheduled.environment,
                    **disk_variable(disk),
                    **tools,
                    **({} if link is None else link.variable),
                },
                cpus=cpus,
            )

            async def members() -> tuple[int, ...]:
                return (process.pid,)

            async def cost() -> dict[str, float]:
                if kept is not None:
                    return await kept.cost()
                return await tree_cost(context.host, process.pid)

            async def prove() -> Mapping[str, Any]:
                threads = await threads_of(context.host, [process.pid])
                proof = await scheduled.prove(tuple(threads), process.pid)
                if kept is not None:
                    await require_member(context.host, kept.folder, process.pid)
                return {**proof, **given}

            async def explain(code: int) -> str:
                return await _explain(code, kept)

            return ProcessMachine(
                spec.name,
                process,
                log,
                host=context.host,
                members=members,
                cost=cost,
                explain=explain,
                held=held.pop_all(),
                prove=prove,
                disk=disk,
                cpus=cpus,
            )


async def _joined(spec: MachineSpec) -> tuple[Link | None, list[str]]:
    """Return how the agent is connected, and the command prefix that connects it."""
    if spec.network is None:
        return None, []
    if not spec.own_address:
        return await spec.network.here(spec.name), []
    link = await spec.network.namespace(spec.name)
    # `ip netns exec` mounts a separate /sys, which shows the agent its namespace's interfaces.
    return link, ["ip", "netns", "exec", link.interface]


async def _kept(
    context: Context,
    options: BareOptions,
    spec: MachineSpec,
    scheduled: Scheduled,
    held: AsyncExitStack,
) -> tuple[MemoryGroup | None, dict[str, Any]]:
    """Make the control group that limits the machine's memory, if the machine needs one.

    Returns:
        The group (None without a limit), and the record of the machine's memory limit.
    """
    must = spec.keeps_memory or options.memory_limit == "shape"
    if not must and not spec.uses_disk:
        return None, {}
    if not must:
        none = options.memory_limit == "none"
        if reason := NOT_WANTED if none else await lacks_memory_groups(context.host):
            return None, {"memory": {"kept_to": None, "reason": reason}}
    group = await held.enter_async_context(
        memory_group(
            context.host, context.ledger, spec.name, spec.shape.memory, own=scheduled.group
        )
    )
    return group, {"memory": group.record}


def _group_prefix(context: Context, kept: MemoryGroup | None) -> list[str]:
    """Return the command prefix that starts a program in the group; empty without a group."""
    if kept is None:
        return []
    return [str(context.host_agent), "exec", "--cgroup", str(kept.folder), "--"]


async def _explain(code: int, kept: MemoryGroup | None) -> str:
    if code == -signal.SIGKILL and kept is not None and (exhausted := await kept.exhausted()):
        return f"the kernel killed the agent on the bare host: {exhausted}"
    if code < 0:
        return f"the agent on the bare host was killed by signal {-code}"
    return f"the agent on the bare host ended unexpectedly with status {code}"
