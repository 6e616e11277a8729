"""The contract of probes, which observe a cell from outside while its workload is measured.

Tare's own probes are in `tare.run`. Another package adds a probe by an entry point of the group
``tare.probes`` that names a :class:`ProbeKind`; `tare help architecture` shows an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.agent.series import Series
    from tare.platforms.contract import Context, Machine
    from tare.study.planning.cells import Cell
    from tare.workloads.contract import Workload


class Probe:
    """Observes one cell. A probe implements the calls that it needs.

    The calls are, in this order: :meth:`open`, :meth:`begin`, :meth:`end` and :meth:`close`. If the
    cell fails or is cancelled at any point, :meth:`abandon` replaces the remaining calls. Probes
    open
    and begin in the order of their stack; they end, close and are abandoned in the reverse order.
    """

    facts: Mapping[str, Any] = {}
    """Facts for the cell's record, as JSON, in SI units; final once the probe is closed."""
    doubt: str = ""
    """Why the cell's values must be withheld; empty for no reason to do so. Final once closed."""
    series: Sequence[tuple[str, Series]] = ()
    """Series to save, each with the role of the machine that it describes; final once closed."""

    async def open(self) -> None:
        """Prepare the observation, before the neighbours' loads begin.

        Raises:
            TareError: The cell cannot be measured.
        """

    async def begin(self) -> None:
        """Begin to observe: all machines are ready and wait for their common start.

        Raises:
            TareError: The cell cannot be measured.
        """

    async def end(self, outcome: Outcome) -> None:
        """Stop observing: the subject's work has ended. Neighbours may still run their loads.

        Args:
            outcome: The result of the work.

        Raises:
            TareError: The cell does not count.
        """

    async def close(self) -> None:
        """Release everything that :meth:`open` acquired. No machine is working any more.

        Raises:
            TareError: The cell does not count.
        """

    async def abandon(self, limit_s: float) -> None:
        """Stop and release everything, because the cell has failed; possible after any other call.

        Args:
            limit_s: Seconds that a machine may take to answer; it may never answer.
        """


@dataclass(frozen=True)
class ProbedCell:
    """A cell that is about to be measured, for which a probe of another package is created.

    Args:
        cell: The arm, scenario, workload and parameters.
        workload: The workload.
        context: The host of the arm, its ledger, and the agent's program there.
        machines: All machines of the cell by role; ``subject`` is the measured one.
        may_ask: Whether the probe may send requests to the host while the work is running. If
            False, the host's time counts instructions, and each answer takes time from the work.
        traced: Whether Tare's own trace records the scheduling of the cell's host.
    """

    cell: Cell
    workload: Workload[Any]
    context: Context
    machines: Mapping[str, Machine]
    may_ask: bool
    traced: bool = False


class ProbeKind(ABC):
    """A kind of probe: makes a probe for each cell."""

    name: str
    """The key of the probe's facts, within ``probes`` in the cell's record."""
    on_request: bool = False
    """Whether the probe observes only the arms for which a study names it under ``probes``."""

    @abstractmethod
    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe that observes a cell; None to leave the cell out."""
