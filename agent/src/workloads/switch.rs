//! `switch`: N threads of one priority on one CPU hand it round by yielding ("thread switch
//! latency", seed 000, 6.2.2). Each stamps and yields; the next subtracts.

use crate::contract::{Context, Failure};
use crate::measure::histogram::{Histogram, BINS};
use crate::measure::witness::Witness;
use crate::measure::{params, realtime, sched, tsc};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

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
    allow_untrusted_tsc: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threads: 2,
            samples: 100_000,
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
    room::require(params.threads)?;
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

/// What all threads of the ring share. They run one at a time on one CPU, so relaxed loads and
/// stores (plain instructions) are enough; under SCHED_OTHER a preempted thread may lose a count,
/// never more.
struct Ring {
    bins: Vec<AtomicU64>,
    shift: u32,
    /// Samples beyond the fine bins are rare: a lock does not matter there.
    beyond: Mutex<Vec<u64>>,
    stamp: AtomicU64,
    /// Who stamped last; a thread that meets its own stamp was not switched to.
    owner: AtomicUsize,
    shortest: AtomicU64,
    longest: AtomicU64,
    entered: AtomicUsize,
    warm_up: AtomicU64,
    remaining: AtomicU64,
    not_switched: AtomicU64,
    backwards: AtomicU64,
}

impl Ring {
    fn new(reach: u64, warm_up: u64, samples: u64) -> Self {
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
        }
    }

    /// All samples as a histogram, once the ring has ended.
    fn histogram(&self) -> Histogram {
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

    /// One thread's life in the ring of `threads`, until enough switches were measured.
    fn turn(&self, threads: usize, stop: &AtomicBool) {
        let me = self.entered.fetch_add(1, SeqCst);
        loop {
            let now = tsc::read();
            if self.remaining.load(Relaxed) == 0 || stop.load(Relaxed) {
                return;
            }
            self.take(me, threads, now.wrapping_sub(self.stamp.load(Relaxed)));
            self.owner.store(me, Relaxed);
            self.stamp.store(tsc::read(), Relaxed);
            sched::yield_now();
        }
    }

    #[inline(always)]
    fn take(&self, me: usize, threads: usize, duration: u64) {
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
            self.record(duration);
        }
        self.remaining
            .store(self.remaining.load(Relaxed).saturating_sub(1), Relaxed);
    }

    #[inline(always)]
    fn record(&self, duration: u64) {
        if (duration as i64) < 0 {
            return bump(&self.backwards);
        }
        self.shortest
            .store(self.shortest.load(Relaxed).min(duration), Relaxed);
        self.longest
            .store(self.longest.load(Relaxed).max(duration), Relaxed);
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
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
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
    let ring = Ring::new((REACH_S * hz) as u64, warm_up, params.samples);
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
    fn measures_the_switches_asked_for_and_orders_them() {
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
            assert_eq!(collected.names(), ["histogram"]);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
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
        let result = collected.carry_out(run, &params, &[]);
        assert!(
            result["error"].as_str().unwrap().contains("no switch"),
            "{result}"
        );
    }
}
