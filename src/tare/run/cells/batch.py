"""One boot of a batch: start an arm's machines, run its cells, and remove the machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import HostFroze, MachineFault, TareError
from tare.events import MachineReady, MachineStarting
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.settings import held_unaltered
from tare.platforms.contract import SUBJECT, Context, Machine
from tare.platforms.host_hypervisor import hypervisor_of
from tare.probes import ProbedCell
from tare.run.cells.cell_context import CellContext
from tare.run.cells.cell_events import (
    log_failed,
    log_not_begun,
    log_started,
    log_stopped,
    removal_fault,
)
from tare.run.cells.duet import InStep
from tare.run.cells.liveness import run_while_alive
from tare.run.cells.neighbours import Neighbour
from tare.run.cells.outputs import save_logs
from tare.run.cells.placement import (
    ArmHost,
    BatchPlacement,
    OtherHosts,
    ReadyArm,
    connected_by,
    spec_at,
)
from tare.run.cells.plausibility import wait_for_settled_clock
from tare.run.cells.roles import Roles
from tare.run.cells.tries import Tries
from tare.run.hosts.cpu_watch import CpuWatch, cpus_of
from tare.run.lifecycle.early_work import BeforeCells
from tare.run.lifecycle.undoers import undoers_of_run
from tare.run.probes.host_counters import LEAST_COUNTED_S, HostSampler, host_sampler
from tare.run.probes.stack import added_probes
from tare.run.topologies.kinds import Pair, Proxied, Topology
from tare.run.topologies.peers import (
    Connection,
    Peer,
    connected,
    require_network,
    started_peer,
)
from tare.workloads.needs import ends_as_machines, needs_of, needs_of_loads
from tare.workloads.network.ends import ORIGIN, PEER

if TYPE_CHECKING:
    from tare.run.cells.duet import Side
    from tare.run.hosts.contract import RunHost
    from tare.run.lifecycle.interrupt import StopRequest
    from tare.study.planning.cells import Batch, Cell
    from tare.workloads.contract import Need

AGAIN_S = (1.0,)
"""Seconds for which packets are sent before each further cell that needs the network."""
STOP_S = 120.0
"""Seconds after which the removal of a machine is left to the ledger."""


@dataclass
class BatchRunner:
    """Boots and measures batches, with everything that a run's batches share on a host."""

    run: str
    cells: CellContext
    arms: Mapping[str, ReadyArm]
    run_host: RunHost
    others: OtherHosts
    stop: StopRequest
    numbers: count[int]
    """Numbers of the run's machines, on all hosts."""
    before_cells: BeforeCells
    newest: str = ""
    """The name of the machine that was started last."""
    _left: dict[str, tuple[Context, int]] = field(default_factory=dict)
    """Hosts on which machines may have left something, by name, with their first ledger entry
    there."""

    async def why(self, fault: TareError) -> TareError:
        """Return the cause of a fault: that an emulated host froze, or the fault itself."""
        if isinstance(fault, HostFroze) or not isinstance(fault, MachineFault):
            return fault
        for run_host in (self.run_host, *self.others.run_hosts.values()):
            if (froze := await run_host.froze()) is not None:
                return froze
        return fault

    def fail(self, cells: Sequence[Cell], error: TareError) -> None:
        """Log that cells could not start, and why."""
        for cell in cells:
            log_not_begun(self.cells, cell, error, self._logs(self.newest))

    async def boot_and_measure(
        self, batch: Batch, cells: list[Cell], tries: Tries, side: Side | None = None
    ) -> list[Cell]:
        """Measure cells in one boot; return those that need another boot.

        Args:
            batch: The batch.
            cells: The cells of the batch to measure.
            tries: The number of tries of each cell, which is updated.
            side: The side of this batch, if another batch is measured at the same time.

        Raises:
            TareError: The machines could not be started.
        """
        arm = self.arms[batch.arm]
        context = await self.host_for(batch)
        watch, on = self.cpus, batch.host
        await watch.require(context.host, on, batch.block, cpus_of(batch.placement))
        async with AsyncExitStack() as machines:
            home = ArmHost(self.run_host, context, arm.platform, arm.prepared)
            others = await self.others.sites(batch, arm)
            for site in others.values():
                await self._clear(site.run_host, site.context)
            placing = BatchPlacement(batch, arm, home, others, machines)
            placing = replace(placing, connection=await self._connection(placing, cells))
            watched = await self._watched(placing, cells)
            bridged = "bridged" in self._needs(batch, cells)
            roles = await self._roles(placing, bridged, watched[0] if watched else None)
            roles = await self._clustered(roles, placing, context)
            await self.before_cells.done()
            # Imported while the machines booted.
            from tare.run.cells.cell import Attempt

            facts = replace(arm.facts, vcpus=batch.vcpus)
            cells_here = await traced_cells(self.cells, batch, context, machines)
            for index, cell in enumerate(cells):
                if self.stop.finishing or (side and not await side.meets(index)):
                    return cells[index:]
                number = tries.begin(cell)
                if index and (silent := await self._silence(placing, roles, cell)):
                    log_started(self.cells, cell, number, roles)
                    log_failed(self.cells, cell, silent, True, self._logs(roles.subject.name))
                    return cells[index if tries.may_again(cell) else index + 1 :]
                kind = self.cells.workloads[cell.kind]
                attempt = Attempt(
                    cells_here,
                    cell,
                    roles,
                    facts,
                    number=number,
                    why=self.why,
                    logs=self._logs(roles.subject.name),
                    host_trace=batch.host_trace,
                    lost=placing.lost,
                    watched=watched,
                    unaltered=partial(
                        self._unaltered, context, batch, cell, self.cpus.count(context.host)
                    ),
                    in_step=None if side is None else InStep(side, index),
                    memory_probes=arm.memory_probes(
                        context, kind, cell.parameters, roles.machines, batch.placement.subject
                    ),
                    added=added_probes(
                        self.cells.probe_kinds,
                        ProbedCell(
                            cell,
                            kind,
                            context,
                            roles.machines,
                            may_ask=not self.cells.hands_off,
                            traced=batch.host_trace and kind.logs_gaps,
                        ),
                    ),
                )
                fault = await attempt.execute()
                self.stop.cell_over()
                if fault is not None:
                    return self._cells_to_retry(fault, batch, cells[index:], tries)
        return []

    async def _clustered(self, roles: Roles, placing: BatchPlacement, context: Context) -> Roles:
        """Return the roles with a cluster of the machines, if the batch has one."""
        if placing.batch.placement.cluster is None:
            return roles
        # Imported here, because few runs have a cluster.
        from tare.run.topologies.cluster.batch import clustered

        return await placing.machines.enter_async_context(
            clustered(
                roles,
                placing.specs,
                placing.connection,
                placing.batch,
                self.cells,
                context,
                emulated=placing.arm.facts.emulated,
                lost=placing.lost,
            )
        )

    @cached_property
    def cpus(self) -> CpuWatch:
        """The watch over the CPUs of the hosts."""
        return CpuWatch(self.cells.log)

    def for_partner(self) -> BatchRunner:
        """Return a runner for one of two batches that run at the same time.

        It shares everything but the newest machine's name.
        """
        made = replace(self, newest="")
        made.cpus = self.cpus
        return made

    async def _unaltered(
        self, context: Context, batch: Batch, cell: Cell, cpu_changes: int
    ) -> None:
        """Check that settings and CPUs of the arm's host did not change during a cell.

        Args:
            context: The host.
            batch: The cell's batch.
            cell: The cell.
            cpu_changes: The number of changes of the host's CPUs before the cell.

        Raises:
            MachineFault: They changed, so the cell does not count.
        """
        await held_unaltered(context.host, context.ledger)
        await self.cpus.unchanged(context.host, batch.host, batch.block, cell.id, cpu_changes)

    def _cells_to_retry(
        self, fault: TareError, batch: Batch, cells: list[Cell], tries: Tries
    ) -> list[Cell]:
        """Return the cells that need another boot, after the first of some cells failed."""
        if isinstance(fault, HostFroze):
            tries.freeze(fault, batch, cells[0], self.cells)
            if tries.spoilt:
                self.fail(cells[1:], fault)
                return []
            return cells
        # Emulation itself kills a guest now and then (`tare help lab`).
        passing = self.run_host.emulated or (isinstance(fault, MachineFault) and fault.transient)
        return cells[0 if passing and tries.may_again(cells[0]) else 1 :]

    async def host_for(self, batch: Batch) -> Context:
        """Boot the host as the batch needs it, and remove what was left on it."""
        context = await self.run_host.under(batch.boot, batch.block)
        await self._clear(self.run_host, context)
        return self.arms[batch.arm].at(context)

    async def _clear(self, run_host: RunHost, context: Context) -> None:
        """Remove what machines left on a host, unless it was booted again since."""
        where, first = self._left.pop(context.host.name, (None, 0))
        if where is not None and where.host is context.host:
            undoers = undoers_of_run(run_host.platforms.values())
            await clean(context.host, context.ledger, undoers, since=first)

    async def _connection(
        self, placing: BatchPlacement, cells: Sequence[Cell]
    ) -> Connection | None:
        batch = placing.batch
        needs = self._needs(batch, cells)
        cluster = batch.placement.cluster
        if "network" not in needs or (cluster is not None and cluster.external is not None):
            # The client of an existing cluster reaches it by the host's own network.
            return None
        contexts = [site.context for site in (placing.home, *placing.others.values())]
        several = bool(batch.placement.companions) or cluster is not None or "bridged" in needs
        platform, options, link = placing.arm.platform, placing.arm.options, batch.placement.link
        joining = connected(contexts, platform, options, several=several, link=link)
        return await placing.machines.enter_async_context(joining)

    def _needs(self, batch: Batch, cells: Sequence[Cell]) -> frozenset[Need]:
        known = self.cells.workloads
        return needs_of_loads(known, batch.placement.neighbours).union(
            *(needs_of(known[cell.kind], [cell.parameters]) for cell in cells)
        )

    async def _watched(self, placing: BatchPlacement, cells: Sequence[Cell]) -> list[HostSampler]:
        """Open the counters of all hosts, if any cell is long enough for them.

        The arm's own host is the first.
        """
        known = self.cells.workloads
        if not any(
            not known[cell.kind].realtime and cell.expected_s >= LEAST_COUNTED_S for cell in cells
        ):
            return []
        placed = placing.batch.placement
        watching = [host_sampler(placing.home.context, placed.subject_on_host)]
        for name, site in placing.others.items():
            apart = [cpu for each in placed.companions if each.host == name for cpu in each.cpus]
            watching.append(host_sampler(site.context, apart, name))
        return [await placing.machines.enter_async_context(each) for each in watching]

    async def _roles(
        self, placing: BatchPlacement, bridged: bool, watch: HostSampler | None
    ) -> Roles:
        """Boot the machines of all roles; ``bridged``: in some cell the subject is a proxy."""
        placed = placing.batch.placement
        subject = await self._boot(placing, placed.subject, SUBJECT, placed.subject_memory)
        neighbours = await self._boot_neighbours(placing)
        companions = {
            each.role: await self._boot(
                placing, each.cpus, each.role, each.memory, each.vcpus, each.host
            )
            for each in placed.companions
        }
        companions |= await self._own_ends(placing, companions)
        own = placing.outside() if bridged and not {PEER, ORIGIN} <= companions.keys() else {}
        peer = await self._peer(placing, subject, companions, own.get("client", ()))
        topologies: list[Topology] = [] if peer is None else [Pair(subject, peer)]
        if peer is not None and bridged:
            # Imported here, because few runs measure proxies.
            from tare.run.topologies.proxied_setup import set_up_proxied

            machines = await set_up_proxied(placing, subject, peer, companions, own, watch)
            loaded = tuple(each.machine for each in neighbours)
            topologies.append(Proxied(replace(machines, neighbours=loaded)))
        return Roles(subject, neighbours, peer, companions, tuple(topologies))

    async def _own_ends(
        self, placing: BatchPlacement, companions: Mapping[str, Machine]
    ) -> dict[str, Machine]:
        """Boot ends that have to be machines, and that the plan of an older version lacks."""
        if placing.connection is None:
            return {}
        # This considers all cells of the batch, so that all its boots are equal. The machines of a
        # cluster are the ends of its own work.
        clustered = placing.batch.placement.cluster is not None
        needs = self._needs(placing.batch, () if clustered else placing.batch.cells)
        wanted = ends_as_machines(placing.connection.way, needs)
        return {
            role: await self._boot(placing, (), role) for role in wanted if role not in companions
        }

    async def _peer(
        self,
        placing: BatchPlacement,
        subject: Machine,
        companions: Mapping[str, Machine],
        cpus: tuple[int, ...],
    ) -> Peer | None:
        """Return the peer: the machine of that role, or else a process on the host.

        A cluster on a network that no process reaches has none, except for its neighbours' loads.
        """
        if placing.connection is None:
            return None
        network, cluster = placing.connection.network, placing.batch.placement.cluster
        alone = cluster is not None and placing.connection.own_ends and PEER not in companions
        # Where there is no peer, a slave proves the network.
        companion = next(iter(companions.values()), None) if alone else companions.get(PEER)
        if companion is not None:
            peer = Peer(companion, network)
        elif alone:
            return None
        else:
            starting = started_peer(placing.home.context, network, placing.specs[SUBJECT], cpus)
            peer = await placing.machines.enter_async_context(starting)
        await run_while_alive((subject, peer.machine), peer.prove(subject), *placing.lost)
        return None if alone else peer

    async def _silence(self, placing: BatchPlacement, roles: Roles, cell: Cell) -> str:
        """Return why a cell cannot use the network that earlier cells used; empty if it can."""
        needs = needs_of(self.cells.workloads[cell.kind], [cell.parameters])
        if roles.peer is None or "network" not in needs:
            return ""
        machines = (roles.subject, roles.peer.machine)
        try:
            await run_while_alive(machines, roles.peer.prove(roles.subject, AGAIN_S), *placing.lost)
        except TareError as error:
            return f"{roles.subject.name}: its network has fallen silent: {error}"
        return ""

    async def _boot_neighbours(self, placing: BatchPlacement) -> tuple[Neighbour, ...]:
        neighbours = []
        for number, wanted in enumerate(placing.batch.placement.neighbours, start=1):
            role = f"neighbour-{number}"
            machine = await self._boot(placing, wanted.cpus, role, wanted.memory)
            memory = wanted.memory or placing.arm.shape.memory
            neighbours.append(
                Neighbour(
                    role, machine, wanted.load, wanted.parameters, memory, placing.arm.shape.vcpus
                )
            )
        return tuple(neighbours)

    async def _boot(
        self,
        placing: BatchPlacement,
        cpus: tuple[int, ...],
        role: str,
        memory: int | None = None,
        vcpus: int | None = None,
        host: str = "",
    ) -> Machine:
        batch, arm = placing.batch, placing.arm
        site = placing.others.get(host, placing.home)
        context = site.context
        name = self.newest = f"tare-{self.run}-{next(self.numbers)}-{role}"
        vcpus = batch.vcpus if role == SUBJECT else vcpus or arm.shape.vcpus
        shape = replace(arm.shape, memory=memory or arm.shape.memory, vcpus=vcpus)
        # This considers all cells of the batch, so that all its boots are equal.
        uses_disk = "disk" in self._needs(batch, batch.cells)
        spec = spec_at(placing, site, name, shape, cpus, role, uses_disk=uses_disk)
        self.cells.log.append(
            MachineStarting(
                machine=name, block=batch.block, arm=arm.name, scenario=batch.scenario, role=role
            )
        )
        first = context.ledger.next_number
        began = time.monotonic()
        try:
            starting = site.platform.start(context, arm.options, site.prepared, spec)
            machine = await run_while_alive((), starting, *placing.lost)
        except TareError as fault:
            self._left.setdefault(context.host.name, (context, first))
            log_stopped(self.cells, name, fault)
            raise
        placing.machines.push_async_callback(self._remove, site, machine, spec.workdir, first)
        hello = await run_while_alive((), machine.ready(site.run_host.machine_s), *placing.lost)
        boot_s = time.monotonic() - began
        if placing.connection is not None:
            require_network(name, hello.proof)
            if interface := hello.proof["network"].get("name"):
                placing.connection.whole.record_interface(name, str(interface))
        if not self.cells.clocks.virtual:
            settling = wait_for_settled_clock(machine.agent, hello)
            hello = await run_while_alive((machine,), settling, *placing.lost)
        self.cells.log.append(
            MachineReady(
                machine=name,
                boot_s=boot_s,
                proof=dict(hello.proof),
                placement={
                    "role": role,
                    **({"host": host} if host in placing.others else {}),
                    "cpus": list(cpus),
                    "vcpu_threads": list(await machine.vcpu_threads()),
                    # Its CPU counters are then those of the host, which has more CPUs.
                    "sees_host_cpus": machine.shares_clock,
                    **connected_by(placing, spec),
                    **machine.applied,
                },
            )
        )
        return machine

    async def _remove(self, site: ArmHost, machine: Machine, workdir: Path, first: int) -> None:
        # A second Ctrl-C must not leave a machine behind, so stopping is shielded from it.
        stopping = asyncio.ensure_future(self._stop_and_log(site, machine, workdir, first))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise

    async def _stop_and_log(
        self, site: ArmHost, machine: Machine, workdir: Path, first: int
    ) -> None:
        cost: Mapping[str, float] = {}
        context, lost = site.context, site.run_host.lost
        fault = lost.result() if lost.done() else None
        if fault is None:
            # A dead machine has no cost; its fault is logged below.
            with suppress(MachineFault):
                cost = await run_while_alive([machine], machine.host_cost(), lost)
            fault = machine.died.result() if machine.died.done() else None
            with suppress(TareError):
                await run_while_alive((), self._keep_logs(context, machine.name, workdir), lost)
        try:
            async with asyncio.timeout(STOP_S):
                await run_while_alive((), machine.stop(), lost)
        except (TareError, OSError, TimeoutError) as error:
            # The host is lost for now: the rest is removed once it is back.
            self._left.setdefault(context.host.name, (context, first))
            if fault is None:
                fault = removal_fault(machine.name, error)
        log_stopped(self.cells, machine.name, fault, cost)

    async def _keep_logs(self, context: Context, name: str, workdir: Path) -> None:
        await save_logs(context.host, workdir, self.cells.folder.machines / name)

    def _logs(self, name: str) -> tuple[str, ...]:
        if not name:
            return ()
        return (self.cells.folder.relative(self.cells.folder.machines / name),)


async def traced_cells(
    cells: CellContext, batch: Batch, context: Context, held: AsyncExitStack
) -> CellContext:
    """Return the context of a batch's cells, with a trace recorder if the host is remote.

    A remote host may be rebooted between batches, which ends a recorder there.

    Args:
        cells: The context of all cells on the run host.
        batch: The batch.
        context: The host of its machines.
        held: Releases the recorder.
    """
    # A kernel under a hypervisor sees nothing of the other machines.
    if not batch.host_trace or context.host.local or hypervisor_of(batch.boot):
        return cells
    from tare.run.probes.host_trace import host_tracing

    return replace(cells, tracing=await held.enter_async_context(host_tracing(context)))
