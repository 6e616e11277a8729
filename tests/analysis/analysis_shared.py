"""A run that several hosts share, with a known variance between them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.runs.variance_components import OverHosts, effects_over_hosts
from tare.events import Event, Fold
from tare.events.model import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Observed,
    PlatformChecked,
    Record,
    RunStarted,
)


def shared(
    between: float, within: float, hosts: int, blocks: int, seed: int
) -> tuple[OverHosts, ...]:
    """Return the effects of a run on hosts whose true effects differ by ``between``."""
    rng = np.random.default_rng(seed)
    true = {f"h{host}": 0.1 + between * rng.standard_normal() for host in range(hosts)}
    fold = Fold()
    events: list[Event] = []
    study = {"title": "t", "baseline": "bare", "confidence": 0.95, "margin": 0.02,
             "arms": {"bare": {"platform": "bare"}, "vm": {"platform": "bare"}}}  # fmt: skip
    events.append(
        RunStarted(
            run="r", study=study, study_path="s", study_sha256="0", seed=1, host={}, versions={}
        )
    )
    for arm in ("bare", "vm"):
        events.append(PlatformChecked(arm=arm, platform="bare", options={}, usable=True))
    for number in range(1, hosts * blocks + 1):
        host = f"h{(number - 1) % hosts}"
        events.append(BlockStarted(block=number, order=(), host=host))
        for arm in ("bare", "vm"):
            effect = true[host] + within * rng.standard_normal() if arm == "vm" else 0.0
            cell = f"b{number}/{arm}/alone/w"
            events.append(
                CellStarted(
                    cell=cell, block=number, arm=arm, scenario="alone", workload="w", parameters={}
                )
            )
            events.append(
                Observed(cell=cell, metric="m", unit="s", better="lower", headline=True,
                         value=math.exp(effect))
            )  # fmt: skip
            events.append(CellFinished(cell=cell, status="ok"))
        events.append(BlockFinished(block=number))
    for place, event in enumerate(events):
        fold.take(Record(seq=place, time=float(place), event=event))
    data = run_data(Path("none"), fold)
    return effects_over_hosts(compare_runs([data]), data.block_hosts)
