"""A run as data: the content of its events, folded once. Nothing here has side effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tare.events.parts import SUBJECT as SUBJECT
from tare.events.results import (
    Break,
    CellResult,
    CheckResult,
    FinishedCell,
    ImageUsed,
    MachineResult,
    PlatformResult,
    SeriesEntry,
    SkippedPart,
)

if TYPE_CHECKING:
    import polars as pl

    from tare.events import ArmEnded, Calibrated, CpusChanged, LabFroze, NoiseMeasured
    from tare.events.session_progress import SessionResult

OBSERVATION_COLUMNS: Mapping[str, type] = MappingProxyType(
    {
        "run": str,
        "block": int,
        "arm": str,
        "platform": str,
        "scenario": str,
        "workload": str,
        "parameters": str,
        "repeat": int,
        "cell": str,
        "role": str,
        "metric": str,
        "unit": str,
        "better": str,
        "kind": str,
        "headline": bool,
        "value": float,
        "emulated": bool,
        "status": str,
    }
)
"""Columns of `RunData.observations` with their types, in order."""


@dataclass(frozen=True)
class RunData:
    """The content of one run's events, folded once.

    Args:
        folder: The run's folder.
        run: The run's identity.
        study: The resolved study as JSON (title, baseline, aa, confidence, margin, blocks ...).
        study_path: Where the study file was.
        study_sha256: The study file's SHA-256.
        seed: The seed of the order of arms.
        host: Facts of the host, nested.
        versions: Programs of the run (tare, python, kernel ...), by name.
        started_at: Seconds since the epoch.
        resumed: How often the run was resumed.
        checks: Pre-flight checks of the last preflight, in order.
        platforms: One entry per arm of the study, in the study's order.
        skipped: The parts of the study that did not run.
        images: The images that were booted.
        machines: All machines, in order of start.
        cells: All finished cells, in order; unfinished ones do not appear.
        counted: The cells that count, those with status ``ok``, with all their observations.
        series: Binary series of finished cells.
        blocks_finished: Numbers of the blocks that ended.
        decisions: Per decided block ``(block, go_on, reason)``.
        complete: Whether the last event reports that the run ended with status ``complete``.
        ended: ``complete``, ``stopped``, ``failed``, or None when it can be resumed.
        end_reason: Why the run ended with that status.
        wall_s: Wall time of the run's processes so far.
        booting_s: The part of ``wall_s`` that was spent on booting.
        measuring_s: The part of ``wall_s`` that was spent on measuring.
        arms_ended: The arms that got no further block, because all that they tried failed.
        adapted: How scenarios were adapted to the host, one sentence each.
        changes: The options of the command line that made the study differ from its file.
        block_hosts: The host that measured each block, where several shared the run.
        doubts: Signs that the folder differs from what the run wrote, one sentence each.
        calibrated: What the agent and its peers measured on each host before the first block.
        noise: The time that firmware and other software took from each host's CPUs, if measured.
        sessions: The sessions that were begun, if one computer was booted in turns.
        cpu_changes: When CPUs of a host went offline or online, or its cpuset changed.
        freezes: When an emulated host froze.
        breaks: The places between blocks where something changed that the user accepted.
        were_bad: Pre-flight checks that were bad at any time; ``checks`` has the newest.
    """

    folder: Path
    run: str
    study: Mapping[str, Any]
    study_path: str
    study_sha256: str
    seed: int
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    started_at: float
    resumed: int
    checks: tuple[CheckResult, ...]
    platforms: tuple[PlatformResult, ...]
    skipped: tuple[SkippedPart, ...]
    images: tuple[ImageUsed, ...]
    machines: tuple[MachineResult, ...]
    cells: tuple[CellResult, ...]
    counted: tuple[FinishedCell, ...]
    series: tuple[SeriesEntry, ...]
    blocks_finished: tuple[int, ...]
    decisions: tuple[tuple[int, bool, str], ...]
    complete: bool
    ended: Literal["complete", "stopped", "failed"] | None
    end_reason: str
    wall_s: float
    booting_s: float
    measuring_s: float
    adapted: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    arms_ended: tuple[ArmEnded, ...] = ()
    doubts: tuple[str, ...] = ()
    breaks: tuple[Break, ...] = ()
    cpu_changes: tuple[CpusChanged, ...] = ()
    freezes: tuple[LabFroze, ...] = ()
    block_hosts: Mapping[int, str] = field(default_factory=dict)
    calibrated: tuple[Calibrated, ...] = ()
    noise: tuple[NoiseMeasured, ...] = ()
    sessions: tuple[SessionResult, ...] = ()
    were_bad: tuple[CheckResult, ...] = ()

    @property
    def unfit(self) -> tuple[CheckResult, ...]:
        """The checks that found the host unfit for measuring, at the start or at any resumption."""
        bad = (check for check in (*self.were_bad, *self.checks) if check.level == "bad")
        return tuple(dict.fromkeys(bad))

    @cached_property
    def observations(self) -> pl.DataFrame:
        """One row per value of an ``ok`` cell, columns `OBSERVATION_COLUMNS`.

        ``parameters`` is canonical JSON, ``repeat`` counts cells of one identity from 1.
        """
        # Polars takes long to load, and a report does not need this table.
        from tare.analysis.data.frames import observation_frame

        return observation_frame(self.counted, self.columns_of, OBSERVATION_COLUMNS)

    def columns_of(self, cell: CellResult) -> dict[str, Any]:
        """Return the values that all rows of a cell share, by column of `OBSERVATION_COLUMNS`."""
        return {
            "run": cell.run,
            "block": cell.block,
            "arm": cell.arm,
            "platform": self._platform_names.get(cell.arm, ""),
            "scenario": cell.scenario,
            "workload": cell.workload,
            "parameters": cell.parameters,
            "repeat": cell.repeat,
            "cell": cell.cell,
            "emulated": cell.arm in self.emulated_arms,
            "status": cell.status,
        }

    @cached_property
    def _platform_names(self) -> Mapping[str, str]:
        return {platform.arm: platform.platform for platform in self.platforms}

    @property
    def baseline(self) -> str:
        """The arm that the others are compared with."""
        return str(self.study["baseline"])

    @property
    def own_baselines(self) -> Mapping[str, str]:
        """The baseline on its own host and shape, for each arm that does not use the study's.

        If that baseline could not run, the arm is compared with the study's.
        """
        usable = {platform.arm for platform in self.platforms if platform.usable}
        own = self.study.get("own_baselines") or {}
        return {str(arm): str(base) for arm, base in own.items() if base in usable}

    @property
    def apart_from_baseline(self) -> Mapping[str, str]:
        """The host of each arm that is compared with a baseline on another host, by arm."""
        if self.sessions:
            # Its hosts are one computer, whose sessions are not distinguished here.
            return {}
        arms = self.study.get("arms", {})
        on = {arm: arms[arm].get("on") for arm in arms if isinstance(arms[arm], Mapping)}
        own = self.own_baselines
        return {
            platform.arm: str(on[platform.arm])
            for platform in self.platforms
            if platform.usable and on.get(platform.arm) not in (None, on.get(self.baseline))
            if platform.arm not in own
        }

    def shape_of(self, arm: str) -> Mapping[str, Any]:
        """Return the shape of an arm as stored: its own, or else the study's; empty if unknown."""
        spec = (self.study.get("arms") or {}).get(arm)
        own = spec.get("shape") if isinstance(spec, Mapping) else None
        found = own or self.study.get("shape")
        return found if isinstance(found, Mapping) else {}

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms in the study's order."""
        return tuple(platform.arm for platform in self.platforms)

    @cached_property
    def emulated_arms(self) -> frozenset[str]:
        """Arms whose results carry the mark of emulation."""
        return frozenset(p.arm for p in self.platforms if p.emulated)

    @property
    def counts_instructions(self) -> bool:
        """Whether everything was measured in a deterministic lab, where time is instructions."""
        host, lab = self.study.get("host"), self.study.get("lab")
        if not isinstance(host, Mapping) or not isinstance(lab, Mapping) or self.study.get("hosts"):
            return False
        return host.get("kind") == "lab" and lab.get("deterministic") is True
