"""What all cells of a run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.run.cells.plausibility import Clocks

if TYPE_CHECKING:
    from tare.events import EventLog
    from tare.probes import ProbeKind
    from tare.run.lifecycle.folder import RunFolder
    from tare.run.probes.host_trace import HostTracing
    from tare.workloads.contract import Workload


@dataclass(frozen=True)
class CellContext:
    """What every cell of a run shares."""

    folder: RunFolder
    log: EventLog
    workloads: Mapping[str, Workload[Any]]
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    clocks: Clocks = field(default_factory=Clocks)
    tracing: HostTracing | None = None
    """What the host's side of cells is recorded with."""
    probe_kinds: tuple[ProbeKind, ...] = ()
    """The probes that other packages add."""
    hands_off: bool = False
    """Whether nothing is asked of the machine's host while work is under way: where time counts
    instructions, each answer takes time from the work, and how many there are depends on how fast
    this computer is."""
