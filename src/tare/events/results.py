"""What a run's events add up to, as data. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tare.events.cell_facts import CellFacts
from tare.events.metric import Metric
from tare.events.model import CellStatus, SeriesSaved
from tare.events.parts import Level

IMPOSSIBLE = 1e15
"""No figure of a machine, in s, B/s or 1/s, is as large: it would be thirty million years."""


class Observation(NamedTuple):
    """One value of one metric, in the metric's unit, and the role of its machine."""

    role: str
    metric: Metric
    value: float


@dataclass(frozen=True)
class Break:
    """A change between two blocks of a run that the user accepted.

    Args:
        block: The last block before it; 0: none had ended.
        changed: What changed, one phrase each.
    """

    block: int
    changed: tuple[str, ...]


@dataclass(frozen=True)
class CheckResult:
    """One pre-flight check: its name, ``ok``/``warn``/``bad``, what was found, what to do.

    ``host`` is the name of the host, where several share a run.
    """

    name: str
    level: Level
    found: str
    hint: str = ""
    host: str = ""


@dataclass(frozen=True)
class PlatformResult:
    """Whether an arm could run, and why not.

    Args:
        arm: The arm's name in the study.
        platform: The platform's name (``bare``, ``qemu``, ``oci`` ...).
        options: The arm's platform options as resolved.
        usable: Whether its machines can be started here.
        reason: Why it cannot (or how it was found usable).
        hint: A command or a step that would help; may be empty.
        emulated: Whether its results carry the mark of emulation.
        versions: Programs by name, e.g. ``{"qemu": "7.2.9"}``.
        capabilities: What it offers, as recorded.
        description: What it is, in a phrase; empty in runs of old.
        mark: Where it runs instead of where it should, in words; empty: where it should.
        shown: What a machine that exists shows of itself and of its hypervisor, name to words.
        uncontrolled: What was not controlled of a machine that exists, one sentence each.
        lasting: Whether a host lacks what it needs; otherwise finding out went wrong.
    """

    arm: str
    platform: str
    options: Mapping[str, Any]
    usable: bool
    reason: str
    hint: str
    emulated: bool
    versions: Mapping[str, str]
    capabilities: Mapping[str, Any]
    description: str = ""
    mark: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    uncontrolled: tuple[str, ...] = ()
    lasting: bool = True


@dataclass(frozen=True)
class SkippedPart:
    """An arm, or a scenario or workload of it, that did not run, with the reason."""

    arm: str
    scenario: str | None
    workload: str | None
    reason: str


@dataclass(frozen=True)
class ImageUsed:
    """What the machines of an arm booted: kernel, content digest, and the seconds it took."""

    arm: str
    kernel: str
    digest: str
    cached: bool
    took_s: float


@dataclass(frozen=True)
class MachineResult:
    """One machine that was started.

    Args:
        machine: Its name.
        block: The block it belonged to.
        arm: Its arm.
        scenario: Its scenario.
        role: ``subject`` or a neighbour's role.
        boot_s: Seconds from its start to the agent's hello; None if it never got there.
        proof: Its environment proof, nested; empty if no hello arrived.
        placement: The CPUs that it was placed on, as recorded.
        expected: Whether its end was requested; None if its end was not recorded.
        reason: Why it ended, if unexpectedly.
        console_tail: Its last console lines, if it ended unexpectedly.
        host_cost: What it cost the host, e.g. ``{"cpu_s": 12.1, "rss_bytes": 3e8}``.
    """

    machine: str
    block: int
    arm: str
    scenario: str
    role: str
    boot_s: float | None
    proof: Mapping[str, Any]
    placement: Mapping[str, Any]
    expected: bool | None
    reason: str
    console_tail: tuple[str, ...]
    host_cost: Mapping[str, float]


@dataclass(frozen=True)
class CellResult:
    """One finished cell, whether it counts or not.

    Args:
        cell: Its identity, e.g. ``b003/qemu-pv/alone/tick[samples=20000]``.
        run: The run's identity.
        block: Its block.
        arm: Its arm.
        scenario: Its scenario.
        workload: Its workload.
        parameters: Its parameters as canonical JSON.
        repeat: 1 for the first, from a ``#2`` at the end of the identity otherwise.
        status: ``ok`` counts; ``failed`` and ``withheld`` are shown with their reason.
        reason: Why it does not count.
        warnings: What the user should know about it.
        logs: Last lines, or paths relative to the folder, that help to find the reason.
        measured_s: Seconds spent measuring.
        facts: Its facts in addition to the values.
        attempt: 1, or more after transient failures or a resumed run.
    """

    cell: str
    run: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    repeat: int
    status: CellStatus
    reason: str
    warnings: tuple[str, ...]
    logs: tuple[str, ...]
    measured_s: float
    facts: CellFacts
    attempt: int


@dataclass(frozen=True)
class SeriesEntry:
    """One binary series of a finished cell, to be read by `tare.analysis.series.summaries`.

    Args:
        run: The run's identity.
        cell: The cell it belongs to; block, arm, scenario, workload and parameters are its.
        role: The machine's role.
        name: ``histogram``, ``excess``, ``intervals``, ``samples`` or a workload's own.
        path: The Parquet file, absolute.
        columns: Column types by name.
        rows: Number of rows.
        folder: The folder that must contain the file; None: any.
        sha256: The required SHA-256 (hex); None if this process wrote the file.
    """

    run: str
    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: str
    repeat: int
    role: str
    name: str
    path: Path
    columns: Mapping[str, str]
    rows: int
    folder: Path | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class FinishedCell:
    """A cell that ended, with what was observed since its last start."""

    result: CellResult
    observed: tuple[Observation, ...]
    saved: tuple[SeriesSaved, ...]
