"""Extrapolation of tails beyond all samples, by the generalised Pareto distribution.

Exceedances of a high enough threshold are generalised Pareto for most distributions (Balkema &
de Haan 1974; Pickands 1975). The data must show that a threshold is high enough: the shape must be
the same at all higher thresholds (threshold stability; Coles 2001, §4.3.4), and the fit must
reproduce the samples. Zhang & Stephens' estimator (2009) is used, which always exists. Samples of
one boot are alike, so all errors come from a jackknife that leaves out one boot at a time.

A test that does not find a shape unstable does not show that it is stable. So the interval is over
all thresholds from the chosen one on, and over log-normal and Weibull tails that fit as well. It is
never below the samples. If these laws disagree, there is no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.distributions import normal_quantile
from tare.analysis.statistics.histogram import Histogram
from tare.analysis.statistics.logratio import t_quantile

Floats = NDArray[np.float64]

SHARES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)
"""The tried thresholds, by the share of samples that exceeds them."""
LEAST_BOOTS = 8
LEAST_BEYOND = 200
"""The least number of exceedances, over all boots, that can show a shape."""
LEAST_OF_BOOT = 5
LEAST_THRESHOLDS = 3
"""The least number of thresholds that can show whether the shape is stable."""
AGREE = 0.99
"""The confidence at which two thresholds, or fit and samples, count as disagreeing."""
MISSES_MOST = 0.05
"""A fit with a smaller error is good enough, however certain the error is."""
NEVER_BY = math.log(2.0)
"""A fit with a larger error, a factor of 2, is rejected, however uncertain the error is."""
MOST_OF_ONE = 0.55
"""The share of the tail that must remain without any one boot; fits use the tail's upper half."""
MOST_SPAN = 30.0
"""An interval that spans a larger factor is not useful as an estimate."""
MOST_APART = 2.0
"""If laws that fit the samples disagree by a larger factor, there is no estimate."""
SELDOM = 0.01
"""The chance below which too many boots exceed a level."""
_PARTS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_LOG_STEP = 0.005
_GRID = 20


class Threshold(NamedTuple):
    """The shape of the tail beyond one threshold.

    Args:
        at: The threshold, in the samples' unit.
        beyond: Number of samples that exceed it.
        shape: The shape parameter: above 0 heavier than exponential, below 0 bounded.
        low: Lower end of the shape's interval.
        high: Upper end.
    """

    at: float
    beyond: int
    shape: float
    low: float
    high: float


class ReturnLevel(NamedTuple):
    """A value that one sample in ``one_in`` exceeds, with its interval."""

    one_in: float
    value: float
    low: float
    high: float


class Tail(NamedTuple):
    """A tail beyond all samples.

    Args:
        levels: The expected levels; empty if there is a ``reason`` for none.
        thresholds: All tried thresholds, ascending.
        chosen: The index of the used one; None if none is used.
        misses: The greatest relative error of the fit at quantiles of the samples.
        reason: Why there are no levels.
    """

    levels: tuple[ReturnLevel, ...]
    thresholds: tuple[Threshold, ...]
    chosen: int | None
    misses: float | None
    reason: str


class _Fit(NamedTuple):
    """Fits beyond one threshold: with all boots, then without each one; shape ``(1 + boots,)``."""

    at: float
    shape: Floats
    scale: Floats
    share: Floats
    counts: NDArray[np.int64]
    excess: Floats

    def beyond(self, share: float) -> Floats:
        """Return the distance from the threshold to the level that the share exceeds."""
        ratio = np.log(self.share / share)
        flat = np.abs(self.shape) < 1e-9
        safe = np.where(flat, 1.0, self.shape)
        grown = np.where(flat, ratio, np.expm1(safe * ratio) / safe)
        return np.asarray(self.scale * grown)

    def seen(self, share: float) -> Floats:
        """Return the same distance in the samples themselves."""
        left = _without_each(self.counts)
        upper = np.cumsum(left[:, ::-1], axis=1)
        wanted = share / self.share * left.sum(axis=1)
        at = np.maximum((upper > wanted[:, None]).sum(axis=1) - 1, 0)
        return np.asarray(self.excess[at])


def tail_beyond(boots: Sequence[Histogram], confidence: float, bound: str = "") -> Tail:
    """Return the levels to expect beyond all samples, in about ten and a hundred times as many.

    Args:
        boots: The samples of each boot.
        confidence: The confidence of the intervals; each boot counts as one observation.
        bound: Why the platform limits such samples to a greatest value; empty if it does not.
    """
    nothing = Tail((), (), None, None, "")
    if bound:
        return nothing._replace(reason=bound)
    if len(boots) < LEAST_BOOTS:
        few = f"{len(boots)} boots are too few to estimate a tail; {LEAST_BOOTS} are the least"
        return nothing._replace(reason=few)
    fits = _fits(boots)
    tried = tuple(_threshold(fit, confidence) for fit in fits)
    nothing = nothing._replace(thresholds=tried)
    if len(fits) < LEAST_THRESHOLDS:
        return nothing._replace(reason="too few samples are far out to show the tail's shape")
    total = sum(boot.total for boot in boots)
    first = 10.0 ** math.ceil(math.log10(total))
    chosen = _stable(fits, 1 / first)
    if chosen is None:
        text = "the tail changes its shape with every threshold, so it cannot be extrapolated"
        return nothing._replace(reason=text)
    if fits[chosen].share.min() < fits[chosen].share[0] * MOST_OF_ONE:
        text = "one boot has most of the tail, so that of the others cannot be extrapolated"
        return nothing._replace(chosen=chosen, reason=text)
    fit, misses = fits[chosen], _misses(fits[chosen])
    found = nothing._replace(chosen=chosen, misses=misses[0])
    if misses[1]:
        text = f"the fitted tail misses what was seen by {float(f'{100 * misses[0]:.2g}'):g} %"
        return found._replace(reason=text)
    if tried[chosen].high < 0:
        text = "the tail comes to an end: nothing is to be expected far beyond the longest sample"
        return found._replace(reason=text)
    laws = _other_laws(fit)
    alone = _level(fit, first, confidence)
    levels = tuple(_level_over_all(fits[chosen:], laws, n, confidence) for n in (first, 10 * first))
    centres = [math.log(fit.at + float(fit.beyond(1 / first)[0]))]
    centres += [float(law.beyond(1 / first)[0]) for law in laws]
    apart = math.exp(max(centres) - min(centres))
    if apart > MOST_APART:
        text = f"laws that fit what was seen disagree beyond it, by {float(f'{apart:.2g}'):g} times"
        return found._replace(reason=text)
    if alone.high > alone.low * MOST_SPAN:
        text = f"boots are too unlike to tell it: its interval spans more than {MOST_SPAN:g} times"
        return found._replace(reason=text)
    greatest = sorted((float(boot.middle[boot.count > 0].max()) for boot in boots), reverse=True)
    for level in levels:
        if greatest[_as_many_beyond(total / level.one_in)] > level.high:
            text = "more samples were seen far out than the fitted tail leads to expect"
            return found._replace(reason=text)
    levels = tuple(_not_below(level, greatest, total) for level in levels)
    return found._replace(levels=levels)


class _Law(NamedTuple):
    """Another law that fits the tail, log x = at + slope · transform.

    The coefficients are those with all boots, then those without each one.
    """

    at: Floats
    slope: Floats
    transform: Callable[[float], float]

    def beyond(self, share: float) -> Floats:
        """Return the logarithm of the level that a share of all samples exceeds."""
        return np.asarray(self.at + self.slope * self.transform(share))


def _other_laws(fit: _Fit) -> list[_Law]:
    """Return the laws other than the generalised Pareto that reproduce the samples.

    Log-normal and Weibull tails have no stable shape, but change it so slowly that samples do not
    show it. All are fitted by least squares to quantiles from the threshold on.
    """
    beyond = int(fit.counts.sum())
    parts = [part for part in _PARTS if beyond * part >= LEAST_BEYOND / 2]
    if len(parts) < LEAST_THRESHOLDS:
        return []
    shares = [float(fit.share[0]) * part for part in parts]
    logs = np.log(fit.at + np.array([fit.seen(share) for share in shares]))
    found = []
    for transform in (_log_normal_score, _weibull_score):
        x = np.array([transform(share) for share in shares])
        centred = x - x.mean()
        slope = (centred @ logs) / (centred @ centred)
        law = _Law(logs.mean(axis=0) - slope * x.mean(), slope, transform)
        if all(_gives_again(law, fit, share) for share in shares[1:]):
            found.append(law)
    return found


def _gives_again(law: _Law, fit: _Fit, share: float) -> bool:
    """Return whether a law reproduces the level that a share of the samples exceeded."""
    excess = np.exp(law.beyond(share)) - fit.at
    if excess.min() <= 0:
        return False
    apart = np.log(excess) - np.log(fit.seen(share))
    return abs(float(apart[0])) <= _miss_allowed(apart)


def _log_normal_score(share: float) -> float:
    return -normal_quantile(share)


def _weibull_score(share: float) -> float:
    return math.log(-math.log(share))


def _as_many_beyond(expected: float) -> int:
    """Return the most boots that may have a sample beyond a level; more have a chance below 1 %.

    Args:
        expected: Number of samples that are expected beyond it (Poisson), fewer than one.
    """
    boots, chance = 0, math.exp(-expected)
    beyond = 1 - chance
    while beyond > SELDOM and boots < LEAST_BOOTS - 1:
        boots += 1
        chance *= expected / boots
        beyond -= chance
    return boots


def _not_below(level: ReturnLevel, greatest: Sequence[float], total: int) -> ReturnLevel:
    """Return a level whose interval is not below the samples.

    Its upper end is at least the greatest sample. Its lower end is at least the value that more
    boots exceeded than can be expected for such a level.
    """
    low = max(level.low, greatest[_as_many_beyond(total / level.one_in)])
    high = max(level.high, greatest[0])
    return ReturnLevel(level.one_in, min(max(level.value, low), high), low, high)


def _level_over_all(
    fits: Sequence[_Fit], laws: Sequence[_Law], one_in: float, confidence: float
) -> ReturnLevel:
    """Return a level with the interval over all admissible thresholds and laws.

    The first fit is the chosen one. A higher threshold is admissible if its own interval spans no
    more than `MOST_SPAN`: otherwise it has too few samples beyond it.
    """
    chosen, *higher = (_level(fit, one_in, confidence) for fit in fits)
    every = [chosen, *(level for level in higher if level.high <= level.low * MOST_SPAN)]
    for law in laws:
        logs = law.beyond(1 / one_in)
        error, centre = _error(logs, confidence), float(logs[0])
        every.append(ReturnLevel(one_in, *(math.exp(centre + e) for e in (0.0, -error, error))))
    low, high = min(level.low for level in every), max(level.high for level in every)
    return ReturnLevel(one_in, every[0].value, low, high)


def _fits(boots: Sequence[Histogram]) -> list[_Fit]:
    found: list[_Fit] = []
    low = np.concatenate([boot.middle for boot in boots])
    count = np.concatenate([boot.count for boot in boots])
    order = np.argsort(low, kind="stable")
    above = np.cumsum(count[order][::-1])[::-1]
    total = int(above[0])
    for share in SHARES:
        at = np.searchsorted(-above, -share * total, side="right")
        fit = _fit(boots, float(low[order[at - 1]]), total)
        if fit is not None and (not found or fit.at > found[-1].at):
            found.append(fit)
    return found


def _fit(boots: Sequence[Histogram], at: float, total: int) -> _Fit | None:
    """Fit the exceedances of a threshold; None if they are too few."""
    beyond = [boot.middle > at for boot in boots]
    sizes = [int(boot.count[far].sum()) for boot, far in zip(boots, beyond, strict=True)]
    if sum(sizes) < LEAST_BEYOND or min(sizes) < LEAST_OF_BOOT:
        return None
    excess = np.concatenate([boot.middle[far] for boot, far in zip(boots, beyond, strict=True)])
    excess = excess - at
    bins = np.floor(np.log(excess) / _LOG_STEP).astype(np.int64)
    known, place = np.unique(bins, return_inverse=True)
    counts = np.zeros((len(boots), known.size), dtype=np.int64)
    weights = np.concatenate([boot.count[far] for boot, far in zip(boots, beyond, strict=True)])
    whose = np.repeat(np.arange(len(boots)), [int(far.sum()) for far in beyond])
    np.add.at(counts, (whose, place), weights)
    x = np.bincount(place, weights=excess * weights) / counts.sum(axis=0)
    shape, scale = _zhang_stephens(x, _without_each(counts))
    totals = np.array([boot.total for boot in boots])
    share = _without_each(counts).sum(axis=1) / np.array([total, *(total - totals)])
    return _Fit(at, shape, scale, share, counts, x)


def _without_each(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the counts of all boots, then those without each one."""
    whole = counts.sum(axis=0)
    return np.concatenate([whole[None], whole[None] - counts])


def _zhang_stephens(x: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return shapes and scales.

    Args:
        x: Exceedances, ascending, above 0; shape ``(bins,)``.
        counts: The number of each exceedance in each sample; shape ``(samples, bins)``.
    """
    sizes = counts.sum(axis=1).astype(np.float64)
    steps = _GRID + int(min(math.sqrt(sizes[0]), 80))
    quartile = x[np.searchsorted(np.cumsum(counts[0]), sizes[0] / 4)]
    j = np.arange(1, steps + 1)
    theta = 1 / (x[-1] * (1 + 1e-9)) + (1 - np.sqrt(steps / (j - 0.5))) / (3 * quartile)
    theta = _never_nothing(theta, x[-1])
    k = -(np.log1p(-np.outer(theta, x)) @ counts.T) / sizes
    likely = sizes * (np.log(theta[:, None] / k) + k)  # Without a constant, which cancels out.
    weight = np.exp(likely - likely.max(axis=0))
    best = _never_nothing((weight * theta[:, None]).sum(axis=0) / weight.sum(axis=0), x[-1])
    own = -(np.log1p(-np.outer(best, x)) * counts).sum(axis=1) / sizes
    return -own, own / best


def _never_nothing(theta: Floats, greatest: float) -> Floats:
    """Return θ, with a tiny value in place of 0, which is the θ of an exponential tail."""
    least = 1e-9 / greatest
    return np.where(np.abs(theta) < least, least, theta)


def _error(values: Floats, confidence: float) -> float:
    """Return t jackknife standard errors of the first value, from those without each boot."""
    left = values[1:]
    boots = left.size
    variance = (boots - 1) / boots * float(((left - left.mean()) ** 2).sum())
    return t_quantile(confidence, boots - 1) * math.sqrt(variance)


def _threshold(fit: _Fit, confidence: float) -> Threshold:
    shape, error = float(fit.shape[0]), _error(fit.shape, confidence)
    return Threshold(fit.at, int(fit.counts.sum()), shape, shape - error, shape + error)


def _stable(fits: Sequence[_Fit], share: float) -> int | None:
    """Return the lowest threshold whose shape and level agree with those of all higher ones."""
    for place in range(len(fits) - LEAST_THRESHOLDS + 1):
        rest = fits[place + 1 :]
        if all(_agree(fits[place], other, share) for other in rest):
            return place
    return None


def _agree(one: _Fit, other: _Fit, share: float) -> bool:
    asked = np.log(one.at + one.beyond(share)) - np.log(other.at + other.beyond(share))
    return all(
        abs(float(apart[0])) <= _error(apart, AGREE) for apart in (one.shape - other.shape, asked)
    )


def _misses(fit: _Fit) -> tuple[float, bool]:
    """Return the greatest relative difference of fit and samples, and whether it is too large."""
    most, wrong = 0.0, False
    beyond = int(fit.counts.sum())
    for part in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        if beyond * part < LEAST_BEYOND / 2:
            break
        share = float(fit.share[0]) * part
        apart = np.log(fit.beyond(share)) - np.log(fit.seen(share))
        off = abs(float(apart[0]))
        most = max(most, math.expm1(off))
        wrong |= off > _miss_allowed(apart)
    return most, wrong


def _miss_allowed(apart: Floats) -> float:
    return min(max(_error(apart, AGREE), math.log1p(MISSES_MOST)), NEVER_BY)


def _level(fit: _Fit, one_in: float, confidence: float) -> ReturnLevel:
    logs = np.log(fit.beyond(1 / one_in))
    error = _error(logs, confidence)
    low, value, high = (fit.at + math.exp(float(logs[0]) + e) for e in (-error, 0.0, error))
    return ReturnLevel(one_in, value, low, high)
