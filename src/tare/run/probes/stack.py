"""The stack of probes that observe one cell: all begin and end together, or are abandoned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from tare.errors import TareError
from tare.events.cell_facts import CellFacts
from tare.probes import Probe
from tare.run.cells.liveness import ANSWER_S, REMOVED_S

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.agent.series import Series
    from tare.probes import ProbedCell, ProbeKind

PATIENCE_S = 20.0
"""Seconds that a probe of another package may take for each step."""


class ProbeStack:
    """The probes of one cell, in the order in which they begin.

    Args:
        probes: They open and begin in this order, and end and close in the reverse order.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = probes
        self._opened: list[Probe] = []

    async def open(self) -> None:
        """Open all; one that fails is abandoned too."""
        for probe in self._probes:
            self._opened.append(probe)
            await probe.open()

    async def begin(self) -> None:
        """Begin all: the machines wait for their common start."""
        for probe in self._probes:
            await probe.begin()

    async def end(self, outcome: Outcome) -> None:
        """End all: the subject's work has ended."""
        for probe in reversed(self._probes):
            await probe.end(outcome)

    async def close(self) -> None:
        """Close all: no machine works any more."""
        for probe in reversed(self._probes):
            await probe.close()

    async def abandon(self, limit_s: float) -> None:
        """Abandon those that were opened, in reverse order, whatever each of them raises.

        Args:
            limit_s: Seconds that a machine may take to answer.
        """
        async with AsyncExitStack() as abandoning:
            for probe in self._opened:
                abandoning.push_async_callback(_abandon, probe, limit_s)
        self._opened.clear()

    @property
    def facts(self) -> CellFacts:
        """The facts of all probes."""
        found: dict[str, Any] = {}
        for probe in self._probes:
            for name, fact in probe.facts.items():
                # Probes of other packages share one key.
                found[name] = (
                    {**found[name], **fact} if name == "probes" and name in found else fact
                )
        return cast(CellFacts, found)

    @property
    def doubts(self) -> list[str]:
        """The reasons why the cell's values must be withheld."""
        return [probe.doubt for probe in self._probes if probe.doubt]

    @property
    def series(self) -> list[tuple[str, Series]]:
        """The series of all probes, each with a machine's role; those of the last probe first."""
        return [each for probe in reversed(self._probes) for each in probe.series]


async def _abandon(probe: Probe, limit_s: float) -> None:
    # The cell's own fault matters more than a probe that cannot be stopped.
    with suppress(TareError, OSError):
        await probe.abandon(limit_s)


@asynccontextmanager
async def probing(probes: Sequence[Probe]) -> AsyncIterator[ProbeStack]:
    """Hold the probes of one cell, opened; an exception or a cancellation abandons them.

    Raises:
        TareError: One cannot be opened.
    """
    stack = ProbeStack(probes)
    try:
        await stack.open()
        yield stack
    except BaseException as error:
        # After a cancelled cell, no other cell uses its machines.
        await stack.abandon(REMOVED_S if isinstance(error, asyncio.CancelledError) else ANSWER_S)
        raise


def added_probes(kinds: Iterable[ProbeKind], cell: ProbedCell) -> list[Probe]:
    """Return the probes that other packages add to a cell; a faulty one only lacks its facts."""
    made = [AddedProbe(kind, cell) for kind in kinds]
    return [probe for probe in made if probe.wanted]


class AddedProbe(Probe):
    """A probe of another package, whose faults never fail a cell: its facts have the reason.

    Args:
        kind: The kind that creates it.
        cell: The cell that it observes.
    """

    def __init__(self, kind: ProbeKind, cell: ProbedCell) -> None:
        self._name = kind.name
        self._probe: Probe | None = None
        self._missing = ""
        try:
            self._probe = kind.probe(cell)
        except Exception as error:  # code of others must not end a run
            self._lose(error)

    @property
    def wanted(self) -> bool:
        """Whether it observes the cell, or has to report why it cannot."""
        return self._probe is not None or bool(self._missing)

    async def open(self) -> None:
        """Let it prepare."""
        await self._call(lambda probe: probe.open())

    async def begin(self) -> None:
        """Let it begin."""
        await self._call(lambda probe: probe.begin())

    async def end(self, outcome: Outcome) -> None:
        """Let it end."""
        await self._call(lambda probe: probe.end(outcome))

    async def close(self) -> None:
        """Let it close, and copy its results."""
        await self._call(self._close)

    async def abandon(self, limit_s: float) -> None:
        """Let it release its resources."""
        await self._call(lambda probe: probe.abandon(limit_s), limit_s)

    async def _close(self, probe: Probe) -> None:
        await probe.close()
        facts = json.loads(json.dumps(dict(probe.facts), allow_nan=False))
        series = tuple((str(role), each) for role, each in probe.series)
        if any(len({len(column) for column in each.columns.values()}) > 1 for _, each in series):
            raise ValueError("the columns of a series differ in length")
        doubt = f"{self._name}: {probe.doubt}" if probe.doubt else ""
        self.facts, self.doubt, self.series = CellFacts(probes={self._name: facts}), doubt, series

    async def _call(
        self, moment: Callable[[Probe], Awaitable[None]], limit_s: float | None = None
    ) -> None:
        probe = self._probe
        if probe is None:
            return
        try:
            async with asyncio.timeout(PATIENCE_S if limit_s is None else limit_s):
                await moment(probe)
        except Exception as error:  # code of others must not end a run
            self._lose(error)
            with suppress(Exception):
                async with asyncio.timeout(REMOVED_S):
                    await probe.abandon(REMOVED_S)

    def _lose(self, error: Exception) -> None:
        self._probe, self._missing = None, str(error) or type(error).__name__
        self.facts = CellFacts(probes={self._name: {"missing": self._missing}})
