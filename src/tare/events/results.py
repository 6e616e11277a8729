"""The results of a run's events, as data without behaviour."""

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
"""No value of a machine in s, B/s or 1/s is as large: 1e15 s are thirty million years."""


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
        changed: The changes, one phrase each.
    """

    block: int
    changed: tuple[str, ...]


@dataclass(frozen=True)
class CheckResult:
    """One pre-flight check: its name, ``ok``/``warn``/``bad``, the finding and the advice.

    ``host`` is the name of the host, if several share a run.
    """

    name: str
    level: Level
    found: str
    hint: str = ""
    host: str = ""


@dataclass(frozen=True)
class PlatformResult:
    """Whether an arm could run; if not, the reason.

    Args:
        arm: The arm's name in the study.
        platform: The platform's name (``bare``, ``qemu``, ``oci`` ...).
        options: The arm's platform options as resolved.
        usable: Whether its machines can be started here.
        reason: The reason why they cannot be started, or how the platform was found usable.
        hint: A command or a step that would help; may be empty.
        emulated: Whether its results carry the mark of emulation.
        versions: Programs by name, e.g. ``{"qemu": "7.2.9"}``.
        capabilities: The capabilities of its platform, as recorded.
        description: The arm as a phrase; empty in old runs.
        mark: A phrase for the place where it runs, if that is not where it belongs; otherwise
            empty.
        shown: The facts that an existing machine reports on itself and on its hypervisor, by name.
        uncontrolled: The properties of an existing machine that Tare did not control, one sentence
            each.
        lasting: For an unusable arm: True if the host lacks something, False if the check itself
            failed.
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
    """The image that an arm's machines booted: kernel, content digest, and the seconds it took."""

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
        expected: Whether its end was requested; None if no end was recorded.
        reason: The reason why it ended, if it ended unexpectedly.
        console_tail: Its last console lines, if it ended unexpectedly.
        host_cost: Its cost on the host, e.g. ``{"cpu_s": 12.1, "rss_bytes": 3e8}``.
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
        repeat: The number of the repetition: 1, or the number after ``#`` at the end of the
            identity.
        status: ``ok`` counts; ``failed`` and ``withheld`` are shown with their reason.
        reason: The reason why it does not count.
        warnings: Warnings to the user about it.
        logs: Last lines, or paths relative to the folder, that help to find the reason.
        measured_s: Seconds spent measuring.
        facts: Its facts in addition to the values.
        attempt: The number of the attempt: 1, or more after transient failures or a resumed run.
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
        cell: The cell that it belongs to, which determines block, arm, scenario, workload and
            parameters.
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
    """A cell that ended, with the values observed since its last start."""

    result: CellResult
    observed: tuple[Observation, ...]
    saved: tuple[SeriesSaved, ...]
