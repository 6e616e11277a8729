"""Tell in events that a cell begins, that it failed, or that it could not even be begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.errors import MachineFault, TareError
from tare.events import CellFinished, CellStarted

if TYPE_CHECKING:
    from tare.run.cast import Cast
    from tare.run.cell import CellContext
    from tare.study.cells import Cell


def tell_started(
    context: CellContext, cell: Cell, attempt: int = 1, cast: Cast | None = None
) -> None:
    """Tell that a cell begins, and which machine has which role in it."""
    machines = {} if cast is None else cast.machines
    context.log.append(
        CellStarted(
            cell=cell.id,
            block=cell.block,
            arm=cell.arm,
            scenario=cell.scenario,
            workload=cell.workload,
            parameters=dict(cell.parameters),
            attempt=attempt,
            machines={role: machine.name for role, machine in machines.items()},
        )
    )


def tell_failed(
    context: CellContext, cell: Cell, reason: str, transient: bool, logs: tuple[str, ...]
) -> None:
    """Tell that a cell has failed, and why."""
    context.log.append(
        CellFinished(cell=cell.id, status="failed", reason=reason, transient=transient, logs=logs)
    )


def fail_cell(context: CellContext, cell: Cell, error: TareError, logs: tuple[str, ...]) -> None:
    """Tell that ``cell`` could not even be begun, and why."""
    tell_started(context, cell)
    transient = isinstance(error, MachineFault) and error.transient
    tell_failed(context, cell, str(error), transient, logs)
