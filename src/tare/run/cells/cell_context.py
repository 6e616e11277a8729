"""The context that all cells of a run share."""

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
    """The context that all cells of a run share on one host."""

    folder: RunFolder
    log: EventLog
    workloads: Mapping[str, Workload[Any]]
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    clocks: Clocks = field(default_factory=Clocks)
    tracing: HostTracing | None = None
    """The recorder of the host's side of cells."""
    probe_kinds: tuple[ProbeKind, ...] = ()
    """The probes that other packages add."""
    hands_off: bool = False
    """Whether the machine's host is not read during the work: if time counts instructions, each
    answer takes time from the work, and their number depends on the speed of this computer."""
