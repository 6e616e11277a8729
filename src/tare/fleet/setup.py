"""What a shared run is carried out with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tare.fleet.retrying import Pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tare.fleet.cluster import Cluster
    from tare.run.lifecycle.setup import Decide


@dataclass(frozen=True)
class FleetSetup:
    """What a shared run is carried out with.

    Args:
        cluster: Where the hosts' workers are.
        decide: Judges after each block whether to go on.
        on_progress: Receives progress within a cell.
        say: Tells the user a sentence.
        patience_s: Seconds a host may stay away before its blocks are given to others.
        strict: Whether the run ends as soon as an arm does.
        pauses: How long is waited before a host that failed is tried again.
    """

    cluster: Cluster
    decide: Decide
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    say: Callable[[str], None]
    patience_s: float
    strict: bool = False
    pauses: Pauses = field(default_factory=Pauses)
