"""The hosts, workloads and callbacks of a run, chosen by the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tare.events import Calibrated, Check, Fold, NoiseMeasured, Record
from tare.platforms.contract import Context, Platform

if TYPE_CHECKING:
    from tare.probes import ProbeKind
    from tare.run.hosts.assumed import AssumedHost
    from tare.run.hosts.contract import PlannedHost, RunHost
    from tare.study.model.study import Study
    from tare.workloads.contract import Workload


@dataclass(frozen=True)
class Decision:
    """A decision whether to measure another block, with its reason."""

    continues: bool
    reason: str


Decide = Callable[["Study", Fold, int], Decision]
"""Decides whether to measure another block, from the study, the fold of all events and the number
of blocks done."""


class Grounds(Protocol):
    """The input of a plan: the hosts, probed or assumed, and the workloads."""

    @property
    def run_hosts(self) -> Mapping[str, PlannedHost]:
        """The hosts by name, as the study has them."""
        ...

    @property
    def workloads(self) -> Mapping[str, Workload[Any]]:
        """All known workloads by name."""
        ...


def platform_of(grounds: Grounds, study: Study, arm: str) -> Platform[Any]:
    """Return an arm's platform on the arm's host."""
    return grounds.run_hosts[study.host_of(arm)].platforms[study.arms[arm].platform]


@dataclass(frozen=True)
class AssumedGrounds:
    """The input of a plan that is made without contacting any host.

    Args:
        run_hosts: The hosts by name, with assumed facts.
        workloads: All known workloads by name.
    """

    run_hosts: Mapping[str, AssumedHost]
    workloads: Mapping[str, Workload[Any]]


async def not_calibrated() -> tuple[Calibrated, ...]:
    """Measure nothing."""
    return ()


async def no_noise() -> tuple[NoiseMeasured, ...]:
    """Measure nothing."""
    return ()


@dataclass(frozen=True)
class RunSetup:
    """Everything that a run needs, chosen by the caller.

    Args:
        run_hosts: The hosts by name, their platforms, and how they are booted for each arm.
        workloads: All known workloads by name.
        decide: Decides after each block, from the fold of all events, whether to continue.
        preflight: Checks the condition of the hosts.
        noise: Measures the time that firmware takes from each host, for a real-time study.
        calibrate: Measures clock and memory of each host.
        subscribers: Receive every record as it is written.
        say: Shows the user a sentence before there are events.
        on_progress: Receives progress within a cell: cell, share done, further fields.
        strict: Whether the run ends as soon as an arm does.
        probe_kinds: The probes that other packages add to each cell.
    """

    run_hosts: Mapping[str, RunHost]
    workloads: Mapping[str, Workload[Any]]
    decide: Decide
    preflight: Callable[[], Awaitable[tuple[Check, ...]]]
    noise: Callable[[], Awaitable[tuple[NoiseMeasured, ...]]] = no_noise
    calibrate: Callable[[], Awaitable[tuple[Calibrated, ...]]] = not_calibrated
    say: Callable[[str], None] = lambda _: None
    subscribers: tuple[Callable[[Record], None], ...] = ()
    on_progress: Callable[[str, float, Mapping[str, Any]], None] = lambda *_: None
    strict: bool = False
    probe_kinds: tuple[ProbeKind, ...] = ()

    @property
    def context(self) -> Context:
        """The context of the first host, where images are built."""
        return next(iter(self.run_hosts.values())).context


@dataclass(frozen=True)
class StudySource:
    """The origin of a study, for the record.

    Args:
        path: Its file.
        sha256: SHA-256 of the file's bytes, in hexadecimal.
        changes: The options of the command line that made it differ from the file.
    """

    path: str
    sha256: str
    changes: tuple[str, ...] = ()
