"""What a run is carried out with, chosen by the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.events import Check, Record
from tare.platforms.base import Context, Platform

if TYPE_CHECKING:
    from tare.run.station import Station
    from tare.study.model import Study
    from tare.workloads.base import Workload


@dataclass(frozen=True)
class Decision:
    """Whether another block is wanted, and why."""

    go_on: bool
    reason: str


Decide = Callable[["Study", Sequence[Record], int], Decision]
"""Judges, from all records and the number of blocks done, whether another block is wanted."""


@dataclass(frozen=True)
class Bench:
    """Everything a run is carried out with, chosen by the caller.

    Args:
        station: The host, its platforms, and how it is booted for each arm.
        workloads: All known workloads by name.
        decide: Judges after each block, from all records so far, whether to go on.
        preflight: Looks at the host's condition.
        subscribers: Are told every record as it is written.
        say: Tells the user a sentence before there are events.
        on_progress: Is told of progress within a cell: cell, share done, further fields.
    """

    station: Station
    workloads: Mapping[str, Workload]
    decide: Decide
    preflight: Callable[[], Awaitable[tuple[Check, ...]]]
    say: Callable[[str], None] = lambda _: None
    subscribers: tuple[Callable[[Record], None], ...] = ()
    on_progress: Callable[[str, float, Mapping[str, Any]], None] = lambda *_: None

    @property
    def context(self) -> Context:
        """Where the run's own things are: host, ledger, cache and agent."""
        return self.station.context

    @property
    def platforms(self) -> Mapping[str, Platform]:
        """All platforms by name, as they are on the run's host."""
        return self.station.platforms


@dataclass(frozen=True)
class StudySource:
    """Where a study came from, for the record."""

    path: str
    sha256: str
