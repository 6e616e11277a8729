"""The cost of each arm by resource: a mean over headline metrics, with simultaneous intervals.

A metric's costs in the blocks are a paired series of log-ratios. The mean over the metrics of a
resource is one as well, so the same estimates apply to it. The intervals of all arms and resources
are one family: together they cover all true values with the study's confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.grouping import Measured
from tare.analysis.data.settings import Settings
from tare.analysis.effects.block_order import orders, widened
from tare.analysis.effects.cached_arrays import ShownAs, What, is_cache
from tare.analysis.effects.estimates import Pair, estimate_all
from tare.analysis.effects.results import Each, Effect, Interval, Key, VerdictWord
from tare.analysis.effects.sequence import with_sequential_intervals
from tare.analysis.effects.two_stage import with_two_stage_intervals
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.detectable import blocks_for_equality
from tare.analysis.statistics.maxt import least_blocks, simultaneous_confidence
from tare.events.metric import Metric

ResourceName = Literal[
    "cpu", "memory", "disk", "network", "latency", "latency-worst", "application", "work"
]
"""A resource as reports sum it up. Tails and maxima of any resource are ``latency-worst``. Metrics
that declare no resource are ``work``."""
ORDER: tuple[ResourceName, ...] = (
    "cpu",
    "memory",
    "disk",
    "network",
    "latency",
    "latency-worst",
    "application",
    "work",
)

Finding = Literal["slower", "faster", "same", "bounded", "undecided", "preliminary", "no-ratio"]

BOUND = 0.15
"""If a difference of more than this share is excluded, a resource counts as decided."""
MOST_BLOCKS = 200
"""The most additional blocks to recommend. If more are needed, less noise is the better advice."""


@dataclass(frozen=True)
class ResourceCost:
    """The cost of one arm in one resource, relative to its baseline.

    Args:
        resource: The resource.
        arm: The arm.
        baseline: The arm that it is compared with.
        emulated: Whether the arm or the baseline is emulated.
        effects: The headline effects of the resource, all of them.
        averaged: How many of them the mean includes: those that are ratios.
        blocks: Blocks in which all averaged metrics have a value in both arms.
        each: The unit of ``blocks``.
        cost: Geometric mean of the costs: 1 is even, 2 is twice the cost; NaN without any ratio.
        interval: Its simultaneous interval, as costs; None with too few blocks.
        margin: The practical margin.
        doubt: Why the arm must not be called equal here; empty if nothing speaks against it.
        flattered: The directions that failed cells may have caused.
        cache: Whether all headline metrics of the resource are of arrays that a cache holds.
    """

    resource: ResourceName
    arm: str
    baseline: str
    emulated: bool
    effects: tuple[Effect, ...]
    averaged: int
    blocks: int
    each: Each
    cost: float
    interval: Interval | None
    margin: float
    doubt: str = ""
    flattered: frozenset[VerdictWord] = frozenset()
    cache: bool = False

    @property
    def finding(self) -> Finding:
        """The conclusion that the interval allows.

        - ``same``: the whole interval is within the margin.
        - ``slower``, ``faster``: the interval excludes "even".
        - ``bounded``: it includes "even" and excludes differences larger than `BOUND`.
        - ``undecided``: none of these, or something speaks against the interval.
        - ``preliminary``: too few blocks. ``no-ratio``: no metric is a ratio.
        """
        if not self.averaged:
            return "no-ratio"
        if self.interval is None:
            return "preliminary"
        if self.largest <= 1 + self.margin and not self.doubt:
            return "same"
        if self.interval.low > 1:
            return "undecided" if "worse" in self.flattered else "slower"
        if self.interval.high < 1:
            return "undecided" if "better" in self.flattered else "faster"
        return "bounded" if self.largest <= 1 + BOUND and not self.doubt else "undecided"

    @property
    def largest(self) -> float:
        """The factor of the largest difference, in either direction, that is not excluded."""
        if self.interval is None or self.interval.low <= 0:
            return math.inf
        return max(self.interval.high, 1 / self.interval.low)

    @property
    def worst(self) -> Effect | None:
        """The metric with the largest cost of those that were found worse; None if none was."""
        worse = [e for e in self.effects if e.verdict == "worse" and e.overhead is not None]
        return max(worse, key=lambda e: e.overhead or 0.0, default=None)

    @property
    def blocks_to_decide(self) -> int | None:
        """About how many more blocks are likely to decide an undecided resource.

        With that many, a difference of `BOUND` is excluded with a probability of 80 % if there is
        no difference. None if the resource is not undecided, if something other than noise leaves
        it undecided, or if so many are needed that reducing the noise is the better advice.
        """
        ends = self.interval
        if self.finding != "undecided" or ends is None or self.doubt or self.flattered:
            return None
        if not 0 < ends.low < ends.high < math.inf:
            return None
        half = math.log(ends.high / ends.low) / 2
        needed = blocks_for_equality(half, math.log1p(BOUND), self.blocks) - self.blocks
        return needed if 0 < needed <= MOST_BLOCKS else None


def resource_of(metric: Metric) -> ResourceName:
    """Return the resource under which reports sum up a metric."""
    return "latency-worst" if metric.kind != "typical" else metric.resource or "work"


def resource_costs(
    pairs: Sequence[Pair],
    effects: Sequence[Effect],
    doubts: Sequence[str],
    flattered: Sequence[Mapping[VerdictWord, str]],
    settings: Settings,
    seed: str,
    shown_as: Mapping[What, ShownAs],
) -> tuple[ResourceCost, ...]:
    """Return the cost of every arm in every resource, in the order of arms and resources.

    Args:
        pairs: All pairs of arms and baselines.
        effects: Their effects, in the same order.
        doubts: Why each effect must not be called equal; empty if there is no reason.
        flattered: The verdicts of each that failed cells may have caused.
        settings: How to compare.
        seed: Text that all draws depend on.
        shown_as: The names of workloads that did not measure what their own name says.
    """
    members: dict[tuple[str, ResourceName], list[int]] = {}
    for i, effect in enumerate(effects):
        if effect.headline and effect.better != "neither":
            members.setdefault((effect.arm, resource_of(effect.metric)), []).append(i)
    arms = list(dict.fromkeys(arm for arm, _ in members))
    named = sorted(members, key=lambda name: (arms.index(name[0]), ORDER.index(name[1])))
    caches = cache_resources(
        {name: [effects[i].key for i in own] for name, own in members.items()}, shown_as
    )
    means = {name: _mean(name[1], [pairs[i] for i in members[name]]) for name in named}
    intervals = _intervals([mean for mean in means.values() if mean is not None], settings, seed)
    found = []
    for name, mean in means.items():
        indices = members[name]
        of_name = tuple(effects[i] for i in indices)
        estimate, interval = (math.nan, None) if mean is None else next(intervals)
        found.append(
            ResourceCost(
                resource=name[1],
                arm=name[0],
                baseline=of_name[0].baseline,
                emulated=any(effect.emulated for effect in of_name),
                effects=of_name,
                averaged=0 if mean is None else sum(e.scale == "ratio" for e in of_name),
                blocks=0 if mean is None else len(mean.blocks),
                each=of_name[0].each,
                cost=estimate,
                interval=interval,
                margin=settings.margin,
                doubt=next((doubts[i] for i in indices if doubts[i]), ""),
                flattered=frozenset(word for i in indices for word in flattered[i]),
                cache=name[1] in caches,
            )
        )
    return tuple(found)


def cache_resources(
    members: Mapping[tuple[str, ResourceName], Iterable[Key]], named: Mapping[What, ShownAs]
) -> frozenset[ResourceName]:
    """Return the resources that were only measured with arrays that fit a cache, in any arm.

    All arms of a report then have the same word for the resource.
    """
    keys: dict[ResourceName, list[Key]] = {}
    for (_, resource), own in members.items():
        keys.setdefault(resource, []).extend(own)
    return frozenset(resource for resource, own in keys.items() if is_cache(own, named))


def _mean(resource: ResourceName, pairs: Sequence[Pair]) -> Pair | None:
    """Return the mean cost of several pairs as a pair; None without a ratio or a common block."""
    ratios = [pair for pair in pairs if pair.scale == "ratio"]
    if not ratios:
        return None
    blocks = [b for b in ratios[0].blocks if all(b in pair.blocks for pair in ratios[1:])]
    if not blocks:
        return None
    rows, later = [], []
    for pair in ratios:
        sign = -1.0 if pair.measured.better == "higher" else 1.0
        by_block = dict(zip(pair.blocks, pair.differences, strict=True))
        rows.append([sign * by_block[block] for block in blocks])
        if pair.later_by:
            places = dict(zip(pair.blocks, pair.later_by, strict=True))
            later.append([places[block] for block in blocks])
    metric = Metric(resource, "1", "lower", headline=True)
    return replace(
        ratios[0],
        key=Key("", resource, "", "subject", "cost"),
        measured=Measured(metric),
        blocks=tuple(blocks),
        differences=tuple(np.mean(rows, axis=0).tolist()),
        later_by=tuple(np.mean(later, axis=0).tolist()) if len(later) == len(rows) else (),
        # Clock steps hide as much of the mean as they hide of each metric on average.
        step=math.fsum(pair.hidden for pair in ratios) / len(ratios),
        twins=(),
        slope=0.0,
        taken=0.0,
    )


def _intervals(
    pairs: Sequence[Pair], settings: Settings, seed: str
) -> Iterator[tuple[float, Interval | None]]:
    """Yield estimate and simultaneous interval of each pair, as costs; None with few blocks."""
    steps = [pair.step for pair in pairs]
    # A step needs a pair's own values, which a mean over metrics lacks: add the steps at the end.
    plain = [replace(pair, step=0.0) for pair in pairs]
    least = least_blocks(settings.level)
    enough = [pair for pair in plain if len(pair.blocks) >= least]
    if settings.plan is not None or settings.first or settings.trimmed:
        each = 1 - (1 - settings.confidence) / max(1, len(enough))
    else:
        each = simultaneous_confidence(
            _table(enough), settings.confidence, seed=seed_from(seed, "resources")
        )
    estimates = estimate_all(plain, each, seed, resampled=False)
    if settings.plan is not None:
        estimates = with_sequential_intervals(plain, estimates, settings.plan, each)
    elif settings.first:
        estimates = with_two_stage_intervals(plain, estimates, settings.first, each)
    of_order = orders(plain, seed, each, looks=settings.plan is not None)
    for i, (pair, estimate, step) in enumerate(zip(plain, estimates, steps, strict=True)):
        interval, _, _ = widened(pair, estimate, of_order.get(i))
        if len(pair.blocks) < least or interval is None:
            yield estimate.estimate, None
            continue
        yield (
            estimate.estimate,
            replace(
                interval,
                low=interval.low * math.exp(-step),
                high=interval.high * math.exp(step),
                confidence=settings.confidence,
            ),
        )


def _table(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Return the log costs, one row a pair and one column a block; NaN without a value."""
    blocks = sorted({block for pair in pairs for block in pair.blocks})
    column = {block: number for number, block in enumerate(blocks)}
    values = np.full((len(pairs), len(blocks)), np.nan)
    for row, pair in enumerate(pairs):
        values[row, [column[block] for block in pair.blocks]] = pair.differences
    return values
