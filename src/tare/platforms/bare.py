"""The bare host: the agent as an ordinary process, which everything else is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from tare.errors import TareError
from tare.hosts import OwnedProcess, start_owned
from tare.hosts.base import Host
from tare.hosts.grants import granted_cpus
from tare.hosts.processes import stat_fields
from tare.hosts.threads import threads_of
from tare.platforms.base import (
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    PlatformOptions,
    Prepared,
    Shape,
    Statement,
    Verdict,
)
from tare.platforms.disk import disk_variable, mounted_disk, require_room
from tare.platforms.linux_scheduling import LinuxOptions, own_policy
from tare.platforms.process_machine import (
    CONSOLE,
    ProcessMachine,
    kernel_release,
    owned_directory,
)
from tare.platforms.scheduled import LINUX_KNOBS, Scheduled, linux_knobs
from tare.platforms.toolbox import tree_environment

CHECK_S = 20.0
MIN_MEMORY = 16 << 20
NO_FIFO = "real-time work runs under the ordinary policy, because SCHED_FIFO is refused here"


class BareOptions(LinuxOptions):
    """How the bare host schedules what runs on it."""


class Bare:
    """The host itself, without any hypervisor in between."""

    name = "bare"
    options: type[PlatformOptions] = BareOptions

    def emulated(self, options: Any) -> bool:
        """Return False: this is the hardware, or what the host takes for it."""
        return False

    def boot_of(self, options: Any) -> str:
        """Return ``none``: no hypervisor may lie below."""
        return "none"

    def describe(self, options: Any) -> str:
        """Return what reports call it."""
        return ", ".join(("bare host", *options.scheduling_words))

    def stated(self, options: Any) -> Statement:
        """Return what the bare host offers; nothing is tried for it."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                knobs=LINUX_KNOBS,
                notes=(
                    "memory is not limited to the shape: the bare host's processes share all of it",
                    "a machine that is not pinned keeps to the least used CPUs, as many as it "
                    "has vCPUs",
                ),
            ),
            kernel="the host's own",
            channel="pipes of the agent's process",
        )

    async def check(self, context: Context, options: Any) -> Verdict:
        """Run the agent once, and tell what the bare host cannot do."""
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
            return Verdict(False, error.message, error.hint, False, versions, nothing)
        knobs, missing = await linux_knobs(context)
        best = self.stated(options).capabilities
        capabilities = replace(
            best,
            knobs=knobs,
            missing_knobs=missing,
            max_vcpus=len(context.host.topology().online),
            notes=best.notes if fifo.ok else (*best.notes, f"{NO_FIFO} ({fifo.words()})"),
        )
        if not proof.ok:
            reason = f"the agent does not run here: {proof.words()}"
            return Verdict(False, reason, f"{agent} proof", False, versions, capabilities)
        return Verdict(True, "the agent runs here", "", False, versions, capabilities)

    async def prepare(
        self, context: Context, options: Any, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return the running kernel; nothing has to be built."""
        await require_room(context.host, shape.disk)
        release = await kernel_release(context.host)
        return Prepared(kernel=release, digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: Any, prepared: Prepared, spec: MachineSpec
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
            link = None if spec.network is None else await spec.network.here(spec.name)
            log = spec.workdir / CONSOLE
            process = await start_owned(
                context.host,
                context.ledger,
                scheduled.around([str(context.host_agent), "serve"], threads=True),
                log=log,
                env={
                    **scheduled.environment,
                    **disk_variable(disk),
                    **tools,
                    **({} if link is None else link.variable),
                },
                cpus=granted_cpus(
                    context.host.topology().online, context.ledger, spec.cpus, spec.shape.vcpus
                ),
            )

            async def members() -> tuple[int, ...]:
                return (process.pid,)

            async def cost() -> dict[str, float]:
                return await process_cost(context.host, process)

            async def prove() -> Mapping[str, Any]:
                threads = await threads_of(context.host, [process.pid])
                return await scheduled.prove(tuple(threads), process.pid)

            return ProcessMachine(
                spec.name,
                process,
                log,
                host=context.host,
                members=members,
                cost=cost,
                explain=_explain,
                held=held.pop_all(),
                prove=prove,
                disk=disk,
            )


async def _explain(code: int) -> str:
    if code < 0:
        return f"the agent on the bare host was killed by signal {-code}"
    return f"the agent on the bare host ended by itself with status {code}"


async def process_cost(host: Host, process: OwnedProcess) -> dict[str, float]:
    """Return a process's CPU seconds (with those of reaped children) and resident bytes.

    Fields 14 to 17 (clock ticks) and 24 (pages) of ``/proc/PID/stat``, proc(5).
    """
    stat = await host.read(f"/proc/{process.pid}/stat")
    fields = stat_fields(stat)
    ticks = sum(int(field) for field in fields[11:15])
    return {
        "cpu_s": ticks / os.sysconf("SC_CLK_TCK"),
        "rss_bytes": float(int(fields[21]) * os.sysconf("SC_PAGE_SIZE")),
    }
