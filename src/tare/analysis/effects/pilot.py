"""Advice for the next run from a finished one as its pilot: repeats per boot, and blocks.

For arms of different boots, in a run in sessions, the advice is about rounds of sessions, over
which such arms are compared, and about the number of blocks in a session.

A pilot's values have levels, from the bottom: cells of one boot, boots (blocks), and in sessions
rounds of sessions. If the pilot has only one of a level, that level's variance is unknown: its
cost is then part of the level above.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import polars as pl

from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.runs.sessions import rounds_of_blocks, session_blocks, values_by_round
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.repeats import RepeatAdvice, choose_repeats
from tare.study.planning.session_plan import THERE_AND_BACK

Place = tuple[int, int]
"""A block's number, and a repeat's number within the block."""
LEAST_COST_S = 1e-3
LEAST_BLOCKS = 8
LEAST_ROUNDS = least_blocks(LEVEL)
"""Fewer rounds give no verdict on arms of different boots."""


@dataclass(frozen=True)
class PilotTarget:
    """The precision that is asked of a ratio.

    Args:
        half_width: The half-width of its logarithm.
        confidence: The confidence of that interval.
    """

    half_width: float
    confidence: float


@dataclass(frozen=True)
class Chosen:
    """The choice for one ratio.

    Args:
        repeats: Cells per boot.
        blocks: Total number of blocks.
        half_width: The expected half-width of the logarithm.
        cost_s: Its cost in seconds.
        rounds: Rounds of sessions that the blocks are in; 0 without sessions.
    """

    repeats: int
    blocks: int
    half_width: float
    cost_s: float
    rounds: int = 0


def choose_blocks(
    ratios: Mapping[Place, float], costs_s: tuple[float, float], asked: PilotTarget
) -> Chosen | None:
    """Choose repeats and blocks; None if the pilot has fewer than two blocks.

    Args:
        ratios: Log-ratios by block and repeat.
        costs_s: The additional seconds for one more cell, and for one more boot.
        asked: The precision.
    """
    values = _whole_blocks(ratios)
    if len(values) < 2:
        return None
    (repeats,), found = _cheapest(values, costs_s, asked, LEAST_BLOCKS)
    return _chosen(repeats, found)


def choose_rounds(
    ratios: Mapping[Place, float],
    rounds: Mapping[int, int],
    costs_s: tuple[float, float, float],
    asked: PilotTarget,
) -> Chosen | None:
    """Choose repeats, blocks of a session, and rounds; None if the pilot has fewer than two rounds.

    Args:
        ratios: Log-ratios by block and repeat.
        rounds: The round of each block.
        costs_s: The additional seconds for one more cell, one more boot, and a round's swaps.
        asked: The precision.
    """
    values = _whole_rounds(ratios, rounds)
    if len(values) < 2:
        return None
    (repeats, blocks), found = _cheapest(values, costs_s, asked, LEAST_ROUNDS)
    assert found.blocks is not None
    # Sessions go there and back.
    if odd := found.blocks % THERE_AND_BACK:
        least = found.blocks + THERE_AND_BACK - odd
        (repeats, blocks), found = _cheapest(values, costs_s, asked, least)
    return _chosen(repeats, found, in_session=blocks)


def _chosen(repeats: int, found: RepeatAdvice, in_session: int = 0) -> Chosen:
    assert found.blocks is not None
    assert found.half_width is not None
    assert found.cost_s is not None
    blocks, rounds = found.blocks, 0
    if in_session:
        blocks, rounds = blocks * in_session, blocks
    return Chosen(repeats, blocks, found.half_width, found.cost_s, rounds)


def _cheapest(
    values: np.ndarray, costs_s: Sequence[float], asked: PilotTarget, least: int
) -> tuple[list[int], RepeatAdvice]:
    """Return how often to repeat each level below the highest, and the whole calculation."""
    merged: list[float] = []
    kept: list[int] = []
    cost = 0.0
    for level, own in enumerate(costs_s):
        cost += own
        highest = level == values.ndim - 1
        if highest or values.shape[values.ndim - 1 - level] > 1:
            merged.append(max(cost, LEAST_COST_S))
            kept.append(level)
            cost = 0.0
    shape = [values.shape[values.ndim - 1 - level] for level in reversed(kept)]
    found = choose_repeats(
        values.reshape(shape),
        merged,
        half_width=asked.half_width,
        confidence=asked.confidence,
        least_blocks=least,
    )
    per_level = [1] * (values.ndim - 1)
    for level, repeats in zip(kept[:-1], found.per_level, strict=True):
        per_level[level] = repeats
    return per_level, found


def _whole_blocks(values: Mapping[Place, float]) -> np.ndarray:
    """Return the values of the blocks that have all repeats, of shape (blocks, repeats)."""
    blocks = sorted({block for block, _ in values})
    repeats = sorted({repeat for _, repeat in values})
    whole = [block for block in blocks if all((block, repeat) in values for repeat in repeats)]
    return np.array([[values[block, repeat] for repeat in repeats] for block in whole]).reshape(
        len(whole), len(repeats)
    )


def _whole_rounds(values: Mapping[Place, float], rounds: Mapping[int, int]) -> np.ndarray:
    """Return values of shape (rounds, blocks, repeats), from as many equal rounds as possible."""
    repeats = sorted({repeat for _, repeat in values})
    blocks = [
        block
        for block in sorted({block for block, _ in values})
        if all((block, repeat) in values for repeat in repeats)
    ]
    of_rounds = list(values_by_round(((block, block) for block in blocks), rounds).values())
    # The last round may be shorter, and rounds that count as one are longer. Two must remain.
    sizes = sorted((len(each) for each in of_rounds), reverse=True)[1:]
    size = max(sizes, key=lambda n: n * sum(len(each) >= n for each in of_rounds), default=0)
    whole = [each[:size] for each in of_rounds if len(each) >= size]
    table = [[[values[block, repeat] for repeat in repeats] for block in each] for each in whole]
    return np.array(table).reshape(len(whole), size, len(repeats))


@dataclass(frozen=True)
class Advice:
    """How often to measure one headline ratio for the asked precision.

    Args:
        arm: The arm, compared with the baseline.
        scenario: The scenario.
        workload: The study's label for the workload.
        parameters: Its parameters, as JSON.
        metric: The headline metric.
        repeats: Cells per boot (the study's ``repeats``).
        blocks: Blocks for the asked half-width, at least 8; in rounds, those of all of them.
        half_width: The relative half-width to expect then.
        cost_s: Seconds to boot and measure both arms for it, including swaps of the boot.
        rounds: Rounds of sessions for it if the two arms are of different boots; otherwise 0.
    """

    arm: str
    scenario: str
    workload: str
    parameters: str
    metric: str
    repeats: int
    blocks: int
    half_width: float
    cost_s: float
    rounds: int = 0


def advise(pilot: RunData, precision: float, confidence: float) -> tuple[Advice, ...]:
    """Choose repeats and blocks for every headline ratio of typical values.

    Block-paired log-ratios of the pilot are the values; their variance is split between boots
    and repeats within a boot, and the cheapest numbers that reach the precision are chosen
    (Kalibera & Jones 2013, §6). A pilot with one repeat only has the variance between boots.

    Args:
        pilot: A run with at least two blocks.
        precision: Asked relative half-width of each ratio's interval (0.05 is 5 %).
        confidence: The confidence of that interval.

    Returns:
        One advice per arm and headline metric with a ratio in at least two blocks, or for arms of
        different boots in at least two rounds of sessions.
    """
    boot_s = _boot_seconds(pilot)
    cell_s = _cell_seconds(pilot)
    baseline = str(pilot.study["baseline"])
    # A twin is the same machine as its baseline: the precision of their ratio is not asked for.
    twins = set(Settings.of([pilot]).twins.values())
    known, rounds = session_blocks([pilot], {}), rounds_of_blocks(pilot.sessions)
    asked = PilotTarget(math.log1p(precision), confidence)
    advices = []
    for key, ratios in _paired_log_ratios(pilot, baseline):
        arm, scenario, workload, parameters, _ = key
        if arm in twins:
            continue
        base = pilot.own_baselines.get(arm, baseline)
        measuring = sum(cell_s[one, scenario, workload, parameters] for one in (arm, base))
        booting = boot_s[arm] + boot_s[base]
        if known.across(arm, base):
            swapping = sum(_swap_s(pilot, known.boots[one]) for one in (arm, base))
            found = choose_rounds(ratios, rounds, (measuring, booting, swapping), asked)
        else:
            found = choose_blocks(ratios, (measuring, booting), asked)
        if found is not None:
            half_width = math.expm1(found.half_width)
            advices.append(
                Advice(*key, found.repeats, found.blocks, half_width, found.cost_s, found.rounds)
            )
    return tuple(advices)


Key = tuple[str, str, str, str, str]


def _paired_log_ratios(pilot: RunData, baseline: str) -> Iterator[tuple[Key, dict[Place, float]]]:
    """Yield the log-ratios of each headline metric, by block and repeat."""
    headline = pilot.observations.filter(
        pl.col("headline")
        & (pl.col("kind") == "typical")
        & (pl.col("role") == "subject")
        & (pl.col("status") == "ok")
        & (pl.col("value") > 0)
    )
    names = ("arm", "scenario", "workload", "parameters", "metric")
    logs: dict[Key, dict[Place, float]] = defaultdict(dict)
    for row in headline.iter_rows(named=True):
        arm, scenario, workload, parameters, metric = (str(row[name]) for name in names)
        place = (int(row["block"]), int(row["repeat"]))
        logs[arm, scenario, workload, parameters, metric][place] = math.log(row["value"])
    for key, values in logs.items():
        against = pilot.own_baselines.get(key[0], baseline)
        base = logs.get((against, *key[1:]), {})
        if key[0] == against:
            continue
        yield key, {place: value - base[place] for place, value in values.items() if place in base}


def _swap_s(pilot: RunData, boot: str) -> float:
    """Return the seconds that swapping to a boot takes, as the pilot's study states."""
    return float(pilot.study["sessions"]["boots"][boot]["takes"])


def _boot_seconds(pilot: RunData) -> dict[str, float]:
    boots: dict[str, list[float]] = defaultdict(list)
    for machine in pilot.machines:
        if machine.boot_s is not None:
            boots[machine.arm].append(machine.boot_s)
    return defaultdict(float, {arm: fmean(seconds) for arm, seconds in boots.items()})


def _cell_seconds(pilot: RunData) -> dict[tuple[str, str, str, str], float]:
    cells: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for cell in pilot.cells:
        if cell.status == "ok":
            key = (cell.arm, cell.scenario, cell.workload, cell.parameters)
            cells[key].append(cell.measured_s)
    return {key: fmean(seconds) for key, seconds in cells.items()}
