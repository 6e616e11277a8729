"""Histograms: which sample is in which bin, and what is asked of them, worked out by hand."""

from __future__ import annotations

import bisect
import math

import numpy as np
import pytest

from tare.analysis.statistics.histogram import Counter, Histogram, coarsened, merge, thin


def bins(*of: tuple[float, float, int]) -> Histogram:
    low, width, count = zip(*of, strict=True)
    return Histogram(
        np.array(low, dtype=float), np.array(width, dtype=float), np.array(count, dtype=np.int64)
    )


def listed(histogram: Histogram) -> list[tuple[float, float, int]]:
    arrays = (histogram.low.tolist(), histogram.width.tolist(), histogram.count.tolist())
    return list(zip(*arrays, strict=True))


FEW = bins((10, 2, 1), (12, 4, 3), (20, 1, 2), (40, 10, 4))
NONE = Histogram(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))


def test_each_sample_is_taken_for_the_middle_of_its_bin() -> None:
    assert FEW.total == 10
    assert FEW.middle.tolist() == [11, 14, 20.5, 45]
    assert FEW.mean == pytest.approx((11 + 3 * 14 + 2 * 20.5 + 4 * 45) / 10)
    assert bins((7, 1, 1)).mean == 7.5
    assert NONE.mean == NONE.share_within(5.0) == 0
    assert bins((7, 1, 1)).share_within(7.5) == 1
    assert [FEW.share_within(at) for at in (10.9, 11, 14.1, 45)] == [0, 0.1, 0.4, 1]


def test_a_quantile_has_the_next_whole_rank_except_for_rounding() -> None:
    expected = {0.0: 11, 0.1: 11, 0.11: 14, 0.4: 14, 0.41: 20.5, 0.6: 20.5, 0.61: 45, 1.0: 45}
    assert {q: FEW.quantile(q) for q in expected} == expected
    # 0.1 · 30 is a little more than 3, and still the third.
    assert bins((0, 1, 3), (1, 1, 27)).quantile(0.1) == 0.5
    assert FEW.quantile((4 + 0.5e-9) / 10) == 14
    assert FEW.quantile((4 + 1.25e-9) / 10) == 20.5


def test_rank_is_within_the_ends_of_its_bin() -> None:
    assert [FEW.bin_ends(rank) for rank in (1, 2, 4, 5, 6, 7, 10)] == [
        (10, 12), (12, 16), (12, 16), (20, 21), (20, 21), (40, 50), (40, 50),
    ]  # fmt: skip


def test_samples_are_spread_evenly_within_their_bins() -> None:
    """Ten samples at their own places, and five: each the middle of two."""
    every = [11.0, *(12 + 4 * (i + 0.5) / 3 for i in range(3)), 20.25, 20.75]
    every += [40 + 10 * (i + 0.5) / 4 for i in range(4)]
    assert FEW.spread_out(10) == pytest.approx(every)
    assert FEW.spread_out(99) == pytest.approx(every)
    assert FEW.spread_out(5) == pytest.approx([12, 12 + 4 * 2 / 3, 20.5, 42.5, 47.5])


def bin_of(sample: int) -> tuple[float, float]:
    """By the nanosecond below 2²⁰, and beyond by the leading eleven bits."""
    width = 1 if sample < 2**20 else 2 ** (sample.bit_length() - 11)
    return sample // width * width - 0.5, float(width)


def test_samples_are_counted_by_the_nanosecond_or_one_part_in_1024() -> None:
    edges = [2**20, 2**20 + 1023, 2**20 + 1024, 2**21, 2**25, 2**31, 2**32]
    samples = [0, 1, 5, 5, 5, 999_999, 3_000_000, 3_000_001, 4_000_000_000]
    samples += [edge + step for edge in edges for step in (-1, 0, 1) if edge + step < 2**32]
    expected: dict[tuple[float, float], int] = {}
    for sample in sorted(samples):
        expected[bin_of(sample)] = expected.get(bin_of(sample), 0) + 1
    at_once, one_by_one, by_turns = Counter(), Counter(), Counter()
    at_once.add(np.array(samples, dtype=np.uint32))
    for sample in samples:
        one_by_one.add(np.array([sample], dtype=np.uint32))
        one_by_one.add(np.empty(0, dtype=np.uint32))
    for half in (samples[::2], samples[1::2]):
        by_turns.add(np.array(half, dtype=np.uint32))
    for counter in (at_once, one_by_one, by_turns):
        assert listed(counter.histogram()) == [(*of, count) for of, count in expected.items()]


def test_merged_bins_ascend_and_may_overlap() -> None:
    other = bins((11, 5, 7), (20, 2, 8), (60, 1, 9))
    assert listed(merge([FEW, other])) == [
        (10, 2, 1), (11, 5, 7), (12, 4, 3), (20, 1, 2), (20, 2, 8), (40, 10, 4), (60, 1, 9),
    ]  # fmt: skip
    assert merge([FEW]) is FEW


def nanoseconds(*samples: int) -> Histogram:
    return bins(*((sample - 0.5, 1, 1) for sample in samples))


def joined(samples: list[int], bits: int) -> list[list[int]]:
    """Samples of one length in bits that agree in so many after the first."""
    found: dict[tuple[int, int], list[int]] = {}
    for sample in samples:
        length = sample.bit_length()
        found.setdefault((length, sample >> max(0, length - 1 - bits)), []).append(sample)
    return list(found.values())


SAMPLES = [
    0, 1, 2, 3, 1023, 1024, 2048, 2049, 65_535, 65_536, 131_072, 131_073, 131_074, 131_076,
    131_200, 131_328, 262_144, 262_145, 262_147, 262_148, 2**24, 2**24 + 2**14 - 1, 2**24 + 2**14,
]  # fmt: skip


def test_no_more_neighbours_are_joined_than_must_be() -> None:
    whole = nanoseconds(*SAMPLES)
    sizes = {bits: len(joined(SAMPLES, bits)) for bits in range(16, 9, -1)}
    assert len(SAMPLES) > sizes[16] > sizes[15] > sizes[14] > sizes[10]
    for most in range(1, len(SAMPLES) + 1):
        groups = [[sample] for sample in SAMPLES]
        for bits in range(16, 9, -1):
            if len(groups) > most:
                groups = joined(SAMPLES, bits)
        expected = [(of[0] - 0.5, of[-1] - of[0] + 1, len(of)) for of in groups]
        assert listed(coarsened(whole, most)) == expected, most
    assert coarsened(whole, len(SAMPLES)) is whole
    assert len(joined(SAMPLES, 10)) > len(joined(SAMPLES, 9))
    # Where nothing is as short as 1 ns, and where that comes first.
    assert listed(coarsened(nanoseconds(*SAMPLES[1:4]), 1)) == listed(nanoseconds(1, 2, 3))
    overlapping = bins((262_144, 3, 1), (262_145, 1, 2))
    assert listed(coarsened(overlapping, 1)) == [(262_144, 3, 3)]


def plain_thin(histogram: Histogram, most: int) -> list[tuple[float, float, int]]:
    least = histogram.low[0]
    greatest = max(low + width for low, width, _ in listed(histogram))
    body = max(histogram.quantile(0.9) - least, min(histogram.width))
    end = math.asinh((greatest - least) / body)
    edges = [least + body * math.sinh(end * i / most) for i in range(most + 1)]
    counts = [0] * most
    for middle, count in zip(histogram.middle, histogram.count, strict=True):
        counts[bisect.bisect_right(edges, middle) - 1] += int(count)
    return [(edges[i], edges[i + 1] - edges[i], count) for i, count in enumerate(counts) if count]


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize(
    "histogram",
    [
        bins(*((i * i + 100, 2 * i + 1, i % 3 + 1) for i in range(12))),
        bins((50, 8, 97), *((60 + 5 * i, 2, 1) for i in range(8))),  # all the body in one bin
        bins((50, 900, 1), *((60 + 5 * i, 2, 1) for i in range(8))),  # which overlaps them
    ],
)
def test_drawn_bins_are_even_over_the_body_and_grow_beyond(histogram: Histogram, most: int) -> None:
    expected = plain_thin(histogram, most)
    found = listed(thin(histogram, most))
    assert found == [pytest.approx(each) for each in expected]
    assert sum(count for _, _, count in found) == histogram.total
    size = histogram.low.size
    assert thin(histogram, size) is histogram
    assert thin(histogram, size - 1) is not histogram


def test_a_bin_so_narrow_that_rounding_hides_it_is_drawn_last() -> None:
    far = bins(*((100 + i, 1, 10) for i in range(10)), (4e9, 1e-7, 1))
    assert [count for _, _, count in listed(thin(far, 2))] == [100, 1]
