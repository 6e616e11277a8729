//! `switch`: N threads of one priority on one CPU hand it round by yielding ("thread switch
//! latency", seed 000, 6.2.2). Each stamps and yields; the next subtracts.

use crate::contract::{Context, Failure};
use crate::measure::witness::Witness;
use crate::measure::{params, realtime, sched, tsc};
use course::Course;
use ring::Ring;
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

mod course;
mod ring;
mod room;

/// Enough for a thread that only counts; a thousand of them stay small when memory is locked.
const STACK: usize = 64 << 10;
/// Fine bins reach this far.
const REACH_S: f64 = 100e-6;
/// Switches before the measured ones, per thread.
const WARM_UP_ROUNDS: u64 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    threads: usize,
    /// How many switches to measure, over all threads.
    samples: u64,
    /// Rows of the course: extremes per so many switches.
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
    room::require(
        params.threads,
        Course::bytes(params.samples, params.intervals, params.raw),
    )?;
    let untrusted = tsc::admit(params.allow_untrusted_tsc)?;
    let mut quiet = realtime::quiet();
    quiet.warnings.extend(untrusted);
    let cpu = context
        .cpus
        .first()
        .copied()
        .unwrap_or_else(sched::current_cpu);
    let played = {
        let _aside = realtime::Aside::step(&[cpu]);
        std::thread::scope(|scope| {
            let params = &params;
            std::thread::Builder::new()
                .name("tare-switch".into())
                .spawn_scoped(scope, move || conduct(context, params, cpu))?
                .join()
                .map_err(|_| Failure("the conducting thread panicked".into()))?
        })?
    };
    result(context, &params, cpu, played, &quiet)
}

/// What the conducting thread hands back.
struct Played {
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
            sched::yield_now();
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
/// The conductor has the highest priority and the ring one below it: however few CPUs there are,
/// it lets all threads go before it can be starved by the first of them.
fn conduct(context: &Context, params: &Params, cpu: usize) -> Result<Played, Failure> {
    let mut warnings = Vec::new();
    let policy = realtime::settle(&[], sched::HIGHEST_PRIORITY, &mut warnings)?;
    let hz = tsc::calibrate()?;
    let warm_up = WARM_UP_ROUNDS * params.threads as u64 + 100;
    let course = Course::new(params.samples, params.intervals, params.raw);
    let ring = Ring::new((REACH_S * hz) as u64, warm_up, params.samples, course);
    let gate = Gate::default();
    let live = || -> Result<(), Failure> {
        let settled = realtime::settle(&[cpu], sched::HIGHEST_PRIORITY - 1, &mut Vec::new());
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
                .spawn_scoped(scope, live);
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
    // The conductor only waited: its own switches and delay say nothing of the ring.
    if let Some(fields) = witness.as_object_mut() {
        fields.remove("nonvoluntary_switches");
        fields.remove("run_delay_s");
    }
    Ok(Played {
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
    played: Played,
    quiet: &realtime::Quiet,
) -> Result<Value, Failure> {
    let ring = &played.ring;
    let tick_s = 1.0 / played.hz;
    let histogram = ring.histogram();
    let measured = histogram.count();
    let not_switched = ring.not_switched.load(Relaxed);
    if measured == 0 {
        return Err(Failure(format!(
            "no switch was measured ({not_switched} yields returned to the thread that yielded)"
        )));
    }
    let mut warnings = quiet.warnings.clone();
    warnings.extend(played.warnings);
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
    ring.course.send(context.sink, tick_s * 1e9);
    let mut result = json!({
        "threads": params.threads,
        "samples": measured,
        "seconds": played.seconds,
        "switch_min_s": ring.shortest.load(Relaxed) as f64 * tick_s,
        "switch_max_s": ring.longest.load(Relaxed) as f64 * tick_s,
        "switch": histogram.summary(tick_s),
        "not_switched": not_switched,
        "tsc_hz": played.hz,
        "tsc_trusted": tsc::untrusted().is_none(),
        "tsc_backwards": backwards,
        "policy": played.policy,
        "cpu": cpu,
        "witness": played.witness,
        "warnings": warnings,
    });
    if let Value::Object(fields) = &mut result {
        fields.extend(quiet.facts.clone());
    }
    Ok(result)
}

#[cfg(test)]
mod tests;
