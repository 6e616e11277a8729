"""What the host's side of one cell came to, however it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.events.cell_facts import TraceFacts

if TYPE_CHECKING:
    from tare.agent.series import Series


@dataclass(frozen=True)
class HostRecord:
    """The facts that tell how to read it, or why there is nothing; and the series itself."""

    facts: TraceFacts
    series: Series | None = None
