//! Switch durations over time: the extremes of so many switches each, and on request every duration.
//!
//! It is written between two timestamps that are not subtracted from each other. So it costs the ring
//! time, but a switch only the cache lines that it touches.

use crate::contract::Sink;
use crate::measure::columns::Table;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// One row: the switches from `start` on, in ticks of the counter.
struct Row {
    start: AtomicU64,
    shortest: AtomicU64,
    longest: AtomicU64,
    sum: AtomicU64,
    samples: AtomicU64,
}

impl Row {
    /// Stored once as it is made, so that its page is there.
    fn new() -> Self {
        let row = Self {
            start: AtomicU64::new(1),
            shortest: AtomicU64::new(1),
            longest: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        };
        row.start.store(0, Relaxed);
        row.shortest.store(u64::MAX, Relaxed);
        row
    }
}

/// The threads of a ring run one at a time on one CPU: see [`super::ring::Ring`].
pub struct TimeSeries {
    per_row: u64,
    rows: Vec<Row>,
    row: AtomicUsize,
    raw: Vec<AtomicU32>,
    kept: AtomicUsize,
}

impl TimeSeries {
    /// Prepare for `samples` switches in at most `intervals` rows; `raw` keeps each one too.
    pub fn new(samples: u64, intervals: u64, raw: bool) -> Self {
        let per_row = samples.div_ceil(intervals).max(1);
        let raw: Vec<AtomicU32> = (0..if raw { samples } else { 0 })
            .map(|_| AtomicU32::new(1))
            .collect();
        // Zeros that are written, for the pages of zeros that are only allocated are not there.
        raw.iter().for_each(|slot| slot.store(0, Relaxed));
        Self {
            per_row,
            rows: (0..samples.div_ceil(per_row)).map(|_| Row::new()).collect(),
            row: AtomicUsize::new(0),
            raw,
            kept: AtomicUsize::new(0),
        }
    }

    /// How many bytes that takes.
    pub fn bytes(samples: u64, intervals: u64, raw: bool) -> u64 {
        let rows = samples.min(intervals) * std::mem::size_of::<Row>() as u64;
        rows + if raw { 4 * samples } else { 0 }
    }

    /// Take the switch that ended at `now` and took `duration`.
    #[inline(always)]
    pub fn record(&self, now: u64, duration: u64) {
        let at = self.row.load(Relaxed);
        let Some(row) = self.rows.get(at) else { return };
        let samples = row.samples.load(Relaxed);
        if samples == 0 {
            row.start.store(now.wrapping_sub(duration), Relaxed);
        }
        let least = row.shortest.load(Relaxed).min(duration);
        let most = row.longest.load(Relaxed).max(duration);
        row.shortest.store(least, Relaxed);
        row.longest.store(most, Relaxed);
        row.sum.store(row.sum.load(Relaxed) + duration, Relaxed);
        row.samples.store(samples + 1, Relaxed);
        if samples + 1 == self.per_row {
            self.row.store(at + 1, Relaxed);
        }
        if !self.raw.is_empty() {
            self.keep(duration);
        }
    }

    #[inline(always)]
    fn keep(&self, duration: u64) {
        let at = self.kept.load(Relaxed);
        if let Some(slot) = self.raw.get(at) {
            slot.store(duration.min(u64::from(u32::MAX)) as u32, Relaxed);
            self.kept.store(at + 1, Relaxed);
        }
    }

    /// Hand over what was recorded; a tick of the counter takes `tick_ns`.
    pub fn send(&self, sink: &dyn Sink, tick_ns: f64) {
        let rows = || {
            let taken = |row: &&Row| row.samples.load(Relaxed) > 0;
            self.rows.iter().take_while(taken)
        };
        let first = rows().next().map_or(0, |row| row.start.load(Relaxed));
        let since = |row: &Row| row.start.load(Relaxed).wrapping_sub(first) as i64 as f64;
        let samples = |row: &Row| row.samples.load(Relaxed);
        let numbers = rows().scan(0, |next, row| {
            let this = *next;
            *next += samples(row);
            Some(this)
        });
        let ns = |ticks: &AtomicU64| ticks.load(Relaxed) as f64 * tick_ns;
        Table::new()
            .u64s(
                "time_ns",
                rows().map(|row| (since(row) * tick_ns).max(0.0) as u64),
            )
            .u64s("first", numbers)
            .f64s("min_ns", rows().map(|row| ns(&row.shortest)))
            .f64s("max_ns", rows().map(|row| ns(&row.longest)))
            .f64s(
                "mean_ns",
                rows().map(|row| ns(&row.sum) / samples(row) as f64),
            )
            .u64s("samples", rows().map(samples))
            .send(sink, "scatter");
        let kept = self.raw.iter().take(self.kept.load(Relaxed));
        let raw = kept.map(|slot| (f64::from(slot.load(Relaxed)) * tick_ns).round() as u32);
        Table::new().u32s("duration_ns", raw).send(sink, "raw");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::Collected;

    fn sent(time_series: &TimeSeries) -> Collected {
        let collected = Collected::default();
        time_series.send(&collected, 2.0);
        collected
    }

    #[test]
    fn rows_hold_so_many_switches_each_and_their_extremes() {
        let time_series = TimeSeries::new(6, 2, true);
        let mut now = 1_000;
        for duration in [10, 30, 20, 500, 40, 30] {
            now += 1_000;
            time_series.record(now, duration);
        }
        // A sample beyond the capacity is dropped.
        time_series.record(now, 7);
        let collected = sent(&time_series);
        assert_eq!(collected.names(), ["scatter", "raw"]);
        let series = collected.series.lock().unwrap();
        assert_eq!(series[0].words("samples"), [3, 3]);
        assert_eq!(series[0].words("first"), [0, 3]);
        assert_eq!(series[0].words("time_ns")[0], 0);
        assert_eq!(series[0].words("time_ns")[1], 2 * (3_000 - 500 + 10));
        let floats = |name: &str| -> Vec<f64> {
            let words = series[0].words(name);
            words.iter().map(|&word| f64::from_bits(word)).collect()
        };
        assert_eq!(floats("min_ns"), [20.0, 60.0]);
        assert_eq!(floats("max_ns"), [60.0, 1000.0]);
        assert_eq!(floats("mean_ns"), [40.0, 380.0]);
        assert_eq!(series[1].rows, 6);
    }

    #[test]
    fn a_stopped_ring_leaves_the_rows_it_began() {
        let time_series = TimeSeries::new(100, 10, false);
        time_series.record(50, 5);
        let collected = sent(&time_series);
        assert_eq!(collected.names(), ["scatter"]);
        let series = collected.series.lock().unwrap();
        assert_eq!(series[0].words("samples"), [1]);
    }

    #[test]
    fn its_memory_is_known_beforehand() {
        assert_eq!(TimeSeries::bytes(1_000, 10, false), 10 * 40);
        assert_eq!(TimeSeries::bytes(1_000, 10, true), 10 * 40 + 4_000);
    }
}
