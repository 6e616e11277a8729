//! `switch`: N threads of one priority on one CPU pass it on by yielding ("thread switch latency",
//! fayyad2013, 6.2.2). Each takes a timestamp and yields; the next one subtracts it.

use crate::contract::{Context, Failure};
use crate::measure::witness::Witness;
use crate::measure::{machine, params, realtime, scheduling, tsc};
use ring::Ring;
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use time_series::TimeSeries;

mod ring;
mod time_series;

/// Enough for a thread that only counts; a thousand of them stay small when memory is locked.
const STACK: usize = 64 << 10;
/// Fine bins reach this far.
const REACH_S: f64 = 100e-6;
/// What one thread takes: its stack with what the C library and Rust add to it (a second stack for
/// signals, thread-local storage), and in the kernel another stack, its descriptor, its mappings
/// and their page tables. Found as the fall of MemAvailable with 1000 threads, and rounded up.
const THREAD: u64 = 128 << 10;
/// What else the workload takes: the histogram, its copy, and the result in the agent's hands.
const FIXED: u64 = 12 << 20;
/// Switches before the measured ones, per thread.
const WARM_UP_ROUNDS: u64 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    threads: usize,
    /// How many switches to measure, over all threads.
    samples: u64,
    /// Rows of the time series, each with the extremes of so many switches.
    intervals: u64,
    /// Keep every switch's duration.
    raw: bool,
    allow_untrusted_tsc: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threads: 2,
            samples: 100_000,
            intervals: 1_000,
            raw: false,
            allow_untrusted_tsc: false,
        }
    }
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require((1..=1000).contains(&params.threads), "threads: 1 to 1000")?;
    params::require(
        (1..=1_000_000_000).contains(&params.samples),
        "samples: 1 to a thousand million",
    )?;
    params::require(
        (1..=1_000_000).contains(&params.intervals),
        "intervals: 1 to a million",
    )?;
    require_memory(
        params.threads,
        TimeSeries::bytes(params.samples, params.intervals, params.raw),
    )?;
    let untrusted = tsc::admit(params.allow_untrusted_tsc)?;
    let mut quiet = realtime::quiet();
    quiet.warnings.extend(untrusted);
    let cpu = context
        .cpus
        .first()
        .copied()
        .unwrap_or_else(scheduling::current_cpu);
    let ring_result = {
        let _aside = realtime::Aside::step(&[cpu]);
        std::thread::scope(|scope| {
            let params = &params;
            std::thread::Builder::new()
                .name("tare-switch".into())
                .spawn_scoped(scope, move || run_ring(context, params, cpu))?
                .join()
                .map_err(|_| Failure("the controlling thread panicked".into()))?
        })?
    };
    result(context, &params, cpu, ring_result, &quiet)
}

/// What the controlling thread returns.
struct RingResult {
    ring: Ring,
    hz: f64,
    seconds: f64,
    policy: &'static str,
    witness: Value,
    warnings: Vec<String>,
}

/// Holds the ring's threads until all exist, then lets them go together.
#[derive(Default)]
struct Gate {
    settled: AtomicUsize,
    go: AtomicBool,
    abandoned: AtomicBool,
    arrived: AtomicUsize,
}

impl Gate {
    /// Wait to be let go; then wait, yielding, until all `threads` are. False: give up.
    fn pass(&self, threads: usize) -> bool {
        self.settled.fetch_add(1, SeqCst);
        while !self.go.load(SeqCst) {
            std::thread::park();
        }
        self.arrived.fetch_add(1, SeqCst);
        while self.arrived.load(SeqCst) < threads && !self.abandoned.load(SeqCst) {
            scheduling::yield_now();
        }
        !self.abandoned.load(SeqCst)
    }

    fn open(&self, threads: &[ScopedJoinHandle<'_, Result<(), Failure>>]) {
        self.go.store(true, SeqCst);
        threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

/// Create the ring's threads, start them together, and wait for their end.
///
/// The controlling thread has the highest priority and the ring one below it: even with one CPU, it
/// starts all threads before the first of them can starve it.
fn run_ring(context: &Context, params: &Params, cpu: usize) -> Result<RingResult, Failure> {
    let mut warnings = Vec::new();
    let policy = realtime::settle(&[], scheduling::HIGHEST_PRIORITY, &mut warnings)?;
    let hz = tsc::calibrate()?;
    let warm_up = WARM_UP_ROUNDS * params.threads as u64 + 100;
    let time_series = TimeSeries::new(params.samples, params.intervals, params.raw);
    let ring = Ring::new((REACH_S * hz) as u64, warm_up, params.samples, time_series);
    let gate = Gate::default();
    let run_member = || -> Result<(), Failure> {
        let settled = realtime::settle(&[cpu], scheduling::HIGHEST_PRIORITY - 1, &mut Vec::new());
        gate.abandoned.fetch_or(settled.is_err(), SeqCst);
        if gate.pass(params.threads) {
            ring.turn(params.threads, context.stop);
        }
        settled.map(|_| ())
    };
    let (seconds, mut witness) = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(params.threads);
        for number in 0..params.threads {
            let thread = std::thread::Builder::new()
                .name("tare-ring".into())
                .stack_size(STACK)
                .spawn_scoped(scope, run_member);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    gate.abandoned.store(true, SeqCst);
                    gate.open(&threads);
                    return Err(Failure(format!(
                        "thread {number} of {} could not be created: {error}",
                        params.threads
                    )));
                }
            }
        }
        while gate.settled.load(SeqCst) < params.threads {
            std::thread::sleep(Duration::from_micros(200));
        }
        let ready = context.sink.barrier();
        gate.abandoned.fetch_or(ready.is_err(), SeqCst);
        let before = Witness::take(Some(cpu));
        let start = tsc::monotonic_raw_ns();
        gate.open(&threads);
        for thread in threads {
            thread
                .join()
                .map_err(|_| Failure("a thread of the ring panicked".into()))??;
        }
        let seconds = (tsc::monotonic_raw_ns() - start) as f64 * 1e-9;
        ready.map(|()| (seconds, Witness::take(Some(cpu)).since(&before)))
    })?;
    // The controlling thread only waited: its own switches and delay are not the ring's.
    if let Some(fields) = witness.as_object_mut() {
        fields.remove("nonvoluntary_switches");
        fields.remove("run_delay_s");
    }
    Ok(RingResult {
        ring,
        hz,
        seconds,
        policy,
        witness,
        warnings,
    })
}

fn result(
    context: &Context,
    params: &Params,
    cpu: usize,
    ring_result: RingResult,
    quiet: &realtime::Quiet,
) -> Result<Value, Failure> {
    let ring = &ring_result.ring;
    let tick_s = 1.0 / ring_result.hz;
    let histogram = ring.histogram();
    let measured = histogram.count();
    let not_switched = ring.not_switched.load(Relaxed);
    if measured == 0 {
        return Err(Failure(format!(
            "no switch was measured ({not_switched} yields returned to the thread that yielded)"
        )));
    }
    let mut warnings = quiet.warnings.clone();
    warnings.extend(ring_result.warnings);
    if not_switched > 0 {
        warnings.push(format!(
            "{not_switched} yields returned to the thread that yielded; they are left out"
        ));
    }
    let backwards = ring.backwards.load(Relaxed);
    if backwards > 0 {
        warnings.push(format!(
            "the cycle counter stepped backwards {backwards} times; those samples are left out"
        ));
    }
    histogram
        .table(tick_s * 1e9)
        .send(context.sink, "histogram");
    ring.time_series.send(context.sink, tick_s * 1e9);
    let mut result = json!({
        "threads": params.threads,
        "samples": measured,
        "seconds": ring_result.seconds,
        "switch_min_s": ring.shortest.load(Relaxed) as f64 * tick_s,
        "switch_max_s": ring.longest.load(Relaxed) as f64 * tick_s,
        "switch": histogram.summary(tick_s),
        "not_switched": not_switched,
        "tsc_hz": ring_result.hz,
        "tsc_trusted": tsc::untrusted().is_none(),
        "tsc_backwards": backwards,
        "policy": ring_result.policy,
        "cpu": cpu,
        "witness": ring_result.witness,
        "warnings": warnings,
    });
    if let Value::Object(fields) = &mut result {
        fields.extend(quiet.facts.clone());
    }
    Ok(result)
}

/// Refuse a ring of `threads` threads, and `series` bytes of what it records over time, that the
/// machine's memory cannot hold: all of it is locked, so what does not fit would end the machine and not
/// the workload alone.
fn require_memory(threads: usize, series: u64) -> Result<(), Failure> {
    fits(threads, series, machine::memory_available())
}

fn fits(threads: usize, series: u64, available: u64) -> Result<(), Failure> {
    // Twice, for the series is copied into columns before it is sent.
    let needed = FIXED + THREAD * threads as u64 + 2 * series;
    if needed <= available {
        return Ok(());
    }
    Err(Failure(format!(
        "{threads} threads need about {} MiB of locked memory, and this machine has {} MiB to \
         spare: give it more memory, or ask for fewer threads or samples",
        needed.div_ceil(1 << 20),
        available >> 20
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, Collected};

    fn switch(threads: usize, samples: u64) -> (Value, Collected) {
        let params = json!({
            "threads": threads, "samples": samples, "allow_untrusted_tsc": true
        });
        run_with(run, &params, &[])
    }

    #[test]
    fn measures_the_requested_switches_and_orders_them() {
        for threads in [1, 2, 50] {
            let (result, collected) = switch(threads, 2000);
            let number = |name: &str| result[name].as_f64().unwrap();
            let left_out = number("not_switched") + number("tsc_backwards");
            assert!(number("samples") + left_out >= 2000.0, "{result}");
            let tails = ["median_s", "p99_s", "p999_s", "p9999_s"]
                .map(|name| result["switch"][name].as_f64().unwrap());
            assert!(tails.windows(2).all(|pair| pair[0] <= pair[1]), "{result}");
            assert!(number("switch_min_s") > 0.0 && number("switch_min_s") <= tails[0] * 1.01);
            assert_eq!(collected.barriers(), 1);
            assert_eq!(collected.names(), ["histogram", "scatter"]);
        }
    }

    #[test]
    fn a_missing_cpu_is_refused() {
        let params = json!({"threads": 3, "allow_untrusted_tsc": true});
        let (result, _) = run_with(run, &params, &[1000]);
        assert!(
            result["error"].as_str().unwrap().contains("1000"),
            "{result}"
        );
    }

    #[test]
    fn ends_when_stopped() {
        let collected = Collected::stopped();
        let params = json!({"samples": 1_000_000_000, "allow_untrusted_tsc": true});
        let result = collected.run(run, &params, &[]);
        assert!(
            result["error"].as_str().unwrap().contains("no switch"),
            "{result}"
        );
    }

    #[test]
    fn the_time_series_holds_every_switch_that_counts() {
        let params = json!({
            "samples": 3000, "intervals": 7, "raw": true, "allow_untrusted_tsc": true
        });
        let (result, collected) = run_with(run, &params, &[]);
        let series = collected.series.lock().unwrap();
        let named = |name: &str| series.iter().find(|taken| taken.name == name).unwrap();
        let measured = result["samples"].as_u64().unwrap();
        assert_eq!(
            named("scatter").words("samples").iter().sum::<u64>(),
            measured
        );
        assert!(named("scatter").rows <= 7);
        assert_eq!(named("raw").rows as u64, measured);
        assert!(result["switch_max_s"].as_f64().unwrap() > 0.0);
    }

    #[test]
    fn intervals_have_bounds() {
        let params = json!({"intervals": 0, "allow_untrusted_tsc": true});
        let (result, _) = run_with(run, &params, &[]);
        assert!(result["error"].as_str().unwrap().contains("intervals"));
    }

    #[test]
    fn a_ring_that_does_not_fit_is_refused_with_both_sizes() {
        assert!(fits(2, 0, 32 << 20).is_ok());
        assert!(fits(2, 16 << 20, 32 << 20).is_err());
        assert!(fits(1000, 0, 256 << 20).is_ok());
        let reason = fits(1000, 0, 70 << 20).unwrap_err().0;
        assert!(
            reason.contains("137 MiB") && reason.contains("70 MiB"),
            "{reason}"
        );
    }
}
