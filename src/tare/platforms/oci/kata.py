"""Kata Containers: each container in a separate virtual machine, which containerd starts.

Since version 2, Kata is a shim of containerd and has no OCI command line. containerd's client
``ctr`` runs a bundle with it. Kata adds a container's limits to the values in its configuration.
So Tare gives Kata a copy of the configuration with the machine's number of vCPUs and memory.

Sources: Kata's documents on containerd, on limits and on vCPUs; ctr(8).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tare.errors import InputError, MachineFault, TareError, heard
from tare.hosts import start_owned
from tare.hosts.ledger.undoing import require_own
from tare.hosts.programs import find_program, install_command_for
from tare.hosts.trace.threads import allowed_cpus, threads_of
from tare.platforms.contract import (
    KVM_BOOT,
    Capabilities,
    Context,
    MachineSpec,
    NetworkWays,
    Prepared,
    Resource,
    Shape,
    Statement,
    Verdict,
    created,
)
from tare.platforms.linux.cgroups import cgroup_mounts, owned_cgroups
from tare.platforms.linux.process_cost import vcpu_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    KILLED,
    ProcessMachine,
    owned_directory,
    temporary_folder,
)
from tare.platforms.linux.scheduling import LINUX_KNOBS
from tare.platforms.linux.toolbox import tree_at_host
from tare.platforms.oci.bundle import AGENT_INSIDE, ContainerSpec, configuration
from tare.platforms.oci.runtime import root_file_system
from tare.platforms.oci.seccomp import runs_as
from tare.platforms.qemu.kvm_trial import depth_of
from tare.programs import CTR, KATA

if TYPE_CHECKING:
    from tare.agent.client import Hello
    from tare.hosts import Host
    from tare.hosts.contract import Completed
    from tare.platforms.oci.options import OciOptions

GET = "a release from https://github.com/kata-containers/kata-containers/releases"
CONFIGURATIONS = (
    "/etc/kata-containers/configuration.toml",
    "/usr/share/defaults/kata-containers/configuration.toml",
    "/opt/kata/share/defaults/kata-containers/configuration.toml",
)
"""The paths of the shim's configuration, in the shim's own search order."""
NAMESPACE = "tare"
"""Containerd's namespace for Tare's containers, which clients in other namespaces do not list."""
NO_KNOB = "containerd starts the virtual machine outside Tare's control groups"
NOTES = (
    "each container is in its own virtual machine, with Kata's kernel instead of the host's",
    "the agent is reached through ctr, containerd and Kata's own agent in the guest",
    "the toolbox's files come over the file system that Kata shares with the guest, usually "
    "virtio-fs",
    "Kata joins the interface of the container's network namespace to the virtual machine's card",
    "vCPUs are pinned once the agent has answered; before that, they run anywhere",
    "Kata applies no system call filter in the guest unless it is configured to",
)
NO_DISK = (
    "virtio-fs, by which Kata shares files with the guest, ignores direct I/O by default, so a "
    "cache of the host would be measured; Tare gives Kata no block device"
)
MIN_MEMORY = 256 << 20
_ASK_S = 20.0
_RUN_S = 120.0
"""Seconds to wait; Kata itself gives a guest a minute to start its agent."""
_VCPUS = re.compile(r"CPU (\d+)/KVM|(?:db_)?vcpu(\d+)|fc_vcpu (\d+)")
"""Matches the vCPU threads of QEMU, of Cloud Hypervisor and Dragonball, and of Firecracker."""
_LEAST_SEEN = 0.75
"""The least share of the memory that a guest reports; its kernel and its reserved areas take less
than a quarter of 256 MiB."""


@dataclass(frozen=True)
class Kata:
    """The parts of Kata that a host has.

    Args:
        ctr: The program of containerd's client.
        shim: The program of the shim.
        configured: The path of the configuration from which machines' configurations are made.
        text: That configuration's text.
        versions: The versions of the programs.
    """

    ctr: str
    shim: str
    configured: str
    text: str
    versions: Mapping[str, str]

    def command(self, *words: str) -> list[str]:
        """Return a command line of containerd's client."""
        return [self.ctr, "--namespace", NAMESPACE, *words]

    def run_command(self, folder: Path, name: str) -> list[str]:
        """Return the command line that runs a container to its end, in the foreground."""
        options = {
            "--runtime": self.shim,
            "--runtime-config-path": str(folder / "kata.toml"),
            "--config": str(folder / "config.json"),
            "--pid-file": str(folder / "pid"),
            "--fifo-dir": str(folder / "fifos"),
        }
        return self.command(
            "run", "--rm", *(word for pair in options.items() for word in pair), name
        )


class KataContainer(Resource):
    """A container in containerd, with its virtual machine.

    Args:
        host: The host on which it runs.
        ctr: The program of containerd's client.
        name: Its name.
    """

    kind: ClassVar[str] = "kata-container"
    removal_s: ClassVar[float] = 20.0

    def __init__(self, host: Host, ctr: str, name: str) -> None:
        self._host = host
        self._ctr = ctr
        self._name = name

    @property
    def details(self) -> Mapping[str, Any]:
        """Its name, and the program that finds it, for the ledger."""
        return {"ctr": self._ctr, "id": self._name}

    @property
    def words(self) -> str:
        """The container's name as a phrase for messages."""
        return f"Kata container {self._name}"

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot removes it; always False, because containerd keeps its record of it."""
        return False

    async def create(self) -> None:
        """Do nothing, because the command that runs the container creates it."""

    async def exists(self) -> bool:
        """Check whether containerd lists the container."""
        return (await self._call("containers", "info", self._name)).ok

    async def remove(self) -> None:
        """End its virtual machine, and remove containerd's record."""
        await self._call("tasks", "delete", "--force", self._name)
        done = await self._call("containers", "delete", self._name)
        if not done.ok and await self.exists():
            raise MachineFault(f"{self.words} cannot be removed: {done.words()}")

    def passes(self, fault: MachineFault) -> bool:
        """Return True: a refusal passes, because the virtual machine takes a moment to end."""
        return True

    async def _call(self, *words: str) -> Completed:
        argv = [self._ctr, "--namespace", NAMESPACE, *words]
        return await self._host.run(argv, timeout_s=_ASK_S)


def container_of(host: Host, details: Mapping[str, Any]) -> KataContainer:
    """Return the container that an entry of the ledger names."""
    name = str(details["id"])
    require_own(name)
    return KataContainer(host, str(details["ctr"]), name)


def stated() -> Statement:
    """Return the statement about such containers, without testing anything on this host."""
    return Statement(
        capabilities=Capabilities(
            pinning=True,
            max_vcpus=0,
            min_memory=MIN_MEMORY,
            missing_knobs=dict.fromkeys(sorted(LINUX_KNOBS), NO_KNOB),
            no_disk=NO_DISK,
            toolbox=frozenset({"tree"}),
            notes=NOTES,
        ),
        kernel="the one that Kata brings, in a virtual machine",
        channel="pipes of ctr, to the container's first process",
        untested="Not tested with Kata itself: containers ran in containerd 1.6 with another shim "
        "under Kata's name, and with a stand-in for ctr and the virtual machine.",
        confirmed="simulator",
        host_boot=KVM_BOOT,
        network=NetworkWays(rooted=frozenset({"veth"})),
        boot_s=3.0,
        needs=(
            f"containerd-shim-kata-v2 ({GET})",
            "ctr and a containerd that runs (package containerd)",
            "root",
            "taskset (package util-linux)",
        ),
    )


async def find_kata(host: Host, options: OciOptions) -> Kata:
    """Find Kata and containerd on a host.

    Raises:
        InputError: A part is missing; the hint says what to do.
    """
    advice = f"{GET}, unpacked to /opt/kata"
    if (shim := await find_program(host, KATA)) is None:
        raise InputError(f"Kata's shim, {KATA.names[0]}, is not installed", advice)
    if (ctr := await find_program(host, CTR)) is None:
        raise InputError(
            "containerd's client, ctr, is not installed", await install_command_for(host, CTR)
        )
    named = options.kata_config
    for path in CONFIGURATIONS if named is None else (named,):
        if await host.exists(path):
            text = (await host.read(path)).decode(errors="replace")
            break
    else:
        missing = named or " or ".join(CONFIGURATIONS)
        raise InputError(f"there is no configuration of Kata, {missing}", advice)
    sized(text, Shape(1, MIN_MEMORY))
    shown = await host.run([shim, "--version"], timeout_s=_ASK_S)
    asked = await host.run([ctr, "--version"], timeout_s=_ASK_S)
    versions = {
        "kata": _version_in(shown.stdout + shown.stderr),
        "containerd": _version_in(asked.stdout),
    }
    return Kata(ctr, shim, path, text, versions)


def _version_in(printed: bytes) -> str:
    found = re.search(rb"\d+\.\d+[\w.~+-]*", printed)
    return found[0].decode() if found else "unknown"


def sized(text: str, shape: Shape) -> str:
    """Return a configuration of Kata for a machine of a given size.

    Args:
        text: The text of the original configuration.
        shape: The machine's vCPUs and memory.

    Raises:
        InputError: The configuration does not set each of the two exactly once.
    """
    for key, value in (("default_vcpus", shape.vcpus), ("default_memory", shape.memory >> 20)):
        text, found = re.subn(rf"(?m)^(\s*){key}\s*=.*$", rf"\g<1>{key} = {value}", text)
        if found != 1:
            raise InputError(
                f"Kata's configuration sets {key} {found} times, and not once",
                "name one of Kata's own files by `kata-config`",
            )
    return text


def kata_configuration(spec: ContainerSpec) -> dict[str, Any]:
    """Return the ``config.json`` of a container in its own virtual machine.

    It has no limits, which Kata would add to the machine's size, and no devices, because those of
    the host are not the guest's.
    """
    whole = configuration(spec)
    whole["linux"] = {**whole["linux"], "resources": {}, "devices": []}
    return whole


async def _owned(
    context: Context,
    kata: Kata,
    spec: ContainerSpec,
    shape: Shape,
    folder: Path,
    held: AsyncExitStack,
) -> list[str]:
    """Write a container's files, record it, and return the command that runs it."""
    host, ledger = context.host, context.ledger
    await host.write(folder / "config.json", json.dumps(kata_configuration(spec)).encode())
    await host.write(folder / "kata.toml", sized(kata.text, shape).encode())
    mounts = await cgroup_mounts(host)
    await held.enter_async_context(owned_cgroups(host, ledger, mounts, spec.name))
    await held.enter_async_context(created(ledger, KataContainer(host, kata.ctr, spec.name)))
    return kata.run_command(folder, spec.name)


async def _proof(context: Context, kata: Kata) -> Mapping[str, Any]:
    """Run a container that prints its agent's proof, and return the guest kernel's release.

    Raises:
        MachineFault: The container does not run. The message quotes ctr.
    """
    name = f"tare-trial-{secrets.token_hex(4)}"
    spec = ContainerSpec(
        name=name,
        root=str(await root_file_system(context)),
        cpus=(),
        memory=MIN_MEMORY,
        args=(AGENT_INSIDE, "proof"),
    )
    folder = temporary_folder(context.host) / name
    async with AsyncExitStack() as held:
        await held.enter_async_context(owned_directory(context.host, context.ledger, folder))
        command = await _owned(context, kata, spec, Shape(1, MIN_MEMORY), folder, held)
        done = await context.host.run(command, timeout_s=_RUN_S)
    try:
        proof = json.loads(done.stdout)
        release = proof["kernel"]["release"]
    except (ValueError, LookupError, TypeError) as error:
        raise MachineFault(done.words() or f"status {done.returncode}") from error
    return {"kernel": str(release)}


async def check(context: Context, options: OciOptions) -> Verdict:
    """Run a container in a virtual machine; if that fails, the verdict quotes ctr."""
    capabilities = stated().capabilities
    versions: Mapping[str, str] = {}
    try:
        kata = await find_kata(context.host, options)
        versions = kata.versions
        # Kata lowers a number of vCPUs above that of the host's CPUs.
        capabilities = replace(capabilities, max_vcpus=len(context.host.topology().machines))
        proof = await _proof(context, kata)
    except InputError as error:
        return Verdict(False, error.message, error.hint, False, versions, capabilities)
    except (TareError, OSError) as error:
        hint = heard("systemctl status containerd; kata-runtime check", "ctr", str(error))
        reason = "containerd does not run a Kata container here"
        return Verdict(False, reason, hint, False, versions, capabilities, lasting=False)
    reason = f"Kata {versions['kata']} ran a container on Linux {proof['kernel']}"
    emulated = await depth_of(context.host, context.host_agent) == "emulated"
    runs = "root or a user, as Kata's configuration says; it starts the virtual machine"
    return Verdict(True, reason, "", emulated, versions, capabilities, runs_as=runs)


async def prepare(context: Context, options: OciOptions) -> Prepared:
    """Find out which kernel Kata's machines boot.

    Raises:
        InputError: Kata is missing, or runs no container.
    """
    kata = await find_kata(context.host, options)
    try:
        proof = await _proof(context, kata)
    except MachineFault as fault:
        reason = "containerd does not run a Kata container here"
        raise InputError(reason, heard("kata-runtime check", "ctr", fault.message)) from fault
    root = await root_file_system(context)
    return Prepared(proof["kernel"], root.name, True, 0.0, extra={"kata": kata})


class KataMachine(ProcessMachine):
    """A container in a virtual machine; the agent's channel is the pipes of ``ctr``."""

    shape: Shape
    vcpus: tuple[int, ...] = ()

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello, and verify the size of the virtual machine.

        Raises:
            MachineFault: It ended, did not answer in time, or has a different size.
        """
        hello = await super().ready(timeout_s)
        cpus = len(hello.proof.get("topology", {}).get("usable", ()))
        memory = hello.proof.get("memory", {}).get("total", 0)
        wanted = self.shape
        if cpus != wanted.vcpus or not _LEAST_SEEN * wanted.memory <= memory <= wanted.memory:
            raise MachineFault(
                f"{self.name}: Kata's machine has {cpus} CPUs and {memory >> 20} MiB of memory, "
                f"where {wanted.vcpus} and at most {wanted.memory >> 20} MiB were asked for"
            )
        return hello

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in order; empty if they are not known."""
        return self.vcpus

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the vCPUs' threads, on which everything in the guest runs."""
        return self.vcpus


def vcpus_in(threads: Mapping[int, str], wanted: int) -> tuple[int, ...]:
    """Return the threads of a machine's vCPUs, in order; empty if their number is not ``wanted``.

    Args:
        threads: Names of the hypervisor's threads, by id.
        wanted: The number of vCPUs.
    """
    found = {}
    for thread, name in threads.items():
        if match := _VCPUS.fullmatch(name):
            found[int(next(filter(None, match.groups())))] = thread
    return tuple(found[n] for n in range(wanted)) if sorted(found) == list(range(wanted)) else ()


async def _place(
    host: Host, spec: MachineSpec, threads: Sequence[int], vcpus: Sequence[int]
) -> None:
    """Bind the vCPUs to their CPUs, and restrict all threads to the machine's CPUs."""
    if spec.cpus and not vcpus:
        raise MachineFault(
            f"{spec.name}: the vCPUs of Kata's hypervisor are not recognized, and cannot be pinned",
            "use a configuration of Kata's with QEMU, Cloud Hypervisor, Firecracker or Dragonball",
        )
    topology = host.topology()
    shared = spec.within or topology.within
    places = {thread: tuple(shared) for thread in threads if shared}
    if spec.cpus:
        places |= {vcpu: (spec.cpus[n % len(spec.cpus)],) for n, vcpu in enumerate(vcpus)}
    for thread, cpus in places.items():
        argv = ["taskset", "-pc", ",".join(map(str, cpus)), str(thread)]
        done = await host.run(argv, timeout_s=_ASK_S)
        if not done.ok or (thread in vcpus and await allowed_cpus(host, thread) != cpus):
            raise MachineFault(f"{spec.name}: it cannot be put on CPUs {cpus}: {done.words()}")


async def start_kata(context: Context, prepared: Prepared, spec: MachineSpec) -> KataMachine:
    """Start a container in a virtual machine that runs only the agent.

    Raises:
        MachineFault: The container cannot be started.
    """
    host, ledger = context.host, context.ledger
    kata: Kata = prepared.extra["kata"]
    async with AsyncExitStack() as held:
        folder = await held.enter_async_context(owned_directory(host, ledger, spec.workdir))
        tree = await tree_at_host(context, spec, held)
        link = None if spec.network is None else await spec.network.namespace(spec.name)
        variables = {} if link is None else link.variable
        container = ContainerSpec(
            name=spec.name,
            root=str(await root_file_system(context)),
            toolbox=None if tree is None else str(tree),
            cpus=(),
            memory=spec.shape.memory,
            env=tuple(variables.items()),
            netns="" if link is None else f"/run/netns/{link.interface}",
        )
        command = await _owned(context, kata, container, spec.shape, folder, held)
        log = spec.workdir / CONSOLE
        process = await start_owned(host, ledger, command, log=log)

        async def hypervisor() -> int:
            # Kata's shim reports the virtual machine's process, not that of the agent in it.
            return int(await host.read(folder / "pid"))

        async def members() -> tuple[int, ...]:
            try:
                return (await hypervisor(),)
            except ValueError as error:
                raise ProcessLookupError(f"ctr reported no process: {error}") from error

        async def prove() -> Mapping[str, Any]:
            pid = (await members())[0]
            threads = await threads_of(host, [pid])
            machine.vcpus = vcpus_in(threads, spec.shape.vcpus)
            await _place(host, spec, tuple(threads), machine.vcpus)
            return {"runs_as": await runs_as(host, spec.name, pid, "none")}

        async def cost() -> dict[str, float]:
            return await vcpu_cost(host, await hypervisor(), machine.vcpus)

        async def explain(code: int) -> str:
            if code == KILLED:
                return "the container's agent was killed (SIGKILL); it is not known by whom"
            if code < 0:
                return f"ctr, which runs the container, was killed by signal {-code}"
            return f"the container ended unexpectedly: ctr returned {code}"

        async def force() -> None:
            kill = kata.command("tasks", "kill", "--signal", "SIGKILL", spec.name)
            await host.run(kill, timeout_s=_ASK_S)

        machine = KataMachine(
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
            shares_clock=False,
        )
        machine.shape = spec.shape
        return machine
