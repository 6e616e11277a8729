"""The base class of probes that trace which threads used a machine's CPUs on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.events.cell_facts import CellFacts, TraceFacts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.series import Series

HOST = "host"
"""The role of its series."""


class HostSide(Probe):
    """A probe that traces the host; each kind of host has its own subclass."""

    def record(self, facts: TraceFacts, series: Series) -> None:
        """Keep a trace: its facts and its rows."""
        self.facts, self.series = CellFacts(host_trace=facts), ((HOST, series),)

    def record_nothing(self, reason: str) -> None:
        """Keep the reason why there is no trace."""
        self.facts = CellFacts(host_trace={"recorded": False, "reason": reason})
