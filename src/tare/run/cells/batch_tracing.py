"""What the host's side of one batch is recorded with, where its host is not this computer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.platforms.host_hypervisor import hypervisor_of
from tare.run.probes.host_trace import host_tracing

if TYPE_CHECKING:
    from tare.platforms.contract import Context
    from tare.run.cells.cell_context import CellContext
    from tare.study.planning.cells import Batch


async def traced_cells(
    cells: CellContext, batch: Batch, context: Context, held: AsyncExitStack
) -> CellContext:
    """Return what the batch's cells are carried out with: with a recorder on a host afar.

    Such a host may be booted anew between batches, which ends whatever recorded there.

    Args:
        cells: What all cells of the run host share.
        batch: The batch.
        context: Where its machines are.
        held: Gives the recorder back.
    """
    # A kernel above a hypervisor tells nothing of the machines that run beside it.
    if not batch.host_trace or context.host.local or hypervisor_of(batch.boot):
        return cells
    return replace(cells, tracing=await held.enter_async_context(host_tracing(context)))
