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
from tare.probes import ProbedCell
from tare.run.cells.alive import while_alive
from tare.run.cells.batch_tracing import traced_cells
from tare.run.cells.cell import LEAST_COUNTED_S, Attempt
from tare.run.cells.cell_context import CellContext
from tare.run.cells.cell_events import (
    log_failed,
    log_not_begun,
    log_started,
    log_stopped,
    not_removed,
)
from tare.run.cells.duet import InStep
from tare.run.cells.neighbours import Neighbour
from tare.run.cells.outputs import save_logs
from tare.run.cells.place import Place, connected_by, spec_at
from tare.run.cells.roles import Roles
from tare.run.cells.settled_clock import settled
from tare.run.cells.sites import OtherHosts, ReadyArm, Site
from tare.run.cells.tries import Tries
from tare.run.hosts.cpu_watch import CpuWatch, cpus_of
from tare.run.lifecycle.slow_libraries import SlowLibraries
from tare.run.lifecycle.undoing import undoers_with
from tare.run.probes.host_counters import HostSampler, host_sampler
from tare.run.probes.stack import added_probes
from tare.run.topologies.cluster.batch import clustered
from tare.run.topologies.kinds import Pair, Proxied, Topology
from tare.run.topologies.peers import (
    Connection,
    Peer,
    connected,
    require_network,
    started_peer,
)
from tare.run.topologies.proxied_setup import set_up_proxied
from tare.workloads.needs import needs_of, needs_of_loads
from tare.workloads.network.ends import PEER

if TYPE_CHECKING:
    from tare.run.cells.duet import Side
    from tare.run.hosts.contract import RunHost
    from tare.run.lifecycle.interrupt import StopRequest
    from tare.study.planning.cells import Batch, Cell
    from tare.workloads.contract import Need

AGAIN_S = (1.0,)
"""How long packets are sent before a further cell that needs the network, in seconds."""
STOP_S = 120.0
"""Seconds after which a machine that does not let itself be removed is left to the ledger."""


@dataclass
class BatchRunner:
    """Boots and measures batches; holds what all batches of a run share on a host."""

    run: str
    cells: CellContext
    arms: Mapping[str, ReadyArm]
    run_host: RunHost
    others: OtherHosts
    stop: StopRequest
    numbers: count[int]
    """Of the run's machines, on whichever host."""
    libraries: SlowLibraries
    newest: str = ""
    """The name of the machine that was started last."""
    _left: dict[str, tuple[Context, int]] = field(default_factory=dict)
    """Where something may be left of machines, by the host's name, and the first ledger entry that
    may be of them."""

    async def why(self, fault: TareError) -> TareError:
        """Return what a fault comes from: that an emulated host froze, or the fault itself."""
        if isinstance(fault, HostFroze) or not isinstance(fault, MachineFault):
            return fault
        for run_host in (self.run_host, *self.others.run_hosts.values()):
            if (froze := await run_host.froze()) is not None:
                return froze
        return fault

    def fail(self, cells: Sequence[Cell], error: TareError) -> None:
        """Tell that cells could not be begun, and why."""
        for cell in cells:
            log_not_begun(self.cells, cell, error, self._logs(self.newest))

    async def boot_and_measure(
        self, batch: Batch, cells: list[Cell], tries: Tries, side: Side | None = None
    ) -> list[Cell]:
        """Measure in one boot; return the cells that another is needed for.

        Args:
            batch: The batch.
            cells: Those of its cells that are wanted.
            tries: How often each cell was begun, which is kept.
            side: Where another batch is measured beside it.

        Raises:
            TareError: The machines could not be started.
        """
        arm = self.arms[batch.arm]
        context = await self.host_for(batch)
        watch, on = self.cpus, batch.host
        await watch.require(context.host, on, batch.block, cpus_of(batch.placement))
        async with AsyncExitStack() as machines:
            home = Site(self.run_host, context, arm.platform, arm.prepared)
            abroad = await self.others.sites(batch, arm)
            for site in abroad.values():
                await self._clear(site.run_host, site.context)
            place = Place(batch, arm, home, abroad, machines)
            place = replace(place, connection=await self._connection(place, cells))
            watched = await self._watched(place, cells)
            bridged = "bridged" in self._needs(batch, cells)
            roles = await self._roles(place, bridged, watched[0] if watched else None)
            roles = await place.machines.enter_async_context(
                clustered(
                    roles,
                    place.specs,
                    place.connection,
                    batch,
                    self.cells,
                    context,
                    emulated=arm.facts.emulated,
                    lost=place.lost,
                )
            )
            await self.libraries.loaded()
            facts = replace(arm.facts, vcpus=batch.vcpus)
            cells_here = await traced_cells(self.cells, batch, context, machines)
            for index, cell in enumerate(cells):
                if self.stop.finishing or (side and not await side.meets(index)):
                    return cells[index:]
                number = tries.begin(cell)
                if index and (silent := await self._silence(place, roles, cell)):
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
                    lost=place.lost,
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
                        ProbedCell(cell, kind, context, roles.machines, not self.cells.hands_off),
                    ),
                )
                fault = await attempt.carry_out()
                self.stop.cell_over()
                if fault is not None:
                    return self._after(fault, batch, cells[index:], tries)
        return []

    @cached_property
    def cpus(self) -> CpuWatch:
        """What notices that CPUs of the hosts came or went."""
        return CpuWatch(self.cells.log)

    def for_partner(self) -> BatchRunner:
        """Return a runner for one of two batches that are up at the same time.

        Only the newest machine's name is its own.
        """
        made = replace(self, newest="")
        made.cpus = self.cpus
        return made

    async def _unaltered(
        self, context: Context, batch: Batch, cell: Cell, cpu_changes: int
    ) -> None:
        """See that the arm's host is as it was when a cell began.

        Args:
            context: The host.
            batch: The cell's batch.
            cell: The cell.
            cpu_changes: How many changes of the host's CPUs were noticed before the cell.

        Raises:
            MachineFault: It is not, so the cell does not count.
        """
        await held_unaltered(context.host, context.ledger)
        await self.cpus.unchanged(context.host, batch.host, batch.block, cell.id, cpu_changes)

    def _after(self, fault: TareError, batch: Batch, cells: list[Cell], tries: Tries) -> list[Cell]:
        """Return what another boot is needed for, after the first of some cells has failed."""
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
        """Return the host as it has to be booted, and clear of what was left on it."""
        context = await self.run_host.under(batch.boot, batch.block)
        await self._clear(self.run_host, context)
        return self.arms[batch.arm].at(context)

    async def _clear(self, run_host: RunHost, context: Context) -> None:
        """Remove what was left of machines on a host, unless it was booted anew since."""
        where, first = self._left.pop(context.host.name, (None, 0))
        if where is not None and where.host is context.host:
            undoers = undoers_with(run_host.platforms.values())
            await clean(context.host, context.ledger, undoers, since=first)

    async def _connection(self, place: Place, cells: Sequence[Cell]) -> Connection | None:
        batch = place.batch
        needs = self._needs(batch, cells)
        cluster = batch.placement.cluster
        if "network" not in needs or (cluster is not None and cluster.external is not None):
            # Where a cluster exists already, its client reaches it as the host does.
            return None
        contexts = [site.context for site in (place.home, *place.abroad.values())]
        several = bool(batch.placement.companions) or cluster is not None or "bridged" in needs
        platform, options, link = place.arm.platform, place.arm.options, batch.placement.link
        joining = connected(contexts, platform, options, several=several, link=link)
        return await place.machines.enter_async_context(joining)

    def _needs(self, batch: Batch, cells: Sequence[Cell]) -> frozenset[Need]:
        known = self.cells.workloads
        return needs_of_loads(known, batch.placement.neighbours).union(
            *(needs_of(known[cell.kind], [cell.parameters]) for cell in cells)
        )

    async def _watched(self, place: Place, cells: Sequence[Cell]) -> list[HostSampler]:
        """Have the counters of all hosts at hand where any cell is long enough for them.

        The arm's own host comes first.
        """
        known = self.cells.workloads
        if not any(
            not known[cell.kind].realtime and cell.expected_s >= LEAST_COUNTED_S for cell in cells
        ):
            return []
        placed = place.batch.placement
        watching = [host_sampler(place.home.context, placed.subject_on_host)]
        for name, site in place.abroad.items():
            apart = [cpu for each in placed.companions if each.host == name for cpu in each.cpus]
            watching.append(host_sampler(site.context, apart, name))
        return [await place.machines.enter_async_context(each) for each in watching]

    async def _roles(self, place: Place, bridged: bool, watch: HostSampler | None) -> Roles:
        """Boot the machines of all roles; ``bridged``: some cell has the subject between two."""
        placed = place.batch.placement
        subject = await self._boot(place, placed.subject, SUBJECT, placed.subject_memory)
        neighbours = await self._boot_neighbours(place)
        companions = {
            each.role: await self._boot(
                place, each.cpus, each.role, each.memory, each.vcpus, each.host
            )
            for each in placed.companions
        }
        own = place.outside() if bridged else {}
        peer = await self._peer(place, subject, companions.get(PEER), own.get("client", ()))
        topologies: list[Topology] = [] if peer is None else [Pair(subject, peer)]
        if peer is not None and bridged:
            machines = await set_up_proxied(place, subject, peer, companions, own, watch)
            beside = tuple(each.machine for each in neighbours)
            topologies.append(Proxied(replace(machines, neighbours=beside)))
        return Roles(subject, neighbours, peer, companions, tuple(topologies))

    async def _peer(
        self,
        place: Place,
        subject: Machine,
        companion: Machine | None,
        cpus: tuple[int, ...],
    ) -> Peer | None:
        """Return the other end: the machine of that role, or else a process of the host."""
        if place.connection is None:
            return None
        network = place.connection.network
        if companion is not None:
            peer = Peer(companion, network)
        else:
            starting = started_peer(place.home.context, network, place.specs[SUBJECT], cpus)
            peer = await place.machines.enter_async_context(starting)
        await while_alive((subject, peer.machine), peer.prove(subject), *place.lost)
        return peer

    async def _silence(self, place: Place, roles: Roles, cell: Cell) -> str:
        """Return why a cell cannot use the network that cells before it could; empty if it can."""
        needs = needs_of(self.cells.workloads[cell.kind], [cell.parameters])
        if roles.peer is None or "network" not in needs:
            return ""
        machines = (roles.subject, roles.peer.machine)
        try:
            await while_alive(machines, roles.peer.prove(roles.subject, AGAIN_S), *place.lost)
        except TareError as error:
            return f"{roles.subject.name}: its network has fallen silent: {error}"
        return ""

    async def _boot_neighbours(self, place: Place) -> tuple[Neighbour, ...]:
        neighbours = []
        for number, wanted in enumerate(place.batch.placement.neighbours, start=1):
            role = f"neighbour-{number}"
            machine = await self._boot(place, wanted.cpus, role, wanted.memory)
            memory = wanted.memory or place.arm.shape.memory
            neighbours.append(
                Neighbour(
                    role, machine, wanted.load, wanted.parameters, memory, place.arm.shape.vcpus
                )
            )
        return tuple(neighbours)

    async def _boot(
        self,
        place: Place,
        cpus: tuple[int, ...],
        role: str,
        memory: int | None = None,
        vcpus: int | None = None,
        host: str = "",
    ) -> Machine:
        batch, arm = place.batch, place.arm
        site = place.abroad.get(host, place.home)
        context = site.context
        name = self.newest = f"tare-{self.run}-{next(self.numbers)}-{role}"
        vcpus = batch.vcpus if role == SUBJECT else vcpus or arm.shape.vcpus
        shape = replace(arm.shape, memory=memory or arm.shape.memory, vcpus=vcpus)
        # Of all cells of the batch: a boot for some of them must be like any other.
        uses_disk = "disk" in self._needs(batch, batch.cells)
        spec = spec_at(place, site, name, shape, cpus, role, uses_disk=uses_disk)
        self.cells.log.append(
            MachineStarting(
                machine=name, block=batch.block, arm=arm.name, scenario=batch.scenario, role=role
            )
        )
        first = context.ledger.next_number
        began = time.monotonic()
        try:
            starting = site.platform.start(context, arm.options, site.prepared, spec)
            machine = await while_alive((), starting, *place.lost)
        except TareError as fault:
            self._left.setdefault(context.host.name, (context, first))
            log_stopped(self.cells, name, fault)
            raise
        place.machines.push_async_callback(self._remove, site, machine, spec.workdir, first)
        hello = await while_alive((), machine.ready(site.run_host.machine_s), *place.lost)
        boot_s = time.monotonic() - began
        if spec.network is not None:
            require_network(name, hello.proof)
        if not self.cells.clocks.virtual:
            settling = settled(machine.agent, hello)
            hello = await while_alive((machine,), settling, *place.lost)
        self.cells.log.append(
            MachineReady(
                machine=name,
                boot_s=boot_s,
                proof=dict(hello.proof),
                placement={
                    "role": role,
                    **({"host": host} if host in place.abroad else {}),
                    "cpus": list(cpus),
                    "vcpu_threads": list(await machine.vcpu_threads()),
                    # Its counters of CPUs are the host's then, which has more than its own.
                    "sees_host_cpus": machine.shares_clock,
                    **connected_by(place, spec),
                    **machine.applied,
                },
            )
        )
        return machine

    async def _remove(self, site: Site, machine: Machine, workdir: Path, first: int) -> None:
        # A second Ctrl-C must not leave a machine behind, so stopping is shielded from it.
        stopping = asyncio.ensure_future(self._stop_and_tell(site, machine, workdir, first))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise

    async def _stop_and_tell(self, site: Site, machine: Machine, workdir: Path, first: int) -> None:
        cost: Mapping[str, float] = {}
        context, lost = site.context, site.run_host.lost
        fault = lost.result() if lost.done() else None
        if fault is None:
            # A dead machine has no cost to ask for; what it died of is told below.
            with suppress(MachineFault):
                cost = await while_alive([machine], machine.host_cost(), lost)
            fault = machine.died.result() if machine.died.done() else None
            with suppress(TareError):
                await while_alive((), self._keep_logs(context, machine.name, workdir), lost)
        try:
            async with asyncio.timeout(STOP_S):
                await while_alive((), machine.stop(), lost)
        except (TareError, OSError, TimeoutError) as error:
            # The host is lost for now: what is left there is removed once it is back.
            self._left.setdefault(context.host.name, (context, first))
            if fault is None:
                fault = not_removed(machine.name, error)
        log_stopped(self.cells, machine.name, fault, cost)

    async def _keep_logs(self, context: Context, name: str, workdir: Path) -> None:
        await save_logs(context.host, workdir, self.cells.folder.machines / name)

    def _logs(self, name: str) -> tuple[str, ...]:
        if not name:
            return ()
        return (self.cells.folder.relative(self.cells.folder.machines / name),)
