"""Containers without root: run by an ordinary user who is root in a separate user namespace.

The runtime itself has no rights either. So there are no control groups, networks or disks, which
only root could make. If Tare is root, each container gets an otherwise unused user id.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.hosts import start_owned
from tare.hosts.granted_cpus import granted_cpus
from tare.plaintext import plain_line
from tare.platforms.linux.process_cost import tree_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    KILLED,
    ProcessMachine,
    children_of,
    owned_directory,
    temporary_folder,
)
from tare.platforms.linux.rights import uid_of
from tare.platforms.linux.scheduling import LINUX_KNOBS, Scheduled, own_policy
from tare.platforms.oci.bundle import AGENT_INSIDE, ContainerSpec, configuration
from tare.platforms.oci.runtime import (
    TRIAL_MEMORY,
    TRIAL_S,
    Runtime,
    RuntimeName,
    laid_out,
    noted_container,
)
from tare.platforms.oci.seccomp import runs_as

if TYPE_CHECKING:
    from tare.hosts.contract import Completed, Host
    from tare.platforms.contract import Context, MachineSpec
    from tare.platforms.oci.seccomp import SeccompName
    from tare.platforms.scheduling import Scheduling

FLAGS: Mapping[RuntimeName, tuple[str, ...]] = {
    "crun": ("--cgroup-manager=disabled",),
    "runc": ("--rootless=true",),
}
NOTES = (
    "memory is not limited to the shape: that needs a control group, and so root",
    "a container is kept on its CPUs by affinity, which its processes may change",
    "without root there is no network, no disk of its own and no toolbox",
)
NO_KNOB = "a container without root has no control group, and may not raise its own priority"
MISSING_KNOBS = dict.fromkeys(sorted(LINUX_KNOBS), NO_KNOB)
NO_REALTIME = "its user may not have it (RLIMIT_RTPRIO, `ulimit -r`, is 0)"
HINT = "unshare --user --map-root-user true"
_FIFO = (AGENT_INSIDE, "exec", "--policy", "fifo", "--priority", "1", "--", AGENT_INSIDE, "version")
_FIRST_UID = 1_920_000_000
"""User ids above those of distributions and systemd, and different from those for QEMU."""
_UIDS = 1 << 24


@dataclass(frozen=True)
class User:
    """The user that runs a container, and is root in it.

    Args:
        uid: The user's and the group's id on the host.
        own: Whether the user exists only for the container; otherwise it is Tare's own.
    """

    uid: int
    own: bool

    def around(self, argv: list[str], cpus: tuple[int, ...], state: Path) -> list[str]:
        """Return the command that runs ``argv`` as that user on some CPUs.

        Args:
            argv: The runtime's command.
            cpus: The host CPUs that it may use.
            state: A folder that belongs to that user.
        """
        given = ["env", f"XDG_RUNTIME_DIR={state}", "taskset", "-c", ",".join(map(str, cpus))]
        if not self.own:
            return [*given, *argv]
        who = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return ["setpriv", *who, "--no-new-privs", "--pdeathsig=keep", *given, *argv]


async def user_of(host: Host) -> User:
    """Return the user that is to run a container on a host."""
    uid = await uid_of(host)
    return User(uid, False) if uid else User(_FIRST_UID + secrets.randbelow(_UIDS), True)


async def runs_as_whom(host: Host) -> str:
    """Describe with whose rights such containers run on a host, and why."""
    inside = "root in a user namespace of its own and nowhere else"
    uid = await uid_of(host)
    if uid:
        return f"user {uid}, as Tare itself; {inside}"
    return f"a user of its own (from {_FIRST_UID} up), as nothing in it needs root; {inside}"


@asynccontextmanager
async def owned_rootless(
    context: Context, runtime: Runtime, spec: ContainerSpec
) -> AsyncIterator[tuple[list[str], Path]]:
    """Record a container in the ledger and write its bundle; remove both at the end.

    Args:
        context: The host on which it runs, and Tare's state there.
        runtime: The runtime that runs it.
        spec: Its specification, without root file system and user.

    Yields:
        The command that runs it in the foreground, and the folder of the runtime's state.

    Raises:
        MachineFault: Its folder cannot be made.
    """
    host, user = context.host, await user_of(context.host)
    # A separate folder, because the user cannot enter root's folders.
    folder = temporary_folder(host) / f"{spec.name}-{secrets.token_hex(4)}"
    bundle, state = folder / "bundle", folder / "state"
    async with owned_directory(host, context.ledger, folder):
        await laid_out(host, folder / "root", context.host_agent)
        made = await host.run(["mkdir", str(bundle), str(state)], timeout_s=TRIAL_S)
        if not made.ok:
            raise MachineFault(f"{spec.name}: {made.words()}")
        whole = replace(spec, root=str(folder / "root"), user=user.uid)
        text = json.dumps(configuration(whole), indent=1)
        await host.write(bundle / "config.json", text.encode())
        if user.own:
            owner = f"{user.uid}:{user.uid}"
            given = await host.run(["chown", "-R", owner, str(folder)], timeout_s=TRIAL_S)
            if not given.ok:
                raise MachineFault(f"{spec.name}: {given.words()}")
        async with noted_container(context, runtime, spec, state):
            command = runtime.run_command(state, bundle, spec.name)
            yield user.around(command, spec.cpus, state), state


def _trial_spec(context: Context, args: tuple[str, ...]) -> ContainerSpec:
    name = f"tare-trial-{secrets.token_hex(4)}"
    cpus = context.host.topology().online[:1]
    return ContainerSpec(name=name, root="", cpus=cpus, memory=TRIAL_MEMORY, args=args)


async def trivial(
    context: Context, runtime: Runtime, args: tuple[str, ...] = (AGENT_INSIDE, "proof")
) -> Completed:
    """Run a container without root to its end, and return its outcome."""
    async with owned_rootless(context, runtime, _trial_spec(context, args)) as (command, _):
        return await context.host.run(command, timeout_s=TRIAL_S)


async def no_realtime(context: Context, runtime: Runtime) -> str:
    """Return why nothing in such a container may have real-time priority; empty: it may."""
    return "" if (await trivial(context, runtime, _FIFO)).ok else NO_REALTIME


async def start_rootless(
    context: Context,
    runtime: Runtime,
    spec: MachineSpec,
    *,
    seccomp: SeccompName,
    scheduling: Scheduling,
) -> ProcessMachine:
    """Start a container without root that runs only the agent.

    Args:
        context: The host, and Tare's state there.
        runtime: The runtime that runs it.
        spec: Its name, size and CPUs.
        seccomp: The profile of refused system calls.
        scheduling: The requested scheduling, which contains nothing that needs rights.

    Raises:
        MachineFault: The container cannot be started.
    """
    host, ledger = context.host, context.ledger
    async with AsyncExitStack() as held:
        await held.enter_async_context(owned_directory(host, ledger, spec.workdir))
        scheduled = Scheduled(context, spec.name, own_policy(scheduling))
        await scheduled.hold(held, realtime=spec.realtime, group=False)
        container = ContainerSpec(
            name=spec.name,
            root="",
            cpus=granted_cpus(
                spec.within or host.topology().roaming, ledger, spec.cpus, spec.shape.vcpus
            ),
            memory=spec.shape.memory,
            env=tuple(scheduled.environment.items()),
            seccomp=seccomp,
        )
        making = owned_rootless(context, runtime, container)
        command, state = await held.enter_async_context(making)
        log = spec.workdir / CONSOLE
        process = await start_owned(host, ledger, command, log=log)
        first: list[int] = []

        async def agent() -> int:
            if not first:
                first.append(await _first_process(host, runtime, state, spec.name))
            return first[0]

        async def members() -> tuple[int, ...]:
            return (await agent(), *await children_of(host, await agent()))

        async def prove() -> Mapping[str, Any]:
            user = await runs_as(host, spec.name, await agent(), seccomp)
            if not user["uid"]:
                raise MachineFault(f"{spec.name}: it runs as root on the host: {user}")
            return {"runs_as": user}

        async def cost() -> dict[str, float]:
            return await tree_cost(host, await agent())

        async def explain(code: int) -> str:
            if code == KILLED:
                return "the container's agent was killed (SIGKILL); it is not known by whom"
            if code < 0:
                return f"{runtime.name}, which runs the container, was killed by signal {-code}"
            return f"the container ended unexpectedly: {runtime.name} returned {code}"

        async def force() -> None:
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
            cpus=container.cpus,
        )


async def _first_process(host: Host, runtime: Runtime, state: Path, name: str) -> int:
    done = await host.run(runtime.command(state, "state", name), timeout_s=TRIAL_S)
    try:
        pid = json.loads(done.stdout)["pid"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ProcessLookupError(f"{runtime.name} does not know it: {done.words()}") from error
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 1 << 31:
        shown = plain_line(repr(pid)[:80], 60)
        raise ProcessLookupError(f"{runtime.name} reports no process: {shown}")
    return pid
