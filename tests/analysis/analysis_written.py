"""A run's folder written event by event, with what a test wants to be in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tare.agent.series import Series
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    EventLog,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
)
from tare.run.cells.outputs import digests, logs_and_files
from tare.run.cells.series import save_series
from tare.run.lifecycle.folder import RunFolder

RAW: Mapping[str, Mapping[str, Any]] = {"raw": {"excess_ns": np.arange(100, dtype="<u4")}}


@dataclass(frozen=True)
class RunContent:
    """What the events of a run hold where they may hold anything."""

    facts: dict[str, Any] = field(default_factory=dict)
    study: dict[str, Any] = field(default_factory=dict)
    proof: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)
    series: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: RAW)
    withheld: frozenset[tuple[int, str]] = frozenset()
    """Cells, by block and arm, that do not count."""


USUAL = RunContent()
STUDY = b"study: small\n"
CELLS = [(block, arm) for block in (1, 2, 3) for arm in ("bare", "oci")]


def name_of(block: int, arm: str) -> str:
    return f"b{block:03d}/{arm}/alone/tick"


def observed(block: int, arm: str, value: float) -> Event:
    return Observed(
        cell=name_of(block, arm), metric="excess-max", unit="s", better="lower", kind="maximum",
        headline=True, value=value,
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_run(path: Path, value: float = 1.0, content: RunContent = USUAL) -> Path:
    """Write a run's folder; ``content`` says what its events hold."""
    folder = RunFolder(path)
    folder.series.mkdir(parents=True)
    folder.study.write_bytes(STUDY)
    digest = hashlib.sha256(STUDY).hexdigest()
    study: dict[str, Any] = {
        "title": "small", "baseline": "bare", "aa": [], "confidence": 0.95, "margin": 0.05,
        "arms": {arm: {"platform": arm} for arm in ("bare", "oci")},
        "blocks": {"least": 2, "most": 3}, **content.study,
    }  # fmt: skip
    with EventLog(folder.events) as log:
        log.append(
            RunStarted(
                run="r", study=study, study_path="s.yaml", study_sha256=digest, seed=1, host={},
                versions={},
            )
        )  # fmt: skip
        for arm in ("bare", "oci"):
            log.append(PlatformChecked(arm=arm, platform=arm, options={}, usable=True))
        for block, arm in CELLS:
            cell = name_of(block, arm)
            if arm == "bare":
                log.append(BlockStarted(block=block, order=()))
            about: dict[str, Any] = {"block": block, "arm": arm, "scenario": "alone"}
            machine = f"{arm}-{block}"
            log.append(MachineStarting(machine=machine, role="subject", **about))
            log.append(
                MachineReady(
                    machine=machine, boot_s=0.1, proof=content.proof, placement=content.placement
                )
            )
            log.append(
                CellStarted(
                    cell=cell, block=block, arm=arm, scenario="alone", workload="tick",
                    parameters={},
                )
            )  # fmt: skip
            log.append(observed(block, arm, value * (1 + block / 10)))
            for name, columns in content.series.items():
                log.append(save_series(folder, cell, "subject", Series(name, columns)))
            kept = (block, arm) in content.withheld
            output, logs = f"outputs/{arm}-{block}.txt", f"machines/{machine}"
            _write(path / output, f"{arm} printed {block}\n")
            _write(path / logs / "console.log", f"{arm} booted for {block}\n")
            log.append(
                CellFinished(
                    cell=cell,
                    status="withheld" if kept else "ok",
                    reason="the clock was wrong" if kept else "",
                    facts=content.facts,
                    **logs_and_files(folder, (output, logs)),
                )
            )
            log.append(
                MachineStopped(machine=machine, expected=True, files=digests(folder, [logs]))
            )
            if arm == "oci":
                log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete"))
    return path
