"""Carry out one visit: boot an arm's machines freshly, run its cells, and remove the machines."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault, TareError
from tare.events import MachineReady, MachineStarting, MachineStopped
from tare.hosts.cleanup import clean
from tare.hosts.settings import held_unaltered
from tare.platforms.base import Context, Machine, MachineSpec, Platform, Prepared, Shape
from tare.platforms.process_machine import temporary_folder
from tare.run.cell import LEAST_COUNTED_S, CellContext, carry_out_cell, fail_cell, while_alive
from tare.run.hostwatch import HostWatch, host_watch
from tare.run.neighbours import Neighbour
from tare.run.peers import Connection, Peer, connected, require_network, started_peer
from tare.run.slowlibraries import SlowLibraries
from tare.workloads.needs import needs_of, needs_of_loads

if TYPE_CHECKING:
    from tare.run.interrupt import StopRequest
    from tare.run.station import Station
    from tare.study.plan import Cell, Visit
    from tare.workloads import MachineFacts

TRIES = 2
STOP_S = 120.0
"""Seconds after which a machine that does not let itself be removed is left to the ledger."""
LOGS_S = 30.0


@dataclass(frozen=True)
class ReadyArm:
    """An arm that can run here: its platform, what that boots, and its size."""

    name: str
    platform: Platform
    options: Any
    kernel: str | None
    prepared: Prepared
    shape: Shape
    realtime: bool
    facts: MachineFacts


@dataclass
class Visitor:
    """Carries out visits; holds what all visits of a run share."""

    run: str
    cells: CellContext
    arms: Mapping[str, ReadyArm]
    station: Station
    stop: StopRequest
    _libraries: SlowLibraries = field(default_factory=SlowLibraries)
    _newest: str = ""
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _left: tuple[Context, int] | None = None
    """Where something may be left of machines, and the first ledger entry that may be of them."""

    async def carry_out(self, visit: Visit, pending: Sequence[Cell]) -> None:
        """Run the ``pending`` cells of ``visit``, booting anew after a machine was lost.

        A cell that fails is told of with its reason; it never ends the run.
        """
        attempts: dict[str, int] = {}
        remaining = list(pending)
        while remaining and not self.stop.finishing:
            before = attempts.get(remaining[0].id, 0)
            try:
                remaining = await self._boot_and_measure(visit, remaining, attempts)
            except TareError as error:
                first = remaining[0]
                # A cell that was begun is counted already, whatever broke after it.
                attempts[first.id] = max(attempts.get(first.id, 0), before + 1)
                transient = isinstance(error, MachineFault) and error.transient
                if transient and attempts[first.id] < TRIES:
                    continue
                for cell in remaining:
                    fail_cell(self.cells, cell, error, self._logs(self._newest))
                return

    async def _boot_and_measure(
        self, visit: Visit, cells: list[Cell], attempts: dict[str, int]
    ) -> list[Cell]:
        arm = self.arms[visit.arm]
        context = await self._context(visit, arm)
        async with AsyncExitStack() as machines:
            connection = await self._connection(visit, arm, cells, context, machines)
            place = _Place(visit, arm, context, machines, connection)
            subject = await self._boot(place, visit.placement.subject, "subject")
            neighbours = await self._boot_neighbours(place)
            peer = await self._peer(place, subject)
            watch = await self._watch(place, cells)
            await self._libraries.loaded()
            facts = replace(arm.facts, vcpus=visit.vcpus)
            for index, cell in enumerate(cells):
                if self.stop.finishing:
                    return cells[index:]
                attempts[cell.id] = attempts.get(cell.id, 0) + 1
                fault = await carry_out_cell(
                    self.cells,
                    cell,
                    subject,
                    neighbours,
                    facts,
                    attempts[cell.id],
                    self._logs(subject.name),
                    visit.host_trace,
                    self.station.lost,
                    peer,
                    watch,
                    partial(held_unaltered, context.host, context.ledger),
                )
                if fault is not None:
                    # Emulation itself kills a guest now and then (docs/lab.md).
                    passing = fault.transient or self.station.emulated
                    again = passing and attempts[cell.id] < TRIES
                    return cells[index if again else index + 1 :]
        return []

    async def _context(self, visit: Visit, arm: ReadyArm) -> Context:
        """Return the host as it has to be booted, and clear of what was left on it."""
        context = await self.station.under(visit.boot, visit.block)
        if self._left is not None:
            (where, first), self._left = self._left, None
            if where.host is context.host:
                await clean(context.host, context.ledger, since=first)
        return replace(context, kernel=arm.kernel)

    async def _connection(
        self,
        visit: Visit,
        arm: ReadyArm,
        cells: Sequence[Cell],
        context: Context,
        machines: AsyncExitStack,
    ) -> Connection | None:
        known = self.cells.workloads
        needs = needs_of_loads(known, visit.placement.neighbours).union(
            *(needs_of(known[cell.kind]) for cell in cells)
        )
        if "network" not in needs:
            return None
        return await machines.enter_async_context(
            connected(context, arm.platform.name, arm.options)
        )

    async def _watch(self, place: _Place, cells: Sequence[Cell]) -> HostWatch | None:
        """Have the host's counters at hand where any cell is long enough for them."""
        known = self.cells.workloads
        if not any(
            not known[cell.kind].realtime and cell.expected_s >= LEAST_COUNTED_S for cell in cells
        ):
            return None
        watching = host_watch(place.context, place.visit.placement.subject)
        return await place.machines.enter_async_context(watching)

    async def _peer(self, place: _Place, subject: Machine) -> Peer | None:
        if place.connection is None:
            return None
        starting = started_peer(place.context, place.connection.network, place.specs["subject"])
        peer = await place.machines.enter_async_context(starting)
        await while_alive((subject, peer.machine), peer.prove(subject), self.station.lost)
        return peer

    async def _boot_neighbours(self, place: _Place) -> tuple[Neighbour, ...]:
        neighbours = []
        for number, wanted in enumerate(place.visit.placement.neighbours, start=1):
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
        self, place: _Place, cpus: tuple[int, ...], role: str, memory: int | None = None
    ) -> Machine:
        visit, arm, context = place.visit, place.arm, place.context
        name = self._newest = f"tare-{self.run}-{next(self._numbers)}-{role}"
        shape = replace(arm.shape, memory=memory or arm.shape.memory)
        if role == "subject":
            shape = replace(shape, vcpus=visit.vcpus)
        # Nobody can have made it beforehand: its name is known to nobody.
        workdir = temporary_folder(context.host) / f"{name}-{secrets.token_hex(4)}"
        spec = MachineSpec(name, shape, cpus, workdir, arm.realtime, role, arm.prepared.toolbox)
        if place.connection is not None:
            network, way = place.connection.network, place.connection.way
            spec = place.specs[role] = replace(spec, network=network, way=way)
        self.cells.log.append(
            MachineStarting(
                machine=name, block=visit.block, arm=arm.name, scenario=visit.scenario, role=role
            )
        )
        first = context.ledger.next_number
        began = time.monotonic()
        lost = self.station.lost
        try:
            starting = arm.platform.start(context, arm.options, arm.prepared, spec)
            machine = await while_alive((), starting, lost)
        except TareError as fault:
            self._left = self._left or (context, first)
            self._tell_stopped(name, fault)
            raise
        place.machines.push_async_callback(self._remove, context, machine, workdir, first)
        self._libraries.begin()
        hello = await while_alive((), machine.ready(self.station.machine_s), lost)
        if spec.network is not None:
            require_network(name, hello.proof)
        self.cells.log.append(
            MachineReady(
                machine=name,
                boot_s=time.monotonic() - began,
                proof=dict(hello.proof),
                placement={
                    "role": role,
                    "cpus": list(cpus),
                    "vcpu_threads": list(await machine.vcpu_threads()),
                    **machine.applied,
                },
            )
        )
        return machine

    async def _remove(self, context: Context, machine: Machine, workdir: Path, first: int) -> None:
        # A second Ctrl-C must not leave a machine behind, so stopping is shielded from it.
        stopping = asyncio.ensure_future(self._stop_and_tell(context, machine, workdir, first))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise

    async def _stop_and_tell(
        self, context: Context, machine: Machine, workdir: Path, first: int
    ) -> None:
        cost: Mapping[str, float] = {}
        lost = self.station.lost
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
            self._left = self._left or (context, first)
            if fault is None:
                fault = _as_fault(machine.name, error)
        self._tell_stopped(machine.name, fault, cost)

    def _tell_stopped(
        self, name: str, fault: TareError | None, cost: Mapping[str, float] | None = None
    ) -> None:
        tail = fault.console_tail if isinstance(fault, MachineFault) else ()
        self.cells.log.append(
            MachineStopped(
                machine=name,
                expected=fault is None,
                reason=str(fault) if fault else "",
                console_tail=tail,
                host_cost=dict(cost or {}),
            )
        )

    async def _keep_logs(self, context: Context, name: str, workdir: Path) -> None:
        kept = self.cells.folder.machines / name
        search = ["find", str(workdir), "-maxdepth", "1", "-name", "*.log", "-type", "f"]
        found = await context.host.run(search, timeout_s=LOGS_S)
        for log in sorted(map(Path, found.stdout.decode().splitlines())):
            with suppress(OSError):
                content = await context.host.read(log)
                kept.mkdir(exist_ok=True)
                (kept / log.name).write_bytes(content)

    def _logs(self, name: str) -> tuple[str, ...]:
        return (self.cells.folder.relative(self.cells.folder.machines / name),)


@dataclass(frozen=True)
class _Place:
    """Where the machines of one visit are started."""

    visit: Visit
    arm: ReadyArm
    context: Context
    machines: AsyncExitStack
    connection: Connection | None = None
    specs: dict[str, MachineSpec] = field(default_factory=dict)
    """What was started, by role, where the machines are connected."""


def _as_fault(name: str, error: TareError | OSError | TimeoutError) -> MachineFault:
    if isinstance(error, MachineFault):
        return error
    words = "it did not end in time" if isinstance(error, TimeoutError) else str(error)
    return MachineFault(f"{name} could not be removed: {words}")
