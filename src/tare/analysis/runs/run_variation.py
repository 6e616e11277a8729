"""Variation between runs of one set-up, which no interval of two runs contains.

The blocks of two runs show how far boots differ, not how far runs do. With runs that differ by 1 %
and boots that differ by 1 %, a gate at its limit fails in 23 % of pairs. So an interval that a gate
is checked against includes variation between runs: measured over repeated runs, or assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Interval, Key
from tare.analysis.effects.verdict import percent
from tare.analysis.runs.run_changes import Change, require_same_baseline
from tare.analysis.statistics.logratio import deviation, t_quantile
from tare.analysis.statistics.maxt import least_blocks
from tare.errors import InputError

USUAL = 0.01
"""The standard deviation of effects and values between runs that is assumed if none is known."""
LEAST_RUNS = 4
"""The least runs of one set-up to estimate variation from; with fewer, an interval is too wide."""


@dataclass(frozen=True)
class RepeatedEffect:
    """One effect over several runs of one set-up.

    Args:
        effects: Its estimate in each run: the logarithm of a ratio, or a difference.
        values: The logarithm of the arm's own value in each run; NaN if it is 0 or below.
        ratio: Whether all estimates are ratios.
        blocks: The most blocks of any of these runs.
    """

    effects: tuple[float, ...]
    values: tuple[float, ...]
    ratio: bool
    blocks: int


@dataclass(frozen=True)
class RunVariation:
    """The variation between runs of one set-up.

    Args:
        share: The standard deviation, as a share, that is assumed if none was measured; 0: none.
        asked: Whether the caller chose that share.
        repeats: The repeated effects that were measured, by key and arm.
        source: Where the repeated runs are from, in words.
    """

    share: float = USUAL
    asked: bool = False
    repeats: Mapping[tuple[Key, str], RepeatedEffect] = field(default_factory=dict)
    source: str = ""

    def known(self, change: Change) -> RepeatedEffect | None:
        """Return the repeated runs of a change's effect; None if there are too few."""
        found = self.repeats.get((change.key, change.arm))
        usable = found is not None and len(found.effects) >= LEAST_RUNS
        return found if usable and found is not None and found.ratio == change.ratio else None

    def describe(self, change: Change) -> str:
        """Describe what a change's interval includes, as the end of a sentence."""
        known = self.known(change)
        if known is not None:
            runs = len(known.effects)
            return f"with the variation between {runs} runs of one set-up ({self.source})"
        if self.asked:
            if not self.share:
                return "about these two runs only: variation between runs is not included"
            return f"assuming that runs of one set-up differ by {percent(self.share)} (1 SD)"
        return (
            "about these two runs only: how far runs of one set-up differ by themselves is not "
            f"known from them. Gates are open within the usual difference, an assumed "
            f"{percent(self.share)} (1 SD of an effect from run to run). To measure it, repeat the "
            f"first run {LEAST_RUNS - 1} times and name each with --repeat-run"
        )


ASSUMED = RunVariation()
"""The variation to use if nothing is known of it."""


def share_of(text: str) -> float:
    """Parse a share such as ``0.5 %``.

    Raises:
        InputError: The text is not a share.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if found is None:
        raise InputError(f"--run-variation {text}: not a share", "write it as `0.5 %`")
    return float(found[1]) / 100


def repeated_runs(comparisons: Sequence[Comparison], source: str) -> RunVariation:
    """Return the variation between several runs of one set-up.

    Args:
        comparisons: One comparison for each run, of the same host.
        source: Where they are from, in words.

    Raises:
        InputError: The runs have different baselines.
    """
    if not comparisons:
        return ASSUMED
    require_same_baseline(comparisons)
    found: dict[tuple[Key, str], list[tuple[float, float, bool, int]]] = {}
    for comparison in comparisons:
        for effect in comparison.effects:
            if effect.blocks < least_blocks(comparison.level):
                continue
            ratio = effect.scale == "ratio" and 0 < effect.estimate < math.inf
            value = effect.arm_summary.mean if effect.seldom else effect.arm_summary.centre
            found.setdefault((effect.key, effect.arm), []).append(
                (
                    math.log(effect.estimate) if ratio else effect.estimate,
                    math.log(value) if value > 0 else math.nan,
                    ratio,
                    effect.blocks,
                )
            )
    repeats = {}
    for name, runs in found.items():
        effects, values, ratios, blocks = zip(*runs, strict=True)
        if len(set(ratios)) == 1:
            repeats[name] = RepeatedEffect(effects, values, ratios[0], max(blocks))
    return RunVariation(repeats=repeats, source=source)


def with_variation(change: Change, variation: RunVariation) -> Change:
    """Return a change whose interval includes the variation between runs.

    With a measured variation, the half-width is at least Student's for the difference of two runs,
    from the standard deviation over the repeated runs. That deviation includes the variation of
    their blocks. So it is exact for runs with equally many blocks, and is increased if the two runs
    have fewer. An assumed variation is added to the variance of the change. If time counts
    instructions, runs do not differ by themselves.

    Args:
        change: The change.
        variation: How far runs of one set-up differ.
    """
    if change.ranged or math.isinf(change.high):
        return change
    inner, outer = (math.log, math.exp) if change.ratio else (float, float)
    centre, low, high = map(inner, (change.change, change.low, change.high))
    known = variation.known(change)
    if known is None:
        unit = 1.0 if change.ratio else change.value
        added = unit * variation.share * math.sqrt(2) * _normal(change.confidence)
        low, high = (
            centre - math.hypot(centre - low, added),
            centre + math.hypot(high - centre, added),
        )
    else:
        fewest = min(change.before.blocks, change.after.blocks)
        half = _half_width(known.effects, 2.0, known.blocks, fewest, change.confidence)
        low, high = min(low, centre - half), max(high, centre + half)
    return replace(change, low=outer(low), high=outer(high))


def value_with_variation(
    at: float, interval: Interval, change: Change, variation: RunVariation
) -> Interval:
    """Return the interval of an arm's own value in the second run, with variation between runs.

    Args:
        at: The value.
        interval: Its interval within that run.
        change: The change of the same effect.
        variation: How far runs of one set-up differ.
    """
    if math.isinf(interval.high) or math.isinf(interval.low):
        return interval
    known = variation.known(change)
    if known is None or any(map(math.isnan, known.values)):
        added = abs(at) * variation.share * _normal(interval.confidence)
        low = at - math.hypot(at - interval.low, added)
        high = at + math.hypot(interval.high - at, added)
    else:
        half = abs(at) * math.expm1(
            _half_width(known.values, 1.0, known.blocks, change.after.blocks, interval.confidence)
        )
        low, high = min(interval.low, at - half), max(interval.high, at + half)
    return replace(interval, low=low, high=high)


def _half_width(
    values: Sequence[float], runs: float, blocks: int, fewest: int, confidence: float
) -> float:
    """Return Student's half-width for one run, or for the difference of two.

    Args:
        values: One value of each repeated run.
        runs: The number of runs whose variances add up.
        blocks: The most blocks of a repeated run.
        fewest: The least blocks of the runs that are compared.
        confidence: Nominal coverage.
    """
    variance = runs * deviation(values) ** 2 * max(1.0, blocks / fewest)
    return t_quantile(confidence, len(values) - 1) * math.sqrt(variance)


def _normal(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)
