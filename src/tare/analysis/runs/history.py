"""Many runs of one study over time: where their effects changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect, Key, OfMetric, as_cost
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.runs.run_changes import require_same_baseline
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.change_point import place_ends
from tare.analysis.statistics.divisive import LEAST_PART, LEAST_VALUES, changes_of
from tare.analysis.statistics.meta_analysis import mean_shift
from tare.errors import InputError
from tare.events.metric import Metric


@dataclass(frozen=True)
class EffectTurn:
    """A change of one effect between two runs of the sequence.

    Args:
        before: Identity of the last run before it.
        after: Identity of the first run after it.
        earliest: Identity of the earliest run that may be the first one after it.
        latest: Identity of the latest such run, both with the confidence `History.confidence`.
        started_at: When the run ``after`` began, in seconds since the epoch.
        change: Ratio of the costs (geometric mean of runs) after and before, until the next one.
        low: Lower end of its interval, with runs as the unit.
        high: Upper end.
        p: The probability that chance makes any effect of the arm change so much.
    """

    before: str
    after: str
    earliest: str
    latest: str
    started_at: float
    change: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class EffectSeries(OfMetric):
    """One effect over the runs that have it.

    Args:
        key: What was measured.
        metric: The metric.
        arm: The arm.
        emulated: Whether any run's effect is marked as emulated.
        runs: Identities of the runs, in order of time.
        effects: The cost against the baseline in each run: the ratio, inverted if more is better.
        turns: The changes of this effect.
    """

    key: Key
    metric: Metric
    arm: str
    emulated: bool
    runs: tuple[str, ...]
    effects: tuple[float, ...]
    turns: tuple[EffectTurn, ...]


@dataclass(frozen=True)
class History:
    """The changes over many runs of one study.

    Args:
        baseline: The arm that all are compared with.
        runs: Identities of all runs, in order of time.
        lines: The headline effects.
        level: The rate at which a change is declared for an arm that did not change.
        confidence: The confidence of the changes' intervals, and of their positions.
        without_ratio: For each headline effect, the number of runs in which a value was 0. These
            runs are skipped, because they have no ratio.
    """

    baseline: str
    runs: tuple[str, ...]
    lines: tuple[EffectSeries, ...]
    level: float
    confidence: float
    without_ratio: Mapping[tuple[str, Key], int]


def history(comparisons: Sequence[Comparison], level: float = LEVEL) -> History:
    """Find the changes of headline effects over runs; the effects of one arm are one family.

    Only effects are used, never raw values of different runs.

    Args:
        comparisons: One comparison for each run, in any order.
        level: Familywise error rate of each arm.

    Raises:
        InputError: The runs are too few, of different studies, or have different baselines.
    """
    ordered = sorted(comparisons, key=lambda one: one.runs[0].started_at)
    if len(ordered) < LEAST_VALUES:
        raise InputError(
            "one run has no history"
            if len(ordered) == 1
            else f"{len(ordered)} runs have no history",
            f"name {LEAST_VALUES} or more: of fewer no order is unlikely enough",
        )
    studies = sorted({str(one.runs[0].study.get("study", "")) for one in ordered})
    if len(studies) > 1:
        raise InputError(
            f"the runs are of different studies: {', '.join(studies)}", "name runs of one study"
        )
    require_same_baseline(ordered)
    effects: dict[tuple[str, Key], list[tuple[Comparison, Effect]]] = {}
    zeros: Counter[tuple[str, Key]] = Counter()
    for comparison in ordered:
        for effect in comparison.effects:
            if not effect.headline:
                continue
            if effect.scale == "ratio" and 0 < effect.estimate < math.inf:
                effects.setdefault((effect.arm, effect.key), []).append((comparison, effect))
            else:
                zeros[effect.arm, effect.key] += 1
    # Effects of the same runs are shuffled together.
    families: dict[tuple[str, tuple[str, ...]], list[Key]] = {}
    for (arm, key), found in effects.items():
        runs = tuple(comparison.runs[0].run for comparison, _ in found)
        families.setdefault((arm, runs), []).append(key)
    of_arm = {arm: sum(arm == other for other, _ in families) for arm, _ in families}
    lines = []
    for (arm, runs), keys in families.items():
        rows = [[math.log(_cost(effect)) for _, effect in effects[arm, key]] for key in keys]
        changes = changes_of(rows, level / of_arm[arm], seed_from(arm, *runs) % 2**32)
        for row, key in enumerate(keys):
            starts = {change.start: change.p for change in changes if change.sequence == row}
            found = effects[arm, key]
            turns = _turns(found, rows[row], starts, ordered[0].confidence)
            emulated = any(effect.emulated for _, effect in found)
            costs = tuple(_cost(effect) for _, effect in found)
            lines.append(EffectSeries(key, found[0][1].metric, arm, emulated, runs, costs, turns))
    everyone = tuple(comparison.runs[0].run for comparison in ordered)
    confidence = ordered[0].confidence
    return History(ordered[0].baseline, everyone, tuple(lines), level, confidence, zeros)


def _cost(effect: Effect) -> float:
    return as_cost(effect.estimate, effect.better)


def _turns(
    found: Sequence[tuple[Comparison, Effect]],
    logs: Sequence[float],
    starts: dict[int, float],
    confidence: float,
) -> tuple[EffectTurn, ...]:
    places = [0, *sorted(starts), len(logs)]
    turns = []
    for i in range(1, len(places) - 1):
        first, at, last = places[i - 1 : i + 2]
        shift = mean_shift(logs[first:at], logs[at:last], confidence)
        change, low, high = (math.exp(max(min(end, 700.0), -700.0)) for end in shift)
        ends = place_ends(logs[first:last], at - first, LEAST_PART, confidence, at)
        earliest, latest = (found[first + end][0].runs[0].run for end in ends)
        before, after = found[at - 1][0].runs[0], found[at][0].runs[0]
        turns.append(
            EffectTurn(
                before.run, after.run, earliest, latest, after.started_at, change, low, high,
                starts[at],
            )
        )  # fmt: skip
    return tuple(turns)
