"""What a finished run, taken as a pilot, advises for the next one: repeats per boot, and blocks.

Of arms of different boots, in a run in sessions, it advises on rounds of sessions, which such arms
are compared over, and on how many blocks a session is to have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import polars as pl

from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.pilot_levels import Asked, Place, over_blocks, over_rounds
from tare.analysis.runs.sessions import in_sessions, rounds_of_blocks


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
        half_width: The relative half-width to be expected then.
        cost_s: Seconds of booting and measuring both arms for it, and of the swaps.
        rounds: Rounds of sessions for it, where the two arms are of different boots; else 0.
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
    (Kalibera & Jones 2013, §6). A pilot with one repeat tells of boots only.

    Args:
        pilot: A run with at least two blocks.
        precision: Asked relative half-width of each ratio's interval (0.05 is 5 %).
        confidence: Of that interval.

    Returns:
        One advice per arm and headline metric with a ratio in at least two blocks; of arms of
        different boots, in at least two rounds of sessions.
    """
    boot_s = _boot_seconds(pilot)
    cell_s = _cell_seconds(pilot)
    baseline = str(pilot.study["baseline"])
    # A twin's boots are its baseline's: nobody asks how precisely their ratio is known.
    twins = set(Settings.of([pilot]).twins.values())
    known, rounds = in_sessions([pilot], {}), rounds_of_blocks(pilot.sessions)
    asked = Asked(math.log1p(precision), confidence)
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
            found = over_rounds(ratios, rounds, (measuring, booting, swapping), asked)
        else:
            found = over_blocks(ratios, (measuring, booting), asked)
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
    """Return how long it takes to boot the computer in one way, as the pilot's study says."""
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
