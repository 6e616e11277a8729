//! The measured loops: gap-free chains of counter reads, with recording in the shadow of the next
//! read.
//!
//! The end stamp of one sample is the start stamp of the next, so no time goes unobserved. A
//! sample is recorded between the fence and the read of the *next* stamp. There the histogram's
//! load, add and store run while the counter is read, which takes some twenty cycles; before the
//! fence they would be waited for, and after the read they would queue behind its microcode.

#![expect(
    unsafe_code,
    reason = "the compiler must not see through the busy loop"
)]

use crate::measure::histogram::{Histogram, BINS};
use crate::measure::{prefault, tsc};

/// Everything a chain of samples leaves behind; all memory is prefaulted.
pub struct Recorder {
    pub histogram: Histogram,
    /// (start stamp, duration) of samples of `gap_limit` and above, until the log is full.
    pub log: Vec<(u64, u64)>,
    log_capacity: usize,
    pub log_dropped: u64,
    pub gap_limit: u64,
    pub gaps: u64,
    pub gap_ticks: u64,
    /// How often the counter stepped back, and by how many ticks at most.
    pub backwards: u64,
    pub backwards_most: u64,
}

/// The shortest and the longest sample of a stretch.
#[derive(Clone, Copy)]
pub struct Extremes {
    pub shortest: u64,
    pub longest: u64,
}

impl Extremes {
    pub const NONE: Self = Self {
        shortest: u64::MAX,
        longest: 0,
    };

    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        Self {
            shortest: self.shortest.min(other.shortest),
            longest: self.longest.max(other.longest),
        }
    }
}

impl Recorder {
    /// Prepare for samples of up to `reach` ticks in fine bins, and a log of `log_capacity`.
    pub fn new(reach: u64, log_capacity: usize) -> Self {
        let mut log = prefault::touched(log_capacity, (0, 0));
        log.clear();
        Self {
            histogram: Histogram::reaching(reach),
            log,
            log_capacity,
            log_dropped: 0,
            gap_limit: u64::MAX >> 1,
            gaps: 0,
            gap_ticks: 0,
            backwards: 0,
            backwards_most: 0,
        }
    }

    /// Forget the warm-up and count samples of `gap_limit` ticks or more as gaps from now on.
    pub fn restart(&mut self, gap_limit: u64) {
        self.histogram.clear();
        self.log.clear();
        (self.log_dropped, self.gaps, self.gap_ticks) = (0, 0, 0);
        (self.backwards, self.backwards_most) = (0, 0);
        self.gap_limit = gap_limit;
    }

    /// A sample that needs more than a count in the fine bins. Returns whether it is valid.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, end: u64, duration: u64) -> bool {
        if (duration as i64) < 0 {
            self.backwards += 1;
            self.backwards_most = self.backwards_most.max(duration.wrapping_neg());
            return false;
        }
        self.histogram.record(duration);
        if duration >= self.gap_limit {
            self.gaps += 1;
            self.gap_ticks += duration;
            if self.log.len() < self.log_capacity {
                self.log.push((end.wrapping_sub(duration), duration));
            } else {
                self.log_dropped += 1;
            }
        }
        true
    }

    /// Take `samples` samples from `start` on; each runs the busy loop for `iterations` when
    /// `LOOP`. With `RAW`, `raw` receives one value per sample and sets their number.
    ///
    /// Returns the last stamp, which the next stretch starts from, and the extremes.
    pub fn stretch<const LOOP: bool, const RAW: bool>(
        &mut self,
        start: u64,
        samples: usize,
        iterations: u64,
        raw: &mut [u32],
    ) -> (u64, Extremes) {
        let limit = self.gap_limit.min(self.histogram.reach());
        let mut extremes = Extremes::NONE;
        let mut slots = raw.iter_mut();
        let mut end = sample::<LOOP>(iterations);
        let mut duration = end.wrapping_sub(start);
        for _ in 1..samples {
            if LOOP {
                busy(iterations);
            }
            tsc::await_completion();
            extremes = self.record::<RAW>(end, duration, limit, extremes, &mut slots);
            let next = tsc::read_unordered();
            duration = next.wrapping_sub(end);
            end = next;
        }
        extremes = self.record::<RAW>(end, duration, limit, extremes, &mut slots);
        (end, extremes)
    }

    /// Record one sample; takes and returns the extremes by value, so that they stay in registers.
    #[inline(always)]
    fn record<const RAW: bool>(
        &mut self,
        end: u64,
        duration: u64,
        limit: u64,
        extremes: Extremes,
        slots: &mut std::slice::IterMut<u32>,
    ) -> Extremes {
        let counts = if duration < limit {
            let (bins, shift) = self.histogram.fast();
            bins[(duration >> shift) as usize & (BINS - 1)] += 1;
            true
        } else {
            self.unusual(end, duration)
        };
        if RAW {
            if let Some(slot) = slots.next() {
                *slot = if counts {
                    duration.min(u64::from(u32::MAX)) as u32
                } else {
                    0
                };
            }
        }
        if !counts {
            return extremes;
        }
        extremes.merge(Extremes {
            shortest: duration,
            longest: duration,
        })
    }
}

#[inline(always)]
fn sample<const LOOP: bool>(iterations: u64) -> u64 {
    if LOOP {
        busy(iterations);
    }
    tsc::read()
}

/// The busy loop: a chain of shifts and exclusive-ors in registers that cannot run in parallel.
#[inline(always)]
fn busy(iterations: u64) {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    pass_through(&mut state);
    for _ in 0..iterations {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    pass_through(&mut state);
}

/// Make the compiler believe that `value` is read and changed here, at no cost.
#[inline(always)]
fn pass_through(value: &mut u64) {
    // SAFETY: an empty template; the value stays in its register.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(reg) * value,
            options(nostack, nomem, preserves_flags)
        )
    };
}

/// The bare chain of counter reads that recording is compared with; returns the last stamp.
#[inline(never)]
pub fn bare(samples: usize) -> u64 {
    let mut stamp = 0;
    for _ in 0..samples {
        stamp = tsc::read();
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(durations: &[i64], gap_limit: u64) -> (Recorder, Extremes) {
        let mut recorder = Recorder::new(1000, 2);
        recorder.restart(gap_limit);
        let limit = gap_limit.min(recorder.histogram.reach());
        let mut extremes = Extremes::NONE;
        let mut end = 1_000_000u64;
        for &duration in durations {
            end = end.wrapping_add_signed(duration);
            extremes =
                recorder.record::<false>(end, duration as u64, limit, extremes, &mut [].iter_mut());
        }
        (recorder, extremes)
    }

    #[test]
    fn gaps_are_counted_summed_and_logged() {
        let (recorder, extremes) = fed(&[10, 500, 12, 70_000, 900], 400);
        assert_eq!((recorder.gaps, recorder.gap_ticks), (3, 71_400));
        assert_eq!(recorder.log, vec![(1_000_010, 500), (1_000_522, 70_000)]);
        assert_eq!(recorder.log_dropped, 1);
        assert_eq!((extremes.shortest, extremes.longest), (10, 70_000));
        assert_eq!(recorder.histogram.count(), 5);
    }

    #[test]
    fn a_counter_that_steps_back_is_no_sample() {
        let (recorder, extremes) = fed(&[10, -250, 11], 400);
        assert_eq!((recorder.backwards, recorder.backwards_most), (1, 250));
        assert_eq!(recorder.histogram.count(), 2);
        assert_eq!((extremes.shortest, extremes.longest), (10, 11));
    }

    #[test]
    fn beyond_the_histogram_but_below_the_limit_is_no_gap() {
        let (recorder, extremes) = fed(&[100_000], 1_000_000);
        assert_eq!((recorder.gaps, recorder.histogram.count()), (0, 1));
        assert_eq!(extremes.longest, 100_000);
    }

    #[test]
    fn a_real_stretch_takes_the_requested_samples() {
        let mut recorder = Recorder::new(1000, 10);
        let start = tsc::read();
        let mut raw = vec![0; 500];
        let (end, extremes) = recorder.stretch::<true, true>(start, 500, 100, &mut raw);
        assert_eq!(recorder.histogram.count() + recorder.backwards, 500);
        let total: u64 = raw.iter().map(|&ticks| u64::from(ticks)).sum();
        assert_eq!(total, end - start, "the chain has no gap");
        assert_eq!(
            raw.iter().min().map(|&least| u64::from(least)),
            Some(extremes.shortest)
        );
    }
}
