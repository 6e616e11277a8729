"""Compare every arm with every other, as one family of tests, apart from those of the baseline.

Choosing a baseline after seeing the results, or reading a ranking, compares all pairs. So all pairs
of all headline metrics are corrected together, whichever baseline is shown. The method is max-T, as
for the families of the arms. Each pair's test uses only its own differences. Arms that truly differ
therefore make the tests of other pairs neither stricter nor less strict (subset pivotality,
Westfall & Young 1993, §2.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import nan

from tare.analysis.data.grouping import Measured
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.block_order import BlockOrder, orders
from tare.analysis.effects.compare import Comparing, compare_with
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.estimates import Pair, Places, estimate_all, pair_up
from tare.analysis.effects.families import tested
from tare.analysis.effects.pairs import AllPairs, ranked
from tare.analysis.effects.results import Effect, Key
from tare.analysis.effects.sequence import with_sequential_intervals

MOST_TESTS = 400
"""The most pairs of arms and metrics that a page shows. `tare compare DIR --pairs` lists all."""


def compare_every_pair(
    runs: RunData | Sequence[RunData],
    settings: Settings | None = None,
    *,
    most: int | None = MOST_TESTS,
) -> Comparison:
    """Compare every arm with the baseline, and with every other arm.

    Args:
        runs: One run, or several of one study.
        settings: How to compare; by default as the first run's study defines it.
        most: The largest number of pairs to compare. If there are more, none is compared and the
            result has the reason. None: no limit.

    Raises:
        InputError: As for `compare`.
    """
    making, comparison = compare_with(runs, settings)
    return replace(comparison, pairs=_AllPairs(making).found(most))


class _AllPairs:
    """All pairs of a comparison that is being made."""

    def __init__(self, making: Comparing) -> None:
        self.making = making
        self.arms = tuple(arm for arm in making.arms if arm not in making.twins.values())
        self.measured = {
            key: self._folded(measured)
            for key, measured in making.measured.items()
            if measured.headline
        }

    def _folded(self, measured: Measured) -> Measured:
        """Return the values, with the boots of each twin counted as its baseline's."""
        known = measured.arms
        both = {name: pair for name, pair in self.making.pooled.items() if name in known}
        if not both:
            return measured
        own = {arm: known[arm] for arm in self.arms if arm in known}
        alone = {
            name: known[arm]
            for pair in both.values()
            for name, arm in zip(_separate_names(*pair), pair, strict=True)
            if arm in known
        }
        folded = replace(measured, arms={**own, **alone})
        for name, (first, _) in both.items():
            positive, raw = measured.positive((name,)), measured.raw(name)
            folded.add(first, known[name], positive=positive, raw=raw)
        return folded

    def found(self, most: int | None) -> AllPairs:
        """Return all pairs, unless there are too many."""
        making = self.making
        # The number of pairs grows with the square of the arms: stop as soon as there are too many.
        pairs = list(islice(self._pairs(), None if most is None else most + 1))
        if most is not None and len(pairs) > most:
            why = (
                f"{self._possible()} pairs of arms and metrics are more than a page shows: "
                "`tare compare DIR --pairs` shows them"
            )
            return AllPairs(self.arms, (), (), 0, making.settings.level, why)
        effects = self._effects(making.prepared(pairs))
        tests = sum(effect.adjusted_p is not None for effect in effects) // 2
        return AllPairs(
            self.arms, effects, ranked(effects, self.arms), tests, making.settings.level
        )

    def _pairs(self) -> Iterator[Pair]:
        """Yield each pair of arms on one host once: the later arm against the earlier one."""
        at = self.making.settings.baseline_of
        found = (
            self._pair(key, arm, other)
            for key in self.measured
            for place, other in enumerate(self.arms)
            for arm in self.arms[place + 1 :]
            if at(arm) == at(other)
        )
        return (pair for pair in found if pair is not None)

    def _possible(self) -> int:
        """Return the number of pairs of arms that have values on one host."""
        known, at = self.making.summaries, self.making.settings.baseline_of
        on = Counter(
            (key, at(arm)) for key in self.measured for arm in self.arms if (key, arm) in known
        )
        return sum(arms * (arms - 1) // 2 for arms in on.values())

    def _pair(self, key: Key, arm: str, other: str) -> Pair | None:
        known = self.making.summaries
        if (key, arm) not in known or (key, other) not in known:
            return None
        if self.making.sessions.across(arm, other):
            return self.making.sessions.pair(key, self.measured[key], arm, other)
        places = self._places(key)
        pair = pair_up(key, self.measured[key], arm, other, places)
        twin = self.making.twins.get(other)
        if pair is None or twin is None:
            return pair
        twins = _separate_names(other, twin)
        if twins[0] not in self.measured[key].arms:
            return pair
        return replace(pair, twins=twins, places=places or {})

    def _places(self, key: Key) -> Places | None:
        if self.making.places is None:
            return None
        places: Places = self.making.places.get(key.scenario, {})
        for name, (first, twin) in self.making.pooled.items():
            places = {
                block: {
                    **there,
                    _separate_names(first, twin)[0]: there.get(first, nan),
                    first: there[name],
                }
                if name in there
                else there
                for block, there in places.items()
            }
        return places

    def _effects(self, pairs: Sequence[Pair]) -> tuple[Effect, ...]:
        making, settings = self.making, self.making.settings
        tests = tested(pairs, ["pairs"] * len(pairs), making.seed, settings.level, settings.plan)
        both = [each for pair in pairs for each in (pair, _turned(pair))]
        estimates = estimate_all(both, settings.confidence, making.seed, resampled=False)
        if settings.plan is not None:
            estimates = with_sequential_intervals(
                both, estimates, settings.plan, settings.confidence
            )
        found = [
            making.effect(pair, estimate, "pairs", tests[i // 2], None, None)
            for i, (pair, estimate) in enumerate(zip(both, estimates, strict=True))
        ]
        for i, order in self._orders(both, found).items():
            found[i] = making.effect(both[i], estimates[i], "pairs", tests[i // 2], None, order)
        return tuple(found)

    def _orders(self, pairs: Sequence[Pair], found: Sequence[Effect]) -> Mapping[int, BlockOrder]:
        """Return the serial dependence of pairs by index, only where it could change a verdict."""
        decided = ("equivalent", "better", "worse", "differs")
        asked: dict[int, BlockOrder] = {}
        # Each pair is followed by itself with the arms exchanged, whose dependence is the same.
        straight = range(0, len(pairs), 2)
        close = {(e.arm, e.baseline) for e in (found[i] for i in straight) if e.verdict in decided}
        for arms in sorted(close):
            indices = [i for i in straight if (pairs[i].arm, found[i].baseline) == arms]
            of_order = orders(
                [pairs[i] for i in indices],
                self.making.seed,
                self.making.settings.confidence,
                looks=self.making.settings.plan is not None,
            )
            for number, order in of_order.items():
                asked[indices[number]] = order
                asked[indices[number] + 1] = order._replace(drift=-order.drift)
        return asked


def _separate_names(baseline: str, twin: str) -> tuple[str, str]:
    """Return names for a baseline's own boots and its twin's; its own name means both together."""
    return f"{baseline} alone", twin


def _turned(pair: Pair) -> Pair:
    """Return a pair with its arms exchanged."""
    return replace(
        pair,
        arm=pair.baseline,
        baseline=pair.arm,
        differences=tuple(-value for value in pair.differences),
        later_by=tuple(-value for value in pair.later_by),
    )
