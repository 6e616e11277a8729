"""The OCI runtimes: how each is called, and which of them can run a container here."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Completed, Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import require_own
from tare.hosts.programs import find_program
from tare.images.ship import host_cache
from tare.platforms.contract import Context
from tare.platforms.linux.cgroups import CgroupMounts, cgroup_mounts, owned_cgroups, realtime_share
from tare.platforms.linux.process_machine import owned_directory, temporary_folder
from tare.platforms.oci.bundle import AGENT_INSIDE, DIRECTORIES, ContainerSpec, configuration
from tare.programs import RUNTIMES

RuntimeName = Literal["crun", "runc", "runsc"]
AUTOMATIC: tuple[RuntimeName, ...] = ("crun", "runc")
TRIAL_S = 15.0
TRIAL_MEMORY = 64 << 20


@dataclass(frozen=True)
class Runtime:
    """One OCI runtime with its command line on this host.

    Args:
        name: The runtime's name, such as ``crun``.
        flags: Options before the subcommand.
        keeps: Whether ``run --keep`` leaves the control groups of a container that has ended,
            so that an out-of-memory kill can still be found.
        program: The path of its program, if it is not in PATH under its name; empty otherwise.
    """

    name: str
    flags: tuple[str, ...] = ()
    keeps: bool = False
    program: str = ""

    @property
    def called(self) -> str:
        """The program's name or path on its host."""
        return self.program or self.name

    def command(self, root: Path, *words: str) -> list[str]:
        """Return the command line of a subcommand, with the runtime's state under ``root``."""
        return [self.called, "--root", str(root), *self.flags, *words]

    def run_command(self, root: Path, bundle: Path, name: str) -> list[str]:
        """Return the command line that runs a container to its end, in the foreground."""
        keep = ("--keep",) if self.keeps else ()
        return self.command(root, "run", *keep, "--bundle", str(bundle), name)


@dataclass(frozen=True)
class Trial:
    """The result of running a trivial container: whether it ran, or the runtime's own message.

    Args:
        runtime: The runtime.
        usable: Whether the container ran.
        words: The runtime's message, or why it could not be tried; empty if the container ran.
        version: The runtime's version; empty if it is not known.
        sure: Whether the host lacks something; otherwise the trial itself went wrong.
    """

    runtime: Runtime
    usable: bool
    words: str
    version: str
    sure: bool = True


Trivial = Callable[[Context, Runtime], Awaitable[Completed]]
"""Runs a container that does almost nothing, to its end."""


async def try_runtimes(
    context: Context,
    wanted: tuple[RuntimeName, ...],
    trivial: Trivial | None = None,
    flags: Mapping[RuntimeName, tuple[str, ...]] | None = None,
) -> tuple[Trial, ...]:
    """Run a trivial container with one runtime after the other, up to the first that can.

    Args:
        context: The host, and Tare's state there.
        wanted: The runtimes, with the preferred one first.
        trivial: Runs a container; None: as root.
        flags: The options for each runtime; None: Tare's defaults.

    Returns:
        The trials that were made; only the last one can be usable.
    """
    trials: list[Trial] = []
    for name in wanted:
        given = None if flags is None else flags[name]
        trials.append(await try_runtime(context, name, trivial or _trivial, given))
        if trials[-1].usable:
            break
    return tuple(trials)


async def try_runtime(
    context: Context, name: RuntimeName, trivial: Trivial, given: tuple[str, ...] | None
) -> Trial:
    """Run a trivial container with one runtime; a missing prerequisite raises no error."""
    version = program = ""
    try:
        program, version = await _found(context.host, name)
    except InputError:
        return Trial(Runtime(name), False, f"{name} is not installed", "")
    except (TareError, OSError) as error:
        return Trial(Runtime(name), False, str(error), "", sure=_lasts(error))
    plain = Runtime(name, program="" if program == name else program)
    last = Trial(plain, False, f"{program} cannot be called", version)
    for flags in _flag_sets(name) if given is None else (given,):
        runtime = replace(plain, flags=flags)
        try:
            runtime = replace(runtime, keeps=await _keeps(context.host, runtime))
            done = await trivial(context, runtime)
        except (TareError, OSError) as error:
            last = Trial(runtime, False, str(error), version, sure=_lasts(error))
            continue
        if done.ok:
            return Trial(runtime, True, "", version)
        last = Trial(runtime, False, done.words() or f"status {done.returncode}", version)
    return last


def _lasts(error: Exception) -> bool:
    """Check whether an error shows that a host lacks something, so that it would recur."""
    return isinstance(error, InputError)


def _flag_sets(name: RuntimeName) -> tuple[tuple[str, ...], ...]:
    if name != "runsc":
        return ((),)
    return tuple((f"--platform={platform}", "--network=none") for platform in ("systrap", "ptrace"))


async def _found(host: Host, name: RuntimeName) -> tuple[str, str]:
    """Return a runtime's program on a host, and its version.

    Docker, Podman, CRI-O and Kubernetes come with their own runtimes, mostly outside PATH.

    Raises:
        InputError: The runtime is not installed.
    """
    try:
        return name, await _version(host, name, name)
    except InputError:
        program = await find_program(host, RUNTIMES[name])
        if program is None:
            raise
        return program, await _version(host, program, name)


async def _version(host: Host, program: str, name: str) -> str:
    printed = (await host.run([program, "--version"], timeout_s=5)).stdout.decode(errors="replace")
    first = printed.splitlines()[0] if printed.strip() else ""
    return first.removeprefix(name).strip().removeprefix("version").strip()


async def _keeps(host: Host, runtime: Runtime) -> bool:
    if runtime.name == "runsc":
        return False
    usage = await host.run([runtime.called, "run", "--help"], timeout_s=5)
    return b"--keep" in usage.stdout + usage.stderr


async def _trivial(context: Context, runtime: Runtime) -> Completed:
    mounts = await cgroup_mounts(context.host)
    name = f"tare-trial-{secrets.token_hex(4)}"
    online = context.host.topology().online
    spec = ContainerSpec(
        name=name,
        root=str(await root_file_system(context)),
        cpus=online[:1],
        memory=TRIAL_MEMORY,
        realtime=await realtime_share(context.host, mounts, throttled=False),
        args=(AGENT_INSIDE, "proof"),
    )
    workdir = temporary_folder(context.host) / name
    async with (
        owned_directory(context.host, context.ledger, workdir),
        owned_container(context, runtime, mounts, spec, workdir) as command,
    ):
        return await context.host.run(command, timeout_s=TRIAL_S)


@asynccontextmanager
async def owned_container(
    context: Context, runtime: Runtime, mounts: CgroupMounts, spec: ContainerSpec, workdir: Path
) -> AsyncIterator[list[str]]:
    """Record a container in the ledger and write its bundle; delete the container at the end.

    Args:
        context: The host on which it runs, and Tare's state there.
        runtime: The runtime that runs it.
        mounts: The host's control group mounts.
        spec: Its specification.
        workdir: An existing directory for the bundle and the runtime's state.

    Yields:
        The command that runs it in the foreground.
    """
    bundle, state = workdir / "bundle", workdir / "state"
    made = await context.host.run(["mkdir", "-m", "700", str(bundle)], timeout_s=TRIAL_S)
    if not made.ok:
        raise MachineFault(f"{spec.name}: {made.words()}")
    text = json.dumps(configuration(spec), indent=1)
    await context.host.write(bundle / "config.json", text.encode())
    async with (
        owned_cgroups(context.host, context.ledger, mounts, spec.name),
        noted_container(context, runtime, spec, state),
    ):
        yield runtime.run_command(state, bundle, spec.name)


@asynccontextmanager
async def noted_container(
    context: Context, runtime: Runtime, spec: ContainerSpec, state: Path
) -> AsyncIterator[None]:
    """Record a container in the ledger before it is run, and delete the container at the end.

    Args:
        context: The host on which it runs, and Tare's state there.
        runtime: The runtime that runs it.
        spec: Its specification.
        state: The directory of the runtime's state.
    """
    entry = context.ledger.record(
        "container", runtime=runtime.called, root=str(state), id=spec.name, cpus=list(spec.cpus)
    )
    try:
        yield
    finally:
        if await context.host.exists(state / spec.name) or runtime.name == "runsc":
            gone = runtime.command(state, "delete", "--force", spec.name)
            await context.host.run(gone, timeout_s=TRIAL_S)
        context.ledger.done(entry)


async def undo_container(host: Host, entry: Entry) -> str:
    """Delete the container in a ledger entry (runtime, root, id); the runtime kills it first."""
    runtime, root, name = (str(entry.details[key]) for key in ("runtime", "root", "id"))
    require_own(name)
    if not await host.exists(Path(root) / name):
        return ""
    deleted = await host.run([runtime, "--root", root, "delete", "--force", name], timeout_s=30)
    if not deleted.ok and await host.exists(Path(root) / name):
        raise MachineFault(deleted.words() or f"{runtime} delete failed")
    return f"Deleted container {name}."


_DAMAGED = 3
_WHOLE = f"""
root=$1 digest=$2 agent=$3
[ -d "$root" ] || exit 1
shift 3
whole() {{
    [ -f "$root$agent" ] && [ ! -L "$root$agent" ] || return 1
    # By its mode: on a file system that is mounted noexec, -x is false, and containers run it.
    [ -n "$(find "$root$agent" -perm -0111)" ] || return 1
    [ "$(sha256sum <"$root$agent" | cut -d" " -f1)" = "$digest" ] || return 1
    for name; do [ -d "$root/$name" ] && [ ! -L "$root/$name" ] || return 1; done
}}
whole "$@" && exit
mv -T "$root" "$root.damaged.$$" && rm -rf "$root.damaged.$$" && exit {_DAMAGED}
"""
_LAY_OUT = (
    'set -e; test -d "$1" && exit; mkdir -p "${1%/*}"; '
    'made=$(mktemp -d "${1%/*}/tare-root-XXXXXX"); '
    'cp "$2" "$made$3"; chmod 755 "$made" "$made$3"; shift 3; '
    'for name in "$@"; do mkdir "$made/$name"; done; '
)


async def root_file_system(context: Context) -> Path:
    """Return a directory of the host with the agent and mount points, made once for each agent.

    Each call reads and compares the agent in it. A damaged directory is replaced and reported.

    Args:
        context: The host, and the cache on this computer.

    Raises:
        MachineFault: The directory cannot be made there.
    """
    host = context.host
    program = await asyncio.to_thread(context.agent.read_bytes)
    folder = (await host_cache(host, context.cache)) / "oci" / root_digest(program)
    words = [str(folder), hashlib.sha256(program).hexdigest(), AGENT_INSIDE, *DIRECTORIES]
    found = await host.run(["sh", "-c", _WHOLE, "sh", *words], timeout_s=TRIAL_S)
    if found.ok:
        return folder
    if found.returncode == _DAMAGED:
        context.say(f"{folder} in the cache of {host.name} was damaged: it is made again")
    # Another check may make the same directory at the same time; the later one removes its own.
    script = f'whole="$1"; {_LAY_OUT}mv -T "$made" "$whole" || rm -r "$made"; test -d "$whole"'
    await _lay_out(host, script, folder, context.host_agent)
    return folder


async def laid_out(host: Host, folder: Path, agent: Path) -> None:
    """Make a root file system for a single container.

    Args:
        host: The host.
        folder: The directory to make, which does not exist yet.
        agent: The agent's program on that host.

    Raises:
        MachineFault: The directory cannot be made.
    """
    await _lay_out(host, f'whole="$1"; {_LAY_OUT}mv -T "$made" "$whole"', folder, agent)


async def _lay_out(host: Host, script: str, folder: Path, agent: Path) -> None:
    words = [str(folder), str(agent), AGENT_INSIDE, *DIRECTORIES]
    made = await host.run(["sh", "-c", script, "sh", *words], timeout_s=TRIAL_S)
    if not made.ok:
        raise MachineFault(f"{host.name}: {folder} cannot be made: {made.words()}")


def root_digest(program: bytes) -> str:
    """Return the SHA-256 (hex) of the inputs of a root file system."""
    digest = hashlib.sha256(program)
    digest.update("\0".join((AGENT_INSIDE, *DIRECTORIES)).encode())
    return digest.hexdigest()
