"""Carry out one visit: boot an arm's machines freshly, run its cells, and remove the machines."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault, TareError
from tare.events import MachineReady, MachineStarting, MachineStopped
from tare.platforms.base import Context, Machine, MachineSpec, Platform, Prepared, Shape
from tare.run.cell import CellContext, carry_out_cell, fail_cell, while_alive
from tare.run.neighbours import Neighbour
from tare.run.slowlibraries import SlowLibraries

if TYPE_CHECKING:
    from tare.run.interrupt import StopRequest
    from tare.study.plan import Cell, Visit
    from tare.workloads import MachineFacts

BOOT_DEADLINE_S = 60.0
TRIES = 2


@dataclass(frozen=True)
class ReadyArm:
    """An arm that can run here: its platform, what that boots, and its size."""

    name: str
    platform: Platform
    options: Any
    context: Context
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
    workspace: Path
    stop: StopRequest
    _libraries: SlowLibraries = field(default_factory=SlowLibraries)
    _newest: str = ""
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def carry_out(self, visit: Visit, pending: Sequence[Cell]) -> None:
        """Run the ``pending`` cells of ``visit``, booting anew after a machine was lost.

        A cell that fails is told of with its reason; it never ends the run.
        """
        attempts: dict[str, int] = {}
        remaining = list(pending)
        while remaining and not self.stop.finishing:
            try:
                remaining = await self._boot_and_measure(visit, remaining, attempts)
            except TareError as error:
                first = remaining[0]
                attempts[first.id] = attempts.get(first.id, 0) + 1
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
        async with AsyncExitStack() as machines:
            subject = await self._boot(machines, visit, arm, visit.placement.subject, "subject")
            neighbours = await self._boot_neighbours(machines, visit, arm)
            await self._libraries.loaded()
            for index, cell in enumerate(cells):
                if self.stop.finishing:
                    return cells[index:]
                attempts[cell.id] = attempts.get(cell.id, 0) + 1
                fault = await carry_out_cell(
                    self.cells,
                    cell,
                    subject,
                    neighbours,
                    arm.facts,
                    attempts[cell.id],
                    self._logs(subject.name),
                    visit.host_trace,
                )
                if fault is not None:
                    again = fault.transient and attempts[cell.id] < TRIES
                    return cells[index if again else index + 1 :]
        return []

    async def _boot_neighbours(
        self, machines: AsyncExitStack, visit: Visit, arm: ReadyArm
    ) -> tuple[Neighbour, ...]:
        neighbours = []
        for number, wanted in enumerate(visit.placement.neighbours, start=1):
            role = f"neighbour-{number}"
            machine = await self._boot(machines, visit, arm, wanted.cpus, role)
            neighbours.append(Neighbour(role, machine, wanted.load, wanted.parameters))
        return tuple(neighbours)

    async def _boot(
        self,
        machines: AsyncExitStack,
        visit: Visit,
        arm: ReadyArm,
        cpus: tuple[int, ...],
        role: str,
    ) -> Machine:
        name = self._newest = f"tare-{self.run}-{next(self._numbers)}-{role}"
        spec = MachineSpec(name, arm.shape, cpus, self.workspace / name, arm.realtime, role)
        self.cells.log.append(
            MachineStarting(
                machine=name, block=visit.block, arm=arm.name, scenario=visit.scenario, role=role
            )
        )
        began = time.monotonic()
        try:
            machine = await arm.platform.start(arm.context, arm.options, arm.prepared, spec)
        except MachineFault as fault:
            self._tell_stopped(name, fault)
            raise
        machines.push_async_callback(self._remove, machine)
        self._libraries.begin()
        hello = await machine.ready(BOOT_DEADLINE_S)
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

    async def _remove(self, machine: Machine) -> None:
        # A second Ctrl-C must not leave a machine behind, so stopping is shielded from it.
        stopping = asyncio.ensure_future(self._stop_and_tell(machine))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise

    async def _stop_and_tell(self, machine: Machine) -> None:
        cost: Mapping[str, float] = {}
        # A dead machine has no cost to ask for; what it died of is told below.
        with suppress(MachineFault):
            cost = await while_alive([machine], machine.host_cost())
        fault = machine.died.result() if machine.died.done() else None
        try:
            self._keep_logs(machine.name)
        finally:
            await machine.stop()
        self._tell_stopped(machine.name, fault, cost)

    def _tell_stopped(
        self, name: str, fault: MachineFault | None, cost: Mapping[str, float] | None = None
    ) -> None:
        self.cells.log.append(
            MachineStopped(
                machine=name,
                expected=fault is None,
                reason=str(fault) if fault else "",
                console_tail=fault.console_tail if fault else (),
                host_cost=dict(cost or {}),
            )
        )

    def _keep_logs(self, name: str) -> None:
        kept = self.cells.folder.machines / name
        for log in sorted((self.workspace / name).glob("*.log")):
            kept.mkdir(exist_ok=True)
            shutil.copyfile(log, kept / log.name)

    def _logs(self, name: str) -> tuple[str, ...]:
        return (self.cells.folder.relative(self.cells.folder.machines / name),)
