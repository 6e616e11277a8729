"""A run taken as a pilot advises what its own variance asks for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tare.analysis.data.load import load_run
from tare.analysis.effects.pilot import Advice, advise
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    MachineReady,
    MachineStarting,
    Observed,
    RunStarted,
)

REPEATS = 4


def pilot(folder: Path, boot_spread: float, repeat_spread: float, blocks: int = 40) -> Path:
    """Write a run whose arm is 10 % slower, with known spreads between boots and within."""
    rng = np.random.default_rng(7)
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="r",
                study={"study": "p", "baseline": "bare", "aa": None, "title": "p"},
                study_path="p.yaml",
                study_sha256="",
                seed=1,
                host={},
                versions={},
            )
        )
        for block in range(1, blocks + 1):
            log.append(BlockStarted(block=block, order=("bare/s", "arm/s")))
            for arm, level in (("bare", 1.0), ("arm", 1.1)):
                machine = f"m{block}-{arm}"
                log.append(
                    MachineStarting(
                        machine=machine, block=block, arm=arm, scenario="s", role="subject"
                    )
                )
                log.append(MachineReady(machine=machine, boot_s=2.0, proof={}))
                boot = rng.normal(0, boot_spread)
                for repeat in range(1, REPEATS + 1):
                    cell = f"b{block:03d}/{arm}/s/w" + (f"#{repeat}" if repeat > 1 else "")
                    log.append(
                        CellStarted(
                            cell=cell, block=block, arm=arm, scenario="s", workload="w",
                            parameters={},
                        )
                    )  # fmt: skip
                    log.append(
                        Observed(
                            cell=cell,
                            metric="m",
                            unit="s",
                            better="lower",
                            headline=True,
                            value=level * math.exp(boot + rng.normal(0, repeat_spread)),
                        )
                    )
                    log.append(CellFinished(cell=cell, status="ok", measured_s=0.5))
            log.append(BlockFinished(block=block))
    return folder


def advice(folder: Path, precision: float) -> Advice:
    (only,) = advise(load_run(folder), precision, 0.95)
    return only


def test_noise_within_a_boot_asks_for_repeats(tmp_path: Path) -> None:
    found = advice(pilot(tmp_path, boot_spread=0.001, repeat_spread=0.1), 0.02)
    assert found.repeats > 10


def test_noise_between_boots_asks_for_blocks(tmp_path: Path) -> None:
    found = advice(pilot(tmp_path, boot_spread=0.1, repeat_spread=0.01), 0.02)
    assert found.repeats == 1
    # The half-width of a mean of n log-ratios with standard deviation 0.1·√2 is t·s/√n.
    assert found.blocks == pytest.approx((1.96 * 0.1414 / math.log1p(0.02)) ** 2, rel=0.35)


def test_a_finer_precision_never_needs_fewer_blocks(tmp_path: Path) -> None:
    folder = pilot(tmp_path, boot_spread=0.05, repeat_spread=0.05)
    asked = [advice(folder, precision) for precision in (0.2, 0.05, 0.01)]
    assert [one.blocks for one in asked] == sorted(one.blocks for one in asked)
    assert asked[0].blocks == 8
    assert asked[-1].half_width <= 0.01
