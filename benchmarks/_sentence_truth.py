"""The true values of a simulated study, as the sentences of reports state them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from benchmarks._random_studies import BASELINE, TWIN, TrueMetric, TrueStudy, draw_run
from tare.analysis.data.grouping import group
from tare.analysis.effects.estimates import pair_up
from tare.analysis.effects.results import Effect, Key


@dataclass(frozen=True)
class Truth:
    """What is true of one study, as sentences claim it.

    Args:
        study: The study.
        typical: Whether claims of values that are all above 0 are about typical boots, as the page
            says; otherwise about the mean over all boots.
    """

    study: TrueStudy
    typical: bool

    def metric(self, key: Key) -> TrueMetric:
        """Return the metric of a key."""
        return self.study.by_name[key.workload, key.metric]

    def log_cost(self, key: Key, arm: str, baseline: str, *, mean: bool | None = None) -> float:
        """Return the logarithm of an arm's true cost; the twin counts with its baseline."""
        metric = self.metric(key)
        # The estimate of tails and maxima is the median, which slow boots hardly move.
        default = not self.typical and metric.metric.kind == "typical"
        over_all = default if mean is None else mean
        return self._side(metric, arm, over_all) - self._side(metric, baseline, over_all)

    def _side(self, metric: TrueMetric, arm: str, mean: bool) -> float:
        if metric.counted:
            return _log_count(metric, arm)
        cost = metric.mean_cost if mean else metric.cost
        logs = [math.log(cost(each, BASELINE)) for each in self._boots(arm)]
        own = math.fsum(logs) / len(logs)
        if metric.law == "skewed" and metric.metric.kind != "typical" and len(logs) == 2:
            # The median of a skewed difference is not its mean.
            own += metric.spread * _MEDIAN_WITH_TWIN
        return own

    def _boots(self, arm: str) -> tuple[str, ...]:
        if arm == BASELINE and TWIN in self.study.arms:
            return (BASELINE, TWIN)
        return (arm,)

    def cost(self, effect: Effect) -> float:
        """Return the true cost of an effect, as a ratio; for no direction, the ratio itself.

        It is the mean over all boots where slow ones were found, which findings say.
        """
        mean = None
        if effect.kind == "typical" and any(flag.kind == "slow-boots" for flag in effect.flags):
            mean = True
        return math.exp(self.log_cost(effect.key, effect.arm, effect.baseline, mean=mean))

    def resource(self, effects: Sequence[Effect]) -> float:
        """Return the true cost of a resource: the geometric mean over its ratios, of all boots."""
        ratios = [e for e in effects if e.scale == "ratio"]
        logs = [self.log_cost(e.key, e.arm, e.baseline, mean=not self.typical) for e in ratios]
        return math.exp(math.fsum(logs) / len(logs))

    def difference(self, effect: Effect, without: Sequence[str] = ()) -> float:
        """Return the true difference of the means of counts.

        Args:
            effect: The effect.
            without: Arms whose events the sentence leaves out, as none was seen.
        """
        counted = self.metric(effect.key).counted
        means = {arm: counted[arm].share * counted[arm].mean for arm in (effect.arm, BASELINE)}
        means |= dict.fromkeys(without, 0.0)
        return means[effect.arm] - means[BASELINE]

    def survivors(self, effect: Effect) -> float:
        """Return the true cost of an effect over the cells that do not fail."""
        study = self.study
        if not study.fails_slow:
            return self.cost(effect)
        return math.exp(self._long_run[effect.key.workload, effect.key.metric, effect.arm])

    @cached_property
    def _long_run(self) -> Mapping[tuple[str, str, str], float]:
        """The logarithm of each cost over the cells that do not fail, from a long run."""
        found = {}
        for key, measured in group([draw_run(self.study, blocks=1000)]).items():
            for arm in self.study.others:
                pair = pair_up(key, measured, arm, BASELINE)
                if pair is not None and pair.scale == "ratio":
                    logs = np.array(pair.differences)
                    middle = logs.mean() if pair.typical else np.median(logs)
                    found[key.workload, key.metric, arm] = float(middle)
        return found


def _median_with_twin() -> float:
    rng = np.random.default_rng(1)
    one, other, third = rng.exponential(size=(3, 400_000))
    return -float(np.median(one - (other + third) / 2))


_MEDIAN_WITH_TWIN = _median_with_twin()


def _log_count(metric: TrueMetric, arm: str) -> float:
    counted = metric.counted[arm]
    return _mean_log(counted.mean)


@lru_cache(maxsize=64)
def _mean_log(mean: float) -> float:
    drawn = np.random.default_rng(1).poisson(mean, 100_000)
    return float(np.log(drawn[drawn > 0]).mean())
