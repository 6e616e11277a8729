//! The processor's counters during a measurement: cycles, instructions, and accesses and misses of the
//! last-level cache, where each miss loads a line from memory.

use crate::sys::{self, Counter};
use serde_json::{json, Map, Value};
use std::io;
use std::time::Instant;

/// Their names here, and the kernel's numbers (`enum perf_hw_id`).
const EVENTS: [(&str, u64); 4] = [
    ("cycles", 0),
    ("instructions", 1),
    ("llc_references", 2),
    ("llc_misses", 3),
];

/// Running counters; empty on a machine without counters.
pub struct Hardware {
    running: Vec<(&'static str, Vec<Counter>)>,
    missing: String,
    began: Instant,
}

impl Hardware {
    /// Begin to count for the calling thread, and for threads that it starts from here on.
    pub fn begin() -> Self {
        Self::of(sys::HARDWARE, &EVENTS, &[sys::THIS_THREAD])
    }

    /// Begin to count for other threads together, as of a virtual machine, and for threads that
    /// they start from here on.
    pub fn of_threads(threads: &[i32]) -> Self {
        Self::of(sys::HARDWARE, &EVENTS, threads)
    }

    fn of(kind: u32, events: &[(&'static str, u64)], threads: &[i32]) -> Self {
        let mut found = Self {
            running: Vec::new(),
            missing: String::new(),
            began: Instant::now(),
        };
        for (name, config) in events {
            let counters = threads
                .iter()
                .map(|thread| Counter::of_thread(kind, *config, *thread));
            match counters.collect::<io::Result<Vec<Counter>>>() {
                Ok(counters) => found.running.push((name, counters)),
                Err(error) => found.missing = format!("{name}: {error}"),
            }
        }
        found
    }

    /// The counts by name, and their duration; `missing` is the reason why one is missing.
    pub fn end(mut self) -> Value {
        let mut counts = Map::new();
        counts.insert("seconds".into(), json!(self.began.elapsed().as_secs_f64()));
        for (name, counters) in &self.running {
            match sum(counters) {
                Ok(sum) => {
                    counts.insert((*name).into(), json!(sum));
                }
                Err(why) => self.missing = format!("{name}: {why}"),
            }
        }
        if !self.missing.is_empty() {
            counts.insert("missing".into(), json!(self.missing));
        }
        Value::Object(counts)
    }
}

/// The sum of several counters, each extrapolated to the whole time.
fn sum(counters: &[Counter]) -> Result<f64, String> {
    counters
        .iter()
        .map(|counter| match counter.read() {
            Ok((value, share)) if share > 0.0 => Ok(value as f64 / share),
            // It was never scheduled, so the count is unknown, and not zero.
            Ok(_) => Err("it was never scheduled".into()),
            Err(error) => Err(error.to_string()),
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own clock of a thread's time on a CPU (`PERF_COUNT_SW_TASK_CLOCK`), in
    /// nanoseconds, on every computer that counts anything.
    const TASK_CLOCK: [(&str, u64); 1] = [("nanoseconds", 1)];

    #[test]
    fn counts_what_the_thread_did_and_no_more() {
        let counting = Hardware::of(sys::SOFTWARE, &TASK_CLOCK, &[sys::THIS_THREAD]);
        if !counting.missing.is_empty() {
            return;
        }
        let began = Instant::now();
        while began.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let counts = counting.end();
        let most = 1e9 * began.elapsed().as_secs_f64() + 1e6;
        assert!(counts.get("missing").is_none(), "{counts}");
        let counted = counts["nanoseconds"].as_f64().expect("a number");
        assert!(counted > 0.0 && counted <= most, "{counted}");
    }

    #[test]
    fn a_counter_that_does_not_exist_is_missing_and_not_zero() {
        let counts =
            Hardware::of(sys::HARDWARE, &[("nonsense", 1 << 20)], &[sys::THIS_THREAD]).end();
        assert!(counts.get("nonsense").is_none());
        assert!(counts["missing"]
            .as_str()
            .expect("why")
            .starts_with("nonsense: "));
    }
}
