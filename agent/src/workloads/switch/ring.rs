//! The ring of threads: what they share, and the loop of one thread.

use super::time_series::TimeSeries;
use crate::measure::histogram::{Histogram, BINS};
use crate::measure::{scheduling, tsc};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

/// What all threads of the ring share. They run one at a time on one CPU, so relaxed loads and
/// stores (plain instructions) are enough; under SCHED_OTHER a preempted thread may lose a count,
/// never more.
pub struct Ring {
    bins: Vec<AtomicU64>,
    shift: u32,
    /// Samples beyond the fine bins are rare: a lock does not matter there.
    beyond: Mutex<Vec<u64>>,
    stamp: AtomicU64,
    /// The thread of the last timestamp; a thread that finds its own was not switched to.
    owner: AtomicUsize,
    pub shortest: AtomicU64,
    pub longest: AtomicU64,
    entered: AtomicUsize,
    warm_up: AtomicU64,
    remaining: AtomicU64,
    pub not_switched: AtomicU64,
    pub backwards: AtomicU64,
    pub time_series: TimeSeries,
}

impl Ring {
    pub fn new(reach: u64, warm_up: u64, samples: u64, time_series: TimeSeries) -> Self {
        let shift = Histogram::shift_for(reach);
        let bins: Vec<AtomicU64> = (0..BINS).map(|_| AtomicU64::new(0)).collect();
        // The pages come now, not in the ring: writing each bin touches every page.
        bins.iter().for_each(|bin| bin.store(0, Relaxed));
        Self {
            bins,
            shift,
            beyond: Vec::with_capacity(1 << 16).into(),
            stamp: AtomicU64::new(0),
            owner: AtomicUsize::new(usize::MAX),
            shortest: AtomicU64::new(u64::MAX),
            longest: AtomicU64::new(0),
            entered: AtomicUsize::new(0),
            warm_up: AtomicU64::new(warm_up),
            remaining: AtomicU64::new(samples),
            not_switched: AtomicU64::new(0),
            backwards: AtomicU64::new(0),
            time_series,
        }
    }

    /// All samples as a histogram, once the ring has ended.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::with_shift(self.shift);
        let (fine, _) = histogram.fast();
        fine.iter_mut()
            .zip(&self.bins)
            .for_each(|(to, from)| *to = from.load(Relaxed));
        let beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond
            .iter()
            .for_each(|&duration| histogram.record(duration));
        histogram
    }

    /// The loop of one of `threads` threads, until enough switches were measured.
    pub fn turn(&self, threads: usize, stop: &AtomicBool) {
        let me = self.entered.fetch_add(1, SeqCst);
        loop {
            let now = tsc::read();
            if self.remaining.load(Relaxed) == 0 || stop.load(Relaxed) {
                return;
            }
            self.take(me, threads, now);
            self.owner.store(me, Relaxed);
            self.stamp.store(tsc::read(), Relaxed);
            scheduling::yield_now();
        }
    }

    #[inline(always)]
    fn take(&self, me: usize, threads: usize, now: u64) {
        let warm_up = self.warm_up.load(Relaxed);
        if warm_up > 0 {
            self.warm_up.store(warm_up - 1, Relaxed);
            return;
        }
        if threads > 1 && self.owner.load(Relaxed) == me {
            bump(&self.not_switched);
            // It counts as taken: under a policy that lets a thread yield to itself for ever,
            // the ring must still end.
        } else {
            self.record(now, now.wrapping_sub(self.stamp.load(Relaxed)));
        }
        self.remaining
            .store(self.remaining.load(Relaxed).saturating_sub(1), Relaxed);
    }

    #[inline(always)]
    fn record(&self, now: u64, duration: u64) {
        if (duration as i64) < 0 {
            return bump(&self.backwards);
        }
        self.shortest
            .store(self.shortest.load(Relaxed).min(duration), Relaxed);
        self.longest
            .store(self.longest.load(Relaxed).max(duration), Relaxed);
        self.time_series.record(now, duration);
        match self.bins.get((duration >> self.shift) as usize) {
            Some(bin) => bump(bin),
            None => self
                .beyond
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(duration),
        }
    }
}

#[inline(always)]
pub fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
