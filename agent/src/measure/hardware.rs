//! What the processor counted while something was measured: cycles, instructions, and accesses to
//! the last-level cache with those that missed it, each a line from memory.

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

/// Counters that run; none where there are none.
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

    /// What was counted, by name, and for how long; `missing` says why what lacks could not be.
    pub fn end(mut self) -> Value {
        let mut told = Map::new();
        told.insert("seconds".into(), json!(self.began.elapsed().as_secs_f64()));
        for (name, counters) in &self.running {
            match sum(counters) {
                Ok(sum) => {
                    told.insert((*name).into(), json!(sum));
                }
                Err(why) => self.missing = format!("{name}: {why}"),
            }
        }
        if !self.missing.is_empty() {
            told.insert("missing".into(), json!(self.missing));
        }
        Value::Object(told)
    }
}

/// What several counters came to, had each counted all the time.
fn sum(counters: &[Counter]) -> Result<f64, String> {
    counters
        .iter()
        .map(|counter| match counter.read() {
            Ok((value, share)) if share > 0.0 => Ok(value as f64 / share),
            // It counted nothing, which is no zero.
            Ok(_) => Err("it never had its turn".into()),
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
        let told = counting.end();
        let most = 1e9 * began.elapsed().as_secs_f64() + 1e6;
        assert!(told.get("missing").is_none(), "{told}");
        let counted = told["nanoseconds"].as_f64().expect("a number");
        assert!(counted > 0.0 && counted <= most, "{counted}");
    }

    #[test]
    fn what_does_not_exist_is_told_and_no_zero() {
        let told = Hardware::of(sys::HARDWARE, &[("nonsense", 1 << 20)], &[sys::THIS_THREAD]).end();
        assert!(told.get("nonsense").is_none());
        assert!(told["missing"]
            .as_str()
            .expect("why")
            .starts_with("nonsense: "));
    }
}
