"""The host's side of a cell: the record of a probe that traces who had the machine's CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tare.events.host_schedule import FACTS
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.series import Series

HOST = "host"
"""The role of its series."""


class HostSide(Probe):
    """A probe that traces the host; each kind of host has its own."""

    def record(self, facts: Mapping[str, Any], series: Series) -> None:
        """Keep a trace: the facts that it is read by, and its rows."""
        self.facts, self.series = {FACTS: dict(facts)}, ((HOST, series),)

    def record_nothing(self, reason: str) -> None:
        """Keep why nothing was traced."""
        self.facts = {FACTS: {"recorded": False, "reason": reason}}
