"""Containers: the agent in its own namespaces and control groups, run by an OCI runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from tare.errors import InputError, heard
from tare.hosts import start_owned
from tare.hosts.contract import Host
from tare.hosts.granted_cpus import granted_cpus
from tare.hosts.programs import install_command_for
from tare.hosts.trace.threads import threads_of
from tare.platforms.contract import (
    NO_HYPERVISOR,
    Capabilities,
    Context,
    HostAccess,
    Machine,
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
from tare.platforms.linux.cgroups import (
    CgroupMounts,
    cgroup_cost,
    cgroup_members,
    cgroup_mounts,
    limits_swap,
    oom_kills,
    realtime_share,
)
from tare.platforms.linux.cpu_groups import container_resources, values_for, version_of
from tare.platforms.linux.disk import INSIDE, disk_variable, mounted_disk, require_room
from tare.platforms.linux.process_machine import (
    CONSOLE,
    KILLED,
    ProcessMachine,
    kernel_release,
    owned_directory,
)
from tare.platforms.linux.scheduling import LINUX_KNOBS, Scheduled, linux_knobs, own_policy
from tare.platforms.linux.toolbox import tree_at_host
from tare.platforms.linux.writes import FOLDER, PROCESS_MACHINE
from tare.platforms.oci import kata, rootless
from tare.platforms.oci.bundle import AGENT_INSIDE, ContainerSpec, Device
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.runtime import (
    AUTOMATIC,
    TRIAL_S,
    Runtime,
    RuntimeName,
    Trial,
    owned_container,
    root_file_system,
    try_runtimes,
    undo_container,
)
from tare.platforms.oci.seccomp import runs_as
from tare.programs import RUNTIMES

MIN_MEMORY = 16 << 20
RUNS_AS_ROOT = (
    "root, which control groups and networks need; inside with CAP_IPC_LOCK and CAP_SYS_NICE "
    "alone, for locked memory and real-time priority"
)
IDLE_DEVICE = "/dev/cpu_dma_latency"

SANDBOX_LACKS = frozenset({"policy", "fifo", "nice", "slice"})
"""Knobs without effect under gVisor, which schedules threads itself, not by the host's kernel."""

SANDBOX_NOTES = ("it has its own clock, which is compared with the host's like a guest's",)
SANDBOX_NO_DISK = (
    "gVisor reads and writes files through the host's page cache even with direct I/O, so a cache "
    "would be measured"
)
SANDBOX_NO_NETWORK = (
    "gVisor of Debian 12 takes no network namespace on a kernel that shows net.core.rmem_default "
    "in each, and Tare was tried with no newer one"
)


class Oci(Platform[OciOptions]):
    """Containers through an OCI runtime."""

    name = "oci"
    known_as: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("container", "docker", "podman", "containerd", "runc"), ""),
        "crun": "runtime: crun",
        **dict.fromkeys(("runsc", "gvisor"), "runtime: runsc"),
        **dict.fromkeys(("kata", "kata-containers"), "runtime: kata"),
    }
    options = OciOptions
    variants = (
        *(Variant(name, {"runtime": name}) for name in ("crun", "runc", "runsc", "kata")),
        Variant("rootless", {"rootless": True}),
    )
    undoers = MappingProxyType(
        {"container": undo_container, kata.KataContainer.kind: undo_resource(kata.container_of)}
    )

    def describe(self, options: OciOptions) -> str:
        """Return the name that reports use for the arm."""
        runtime = "container" if options.runtime == "auto" else f"container ({options.runtime})"
        if options.runtime == "kata":
            runtime = "container in a virtual machine (Kata)"
        filtering = () if options.seccomp == "none" else (f"seccomp as {options.seccomp}",)
        kind = ("without root",) if options.rootless else ()
        words = (*kind, *filtering, *options.wanted_switch.words, *options.scheduling_words)
        return ", ".join((runtime, *words))

    def stated(self, options: OciOptions) -> Statement:
        """Return the statement about containers, without testing anything on this host."""
        if options.rootless:
            return _stated_rootless(options)
        if options.runtime == "kata":
            return kata.stated()
        sandboxed = options.runtime == "runsc"
        return Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                knobs=LINUX_KNOBS - SANDBOX_LACKS if sandboxed else LINUX_KNOBS,
                no_network=SANDBOX_NO_NETWORK if sandboxed else "",
                disk=frozenset() if sandboxed else frozenset({"mounted"}),
                no_disk=SANDBOX_NO_DISK if sandboxed else "",
                toolbox=frozenset({"tree"}),
                notes=(
                    "a container that is not pinned uses the least busy CPUs, one for each vCPU",
                    *(SANDBOX_NOTES if sandboxed else ()),
                ),
            ),
            kernel="gVisor's, on the host's own" if sandboxed else "the host's own",
            channel="pipes of the container's first process",
            confirmed="hardware",
            host_boot=NO_HYPERVISOR,
            network=NetworkWays() if sandboxed else NetworkWays(rooted=frozenset({"veth"})),
            boot_s=0.4,
            needs=("crun or runc" if options.runtime == "auto" else options.runtime, "root"),
        )

    def writes(self, options: OciOptions) -> tuple[Write, ...]:
        """Return the objects that containers create on their host."""
        if options.runtime == "kata":
            ctr = f"ctr --namespace {kata.NAMESPACE}"
            run, gone = f"{ctr} run --rm --config …", f"{ctr} containers delete tare-…"
            return (*PROCESS_MACHINE, Write(kata.KataContainer.kind, f"{run} tare-…", gone))
        name = "crun or runc" if options.runtime == "auto" else options.runtime
        made = Write(
            "container",
            f"{name} --root FOLDER/state run --bundle FOLDER/bundle tare-…",
            f"{name} --root FOLDER/state delete --force tare-…",
            FOLDER.where,
        )
        return (*PROCESS_MACHINE, made)

    def host_access(self, options: OciOptions) -> tuple[HostAccess, ...]:
        """Return Kata's configuration, which names programs that run as root."""
        if options.kata_config is None:
            return ()
        effect = "runs the programs that this configuration of Kata's names, as root"
        return (HostAccess("kata-config", options.kata_config, effect),)

    async def check(self, context: Context, options: OciOptions) -> Verdict:
        """Run a trivial container; if that fails, the verdict quotes the runtime."""
        if options.runtime == "kata":
            return await kata.check(context, options)
        trials = await _tried(context, options)
        versions = {trial.runtime.name: trial.version for trial in trials if trial.version}
        versions["linux"] = await kernel_release(context.host)
        refusals = "; ".join(_refusal(trial) for trial in trials if not trial.usable)
        chosen = trials[-1]
        knobs, missing = await _knobs(context, chosen.runtime, options)
        refused = ""
        if options.rootless and chosen.usable:
            refused = await rootless.no_realtime(context, chosen.runtime)
        capabilities = replace(
            self.stated(options).capabilities,
            knobs=knobs,
            missing_knobs=missing,
            no_realtime=refused,
            max_vcpus=len(context.host.topology().machines),
        )
        if not chosen.usable:
            hint = await _hint(context.host, trials, options)
            sure = all(trial.sure for trial in trials)
            return Verdict(False, refusals, hint, False, versions, capabilities, lasting=sure)
        reason = f"{chosen.runtime.name} {chosen.version} ran a container"
        if chosen.runtime.program:
            reason += f" (as {chosen.runtime.program})"
        if options.rootless:
            reason += " without root"
        if refusals:
            reason += f" ({refusals})"
        runs_as = RUNS_AS_ROOT
        if options.rootless:
            runs_as = await rootless.runs_as_whom(context.host)
        return Verdict(True, reason, "", False, versions, capabilities, runs_as=runs_as)

    async def prepare(
        self, context: Context, options: OciOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Choose the runtime and make the root file system.

        Raises:
            InputError: No runtime works here any longer.
        """
        if options.runtime == "kata":
            return await kata.prepare(context, options)
        began = time.monotonic()
        await require_room(context.host, shape.disk)
        trials = await _tried(context, options)
        if not trials[-1].usable:
            hint = await _hint(context.host, trials, options)
            raise InputError("; ".join(map(_refusal, trials)), hint)
        root = await root_file_system(context)
        return Prepared(
            kernel=await kernel_release(context.host),
            digest=root.name,
            cached=True,
            took_s=time.monotonic() - began,
            extra={"runtime": trials[-1].runtime},
        )

    async def start(
        self, context: Context, options: OciOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start a container that runs only the agent."""
        if options.runtime == "kata":
            return await kata.start_kata(context, prepared, spec)
        runtime: Runtime = prepared.extra["runtime"]
        if options.rootless:
            return await rootless.start_rootless(
                context,
                runtime,
                spec,
                seccomp=options.seccomp,
                scheduling=options.scheduling_of(spec.role),
            )
        host, ledger = context.host, context.ledger
        mounts = await cgroup_mounts(host)
        async with AsyncExitStack() as held:
            await held.enter_async_context(owned_directory(host, ledger, spec.workdir))
            disk = await held.enter_async_context(mounted_disk(context, spec))
            scheduled = Scheduled(context, spec.name, own_policy(options.scheduling_of(spec.role)))
            throttled = await scheduled.hold(held, realtime=spec.realtime, group=False)
            cpu, unified = container_resources(scheduled.wanted, version_of(mounts))
            tree = await tree_at_host(context, spec, held)
            link = None if spec.network is None else await spec.network.namespace(spec.name)
            variables = {} if link is None else link.variable
            container = ContainerSpec(
                name=spec.name,
                toolbox=None if tree is None else str(tree),
                root=str(await root_file_system(context)),
                cpus=granted_cpus(
                    spec.within or host.topology().roaming, ledger, spec.cpus, spec.shape.vcpus
                ),
                memory=spec.shape.memory,
                swap_limit=await limits_swap(host, mounts),
                realtime=await realtime_share(host, mounts, throttled),
                devices=await _devices(host),
                cpu=cpu,
                unified=unified,
                args=scheduled.inside((AGENT_INSIDE, "serve")),
                env=tuple(
                    {**scheduled.environment, **disk_variable(disk, INSIDE), **variables}.items()
                ),
                netns="" if link is None else f"/run/netns/{link.interface}",
                scratch=None if disk is None else str(disk.path),
                seccomp=options.seccomp,
            )
            command = await held.enter_async_context(
                owned_container(context, runtime, mounts, container, spec.workdir)
            )
            log = spec.workdir / CONSOLE
            process = await start_owned(host, ledger, command, log=log)

            async def members() -> tuple[int, ...]:
                return await cgroup_members(host, mounts, spec.name)

            async def prove() -> Mapping[str, Any]:
                pids = await members()
                values = values_for(scheduled.wanted, version_of(mounts))
                if values and (folder := mounts.of("cpu", spec.name)) is not None:
                    scheduled.adopt(folder, values)
                proven = await scheduled.prove(tuple(await threads_of(host, pids)), pids[0])
                who = await runs_as(host, spec.name, pids[0], options.seccomp)
                return {**proven, "memory": {"kept_to": spec.shape.memory}, "runs_as": who}

            async def cost() -> dict[str, float]:
                return await cgroup_cost(host, mounts, spec.name)

            async def explain(code: int) -> str:
                return await _explain(host, mounts, runtime, spec, code)

            async def force() -> None:
                state = spec.workdir / "state"
                await host.run(runtime.command(state, "kill", spec.name, "KILL"), timeout_s=TRIAL_S)

            return ProcessMachine(
                spec.name,
                process,
                log,
                host=host,
                members=members,
                cost=cost,
                explain=explain,
                held=held.pop_all(),
                force=force,
                prove=prove,
                disk=disk,
                shares_clock=options.runtime != "runsc",
                cpus=container.cpus,
            )


async def _tried(context: Context, options: OciOptions) -> tuple[Trial, ...]:
    if options.rootless:
        return await try_runtimes(context, _wanted(options), rootless.trivial, rootless.FLAGS)
    return await try_runtimes(context, _wanted(options))


def _stated_rootless(options: OciOptions) -> Statement:
    runtime = "crun or runc" if options.runtime == "auto" else options.runtime
    return Statement(
        capabilities=Capabilities(
            pinning=True,
            max_vcpus=0,
            min_memory=MIN_MEMORY,
            missing_knobs=rootless.MISSING_KNOBS,
            no_realtime=rootless.NO_REALTIME,
            notes=rootless.NOTES,
        ),
        kernel="the host's own",
        channel="pipes of the container's first process",
        confirmed="hardware",
        host_boot=NO_HYPERVISOR,
        network=NetworkWays(),
        boot_s=0.4,
        needs=(runtime, "user namespaces for ordinary users"),
    )


async def _knobs(
    context: Context, runtime: Runtime, options: OciOptions
) -> tuple[frozenset[str], dict[str, str]]:
    if options.rootless:
        return frozenset(), dict(rootless.MISSING_KNOBS)
    knobs, missing = await linux_knobs(context)
    if runtime.name != "runsc":
        return knobs, missing
    inside = "gVisor schedules threads by itself: the host's kernel never hears of it"
    lost = knobs & SANDBOX_LACKS
    return knobs - lost, {**missing, **dict.fromkeys(lost, inside)}


def _wanted(options: OciOptions) -> tuple[RuntimeName, ...]:
    if options.runtime == "auto":
        return AUTOMATIC
    assert options.runtime != "kata"
    return (options.runtime,)


def _refusal(trial: Trial) -> str:
    if not trial.version:
        return trial.words
    return f"{trial.runtime.name} {trial.version} does not run a container here"


async def _hint(host: Host, trials: tuple[Trial, ...], options: OciOptions) -> str:
    tried = all(trial.version for trial in trials)
    # If a runtime's error is about control groups, the user's rights are not the problem.
    groups = any("cgroup" in trial.words for trial in trials)
    own = options.rootless and tried and not groups
    hint = rootless.HINT if own else await _todo(host, trials)
    for trial in trials:
        if trial.version and trial.words:
            hint = heard(hint, trial.runtime.name, trial.words.strip().splitlines()[-1])
    return hint


async def _todo(host: Host, trials: tuple[Trial, ...]) -> str:
    missing = [trial.runtime.name for trial in trials if not trial.version]
    if missing:
        return await install_command_for(host, RUNTIMES[missing[-1]])
    if any(trial.runtime.name == "crun" for trial in trials):
        return await install_command_for(host, RUNTIMES["runc"])
    return f"{trials[-1].runtime.called} --version && mount -t cgroup,cgroup2"


async def _devices(host: Host) -> tuple[Device, ...]:
    asked = await host.run(["stat", "-c", "%t %T", IDLE_DEVICE], timeout_s=TRIAL_S)
    if not asked.ok:
        return ()
    major, minor = (int(number, 16) for number in asked.stdout.split())
    return (Device(IDLE_DEVICE, major, minor),)


async def _explain(
    host: Host, mounts: CgroupMounts, runtime: Runtime, spec: MachineSpec, code: int
) -> str:
    megabytes = spec.shape.memory >> 20
    try:
        out_of_memory = await oom_kills(host, mounts, spec.name) > 0
    except (OSError, ValueError):
        out_of_memory = False
    if out_of_memory:
        return f"the kernel killed the container: it needed more than its {megabytes} MiB"
    if code == KILLED:
        return "the container's agent was killed (SIGKILL); it is not known by whom"
    if code < 0:
        return f"{runtime.name}, which runs the container, was killed by signal {-code}"
    return f"the container ended unexpectedly: {runtime.name} returned {code}"
