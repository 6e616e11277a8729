//! Histograms of tick counts: a prefaulted linear one for the fast path, a coarse one beyond it.

use super::columns::Table;
use super::prefault;
use serde_json::{json, Value};

/// Bins of the linear part; a power of two, so that an index can be masked instead of checked.
pub const BINS: usize = 1 << 16;
const SUB_BITS: u32 = 7;
/// A step of the counter of this share of a duration, or less, does not matter to it.
const FINE: f64 = 0.002;
/// Ticks; no interruption is shorter than half of so many.
const SHORT: f64 = 1000.0;
const COARSE: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// Counts values below `BINS << shift` in bins of `1 << shift`; larger ones in a log-linear tail
/// with a relative resolution of 1/128, so that no quantile is ever unknown.
pub struct Histogram {
    bins: Box<[u64; BINS]>,
    shift: u32,
    coarse: Vec<u64>,
}

impl Histogram {
    /// Prefault a histogram whose linear part reaches at least `reach`.
    pub fn reaching(reach: u64) -> Self {
        Self::with_shift(Self::shift_for(reach))
    }

    /// The shift whose linear part reaches at least `reach`.
    pub fn shift_for(reach: u64) -> u32 {
        (u64::BITS - reach.leading_zeros()).saturating_sub(BINS.ilog2())
    }

    /// Prefault a histogram with linear bins of `1 << shift`.
    pub fn with_shift(shift: u32) -> Self {
        Self {
            bins: prefault::touched(BINS, 0)
                .into_boxed_slice()
                .try_into()
                .expect("allocated with this length"),
            shift,
            coarse: prefault::touched(COARSE, 0),
        }
    }

    /// The first value beyond the linear part.
    pub fn reach(&self) -> u64 {
        (BINS as u64) << self.shift
    }

    /// The linear part, for a loop that keeps to values below `reach`.
    pub fn fast(&mut self) -> (&mut [u64; BINS], u32) {
        (&mut self.bins, self.shift)
    }

    /// Count one value of any size.
    pub fn record(&mut self, value: u64) {
        if value < self.reach() {
            self.bins[(value >> self.shift) as usize] += 1;
        } else {
            self.coarse[coarse_bin(value)] += 1;
        }
    }

    /// Forget everything; the memory stays.
    pub fn clear(&mut self) {
        self.bins.fill(0);
        self.coarse.fill(0);
    }

    /// Add the counts of `other`, which must have the same bins.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(self.shift, other.shift, "histograms of different bins");
        self.bins
            .iter_mut()
            .zip(other.bins.iter())
            .for_each(|(to, from)| *to += from);
        self.coarse
            .iter_mut()
            .zip(&other.coarse)
            .for_each(|(to, from)| *to += from);
    }

    pub fn count(&self) -> u64 {
        self.bins.iter().sum::<u64>() + self.coarse.iter().sum::<u64>()
    }

    /// The bins that hold anything, in order: (lowest value, width, count).
    pub fn occupied(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let width = 1 << self.shift;
        let linear = (0..BINS as u64).map(move |bin| (bin << self.shift, width));
        let linear = linear.zip(self.bins.iter());
        let coarse = (0..COARSE).map(coarse_edges).zip(self.coarse.iter());
        linear
            .chain(coarse)
            .filter(|(_, &count)| count > 0)
            .map(|((low, width), &count)| (low, width, count))
    }

    /// The values of rank ⌈q·n⌉ for ascending `shares` q: the middle of the bin that holds each.
    ///
    /// With bins of one tick this is the exact order statistic; else it is off by half a bin.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let count = self.count();
        let mut found = [f64::NAN; N];
        let mut next = 0;
        let mut seen = 0;
        for (low, width, here) in self.occupied() {
            seen += here;
            while next < N && seen >= rank(shares[next], count) {
                found[next] = low as f64 + (width - 1) as f64 / 2.0;
                next += 1;
            }
        }
        found
    }

    /// The mode: the mean of the densest stretch whose width is 0.2 % of the median (at least one
    /// bin). The *undisturbed* duration: unlike the minimum it does not fall to a single sample
    /// that a stepping counter or a burst of a higher clock rate made too short.
    pub fn mode(&self) -> f64 {
        let [median] = self.quantiles([0.5]);
        let width = (median * 0.002).max((1u64 << self.shift) as f64);
        let bins: Vec<(f64, f64)> = self
            .occupied()
            .map(|(low, width, count)| (low as f64 + (width - 1) as f64 / 2.0, count as f64))
            .collect();
        let (mut first, mut weight, mut sum) = (0, 0.0, 0.0);
        let mut best = (0.0, f64::NAN);
        for &(value, count) in &bins {
            weight += count;
            sum += count * value;
            while value - bins[first].0 >= width {
                weight -= bins[first].1;
                sum -= bins[first].1 * bins[first].0;
                first += 1;
            }
            if weight > best.0 {
                best = (weight, sum / weight);
            }
        }
        best.1
    }

    /// The counter's step in ticks, as far as the values show it: at least the width of a bin.
    ///
    /// A counter that moves on by many ticks at once lets values be only near its multiples. The
    /// values then form narrow clumps, and the step is the least distance between two of them.
    pub fn step(&self) -> u64 {
        let width = 1u64 << self.shift;
        let mut clumps: Vec<(u64, u64)> = Vec::new();
        for (value, ..) in self.occupied().take_while(|bin| bin.0 < self.reach()) {
            match clumps.last_mut() {
                Some((_, last)) if value - *last <= 2 * width => *last = value,
                _ => clumps.push((value, value)),
            }
        }
        if clumps.iter().any(|(first, last)| last - first > 4 * width) {
            return width;
        }
        let middle = |clump: &(u64, u64)| (clump.0 + clump.1) / 2;
        clumps
            .windows(2)
            .map(|pair| middle(&pair[1]) - middle(&pair[0]))
            .min()
            .unwrap_or(width)
    }

    /// The duration that nothing disturbed, and how far it is known, in ticks.
    ///
    /// If the counter's step is small compared with it, this is the mode. With a coarse step the mode
    /// would snap to a multiple of the step; but in a chain without gaps the steps' errors cancel
    /// in the mean, so it is the mean of all values that are not far above the median.
    pub fn undisturbed(&self) -> (f64, f64) {
        let [median] = self.quantiles([0.5]);
        let step = self.step() as f64;
        if step <= FINE * median {
            return (self.mode(), FINE * median);
        }
        let most = median + (3.0 * step).max(median.min(SHORT) / 2.0);
        let near = self
            .occupied()
            .map(|(low, width, count)| (low as f64 + (width - 1) as f64 / 2.0, count as f64))
            .filter(|(value, _)| *value <= most);
        let (sum, weight) = near.fold((0.0, 0.0), |(sum, weight), (value, count)| {
            (sum + value * count, weight + count)
        });
        (sum / weight, step)
    }

    /// The occupied bins as a series; the lower edges and widths in nanoseconds.
    pub fn table(&self, ns_per_tick: f64) -> Table {
        Table::new()
            .f64s(
                "low_ns",
                self.occupied().map(|(low, ..)| low as f64 * ns_per_tick),
            )
            .f64s(
                "width_ns",
                self.occupied()
                    .map(|(_, width, _)| width as f64 * ns_per_tick),
            )
            .u64s("count", self.occupied().map(|(.., count)| count))
    }

    /// Median and tails in seconds, as every latency result states them.
    pub fn summary(&self, seconds_per_tick: f64) -> Value {
        let [median, p99, p999, p9999] = self
            .quantiles([0.5, 0.99, 0.999, 0.9999])
            .map(|ticks| ticks * seconds_per_tick);
        json!({"median_s": median, "p99_s": p99, "p999_s": p999, "p9999_s": p9999})
    }
}

fn rank(share: f64, count: u64) -> u64 {
    // The product is rounded up only past its own rounding error, so that 0.99 of 100 is 99.
    ((share * count as f64 - 1e-9).ceil() as u64).max(1)
}

fn coarse_bin(value: u64) -> usize {
    let octave = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((octave as usize) << SUB_BITS) + (value >> octave) as usize
}

fn coarse_edges(bin: usize) -> (u64, u64) {
    let octave = (bin >> SUB_BITS).saturating_sub(1);
    (((bin - (octave << SUB_BITS)) as u64) << octave, 1 << octave)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn coarse_bins_tile_all_values() {
        let mut next = 0u64;
        for bin in 0..COARSE {
            let (low, width) = coarse_edges(bin);
            assert_eq!(low, next, "bin {bin}");
            assert_eq!(coarse_bin(low), bin);
            assert_eq!(coarse_bin(low + (width - 1)), bin);
            next = low.wrapping_add(width);
        }
        assert_eq!(next, 0, "the last bin ends with u64::MAX");
    }

    #[test]
    fn bins_are_as_fine_as_the_reach_allows() {
        assert_eq!(Histogram::reaching(1000).reach(), BINS as u64);
        assert_eq!(Histogram::reaching(700_000).reach(), (BINS as u64) << 4);
    }

    #[test]
    fn mode_ignores_a_freak_minimum_and_a_long_tail() {
        let mut histogram = Histogram::reaching(1 << 20);
        histogram.record(3);
        for wobble in 0..1000 {
            histogram.record(176_800 + wobble % 50);
        }
        for slow in 0..300 {
            histogram.record(180_000 + 100 * slow);
        }
        let mode = histogram.mode();
        assert!((176_800.0..176_860.0).contains(&mode), "{mode}");
    }

    #[test]
    fn mode_forgets_a_lesser_stretch_before_the_densest() {
        let mut histogram = Histogram::reaching(1 << 20);
        for wobble in 0..400 {
            histogram.record(100_000 + wobble % 50);
        }
        for wobble in 0..1000 {
            histogram.record(200_000 + wobble % 50);
        }
        let mode = histogram.mode();
        assert!((200_000.0..200_060.0).contains(&mode), "{mode}");
    }

    #[test]
    fn three_steps_beyond_the_median_are_near_it_where_steps_are_coarse() {
        let mut histogram = Histogram::reaching(1);
        let counts = [(300, 1), (400, 6), (500, 1), (700, 2), (800, 1)];
        for (value, count) in counts {
            (0..count).for_each(|_| histogram.record(value));
        }
        // All but the last, which is four steps of 100 beyond.
        assert_eq!(histogram.undisturbed(), (460.0, 100.0));
    }

    proptest! {
        #[test]
        fn a_coarse_step_is_found_and_does_not_snap_the_undisturbed_duration(
            step in 5u64..60,
            truth in 15.0f64..90.0,
            gap in 2000u64..50_000,
        ) {
            // A chain without gaps, read by a counter that moves on by `step` at once.
            let truth = truth.max(step as f64 * 0.6);
            let mut histogram = Histogram::reaching(1);
            let (mut last, mut taken) = (0, 0.0);
            for number in 1..=8_000u64 {
                taken += truth + if number % 2000 == 0 { gap as f64 } else { 0.0 };
                let stamp = taken as u64 / step * step;
                histogram.record(stamp - last);
                last = stamp;
            }
            let (undisturbed, known) = histogram.undisturbed();
            prop_assert!((undisturbed / truth - 1.0).abs() < 0.01, "{undisturbed} for {truth}");
            prop_assert!(known >= 1.0);
            prop_assert!(last as f64 / 8_000.0 > undisturbed, "a slowdown below 1");
            prop_assert_eq!(histogram.step() % step, 0);
        }

        #[test]
        fn quantiles_agree_with_the_sorted_values(
            values in prop::collection::vec(
                prop_oneof![0u64..5000, 0u64..1 << 22, any::<u64>().prop_map(|v| v >> 1)], 1..400),
            share in 0.0001f64..1.0,
            reach in 1u64..1 << 24,
        ) {
            let mut histogram = Histogram::reaching(reach);
            values.iter().for_each(|&value| histogram.record(value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = sorted[(rank(share, values.len() as u64) - 1) as usize];
            let [found] = histogram.quantiles([share]);
            let bin = if exact < histogram.reach() {
                (1u64 << histogram.shift) as f64
            } else {
                exact as f64 / 64.0
            };
            prop_assert!((found - exact as f64).abs() <= bin, "{found} for {exact}, bin {bin}");
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }

        #[test]
        fn adding_is_recording_both(
            one in prop::collection::vec(any::<u64>(), 0..50),
            other in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let (mut left, mut right, mut both) =
                (Histogram::reaching(1), Histogram::reaching(1), Histogram::reaching(1));
            one.iter().for_each(|&value| { left.record(value); both.record(value) });
            other.iter().for_each(|&value| { right.record(value); both.record(value) });
            left.add(&right);
            prop_assert!(left.occupied().eq(both.occupied()));
        }
    }
}
