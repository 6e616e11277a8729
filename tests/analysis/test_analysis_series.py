"""Series of any length, summarised in a stream."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from scipy.signal import lfilter

from analysis.analysis_simulate import some
from tare.analysis.series import summaries as series
from tare.analysis.series.steadiness import steadiness
from tare.analysis.series.summaries import group_series, summarise_series
from tare.analysis.statistics.dip import detect_two_humps
from tare.analysis.statistics.histogram import Counter, Histogram, coarsened, merge, thin
from tare.events.results import SeriesEntry


def entry(
    path: Path,
    columns: dict[str, Any],
    *,
    name: str = "raw",
    block: int = 1,
    cell: str | None = None,
) -> SeriesEntry:
    frame = pl.DataFrame(columns)
    frame.write_parquet(path)
    return SeriesEntry(
        run="r",
        cell=cell or f"b{block}",
        block=block,
        arm="bare",
        scenario="alone",
        workload="tick",
        parameters="{}",
        repeat=1,
        role="subject",
        name=name,
        path=path,
        columns={column: str(kind) for column, kind in frame.schema.items()},
        rows=frame.height,
    )


def raw(tmp_path: Path, samples: Any, **more: Any) -> SeriesEntry:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    return entry(path, {"duration_ns": np.asarray(samples, dtype=np.uint32)}, **more)


def test_raw_samples_are_summarised_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "_CHUNK", 1000)
    samples = np.random.default_rng(1).integers(60_000, 70_000, 12_345)
    found = some(summarise_series([raw(tmp_path, samples)]))
    assert found.count == 12_345
    assert (found.least, found.greatest) == (samples.min(), samples.max())
    assert found.mean == pytest.approx(samples.mean())
    ordered = np.sort(samples)
    for quantile in found.quantiles:
        assert quantile.value == ordered[math.ceil(quantile.q * samples.size - 1e-9) - 1]
        assert quantile.interval.holds(quantile.value)
    assert [q.q for q in found.quantiles] == pytest.approx([0.5, 0.9, 0.99, 0.999])
    assert sum(found.counts) == samples.size
    assert len(found.counts) <= series.MOST_BINS
    assert found.boot_maxima_ns == (samples.max(),)


def test_the_envelope_keeps_every_extreme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_CHUNK", 5000)
    samples = np.full(40_001, 68_000)
    samples[[123, 39_999]] = 5_000_000
    found = some(summarise_series([raw(tmp_path, samples)]))
    assert len(found.envelope_time_s) <= series.MOST_INTERVALS
    assert found.envelope_greatest_ns.count(5_000_000) == 2
    assert min(found.envelope_least_ns) == 68_000
    assert found.envelope_time_s[0] == 0
    assert list(found.envelope_time_s) == sorted(found.envelope_time_s)
    # Each window starts where the durations before it end.
    width = -(-samples.size // series.MOST_INTERVALS)
    assert found.envelope_time_s[10] == pytest.approx(samples[: 10 * width].sum() / 1e9)


def test_long_samples_are_counted_finely(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    samples = np.concatenate(
        [rng.integers(0, 1 << 32, 5000), [0, 1 << 20, (1 << 20) - 1, 2**32 - 1]]
    )
    counter = Counter()
    counter.add(samples.astype(np.uint32))
    counter.add(np.empty(0, dtype=np.uint32))
    found = counter.histogram()
    assert found.total == samples.size
    assert np.all(np.diff(found.low) > 0)
    ordered = np.sort(samples)
    for q in (0.1, 0.5, 0.99):
        expected = ordered[math.ceil(q * samples.size) - 1]
        assert found.quantile(q) == pytest.approx(expected, rel=1 / 1024)


def test_the_agents_histogram_and_intervals_are_enough(tmp_path: Path) -> None:
    table = entry(
        tmp_path / "h",
        {"low_ns": [100.0, 110.0, 500.0], "width_ns": [10.0] * 3, "count": [50, 49, 1]},
        name="histogram",
    )
    intervals = entry(
        tmp_path / "i",
        {
            "time_ns": np.array([0, 5000], dtype=np.uint64),
            "min_ns": [101.0, 102.0],
            "max_ns": [119.0, 507.0],
            "samples": np.array([50, 50], dtype=np.uint64),
        },
        name="scatter",
    )
    found = some(summarise_series([table, intervals]))
    assert found.count == 100
    assert (found.least, found.greatest) == (101, 507)
    assert found.quantiles[0].value == 105
    assert found.envelope_greatest_ns == (119, 507)
    alone = some(summarise_series([table]))
    assert (alone.least, alone.greatest) == (100, 510)
    assert alone.envelope_block is None


def test_samples_that_do_not_follow_each_other_are_counted(tmp_path: Path) -> None:
    samples = [400, 500, 9_000, 450]
    recorded = entry(
        tmp_path / "c",
        {
            "time_ns": np.array([0, 50_000], dtype=np.uint64),
            "first": np.array([0, 2], dtype=np.uint64),
            "min_ns": [400.0, 450.0],
            "max_ns": [500.0, 9_000.0],
            "mean_ns": [450.0, 4_725.0],
            "samples": np.array([2, 2], dtype=np.uint64),
        },
        name="scatter",
    )
    found = some(summarise_series([raw(tmp_path, samples), recorded]))
    # Their sum is not the time that passed, so the time series is the recorded one.
    assert found.envelope_time_s == (0, 50e-6)
    assert found.envelope_first == (0, 2)
    assert found.envelope_greatest_ns == (500, 9_000)
    assert (found.least, found.greatest, found.count) == (400, 9_000, 4)
    assert some(summarise_series([raw(tmp_path, samples)])).envelope_first == ()


def test_raw_samples_of_a_part_do_not_replace_the_whole_histogram(tmp_path: Path) -> None:
    table = entry(
        tmp_path / "h", {"low_ns": [100.0], "width_ns": [10.0], "count": [500]}, name="histogram"
    )
    part = raw(tmp_path, [100] * 10)
    assert some(summarise_series([part, table])).count == 500
    assert some(summarise_series([raw(tmp_path, [100] * 500), table])).least == 100


def test_boots_are_the_unit_of_pooled_quantiles(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    entries = [
        raw(tmp_path, rng.normal(1000 + 100 * block, 5, 400), block=block) for block in range(8)
    ]
    found = some(summarise_series(entries))
    assert found.boots == 8
    assert found.count == 3200
    median = found.quantiles[0]
    assert median.value == pytest.approx(1350, abs=5)
    # The boots differ by hundreds, the samples within one by five: the interval says so.
    assert median.interval.half_width > 200
    assert found.envelope_block == 7
    assert len(found.boot_maxima_ns) == 8
    few = some(summarise_series(entries[:3]))
    assert few.quantiles[0].interval.high == math.inf


def test_autocorrelation_is_not_a_second_mode() -> None:
    """Twenty series, each sample like the one before, and one that truly is of two kinds."""
    rng = np.random.default_rng(7)
    flagged = sum(
        detect_two_humps(lfilter([1.0], [1.0, -0.999], rng.standard_normal(20_000))).flagged
        for _ in range(20)
    )
    assert flagged <= 2
    mixed = np.where(rng.random(20_000) < 0.3, 1200, 1000) + rng.normal(0, 10, 20_000)
    assert detect_two_humps(mixed).flagged


def test_warm_up_humps_and_missing_files_are_flagged(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    warm = rng.normal(1000, 2, 20_000)
    warm[:4000] += 200
    found = some(summarise_series([raw(tmp_path, warm)]))
    assert {flag.kind for flag in found.flags} == {"warm-up", "two-humped"}
    steady = some(summarise_series([raw(tmp_path, rng.normal(1000, 20, 20_000))]))
    assert steady.flags == ()
    gone, there = raw(tmp_path, [5] * 10, cell="gone"), raw(tmp_path, [5] * 100)
    gone.path.unlink()
    both = some(summarise_series([there, gone]))
    assert [flag.text for flag in both.flags] == ["no series of gone"]
    assert summarise_series([gone]) is None
    assert summarise_series([]) is None


def test_iterations_that_warm_up_are_flagged_per_thread(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    durations = rng.normal(100, 1, 200)
    warm = durations + np.where(np.arange(200) < 40, 30, 0)
    iterations = entry(
        tmp_path / "i",
        {
            "thread": np.repeat([0, 1], 200),
            "time_ns": np.arange(400),
            "iteration_ns": np.concatenate([durations, warm]),
        },
        name="iterations",
    )
    lost = entry(
        tmp_path / "j", {"kernel": [0], "duration_ns": [1.0]}, name="repetitions", cell="lost"
    )
    lost.path.unlink()

    class Run:
        series = (iterations, lost)

    found = steadiness(cast(Any, [Run()]))
    ((key, flags),) = found.items()
    assert key.arm == "bare"
    assert [(flag.kind, flag.text) for flag in flags] == [
        ("warm-up", "1 of 2 series began slower than they continued")
    ]


def test_a_greatest_value_alone_makes_no_intervals(tmp_path: Path) -> None:
    # As an HTTP load's steps, which the report of a run with one came across.
    steps = entry(tmp_path / "steps.parquet", {"time_ns": [0, 9], "max_ns": [5, 7]}, name="steps")
    assert summarise_series([steps]) is None


def test_other_counts_are_not_taken_for_a_histogram(tmp_path: Path) -> None:
    # As the agent reports the operations of Filebench's loops.
    columns = {"operation": [1, 1, 2], "up_to_ns": [100, 200, 100], "count": [5, 1, 7]}
    operations = entry(tmp_path / "o", columns, name="operations")
    assert summarise_series([operations]) is None

    class Run:
        series = (operations,)

    assert group_series(cast(Any, [Run()])) == {}


def test_series_are_grouped_by_whose_they_are() -> None:
    nowhere = Path()

    class Run:
        series = (
            SeriesEntry("r", "a", 1, "bare", "s", "tick", "{}", 1, "subject", "raw", nowhere,
                        {"duration_ns": "UInt32"}, 1),
            SeriesEntry("r", "b", 2, "bare", "s", "tick", "{}", 1, "subject", "raw", nowhere,
                        {"duration_ns": "UInt32"}, 1),
            SeriesEntry("r", "b", 2, "bare", "s", "tick", "{}", 1, "subject", "gaps", nowhere,
                        {"time_ns": "UInt64", "excess_ns": "UInt64"}, 1),
            SeriesEntry("r", "c", 2, "oci", "s", "tick", "{}", 1, "subject", "histogram", nowhere,
                        {"low_ns": "Float64", "width_ns": "Float64", "count": "UInt64"}, 1),
        )  # fmt: skip

    groups = group_series(cast(Any, [Run()]))
    assert [(key.arm, len(entries)) for key, entries in groups.items()] == [("bare", 2), ("oci", 1)]


def counted(samples: Any) -> Histogram:
    counter = Counter()
    counter.add(np.asarray(samples, dtype=np.uint32))
    return counter.histogram()


def test_bins_are_joined_only_as_far_as_there_are_too_many() -> None:
    samples = np.random.default_rng(6).integers(0, 4_000_000, 300_000)
    exact = counted(samples)
    assert coarsened(exact, exact.low.size) is exact
    before = exact.low.size
    for most in (70_000, 30_000, 20_000):
        joined = coarsened(exact, most)
        assert before > joined.low.size <= most
        assert joined.total == samples.size
        ends = joined.low + joined.width
        assert np.all(joined.low[1:] >= ends[:-1])
        assert np.all(joined.width <= np.maximum(1, (joined.low + 0.5) / 1024))
        for q in (0.001, 0.5, 0.99, 0.99999):
            assert joined.quantile(q) == pytest.approx(exact.quantile(q), rel=1 / 1024)
        before = joined.low.size
    # Not even where that is too many does one become wider than one part in 1,024.
    least = coarsened(exact, 10)
    assert np.all(least.width <= np.maximum(1, (least.low + 0.5) / 1024))
    assert coarsened(least, 10).low.size == least.low.size


def test_few_distinct_values_are_counted_exactly_for_any_boots(tmp_path: Path) -> None:
    samples = np.random.default_rng(7).integers(60_000, 60_500, (40, 300))
    boots = [raw(tmp_path, boot, block=number) for number, boot in enumerate(samples)]
    found = some(summarise_series(boots))
    middle = math.ceil(0.5 * 300) - 1
    assert found.quantiles[0].value == np.median(np.sort(samples)[:, middle])


def test_boots_whose_samples_all_differ_take_no_more_memory_than_a_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many samples are different as fit into 1 ms, in each of the boots: none shares its bins.
    monkeypatch.setattr(series, "BINS_OF_ALL", 1 << 17)
    rng = np.random.default_rng(8)
    boots = [
        raw(tmp_path, rng.integers(1_000, 1_000_000, 30_000), block=number) for number in range(32)
    ]

    def peak(entries: list[SeriesEntry]) -> int:
        summarise_series(entries[:1])
        tracemalloc.start()
        try:
            found = some(summarise_series(entries))
            assert found.count == 30_000 * len(entries)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(boots[:4]), peak(boots)
    assert many < 1.5 * few


def test_long_recorded_series_keeps_every_extreme(tmp_path: Path) -> None:
    size = 7_001
    least, greatest = np.full(size, 400.0), np.full(size, 500.0)
    least[17], greatest[6_999] = 300.0, 9_000.0
    recorded = entry(
        tmp_path / "c",
        {
            "time_ns": np.arange(size, dtype=np.uint64) * 50_000,
            "min_ns": least,
            "max_ns": greatest,
            "samples": np.full(size, 100, dtype=np.uint64),
        },
        name="scatter",
    )
    table = entry(
        tmp_path / "h", {"low_ns": [400.0], "width_ns": [10.0], "count": [700]}, name="histogram"
    )
    found = some(summarise_series([table, recorded]))
    assert (found.least, found.greatest) == (300, 9_000)
    assert len(found.envelope_time_s) <= series.MOST_INTERVALS
    assert found.envelope_greatest_ns.count(9_000) == 1
    assert found.envelope_least_ns.count(300) == 1


def test_thinning_keeps_counts_and_the_tail() -> None:
    rng = np.random.default_rng(5)
    counter = Counter()
    counter.add((68_000 + rng.gamma(2, 100, 50_000)).astype(np.uint32))
    counter.add(np.array([40_000_000], dtype=np.uint32))
    whole = counter.histogram()
    thinned = thin(whole, 100)
    assert thinned.low.size <= 100
    assert thinned.total == whole.total
    assert (thinned.low + thinned.width)[-1] >= 40_000_000
    # The body is not squeezed into one bar by the tail.
    assert (thinned.low < 69_000).sum() > 5
    assert thin(thinned, 100) is thinned


def test_merged_histograms_keep_every_sample() -> None:
    one = Histogram(np.array([1.0, 2.0]), np.ones(2), np.array([3, 4]))
    two = Histogram(np.array([0.5, 2.0]), np.ones(2), np.array([1, 1]))
    both = merge([one, two])
    assert both.total == 9
    assert both.low.tolist() == [0.5, 1.0, 2.0, 2.0]
    assert merge([one]) is one
