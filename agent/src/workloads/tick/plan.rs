//! The parameters of the tick loop, and how its samples are split into intervals.

use crate::contract::Failure;
use crate::measure::{machine, params};
use serde::Deserialize;

/// The longest stretch between two looks at the stop flag.
const LONGEST_STRETCH_S: f64 = 0.1;
const DEFAULT_SAMPLES: u64 = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of samples, unless `seconds` is given.
    pub samples: Option<u64>,
    pub seconds: Option<f64>,
    /// Undisturbed duration of the busy loop; 0: none, a bare chain of counter reads.
    pub loop_ns: f64,
    /// Samples longer than the warm-up's median by this much are gaps.
    pub threshold_ns: f64,
    pub log_capacity: usize,
    /// Keep every sample's duration.
    pub raw: bool,
    /// Rows of the scatter: extremes per interval.
    pub intervals: usize,
    /// SCHED_FIFO priority; 0: the ordinary policy. The highest one if left out.
    pub priority: Option<i32>,
    pub allow_untrusted_tsc: bool,
    /// Whether the processor's counters count along, which lengthens the clock tick a little.
    pub counters: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            samples: None,
            seconds: None,
            loop_ns: 68_000.0,
            threshold_ns: 1_000.0,
            log_capacity: 100_000,
            raw: false,
            intervals: 1_000,
            priority: None,
            allow_untrusted_tsc: false,
            counters: false,
        }
    }
}

impl Params {
    /// Refuse what cannot be measured, with the reason.
    pub fn check(&self) -> Result<(), Failure> {
        params::require(
            self.samples.is_none() || self.seconds.is_none(),
            "give samples or seconds, not both",
        )?;
        params::require(self.samples != Some(0), "samples: at least 1")?;
        params::require(
            self.seconds
                .is_none_or(|seconds| seconds > 0.0 && seconds <= 1e6),
            "seconds: above 0, at most a million",
        )?;
        params::require(
            self.loop_ns == 0.0 || (100.0..=1e9).contains(&self.loop_ns),
            "loop_ns: 0, or 100 to 1e9",
        )?;
        params::require(
            (1.0..=1e12).contains(&self.threshold_ns),
            "threshold_ns: 1 to 1e12",
        )?;
        params::require(
            (1..=1_000_000).contains(&self.intervals),
            "intervals: 1 to a million",
        )?;
        params::require(
            self.priority
                .is_none_or(|priority| (0..=99).contains(&priority)),
            "priority: 0 to 99",
        )?;
        params::require(
            self.log_capacity <= 100_000_000,
            "log_capacity: at most 100 million",
        )
    }
}

/// How many samples make an interval and a stretch, worked out before the loop.
pub struct Plan {
    pub samples: u64,
    pub seconds: Option<f64>,
    pub per_interval: u64,
    pub stretch: u64,
    /// Room for intervals; further ones are folded into the last.
    pub rows: usize,
}

impl Plan {
    /// Plan for samples of about `sample_s` seconds each.
    pub fn new(params: &Params, sample_s: f64) -> Self {
        let rows = params.intervals as u64;
        let (samples, per_interval, rows) = match params.seconds {
            Some(seconds) => {
                let expected = (seconds / sample_s) as u64 + 1;
                // Twice the room, for a loop that turns out faster than in the warm-up.
                (u64::MAX, expected.div_ceil(rows), 2 * rows + 1)
            }
            None => {
                let samples = params.samples.unwrap_or(DEFAULT_SAMPLES);
                let per_interval = samples.div_ceil(rows);
                (samples, per_interval, samples.div_ceil(per_interval))
            }
        };
        Self {
            samples,
            seconds: params.seconds,
            per_interval,
            stretch: per_interval.clamp(1, (LONGEST_STRETCH_S / sample_s) as u64 + 1),
            rows: rows as usize,
        }
    }

    /// How many raw samples to make room for.
    pub fn raw_room(&self) -> Result<usize, Failure> {
        let wanted = match self.seconds {
            Some(_) => self.per_interval.saturating_mul(self.rows as u64),
            None => self.samples,
        };
        let most = machine::memory_available() / 2 / 4;
        if wanted > most {
            return Err(Failure(format!(
                "raw: {wanted} samples need {} MiB, and only half of this machine's free memory \
                 may be used, {} MiB; take fewer samples, or do without raw",
                wanted / (1 << 18),
                most / (1 << 18)
            )));
        }
        Ok(wanted as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_samples_must_fit() {
        let params = Params {
            samples: Some(1 << 50),
            ..Params::default()
        };
        assert!(Plan::new(&params, 1e-8)
            .raw_room()
            .unwrap_err()
            .0
            .contains("raw"));
    }
}
