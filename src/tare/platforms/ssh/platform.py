"""Existing machines: a cloud instance, a guest of any hypervisor, a separate computer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault, TareError
from tare.hosts import start_owned
from tare.hosts.address_pair import AddressPair
from tare.hosts.granted_cpus import granted_cpus
from tare.hosts.ledger.nested import AFAR
from tare.hosts.same_machine import SAME, running_machine
from tare.hosts.trace.threads import threads_of
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Presence,
    Shape,
    Statement,
    Variant,
    Verdict,
    Write,
)
from tare.platforms.existing_network import joining, require_direct, with_given
from tare.platforms.linux.disk import disk_variable, mounted_disk, require_room
from tare.platforms.linux.network import VARIABLE
from tare.platforms.linux.process_cost import tree_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    ProcessMachine,
    owned_directory,
)
from tare.platforms.linux.scheduling import Scheduled
from tare.platforms.linux.toolbox import tree_environment
from tare.platforms.qemu.guest_process import find_carrier
from tare.platforms.scheduling import NOTHING
from tare.platforms.ssh.connection import UNDOERS, Reached, reached
from tare.platforms.ssh.inspection import Inspection, look, uncontrolled
from tare.platforms.ssh.machine import SshMachine
from tare.platforms.ssh.options import ANY, SshArmOptions
from tare.study.model.notes import ITSELF
from tare.units import format_size

if TYPE_CHECKING:
    from tare.hosts.ssh.host import SshHost

MIN_MEMORY = 16 << 20
OWN_MEMORY = "workloads may use all of the machine's memory"
KEPT_BY_KERNEL = 0.25
"""The share of a machine's memory that its kernel and firmware may leave out of its report."""
NAME_ONE = "it measures a machine that exists: a study names one, as in {platform: ssh, ssh: NAME}"
NOT_ROOT = "without root there, disks and the toolbox's programs are not available"
BECOME_ROOT = "let its user become root there: `sudo: true`"
NO_REALTIME = f"its user may not have it (RLIMIT_RTPRIO, `ulimit -r`, is 0); {BECOME_ROOT}"
ASK_S = 30.0
TRY_EVERY_S = 1.0


class Ssh(Platform[SshArmOptions]):
    """A machine that exists and answers SSH: a cloud instance, a guest of any hypervisor."""

    name = "ssh"
    known_as = dict.fromkeys(
        (
            "vm",
            "machine",
            "cloud",
            "aws",
            "azure",
            "gcp",
            "ec2",
            "nutanix",
            "openstack",
            "kubevirt",
        ),
        "",
    )
    options = SshArmOptions
    variants = (Variant("", {"ssh": ANY}),)
    undoers = MappingProxyType(UNDOERS)

    def describe(self, options: SshArmOptions) -> str:
        """Return a phrase for reports."""
        booted = "rebooted for each batch" if options.reboot else "left in the boot it had"
        return f"machine at {options.way.name}, {booted}"

    def stated(self, options: SshArmOptions) -> Statement:
        """Return the features of existing machines; nothing is tried."""
        stated = Statement(
            runs_as="the user of the SSH connection, who alone can reach the machine",
            capabilities=Capabilities(
                pinning=False,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                neighbours=False,
                disk=frozenset({"mounted"}),
                own_cache=False,
                no_own_cache=OWN_MEMORY,
                toolbox=frozenset({"tree"}),
                notes=(
                    "its vCPUs are not pinned: its owner decides where it runs",
                    "if the machine has more CPUs than the shape has vCPUs, only that many are "
                    "used",
                    f"memory is not limited to the shape: {OWN_MEMORY}",
                    "the disk and the toolbox need root in the machine, as the user or by `sudo`",
                ),
            ),
            elsewhere=True,
            kernel="the machine's own",
            channel="pipes of the agent's process, over SSH",
            needs=("an SSH server in the machine",),
            confirmed="lab",
            untested="Tested only in the lab, with a VM next to its host: as root, by `sudo` and "
            "as an ordinary user, with and without reboots.",
            host_boot=ANY_BOOT,
            only_measures=True,
            boots_each=options.reboot,
            boot_s=options.reboot_patience / 4 if options.reboot else 3.0,
            emulated_boot_s=options.reboot_patience if options.reboot else 10.0,
        )
        over = "the network that SSH reaches it by"
        return with_given(stated, options, where="to a machine that exists", over=over)

    def writes(self, options: SshArmOptions) -> tuple[Write, ...]:
        """Return the writes in the machine, which exists already."""
        inside = Write(
            AFAR,
            "mkdir of a folder tare-… in the machine, with the agent in it; sudo where asked",
            "rm -r of that folder",
            "the machine's /tmp",
        )
        started = Write("process", "the agent, over SSH", "the end of its connection")
        return (inside, started)

    async def check(self, context: Context, options: SshArmOptions) -> Verdict:
        """Reach the machine, and report the facts that it shows and the features that it lacks."""
        best = self.stated(options).capabilities
        nothing = replace(best, disk=frozenset(), toolbox=frozenset())
        if options.ssh == ANY:
            return Verdict(False, NAME_ONE, "", False, {}, nothing)
        try:
            async with reached(context, options.way, options.folder) as there:
                seen = await look(there.host, str(there.host.agent))
                cpus = len(there.host.topology().online)
                addresses = there.host.addresses
                machine = await running_machine(there.host)
            itself = machine != "" and machine == await running_machine(context.host)
            carrier = await find_carrier(context.host, seen.uuid)
        except (TareError, OSError) as error:
            fault = error if isinstance(error, TareError) else TareError(str(error))
            lasting = isinstance(error, InputError)
            return Verdict(False, fault.message, fault.hint, False, {}, nothing, lasting)
        able = replace(
            best if seen.root else nothing,
            max_vcpus=cpus,
            notes=best.notes if seen.root else (*best.notes, NOT_ROOT),
            no_disk="" if seen.root else BECOME_ROOT,
            no_realtime="" if seen.may_be_realtime else NO_REALTIME,
        )
        if options.network_way is not None:
            able = replace(able, no_network=_translated(options.way.name, *addresses))
        versions = {"linux": seen.kernel}
        if options.reboot and not seen.root:
            reason = f"{options.way.name} cannot be rebooted without root there"
            hint = f"{BECOME_ROOT}; or leave `reboot` out"
            return Verdict(False, reason, hint, seen.emulated, versions, able)
        return Verdict(
            True,
            f"the agent runs at {options.way.name}",
            "",
            seen.emulated,
            versions,
            able,
            shown=seen.shown(),
            uncontrolled=uncontrolled(options.reboot, carrier is not None),
            rights=(f"{'root' if seen.root else 'a user without rights'} in the machine",),
            machine=machine,
            mark=f"{ITSELF}: {options.way.name} is the host itself ({SAME})" if itself else "",
        )

    async def presence(self, context: Context, options: SshArmOptions) -> Presence:
        """Return the current boot of the machine, which is present if it answers."""
        try:
            async with reached(context, options.way, options.folder) as there:
                return Presence(boot=there.host.boot_id())
        except (TareError, OSError) as error:
            return Presence(absent=str(error))

    async def prepare(
        self, context: Context, options: SshArmOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return the machine's kernel; refuse a shape for which the machine is too small.

        Raises:
            InputError: The machine has less memory or disk than the arm's shape requires.
        """
        async with reached(context, options.way, options.folder) as there:
            seen = await look(there.host, str(there.host.agent))
            if seen.memory < shape.memory * (1 - KEPT_BY_KERNEL):
                raise InputError(
                    f"{options.way.name} has {format_size(seen.memory)} of memory, and the shape "
                    f"asks for {format_size(shape.memory)}",
                    "lower `shape: memory`, or take a larger machine",
                )
            await require_room(there.host, shape.disk)
        return Prepared(kernel=seen.kernel, digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: SshArmOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Start the agent in the machine, on as many of its CPUs as the shape has vCPUs."""
        async with AsyncExitStack() as held:
            # Entries that `reached` records are undone with it; this folder is on the carrier.
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            there = await held.enter_async_context(reached(context, options.way, options.folder))
            if options.reboot:
                await reboot(there.host, options.reboot_patience)
            seen = await look(there.host, str(there.host.agent))
            carrier = await find_carrier(context.host, seen.uuid)
            join = joining(context.host, spec)
            inner = await _agent_in(
                there, seen, spec, {} if join is None else _network_variable(there, spec)
            )
            return SshMachine(
                inner,
                addresses=there.host.addresses,
                joining=join,
                carrier=carrier,
                host=context.host,
                boot=there.host.boot_id(),
                found=seen.shown(),
                held=held.pop_all(),
            )


def _translated(name: str, seen: AddressPair, inside: AddressPair) -> str:
    """Return why the network that SSH uses to a machine is not measured; empty if it is."""
    try:
        require_direct(name, seen, inside)
    except MachineFault as fault:
        return f"{fault.message}; {fault.hint}"
    return ""


def _network_variable(there: Reached, spec: MachineSpec) -> dict[str, str]:
    """Return the variable that gives an agent the address at which its machine is reached.

    Raises:
        MachineFault: Addresses are translated between here and the machine.
    """
    seen, inside = there.host.addresses
    require_direct(spec.name, seen, inside)
    return {VARIABLE: f"{seen.there}/32"}


async def _agent_in(
    there: Reached, seen: Inspection, spec: MachineSpec, variables: Mapping[str, str]
) -> ProcessMachine:
    """Start the agent as a process of the machine, with the disk and the toolbox it needs.

    Args:
        there: The connection to the machine.
        seen: The findings about the machine.
        spec: The specification of the machine.
        variables: More variables of the agent's environment.
    """
    host, context = there.host, there.context
    async with AsyncExitStack() as held:
        await held.enter_async_context(owned_directory(host, context.ledger, spec.workdir))
        disk = await held.enter_async_context(mounted_disk(context, spec))
        tools = await tree_environment(context, spec, held)
        scheduled = Scheduled(context, spec.name, NOTHING)
        if seen.root:
            await scheduled.hold(held, realtime=spec.realtime)
        log = spec.workdir / CONSOLE
        process = await start_owned(
            host,
            context.ledger,
            [str(host.agent), "serve"],
            log=log,
            env={**disk_variable(disk), **tools, **variables},
            cpus=granted_cpus(host.topology().roaming, context.ledger, (), spec.shape.vcpus),
        )

        async def members() -> tuple[int, ...]:
            return (process.pid,)

        async def cost() -> dict[str, float]:
            return await tree_cost(host, process.pid)

        async def explain(code: int) -> str:
            if code < 0:
                return f"the agent in {host.name} was killed by signal {-code}"
            return f"the agent in {host.name} ended unexpectedly with status {code}"

        async def prove() -> Mapping[str, Any]:
            threads = await threads_of(host, [process.pid])
            return await scheduled.prove(tuple(threads), process.pid)

        return ProcessMachine(
            spec.name,
            process,
            log,
            host=host,
            members=members,
            cost=cost,
            explain=explain,
            held=held.pop_all(),
            prove=prove if seen.root else None,
            disk=disk,
            shares_clock=False,
        )


async def reboot(host: SshHost, patience_s: float) -> None:
    """Reboot a machine, and wait until it answers again.

    Args:
        host: The machine; afterwards it is connected to the new boot, with a new copy of the agent.
        patience_s: The time limit in seconds.

    Raises:
        InputError: The machine refuses to reboot.
        MachineFault: The machine did not reboot, or did not come back, within the time limit.
    """
    before = host.boot_id()
    deadline = time.monotonic() + patience_s
    # The connection may break before the answer arrives.
    with contextlib.suppress(MachineFault, OSError):
        await host.run(["sync"], timeout_s=ASK_S)
        asked = await host.run(["reboot"], timeout_s=ASK_S)
        if not asked.ok:
            raise InputError(
                f"{host.name} refuses to reboot: {asked.words()}",
                "leave `reboot` out, or let its user reboot it",
            )
    last = "it still runs the previous boot"
    while time.monotonic() < deadline:
        await asyncio.sleep(TRY_EVERY_S)
        # A machine that comes up refuses connections, and then logins, for a while.
        try:
            async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
                await host.run(["true"])
        except (MachineFault, InputError, OSError, TimeoutError) as error:
            last = str(error) or "it did not answer"
            continue
        if host.boot_id() != before:
            return
    raise MachineFault(
        f"{host.name} did not come back from its reboot within {patience_s:g} s: {last}",
        "give it more time: `reboot-patience`",
        transient=True,
    )
