"""The peer of a batch: an agent outside the machine that communicates with it over a network.

The peer acts as a remote client or server. It runs in its own network namespace, on CPUs that the
subject does not use, as far as there are any.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tare.agent.client import Outcome
from tare.errors import InputError, MachineFault, TareError, WorkloadFault
from tare.hosts import start_owned
from tare.hosts.processes import with_most_descriptors
from tare.platforms.linux.network import (
    ALONE,
    UNMADE,
    Addresses,
    Isolated,
    Link,
    Network,
    SpanningNetwork,
    chosen_way,
    free_subnet,
    namespace_prefix,
    offered_network,
    spanning_network,
)
from tare.platforms.linux.process_cost import tree_cost
from tare.platforms.linux.process_machine import (
    CONSOLE,
    ProcessMachine,
    owned_directory,
)
from tare.platforms.linux.toolbox import tree_environment
from tare.study.model.platform_options import ISOLATED
from tare.workloads.network.ends import AGENT_PORT, ORIGIN, PEER, End, Ends

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import LoadHandle, ProgressCallback
    from tare.platforms.contract import Context, Machine, MachineSpec, Platform, PlatformOptions

PARTNER_PORT = 7200
"""The first of the ports at which neighbours' network loads wait for their partner."""
READY_S = 20.0
STOP_S = 30.0
PROOF_S = 30.0


@dataclass(frozen=True)
class Connection:
    """The network connection of a batch's machines.

    Args:
        whole: The network over all hosts of the machines.
        home: The name of the subject's host.
        way: The way in which the arm's machines join it.
    """

    whole: SpanningNetwork
    home: str
    way: str

    @property
    def own_ends(self) -> bool:
        """Whether the other ends are machines too: no process outside reaches this network."""
        return self.way == ISOLATED

    @property
    def network(self) -> Network:
        """The part of the network on the subject's host."""
        return self.whole.on(self.home)


@asynccontextmanager
async def connected(
    contexts: Sequence[Context],
    platform: Platform[Any],
    options: PlatformOptions,
    *,
    several: bool,
    link: float | None = None,
) -> AsyncIterator[Connection]:
    """Hold the network of one batch.

    Args:
        contexts: The hosts with their ledgers, the subject's first.
        platform: The arm's platform.
        options: The arm's options.
        several: Whether its machines have to reach each other, and not only the peer.
        link: The speed of the link to the peer, in bits per second; None: unlimited.

    Raises:
        MachineFault: The machines cannot be connected as the arm requests.
    """
    ways = platform.stated(options).network
    offered = frozenset.intersection(
        *[(await offered_network(context, ways))[0] for context in contexts]
    )
    if link is not None:
        offered -= UNMADE - {ISOLATED}
    elif several:
        offered -= ALONE
    try:
        way = chosen_way(options, offered)
    except InputError as error:
        raise MachineFault(error.message, error.hint) from error
    switching = options.wanted_switch
    async with AsyncExitStack() as held:
        isolated = None
        if way == ISOLATED:
            isolated = await held.enter_async_context(_isolated(contexts, platform, options, link))
        whole = await held.enter_async_context(
            spanning_network(
                contexts, way not in UNMADE, switching=switching, link=link, isolated=isolated
            )
        )
        yield Connection(whole, contexts[0].host.name, way)


@asynccontextmanager
async def _isolated(
    contexts: Sequence[Context],
    platform: Platform[Any],
    options: PlatformOptions,
    rate: float | None,
) -> AsyncIterator[Isolated]:
    """Hold an isolated network at the hypervisor of a batch's machines."""
    context, *others = contexts
    if others:
        raise MachineFault(
            "an isolated network is at one hypervisor, and this scenario names several hosts",
            "write `network-way: given`",
        )
    subnet = await free_subnet([context.host])
    name = f"tare-{secrets.token_hex(4)}"
    async with platform.isolated_network(context, options, name, rate):
        yield Isolated(name, Addresses(subnet))


@dataclass(frozen=True)
class Peer:
    """The agent that communicates with the subject: a process on the host, or in a machine."""

    machine: Machine
    network: Network

    async def run(
        self,
        ends: Ends,
        subject: Machine,
        *,
        barrier: Barrier,
        deadline_s: float,
        on_progress: ProgressCallback,
    ) -> Outcome:
        """Run the server at one end and the client at the other; return the client's result.

        It includes the server's own result as ``server``, and the peer's cost as ``peer``, as far
        as its host reports it.

        Raises:
            MachineFault: An agent is lost.
            WorkloadFault: An end failed; the message names it.
        """
        link = self.network.links[subject.name]
        outside = self.machine.agent
        if ends.serves == "machine":
            server, client = subject.agent, outside
            bind, reach = (link.address, ends.port), link.reach(ends.port)
        else:
            server, client = outside, subject.agent
            if not (address := self._address(link)):
                raise WorkloadFault(
                    "a machine with a user-mode network cannot open connections, so the peer "
                    "cannot be its server: write `network: tap` (which needs root)"
                )
            bind = reach = (address, ends.port)
        before = await self.machine.host_cost()
        serving = await server.start_load(ends.server.workload, ends.server.at(*bind))
        try:
            outcome = await client.run(
                ends.client.workload,
                ends.client.at(*reach),
                barrier=barrier,
                deadline_s=deadline_s,
                on_progress=on_progress,
            )
        except BaseException as error:
            raise await _cause(serving.stop(STOP_S), error) from error
        served = await serving.stop(STOP_S)
        after = await self.machine.host_cost()
        # The host of a virtual machine may not report it.
        cost = {
            name: after[name] - before[name] for name in {"cpu_s"} & before.keys() & after.keys()
        }
        about = {"server": served.value, "peer": {**cost, "way": link.way}}
        return replace(outcome, value={**outcome.value, **about})

    def _address(self, link: Link) -> str:
        """Return the address at which a machine reaches the peer; empty: none."""
        own = self.network.links.get(self.machine.name)
        return link.peer if own is None else own.address

    async def echo(
        self, neighbour: Machine, number: int, connections: int
    ) -> tuple[dict[str, Any], LoadHandle]:
        """Start a process that connects to a neighbour's network load and echoes its data.

        Args:
            neighbour: The machine with the load.
            number: From 0; distinguishes machines that share an address.
            connections: The number of connections.

        Returns:
            The address for the load, as the agent takes it, and the handle of the running echo.

        Raises:
            MachineFault: The peer is lost.
            WorkloadFault: The echo did not start.
        """
        link = self.network.links[neighbour.name]
        # In a user-mode network only forwarded ports lead to the machine.
        port = AGENT_PORT if link.forwards else PARTNER_PORT + number
        address, there = link.reach(port)
        to = {"address": address, "port": there, "connections": connections}
        handle = await self.machine.agent.start_load("net-echo", {"at": to})
        return {"address": link.address, "port": port, "connections": connections}, handle

    async def prove(self, subject: Machine, tries_s: Sequence[float] = (0.25, 2.0)) -> None:
        """Check that packets of full size reach the subject and return.

        A busy emulated host can need some time for its first packets.

        Args:
            subject: The machine.
            tries_s: The seconds for which packets are sent at each try.

        Raises:
            WorkloadFault: They do not at the last try either.
        """
        *earlier, last = tries_s
        for seconds in earlier:
            with contextlib.suppress(WorkloadFault):
                return await self._exchange(subject, seconds)
        try:
            return await self._exchange(subject, last)
        except WorkloadFault as fault:
            advice = self.network.links[subject.name].advice
            raise WorkloadFault(fault.message, fault.hint or advice) from fault

    async def _exchange(self, subject: Machine, seconds: float) -> None:
        sizes: Mapping[str, Any] = {"request_bytes": 64 << 10, "response_bytes": 64 << 10}
        at = {"address": "{address}", "port": "{port}", **sizes}
        link = self.network.links[subject.name]
        probe = {} if link.forwards else {"probe_bytes": link.mtu}
        short = {"seconds": seconds, "warmup_s": 0.0, "timeout_s": 15.0}
        ends = Ends(
            port=AGENT_PORT,
            server=End("net-server", at),
            client=End("request-response", {**at, **probe, **short}),
        )
        serving = await subject.agent.start_load(
            ends.server.workload, ends.server.at(link.address, ends.port)
        )
        try:
            await self.machine.agent.run(
                ends.client.workload,
                ends.client.at(*link.reach(ends.port)),
                deadline_s=PROOF_S,
            )
        finally:
            await serving.stop(STOP_S)


async def _cause(stopping: Any, error: BaseException) -> BaseException:
    """Return why a client failed, with its server's reason if that failed first."""
    if not isinstance(error, WorkloadFault):
        stop = asyncio.ensure_future(stopping)
        await asyncio.gather(stop, return_exceptions=True)
        return error
    try:
        await stopping
    except WorkloadFault as server:
        return WorkloadFault(f"{error} (and its other end: {server})")
    except TareError:
        return error
    return error


@asynccontextmanager
async def started_peer(
    context: Context, network: Network, like: MachineSpec, cpus: tuple[int, ...] = ()
) -> AsyncIterator[Peer]:
    """Hold a peer for the machine ``like``, which is connected already.

    Args:
        context: The host, the ledger and the agent.
        network: The network of both.
        like: The subject: the peer avoids its CPUs, and has its toolbox.
        cpus: The peer's CPUs; empty: all that the subject does not use.

    Raises:
        MachineFault: It does not start.
    """
    cpus = cpus or outside_cpus(context, like)
    around, env = network.around_peer, network.peer_variable
    async with started_process(context, like, PEER, around, cpus, env) as machine:
        yield Peer(machine, network)


@asynccontextmanager
async def started_origin(
    context: Context, network: Network, like: MachineSpec, cpus: tuple[int, ...] = ()
) -> AsyncIterator[Machine]:
    """Hold an origin for the machine ``like``: like the peer, in its own namespace.

    Raises:
        MachineFault: It does not start.
    """
    link = await network.outside(_sibling_name(like, ORIGIN))
    around, cpus = namespace_prefix(link.interface), cpus or outside_cpus(context, like)
    env = link.variable
    async with started_process(context, like, ORIGIN, around, cpus, env) as machine:
        await network.acquaint(context.host, context.host_agent, link, like.name)
        yield machine


def outside_cpus(context: Context, like: MachineSpec) -> tuple[int, ...]:
    """Return the CPUs that a machine does not use, or all if there are no others."""
    cpus = context.host.topology()
    own = () if like.carried else like.cpus
    free = tuple(cpu for cpu in cpus.machines if cpu not in own)
    return free or cpus.apart_from(own) or cpus.online


def shared_out(
    cpus: tuple[int, ...], *, spare: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Divide CPUs between client and origin; both share them if there are too few.

    Args:
        cpus: The CPUs that the machine does not use.
        spare: Whether the last of several is left to the host's kernel.
    """
    if spare and len(cpus) > 1:
        cpus = cpus[:-1]
    half = (len(cpus) + 1) // 2
    return (cpus[:half], cpus[half:]) if len(cpus) > 1 else (cpus, cpus)


def _sibling_name(like: MachineSpec, role: str) -> str:
    return like.name.removesuffix(like.role) + role


@asynccontextmanager
async def started_process(
    context: Context,
    like: MachineSpec,
    role: str,
    around: Sequence[str],
    cpus: tuple[int, ...],
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Machine]:
    """Hold an agent that is a process on a machine's host, with the same toolbox.

    Args:
        context: The host, the ledger and the agent.
        like: The machine.
        role: The role of the process in the cell.
        around: The words in front of its command.
        cpus: Its CPUs.
        env: Its environment in addition to the toolbox's.

    Raises:
        MachineFault: It does not start.
    """
    host, ledger = context.host, context.ledger
    name = _sibling_name(like, role)
    workdir = like.workdir.with_name(f"{like.workdir.name}-{role}")
    spec = replace(like, name=name, role=role, workdir=workdir, cpus=cpus, network=None)
    async with AsyncExitStack() as held:
        await held.enter_async_context(owned_directory(host, ledger, workdir))
        tools = await tree_environment(context, spec, held)
        process = await start_owned(
            host,
            ledger,
            [*around, *with_most_descriptors([str(context.host_agent), "serve"])],
            log=workdir / CONSOLE,
            env={**tools, **(env or {})},
            cpus=cpus,
        )

        async def members() -> tuple[int, ...]:
            return (process.pid,)

        async def cost() -> dict[str, float]:
            return await tree_cost(host, process.pid)

        async def explain(code: int) -> str:
            return f"the {role}'s agent ended unexpectedly with status {code}"

        machine = ProcessMachine(
            name,
            process,
            workdir / CONSOLE,
            host=host,
            members=members,
            cost=cost,
            explain=explain,
            held=held.pop_all(),
        )
        try:
            hello = await machine.ready(READY_S)
            about = {"network": hello.proof["network"]} if "network" in hello.proof else {}
            machine.applied = {**machine.applied, **about}
            yield machine
        finally:
            await machine.stop()


def require_network(name: str, proof: Mapping[str, Any]) -> None:
    """Raise MachineFault if a machine reports that its network did not come up."""
    about = proof.get("network")
    if not isinstance(about, Mapping):
        raise MachineFault(f"{name}: its agent does not report the network that it was given")
    if about.get("error"):
        raise MachineFault(f"{name}: its network did not come up: {about['error']}")
