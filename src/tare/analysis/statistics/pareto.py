"""Tails beyond what was seen: generalised Pareto, only where their shape shows that it stays.

Exceedances of a high enough threshold are generalised Pareto for most distributions (Balkema &
de Haan 1974; Pickands 1975). What "high enough" is must show: from the threshold on, the shape has
to stay as it is at all higher ones (threshold stability; Coles 2001, §4.3.4), and the fit has to
give again what was seen. Fitted by Zhang & Stephens' estimator (2009), which always exists.
Samples of one boot are alike, so all errors are those of leaving out one boot after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.histogram import Histogram
from tare.analysis.statistics.logratio import t_quantile

Floats = NDArray[np.float64]

SHARES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)
"""Thresholds that are tried: those that so large a share of the samples exceeds."""
LEAST_BOOTS = 8
LEAST_BEYOND = 200
"""Fewer exceedances of all boots tell no shape."""
LEAST_OF_BOOT = 5
LEAST_THRESHOLDS = 3
"""As many are needed to show that the shape stays."""
AGREE = 0.99
"""Confidence at which two thresholds, or fit and samples, are told to disagree."""
MISSES_MOST = 0.05
"""A fit that is nearer to what was seen than this is good enough, however sure it is."""
NEVER_BY = math.log(2.0)
"""A fit that misses what was seen by more than twice is none, however little sure that is."""
MOST_OF_ONE = 0.55
"""Without any boot so much of the tail must be left: from half of it on, fits are looked at."""
MOST_SPAN = 30.0
"""An interval whose ends lie further apart by factor tells nothing of what is to be expected."""
_LOG_STEP = 0.005
_GRID = 20


class Threshold(NamedTuple):
    """What the tail beyond one threshold looks like.

    Args:
        at: The threshold, in the samples' unit.
        beyond: How many samples exceed it.
        shape: Of the distribution: above 0 heavier than exponential, below 0 bounded.
        low: Lower end of the shape's interval.
        high: Upper end.
    """

    at: float
    beyond: int
    shape: float
    low: float
    high: float


class Level(NamedTuple):
    """A value that one sample in ``one_in`` exceeds, with its interval."""

    one_in: float
    value: float
    low: float
    high: float


class Tail(NamedTuple):
    """A tail beyond what was seen.

    Args:
        levels: What is to be expected; empty where ``reason`` says why nothing is said.
        thresholds: All that were tried, ascending.
        chosen: Which of them is used; None where none is.
        misses: By which share the fit misses quantiles that were seen, at most.
        reason: Why there are no levels.
    """

    levels: tuple[Level, ...]
    thresholds: tuple[Threshold, ...]
    chosen: int | None
    misses: float | None
    reason: str


class _Fit(NamedTuple):
    """Fits beyond one threshold: of all boots, then of all but each; shape ``(1 + boots,)``."""

    at: float
    shape: Floats
    scale: Floats
    share: Floats
    counts: NDArray[np.int64]
    excess: Floats

    def beyond(self, share: float) -> Floats:
        """Return by how much what that share exceeds lies beyond the threshold."""
        ratio = np.log(self.share / share)
        flat = np.abs(self.shape) < 1e-9
        safe = np.where(flat, 1.0, self.shape)
        grown = np.where(flat, ratio, np.expm1(safe * ratio) / safe)
        return np.asarray(self.scale * grown)

    def seen(self, share: float) -> Floats:
        """Return the same of the samples themselves."""
        left = _without_each(self.counts)
        upper = np.cumsum(left[:, ::-1], axis=1)
        wanted = share / self.share * left.sum(axis=1)
        at = np.maximum((upper > wanted[:, None]).sum(axis=1) - 1, 0)
        return np.asarray(self.excess[at])


def tail_beyond(boots: Sequence[Histogram], confidence: float, bound: str = "") -> Tail:
    """Return what is to be expected beyond all samples: one in ten, and a hundred times as many.

    Args:
        boots: The samples of each boot.
        confidence: Of the intervals; each boot counts as one.
        bound: Why such samples have a greatest value, where the platform gives them one.
    """
    nothing = Tail((), (), None, None, "")
    if bound:
        return nothing._replace(reason=bound)
    if len(boots) < LEAST_BOOTS:
        few = f"{len(boots)} boots tell too little of a tail; {LEAST_BOOTS} are the least"
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
        text = "the tail changes its shape with every threshold, so it is not known how it goes on"
        return nothing._replace(reason=text)
    if fits[chosen].share.min() < fits[chosen].share[0] * MOST_OF_ONE:
        text = "one boot holds most of the tail: nothing tells how that of others goes on"
        return nothing._replace(chosen=chosen, reason=text)
    fit, misses = fits[chosen], _misses(fits[chosen])
    found = nothing._replace(chosen=chosen, misses=misses[0])
    if misses[1]:
        text = f"the fitted tail misses what was seen by {float(f'{100 * misses[0]:.2g}'):g} %"
        return found._replace(reason=text)
    if tried[chosen].high < 0:
        text = "the tail comes to an end: nothing is to be expected far beyond the longest sample"
        return found._replace(reason=text)
    levels = tuple(_level(fit, n, confidence) for n in (first, 10 * first))
    if levels[0].high > levels[0].low * MOST_SPAN:
        text = f"boots are too unlike to tell it: its interval spans more than {MOST_SPAN:g} times"
        return found._replace(reason=text)
    return found._replace(levels=levels)


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
    """Fit what exceeds a threshold; None where that is too little."""
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
    """Return the counts of all boots, then of all but each."""
    whole = counts.sum(axis=0)
    return np.concatenate([whole[None], whole[None] - counts])


def _zhang_stephens(x: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return shapes and scales.

    Args:
        x: Exceedances, ascending, above 0; shape ``(bins,)``.
        counts: How many there are of each, in each sample; shape ``(samples, bins)``.
    """
    sizes = counts.sum(axis=1).astype(np.float64)
    steps = _GRID + int(min(math.sqrt(sizes[0]), 80))
    quartile = x[np.searchsorted(np.cumsum(counts[0]), sizes[0] / 4)]
    j = np.arange(1, steps + 1)
    theta = 1 / (x[-1] * (1 + 1e-9)) + (1 - np.sqrt(steps / (j - 0.5))) / (3 * quartile)
    theta = _never_nothing(theta, x[-1])
    k = -(np.log1p(-np.outer(theta, x)) @ counts.T) / sizes
    likely = sizes * (np.log(theta[:, None] / k) + k)  # But for a constant, which cancels out.
    weight = np.exp(likely - likely.max(axis=0))
    best = _never_nothing((weight * theta[:, None]).sum(axis=0) / weight.sum(axis=0), x[-1])
    own = -(np.log1p(-np.outer(best, x)) * counts).sum(axis=1) / sizes
    return -own, own / best


def _never_nothing(theta: Floats, greatest: float) -> Floats:
    """Return θ, all but nothing where it is nothing, which is what an exponential tail has."""
    least = 1e-9 / greatest
    return np.where(np.abs(theta) < least, least, theta)


def _error(values: Floats, confidence: float) -> float:
    """Return t standard errors of the first value, by those that leave one boot out each."""
    left = values[1:]
    boots = left.size
    variance = (boots - 1) / boots * float(((left - left.mean()) ** 2).sum())
    return t_quantile(confidence, boots - 1) * math.sqrt(variance)


def _threshold(fit: _Fit, confidence: float) -> Threshold:
    shape, error = float(fit.shape[0]), _error(fit.shape, confidence)
    return Threshold(fit.at, int(fit.counts.sum()), shape, shape - error, shape + error)


def _stable(fits: Sequence[_Fit], share: float) -> int | None:
    """Return the lowest threshold from which on all agree in shape, and in what is asked."""
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
    """Return by which share fit and samples differ at most, and whether that is too much."""
    most, wrong = 0.0, False
    beyond = int(fit.counts.sum())
    for part in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        if beyond * part < LEAST_BEYOND / 2:
            break
        share = float(fit.share[0]) * part
        apart = np.log(fit.beyond(share)) - np.log(fit.seen(share))
        off = abs(float(apart[0]))
        most = max(most, math.expm1(off))
        wrong |= off > min(max(_error(apart, AGREE), math.log1p(MISSES_MOST)), NEVER_BY)
    return most, wrong


def _level(fit: _Fit, one_in: float, confidence: float) -> Level:
    logs = np.log(fit.beyond(1 / one_in))
    error = _error(logs, confidence)
    low, value, high = (fit.at + math.exp(float(logs[0]) + e) for e in (-error, 0.0, error))
    return Level(one_in, value, low, high)
