"""What difference a study can tell before it is run, and what that is reckoned from."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.analysis.effects import pair_up
from tare.analysis.grouping import group
from tare.analysis.rundata import RunData
from tare.analysis.settings import Settings
from tare.analysis.statistics.detectable import POWER, detectable
from tare.analysis.verdict import LEVEL, percent

ASSUMED_CV = 0.03
"""Where nothing was measured: boots of one arm that differ by 3 % (standard deviation), as CPU and
memory work on a quiet computer does."""

BLOCKS_OF_SPREAD = 3
"""The least blocks of a pilot that tell a spread at all."""


@dataclass(frozen=True)
class Basis:
    """How far boots differ from each other, and where that is known from.

    Args:
        spread: Standard deviation of log-ratios between blocks: of the typical headline metric.
        worst: The same of the noisiest one.
        tests: Headline metrics of one arm.
        source: Where it is from, in words.
    """

    spread: float
    worst: float
    tests: int
    source: str


def assumed_basis(tests: int) -> Basis:
    """Return what is assumed where nothing was measured.

    Args:
        tests: Headline metrics of one arm.
    """
    spread = ASSUMED_CV * math.sqrt(2)
    source = f"an assumed variation of {percent(ASSUMED_CV)} between boots: nothing was measured"
    return Basis(spread, spread, tests, source)


def basis_of(run: RunData, source: str) -> Basis | None:
    """Return how far boots differed in a run; None where too few blocks tell it.

    Args:
        run: The run.
        source: What it is, in words.
    """
    settings = Settings.of([run])
    spreads: dict[str, list[float]] = {}
    for key, measured in group([run]).items():
        if not measured.headline or measured.kind != "typical":
            continue
        for arm in measured.arms:
            base = settings.baseline_of(arm)
            pair = pair_up(key, measured, arm, base) if arm != base else None
            if pair is None or pair.scale != "ratio" or len(pair.blocks) < BLOCKS_OF_SPREAD:
                continue
            spreads.setdefault(arm, []).append(statistics.stdev(pair.differences))
    every = [spread for of_arm in spreads.values() for spread in of_arm]
    if not every:
        return None
    tests = max(len(of_arm) for of_arm in spreads.values())
    return Basis(statistics.median(every), max(every), tests, source)


SAME_HOST = ("name", "machine", "cpu_model", "cpus", "memory_bytes")
"""Facts by which a run's host is taken for this one; kernels come and go."""


def earlier_run(folders: Iterable[Path], study: str, host: Mapping[str, Any]) -> Path | None:
    """Return the newest folder that holds a run of this study on this computer.

    Only the first line of each is read.

    Args:
        folders: Where to look.
        study: The study's name.
        host: What identifies this computer.
    """
    found: list[tuple[float, Path]] = []
    for folder in folders:
        try:
            with (folder / "events.jsonl").open(encoding="utf-8") as lines:
                first = json.loads(lines.readline())
            started = first["event"]
            its = started["host"]
            alike = all(its.get(name) == host.get(name) for name in SAME_HOST)
            if alike and started["study"]["study"] == study:
                found.append((float(first["time"]), folder))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return max(found)[1] if found else None


def told(basis: Basis, blocks: Sequence[int], margin: float, level: float = LEVEL) -> list[str]:
    """Return what can be told with so many blocks, a sentence each.

    Args:
        basis: How far boots differ.
        blocks: The least and the most blocks of the study.
        margin: Its practical margin.
        level: Familywise error of verdicts.
    """
    said = [f"what differences it can tell is reckoned from {basis.source}"]
    for count in dict.fromkeys(blocks):
        typical, worst = (
            detectable(spread, count, max(1, basis.tests), level)
            for spread in (basis.spread, basis.worst)
        )
        if math.isinf(typical):
            said.append(f"{count} blocks: none, all will be preliminary")
            continue
        text = f"{count} blocks: {percent(math.expm1(typical))} in the typical headline metric"
        if worst > typical:
            text += f", {percent(math.expm1(worst))} in the noisiest"
        said.append(f"{text} ({100 * POWER:.0f} % power over {max(1, basis.tests)} metrics)")
        if count == blocks[-1] and typical > math.log1p(margin):
            said.append(
                f"this set-up cannot resolve the margin of {percent(margin)}: quieten the host, "
                "lengthen the cells, or ask for more blocks"
            )
    said.append("tails are asked a quarter as precisely as typical values")
    said.append("maxima are told, but no number of blocks makes them precise: they stop no run")
    return said
