"""Histograms of durations: count raw samples in a stream, merge, thin, and compute quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

EXACT_BITS = 20
"""Samples below 2²⁰ ns (1 ms) are counted by the nanosecond, others to one part in 2¹⁰."""

_FINE_BITS = 10
_FINEST_JOINED_BITS = 16


@dataclass(frozen=True)
class Histogram:
    """Occupied bins, ascending: lower ends and widths in nanoseconds, and counts."""

    low: Floats
    width: Floats
    count: Counts

    @property
    def total(self) -> int:
        """Number of samples."""
        return int(self.count.sum())

    @property
    def middle(self) -> Floats:
        """Middles of the bins."""
        return self.low + self.width / 2

    @property
    def mean(self) -> float:
        """Mean of the samples; each counts as the middle of its bin."""
        return float(self.middle @ self.count) / max(1, self.total)

    def quantile(self, q: float) -> float:
        """Return the middle of the bin that holds the sample of rank ⌈q·n⌉."""
        rank = max(1, math.ceil(q * self.total - 1e-9))
        return float(self.middle[self._bin(rank)])

    def bin_ends(self, rank: int) -> tuple[float, float]:
        """Return both ends of the bin that holds the sample of a rank, 1 to ``total``."""
        at = self._bin(rank)
        return float(self.low[at]), float(self.low[at] + self.width[at])

    def share_within(self, value: float) -> float:
        """Return the share of samples in bins whose middle is at or below a value."""
        return float(self.count[self.middle <= value].sum()) / max(1, self.total)

    def spread_out(self, most: int) -> Floats:
        """Return at most ``most`` evenly spaced quantiles, interpolated within their bins."""
        ends = np.cumsum(self.count)
        size = min(most, self.total)
        ranks = (np.arange(size) + 0.5) / size * self.total
        at = np.searchsorted(ends, ranks, side="left")
        within = (ranks - (ends[at] - self.count[at])) / self.count[at]
        result: Floats = self.low[at] + within * self.width[at]
        return result

    def _bin(self, rank: int) -> int:
        return int(np.searchsorted(np.cumsum(self.count), rank, side="left"))


class Counter:
    """Counts raw samples chunk by chunk in constant memory."""

    def __init__(self) -> None:
        self._exact = np.zeros(1 << EXACT_BITS, dtype=np.int64)
        self._coarse = np.zeros((32 - EXACT_BITS) << _FINE_BITS, dtype=np.int64)

    def add(self, samples: NDArray[np.uint32]) -> None:
        """Count samples in whole nanoseconds."""
        if samples.size == 0:
            return
        if int(samples.max()) >= self._exact.size:
            large = samples >= self._exact.size
            self._add_coarse(samples[large].astype(np.int64))
            samples = samples[~large]
        found = np.bincount(samples)
        self._exact[: found.size] += found

    def _add_coarse(self, samples: Counts) -> None:
        octave = np.frexp(samples.astype(np.float64))[1].astype(np.int64) - 1
        fine = (samples >> (octave - _FINE_BITS)) - (1 << _FINE_BITS)
        bins = ((octave - EXACT_BITS) << _FINE_BITS) + fine
        self._coarse += np.bincount(bins, minlength=self._coarse.size)

    def histogram(self) -> Histogram:
        """Return the histogram; samples of n ns below 1 ms are in the middle of a 1 ns bin."""
        small = np.flatnonzero(self._exact)
        large = np.flatnonzero(self._coarse)
        octave = (large >> _FINE_BITS) + EXACT_BITS
        fine = (large & ((1 << _FINE_BITS) - 1)) + (1 << _FINE_BITS)
        step = (1 << (octave - _FINE_BITS)).astype(np.float64)
        return Histogram(
            low=np.concatenate([small - 0.5, fine * step - 0.5]),
            width=np.concatenate([np.ones(small.size), step]),
            count=np.concatenate([self._exact[small], self._coarse[large]]),
        )


def merge(histograms: Sequence[Histogram]) -> Histogram:
    """Return the bins of all histograms, ascending by lower end; they may overlap."""
    if len(histograms) == 1:
        return histograms[0]
    low = np.concatenate([one.low for one in histograms])
    order = np.argsort(low, kind="stable")
    return Histogram(
        low=low[order],
        width=np.concatenate([one.width for one in histograms])[order],
        count=np.concatenate([one.count for one in histograms])[order],
    )


def coarsened(histogram: Histogram, most: int) -> Histogram:
    """Return a histogram with neighbouring bins joined, until at most ``most`` are left.

    Bins of one part in 2¹⁶ are tried first, then of 2¹⁵ and so on. No bin becomes wider than a
    nanosecond or one part in 2¹⁰, the resolution of long samples, even if more than ``most`` are
    left.
    """
    for bits in range(_FINEST_JOINED_BITS, _FINE_BITS - 1, -1):
        if histogram.low.size <= most:
            break
        histogram = _joined(histogram, bits)
    return histogram


def _joined(histogram: Histogram, bits: int) -> Histogram:
    """Return a histogram in which bins that agree in ``bits`` leading bits are joined."""
    value = np.maximum(histogram.middle, 0.0).astype(np.int64)
    octave = np.frexp(value.astype(np.float64))[1].astype(np.int64) - 1
    place = (octave << bits) + (value >> np.maximum(octave - bits, 0))
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    low = histogram.low[starts]
    return Histogram(
        low=low,
        width=np.maximum.reduceat(histogram.low + histogram.width, starts) - low,
        count=np.add.reduceat(histogram.count, starts),
    )


def thin(histogram: Histogram, most: int) -> Histogram:
    """Return a histogram of at most ``most`` occupied bins, for drawing.

    Bins are about equal over the lower nine tenths of the samples. Beyond, they grow in proportion
    to the distance from the least sample. So the body keeps its form, and the tail its extent.
    """
    if histogram.low.size <= most:
        return histogram
    ends = histogram.low + histogram.width
    least, greatest = float(histogram.low[0]), float(ends.max())
    body = max(histogram.quantile(0.9) - least, float(histogram.width.min()))
    edges = least + body * np.sinh(np.linspace(0, math.asinh((greatest - least) / body), most + 1))
    bins = np.minimum(np.searchsorted(edges, histogram.middle, side="right") - 1, most - 1)
    count = np.bincount(bins, weights=histogram.count, minlength=most).astype(np.int64)
    used = np.flatnonzero(count)
    return Histogram(edges[used], np.diff(edges)[used], count[used])
