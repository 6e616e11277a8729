//! A sink for tests: collects what a workload hands over.

use crate::contract::{Context, Failure, Run, Sink};
use serde_json::{json, Value};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One series that a workload handed over.
pub struct Taken {
    pub name: String,
    pub rows: usize,
    pub columns: Vec<(String, String)>,
    pub data: Vec<u8>,
}

impl Taken {
    /// A column's 64-bit values (u64, or the bits of f64).
    pub fn words(&self, name: &str) -> Vec<u64> {
        let width = |kind: &str| if kind == "u32" { 4 } else { 8 };
        let mut offset = 0;
        for (column, kind) in &self.columns {
            let size = width(kind) * self.rows;
            if column == name {
                return self.data[offset..offset + size]
                    .chunks(8)
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                    .collect();
            }
            offset += size;
        }
        panic!("no column {name}");
    }

    /// The bytes that the columns should take together.
    pub fn expected_bytes(&self) -> usize {
        let width = |kind: &str| if kind == "u32" { 4 } else { 8 };
        self.columns
            .iter()
            .map(|(_, kind)| width(kind) * self.rows)
            .sum()
    }
}

#[derive(Default)]
pub struct Collected {
    stop: AtomicBool,
    barriers: AtomicUsize,
    pub series: Mutex<Vec<Taken>>,
}

impl Collected {
    /// As if the host had asked for the end already.
    pub fn stopped() -> Self {
        let collected = Self::default();
        collected.stop();
        collected
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn barriers(&self) -> usize {
        self.barriers.load(Ordering::Relaxed)
    }

    pub fn names(&self) -> Vec<String> {
        self.series
            .lock()
            .unwrap()
            .iter()
            .map(|taken| taken.name.clone())
            .collect()
    }

    /// Run the workload; a failure becomes `{"error": reason}`.
    pub fn run(&self, run: Run, params: &Value, cpus: &[usize]) -> Value {
        let context = Context {
            params,
            cpus,
            stop: &self.stop,
            sink: self,
        };
        run(&context).unwrap_or_else(|Failure(reason)| json!({"error": reason}))
    }
}

impl Sink for Collected {
    fn progress(&self, _done: f64, _fields: Value) {}

    fn barrier(&self) -> Result<(), Failure> {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]) {
        let owned = |(name, kind): &(&str, &str)| (name.to_string(), kind.to_string());
        self.series.lock().unwrap().push(Taken {
            name: name.into(),
            rows,
            columns: columns.iter().map(owned).collect(),
            data: data.into(),
        });
    }
}

/// Run a workload with a fresh sink.
pub fn run_with(run: Run, params: &Value, cpus: &[usize]) -> (Value, Collected) {
    let collected = Collected::default();
    let result = collected.run(run, params, cpus);
    (result, collected)
}

/// Run something for longer and longer until enough was done: on a busy computer little happens in a
/// short time.
pub fn until_enough<T>(work: impl Fn(f64) -> T, enough: impl Fn(&T) -> bool) -> T {
    for seconds in [0.2, 0.8, 3.2] {
        let done = work(seconds);
        if enough(&done) {
            return done;
        }
    }
    work(12.8)
}

/// Run something, and return with its result the longest delay of a waking thread meanwhile: next to
/// nothing on an idle computer.
pub fn with_longest_delay<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    const SLEEP: Duration = Duration::from_millis(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let since = Instant::now();
                std::thread::sleep(SLEEP);
                longest = longest.max(since.elapsed() - SLEEP);
            }
            longest
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        (done, watching.join().unwrap())
    })
}
