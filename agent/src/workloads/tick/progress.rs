//! Report the progress of a long run once a second, without disturbing the measuring thread.
//!
//! The measuring thread only stores a counter between stretches; another thread, on another CPU,
//! reads and reports it. On a machine with one CPU a report would take that CPU away, so there are no
//! reports: the host gets an expectation before the start, and estimates the progress from the CPU time
//! that the machine uses.

use super::plan::Plan;
use crate::contract::Sink;
use serde_json::{json, Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Shorter runs report no progress.
const LONG_S: f64 = 3.0;
const INTERVAL: Duration = Duration::from_secs(1);
const UNIT: &str = "samples/s";

/// The samples taken so far, in a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
pub struct SampleCounter(AtomicU64);

impl SampleCounter {
    #[inline(always)]
    pub fn publish(&self, taken: u64) {
        self.0.store(taken, Ordering::Relaxed);
    }

    fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The expected length of a run.
#[derive(Clone, Copy)]
pub struct Pace {
    samples: Option<u64>,
    seconds: Option<f64>,
    sample_s: f64,
}

impl Pace {
    pub fn new(plan: &Plan, sample_s: f64) -> Self {
        Self {
            samples: plan.seconds.is_none().then_some(plan.samples),
            seconds: plan.seconds,
            sample_s,
        }
    }

    fn expected_s(&self) -> f64 {
        let counted = self.samples.map(|samples| samples as f64 * self.sample_s);
        self.seconds.or(counted).unwrap_or(0.0)
    }

    pub fn is_long(&self) -> bool {
        self.expected_s() >= LONG_S
    }

    /// The message before the start; `live`: whether progress reports will follow.
    pub fn expectation(&self, live: bool) -> Value {
        json!({
            "expected_s": self.expected_s(),
            "sample_s": self.sample_s,
            "timed": self.seconds.is_some(),
            "unit": UNIT,
            "live": live,
        })
    }

    /// How far the run is after `elapsed_s` with `taken` samples: its share, and further fields.
    fn progress_after(&self, taken: u64, rate: f64, elapsed_s: f64) -> (f64, Value) {
        let mut fields = Map::new();
        fields.insert("samples".into(), json!(taken));
        fields.insert("rate".into(), json!(rate));
        fields.insert("unit".into(), json!(UNIT));
        let (done, left_s) = match (self.seconds, self.samples) {
            (Some(seconds), _) => (elapsed_s / seconds, Some(seconds - elapsed_s)),
            (None, Some(samples)) => {
                let left = samples.saturating_sub(taken) as f64;
                let mean = taken as f64 / elapsed_s;
                let left_s = (mean > 0.0).then(|| left / mean);
                (taken as f64 / samples as f64, left_s)
            }
            (None, None) => (0.0, None),
        };
        if let Some(left_s) = left_s {
            fields.insert("left_s".into(), json!(left_s.max(0.0)));
        }
        (done.clamp(0.0, 1.0), Value::Object(fields))
    }
}

/// Report once a second, from when `started` receives the pace until its sender is dropped.
pub fn report_progress(sink: &dyn Sink, counter: &SampleCounter, started: &Receiver<Pace>) {
    let Ok(pace) = started.recv() else { return };
    let began = Instant::now();
    let (mut then, mut before) = (began, 0);
    while let Err(RecvTimeoutError::Timeout) = started.recv_timeout(INTERVAL) {
        let (now, taken) = (Instant::now(), counter.taken());
        let rate = (taken - before) as f64 / (now - then).as_secs_f64();
        (then, before) = (now, taken);
        let elapsed_s = (now - began).as_secs_f64();
        let (done, fields) = pace.progress_after(taken, rate, elapsed_s);
        sink.progress(done, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Reports(Mutex<Vec<(f64, Value)>>);

    impl Sink for Reports {
        fn progress(&self, done: f64, fields: Value) {
            self.0.lock().unwrap().push((done, fields));
        }

        fn barrier(&self) -> Result<(), crate::contract::Failure> {
            Ok(())
        }

        fn series(&self, _: &str, _: usize, _: &[(&str, &str)], _: &[u8]) {}
    }

    const COUNTED: Pace = Pace {
        samples: Some(1000),
        seconds: None,
        sample_s: 0.01,
    };

    #[test]
    fn the_time_left_follows_the_mean_rate() {
        let (done, fields) = COUNTED.progress_after(250, 80.0, 5.0);
        assert_eq!(done, 0.25);
        assert_eq!(
            (&fields["rate"], &fields["left_s"]),
            (&json!(80.0), &json!(15.0))
        );
        let (done, fields) = COUNTED.progress_after(0, 0.0, 5.0);
        assert_eq!(done, 0.0);
        assert!(fields.get("left_s").is_none(), "{fields}");
    }

    #[test]
    fn the_progress_of_a_timed_run_follows_the_time() {
        let timed = Pace {
            samples: None,
            seconds: Some(20.0),
            sample_s: 1e-8,
        };
        let (done, fields) = timed.progress_after(7, 1.0, 5.0);
        assert_eq!((done, &fields["left_s"]), (0.25, &json!(15.0)));
        assert_eq!(timed.progress_after(7, 1.0, 50.0).0, 1.0);
        assert!(timed.is_long());
        assert_eq!(timed.expectation(false)["expected_s"], 20.0);
    }

    #[test]
    fn reports_during_the_run_and_not_before_or_after() {
        let (reports, counter) = (Reports::default(), SampleCounter::default());
        let (start, started) = mpsc::channel();
        std::thread::scope(|scope| {
            let (reports, counter) = (&reports, &counter);
            scope.spawn(move || report_progress(reports, counter, &started));
            start.send(COUNTED).unwrap();
            counter.publish(500);
            while reports.0.lock().unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(start);
        });
        assert_eq!(reports.0.lock().unwrap()[0].0, 0.5);

        let (silent, (start, started)) = (Reports::default(), mpsc::channel());
        drop(start);
        report_progress(&silent, &counter, &started);
        assert!(silent.0.lock().unwrap().is_empty());
    }
}
