"""The events of a cell and its machines: start, results and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tare.errors import MachineFault, TareError
from tare.events import CellFinished, CellStarted, MachineStopped, Observed
from tare.run.cells.neighbours import LoadReport
from tare.run.cells.outputs import digests, logs_and_files
from tare.run.cells.plausibility import require_possible

if TYPE_CHECKING:
    from tare.events import Event
    from tare.run.cells.cell_context import CellContext
    from tare.run.cells.roles import Roles
    from tare.study.planning.cells import Cell
    from tare.workloads.contract import Metric


def texts(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agent's warnings from its result."""
    return tuple(str(text) for text in result.get("warnings") or ())


def warnings(reports: Sequence[LoadReport]) -> tuple[str, ...]:
    """Return the warnings of neighbours' agents, each with its role and load."""
    return tuple(f"{each.role}, {each.load}: {text}" for each in reports for text in each.warnings)


def observed(
    cell: Cell, metrics: Sequence[Metric], role: str, values: Mapping[str, float]
) -> list[Event]:
    """Return the observations of one machine of a cell.

    Raises:
        MachineFault: A value is impossible.
    """
    require_possible(values)
    return [
        Observed.of(cell.id, role, metric, values[metric.name])
        for metric in metrics
        if metric.name in values
    ]


def log_started(
    context: CellContext, cell: Cell, attempt: int = 1, roles: Roles | None = None
) -> None:
    """Log the start of a cell, with the machine of each role."""
    machines = {} if roles is None else roles.machines
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


def log_failed(
    context: CellContext, cell: Cell, reason: str, transient: bool, logs: tuple[str, ...]
) -> None:
    """Log that a cell has failed, with the reason."""
    log_without_values(context, cell, "failed", reason, logs, transient)


def log_without_values(
    context: CellContext,
    cell: Cell,
    status: Literal["failed", "withheld"],
    reason: str,
    logs: tuple[str, ...],
    transient: bool = False,
) -> None:
    """Log that a cell ended without any value, with the reason."""
    context.log.append(
        CellFinished(
            cell=cell.id,
            status=status,
            reason=reason,
            transient=transient,
            **logs_and_files(context.folder, logs),
        )
    )


def log_not_begun(
    context: CellContext, cell: Cell, error: TareError, logs: tuple[str, ...]
) -> None:
    """Log that ``cell`` could not start, with the reason."""
    log_started(context, cell)
    transient = isinstance(error, MachineFault) and error.transient
    log_failed(context, cell, str(error), transient, logs)


def log_stopped(
    context: CellContext,
    machine: str,
    fault: TareError | None,
    cost: Mapping[str, float] | None = None,
) -> None:
    """Log that a machine has stopped, with the fault if that was not intended."""
    tail = fault.console_tail if isinstance(fault, MachineFault) else ()
    logs = context.folder.machines / machine
    context.log.append(
        MachineStopped(
            machine=machine,
            expected=fault is None,
            reason=str(fault) if fault else "",
            console_tail=tail,
            host_cost=dict(cost or {}),
            files=digests(context.folder, [context.folder.relative(logs)]),
        )
    )


def removal_fault(machine: str, error: TareError | OSError | TimeoutError) -> MachineFault:
    """Return the fault of a machine that could not be removed."""
    if isinstance(error, MachineFault):
        return error
    words = "it did not end in time" if isinstance(error, TimeoutError) else str(error)
    return MachineFault(f"{machine} could not be removed: {words}")
