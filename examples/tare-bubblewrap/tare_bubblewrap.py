"""Tare's agent in a bubblewrap: a process with namespaces of its own, and nothing of the host's."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from tare.errors import TareError, heard
from tare.hosts import start_owned
from tare.hosts.granted_cpus import granted_cpus
from tare.platforms.contract import (
    NO_HYPERVISOR,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    PlatformOptions,
    Prepared,
    Shape,
    Statement,
    Verdict,
)
from tare.platforms.linux.process_cost import tree_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    ProcessMachine,
    children_of,
    kernel_release,
    owned_directory,
)
from tare.platforms.linux.toolbox import tree_at_host

AGENT = "/run/tare-agent"
CHECK_S = 20.0


class BubblewrapOptions(PlatformOptions):
    """How bubblewraps are made."""

    namespaces: tuple[Literal["cgroup", "ipc", "net", "uts"], ...] = Field(
        default=("cgroup", "ipc", "net", "uts"),
        description="The namespaces that it has in addition to those of processes and mounts.",
    )


class Bubblewrap(Platform[BubblewrapOptions]):
    """A process in namespaces of its own, by bubblewrap."""

    name = "bubblewrap"
    options = BubblewrapOptions

    def describe(self, options: BubblewrapOptions) -> str:
        """Return what reports call it."""
        return f"bubblewrap ({', '.join(options.namespaces) or 'few namespaces'})"

    def stated(self, options: BubblewrapOptions) -> Statement:
        """Return what it offers: the toolbox, but no disk, no network and no scheduler knobs."""
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=16 << 20,
                toolbox=frozenset({"tree"}),
                notes=("memory is not limited to the shape",),
            ),
            kernel="the host's own",
            channel="pipes of the agent's process",
            needs=("bwrap (package bubblewrap)", "root"),
            host_boot=NO_HYPERVISOR,
            boot_s=0.2,
        )

    async def check(self, context: Context, options: BubblewrapOptions) -> Verdict:
        """Run the agent in a bubblewrap, and remember bubblewrap's own words if it does not."""
        capabilities = replace(
            self.stated(options).capabilities, max_vcpus=len(context.host.topology().online)
        )
        tried = [*bubblewrap(options, str(context.host_agent)), AGENT, "proof"]
        try:
            version = await context.host.run(["bwrap", "--version"], timeout_s=CHECK_S)
            ran = await context.host.run(tried, timeout_s=CHECK_S)
        except TareError as error:
            hint = "apt-get install --no-remove bubblewrap"
            return Verdict(False, error.message, hint, False, {}, capabilities)
        versions = {
            "bubblewrap": version.words().removeprefix("bubblewrap "),
            "linux": await kernel_release(context.host),
        }
        if not ran.ok:
            reason = "no bubblewrap can be made here"
            hint = heard("run as root", "bubblewrap", ran.words())
            return Verdict(False, reason, hint, False, versions, capabilities)
        return Verdict(True, "the agent ran in one", "", False, versions, capabilities)

    async def prepare(
        self, context: Context, options: BubblewrapOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return the running kernel; nothing has to be built."""
        release = await kernel_release(context.host)
        return Prepared(kernel=release, digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: BubblewrapOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start the agent in a bubblewrap, on as many CPUs as the machine has vCPUs."""
        host, ledger = context.host, context.ledger
        async with AsyncExitStack() as held:
            await held.enter_async_context(owned_directory(host, ledger, spec.workdir))
            tree = await tree_at_host(context, spec, held)
            wrapped = bubblewrap(options, str(context.host_agent), tree)
            log = spec.workdir / CONSOLE
            cpus = granted_cpus(host.topology().online, ledger, spec.cpus, spec.shape.vcpus)
            process = await start_owned(
                host, ledger, [*wrapped, AGENT, "serve"], log=log, cpus=cpus
            )

            async def members() -> tuple[int, ...]:
                return (process.pid, *await children_of(host, process.pid))

            async def cost() -> dict[str, float]:
                return await tree_cost(host, process.pid)

            return ProcessMachine(
                spec.name,
                process,
                log,
                host=host,
                members=members,
                cost=cost,
                explain=explain,
                held=held.pop_all(),
                cpus=cpus,
            )


def bubblewrap(options: BubblewrapOptions, agent: str, root: Path | None = None) -> list[str]:
    """Return what comes before a command that is to run in a bubblewrap; see bwrap(1).

    Args:
        options: How it is made.
        agent: The agent's file on the host; inside it is :data:`AGENT`.
        root: A directory of the host that is the root inside, read-only; None: an empty one.
    """
    return [
        "bwrap",
        "--die-with-parent",
        # The agent itself is the first process inside, so that its end is the machine's.
        "--as-pid-1",
        *("--unshare-pid", *(f"--unshare-{kind}" for kind in options.namespaces)),
        *(["--ro-bind", str(root), "/"] if root else []),
        *("--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys"),
        *("--tmpfs", "/tmp", "--tmpfs", "/run", "--ro-bind", agent, AGENT),
    ]


async def explain(code: int) -> str:
    """Say why a bubblewrap ended, from its exit status."""
    if code < 0:
        return f"bwrap, which holds the agent, was killed by signal {-code}"
    # As a shell does: bwrap adds 128 to the signal that ended what it ran.
    return f"the agent in the bubblewrap ended with status {code}"
