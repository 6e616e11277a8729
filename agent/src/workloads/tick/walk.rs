//! Walk a chain of samples from its first to its last, in intervals.

use super::chain::{Extremes, Recorder};
use super::plan::Plan;
use super::progress::SampleCounter;
use crate::measure::tsc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const WARM_UP_NS: f64 = 5e6;

/// One row of the scatter: when the interval began, and its samples, in ticks.
#[derive(Clone, Copy)]
pub struct Interval {
    pub start: u64,
    pub end: u64,
    pub samples: u64,
    pub extremes: Extremes,
}

impl Interval {
    pub const EMPTY: Self = Self {
        start: 0,
        end: 0,
        samples: 0,
        extremes: Extremes::NONE,
    };
}

/// One walk along the chain.
pub struct Walk<'a> {
    pub plan: &'a Plan,
    pub iterations: u64,
    pub stop: &'a AtomicBool,
    pub counter: &'a SampleCounter,
    pub hz: f64,
}

impl Walk<'_> {
    /// Take all samples; returns the first stamp, the last, and the number of samples between.
    pub fn go<const LOOP: bool, const RAW: bool>(
        &self,
        recorder: &mut Recorder,
        intervals: &mut Vec<Interval>,
        raw: &mut [u32],
    ) -> (u64, u64, u64) {
        let plan = self.plan;
        let first = tsc::read();
        let length = plan
            .seconds
            .map_or(u64::MAX >> 1, |seconds| (seconds * self.hz) as u64);
        let (mut stamp, mut taken, mut over) = (first, 0, false);
        while !over && taken < plan.samples {
            let mut row = Interval {
                start: stamp,
                ..Interval::EMPTY
            };
            let wanted = plan.per_interval.min(plan.samples - taken);
            while !over && row.samples < wanted {
                let count = plan.stretch.min(wanted - row.samples);
                let room = (taken as usize).min(raw.len());
                let found;
                (stamp, found) = recorder.stretch::<LOOP, RAW>(
                    stamp,
                    count as usize,
                    self.iterations,
                    &mut raw[room..],
                );
                row.extremes = row.extremes.merge(found);
                row.samples += count;
                taken += count;
                self.counter.publish(taken);
                over = self.stop.load(Ordering::Relaxed)
                    || stamp.wrapping_sub(first) as i64 >= length as i64;
            }
            row.end = stamp;
            if intervals.len() < plan.rows {
                intervals.push(row);
            } else if let Some(last) = intervals.last_mut() {
                last.end = row.end;
                last.samples += row.samples;
                last.extremes = last.extremes.merge(row.extremes);
            }
        }
        (first, stamp, taken)
    }
}

/// Run the very loop that will measure, for `ticks` and more, until its median sample has the
/// `target` length; returns the busy loop's iterations and that median in ticks.
pub fn warm_up(recorder: &mut Recorder, target: u64, ticks: u64) -> (u64, u64) {
    if target == 0 {
        return (0, median::<false>(recorder, 0, 4096, ticks));
    }
    let mut iterations = 16;
    while median::<true>(recorder, iterations, 8, 0) < target / 4 {
        iterations *= 2;
    }
    let mut found = median::<true>(recorder, iterations, 8, 0);
    for _ in 0..4 {
        iterations = ((iterations as f64 * target as f64 / found as f64) as u64).max(1);
        found = median::<true>(recorder, iterations, 16, ticks);
        if (found as f64 / target as f64 - 1.0).abs() < 0.005 {
            break;
        }
    }
    (iterations, found)
}

/// The median sample of fresh stretches that last `ticks` together, in ticks.
fn median<const LOOP: bool>(
    recorder: &mut Recorder,
    iterations: u64,
    samples: usize,
    ticks: u64,
) -> u64 {
    recorder.histogram.clear();
    let begin = tsc::read();
    loop {
        let (end, _) = recorder.stretch::<LOOP, false>(tsc::read(), samples, iterations, &mut []);
        if end.wrapping_sub(begin) >= ticks {
            break;
        }
    }
    let [median] = recorder.histogram.quantiles([0.5]);
    (median as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Params;
    use super::*;

    fn plan(params: Params, sample_s: f64) -> Plan {
        Plan::new(&params, sample_s)
    }

    fn walk(plan: &Plan, stopped: bool) -> (Vec<Interval>, Recorder, (u64, u64, u64)) {
        let stop = AtomicBool::new(stopped);
        let mut recorder = Recorder::new(1000, 10);
        let mut intervals = Vec::new();
        let walk = Walk {
            plan,
            iterations: 0,
            stop: &stop,
            counter: &SampleCounter::default(),
            hz: 1e9,
        };
        let path = walk.go::<false, false>(&mut recorder, &mut intervals, &mut []);
        (intervals, recorder, path)
    }

    #[test]
    fn intervals_join_without_a_gap_and_hold_all_samples() {
        let params = Params {
            samples: Some(1003),
            intervals: 10,
            ..Params::default()
        };
        let (intervals, recorder, (first, last, samples)) = walk(&plan(params, 1e-8), false);
        assert_eq!(samples, 1003);
        assert_eq!(intervals.iter().map(|row| row.samples).sum::<u64>(), 1003);
        assert!(intervals.len() <= 10);
        assert_eq!(intervals[0].start, first);
        assert_eq!(intervals.last().unwrap().end, last);
        assert!(intervals
            .windows(2)
            .all(|pair| pair[0].end == pair[1].start));
        assert_eq!(recorder.histogram.count() + recorder.backwards, 1003);
    }

    #[test]
    fn stops_early_on_request() {
        let params = Params {
            samples: Some(1_000_000_000),
            intervals: 1_000_000,
            ..Params::default()
        };
        let (.., (_, _, samples)) = walk(&plan(params, 1e-8), true);
        assert_eq!(samples, 1000);
    }

    #[test]
    fn seconds_end_the_walk_and_never_overflow_the_rows() {
        let params = Params {
            seconds: Some(1e-3),
            intervals: 4,
            ..Params::default()
        };
        // An estimate far too long: many more intervals than planned.
        let (intervals, _, (first, last, samples)) = walk(&plan(params, 1e-4), false);
        assert!(last - first >= 1_000_000);
        assert_eq!(intervals.len(), 9);
        assert_eq!(
            intervals.iter().map(|row| row.samples).sum::<u64>(),
            samples
        );
    }

    #[test]
    fn busy_loop_gets_about_the_requested_length() {
        let mut recorder = Recorder::new(800_000, 10);
        let (iterations, found) = warm_up(&mut recorder, 200_000, 0);
        assert!(iterations > 100, "{iterations}");
        assert!((50_000..800_000).contains(&found), "{found}");
        assert_eq!(warm_up(&mut recorder, 0, 0).0, 0);
    }
}
