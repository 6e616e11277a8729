//! `hog`: take a CPU away for a known time, periodically, and log when. The host's measurements are
//! validated with this known disturbance.
//!
//! The hog itself sets no timer: a thread on another CPU, the clock, wakes it. Setting a timer would let
//! the hypervisor take the CPU at that very moment, which the hog's log could not show.
//!
//! The hog takes the CPU for longer than its timestamps show: the kernel also needs time to switch to it
//! and back. The clock therefore also reads the CPU time that the kernel charged for each run.

use crate::contract::{Context, Failure};
use crate::measure::clock::{monotonic_ns, sleep_until};
use crate::measure::columns::Table;
use crate::measure::{params, prefault, realtime, tsc, witness};
use crate::sys;
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::Thread;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// The time between the starts of two runs.
    period_ns: u64,
    /// The length of a run.
    length_ns: u64,
    /// The number of runs, if it is not stopped before.
    count: u64,
    /// SCHED_FIFO priority.
    priority: i32,
    /// The CPU to take away, if only the hog and not its clock shall run there.
    cpu: Option<usize>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period_ns: 20_000_000,
            length_ns: 1_000_000,
            count: 50,
            priority: 99,
            cpu: None,
        }
    }
}

/// First and last timestamp of one run.
#[derive(Clone, Copy, Default)]
struct Run {
    begin: u64,
    end: u64,
}

/// The state that the threads of the clock and of the hog share.
#[derive(Default)]
struct Control {
    /// Runs requested so far.
    runs: AtomicU64,
    /// Runs that have ended so far.
    ended: AtomicU64,
    /// The hog's thread.
    thread: AtomicI32,
    /// Whether the hog waits on its CPU, with its priority.
    settled: AtomicBool,
    over: AtomicBool,
}

/// The result of the hog's thread.
struct HogResult {
    runs: Vec<Run>,
    policy: &'static str,
    warnings: Vec<String>,
}

/// What the clock recorded: anchors around all runs, and start times that had passed already.
struct ClockResult {
    anchors: (tsc::Anchor, tsc::Anchor),
    missed: u64,
    /// What the kernel had charged the hog before the first run, and after each.
    charged_ns: Vec<u64>,
    /// Whether the hog had ended all requested runs at each of these readings.
    between_runs: bool,
}

/// Periods for which the hog sleeps after its last run, so that its end does not disturb a measurement
/// that takes a little longer.
const QUIET_PERIODS: u64 = 4;

/// How long the hog may take to get its CPU; after that its own error shows what is wrong.
const SETTLING_NS: u64 = 2_000_000_000;

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require((1..=99).contains(&params.priority), "priority: 1 to 99")?;
    params::require(
        (1..=1_000_000).contains(&params.count),
        "count: 1 to a million",
    )?;
    params::require(
        params.length_ns >= 1_000 && params.length_ns < params.period_ns,
        "length_ns: at least 1000, and below period_ns",
    )?;
    params::require(
        params.period_ns <= 1_000_000_000_000,
        "period_ns: at most 1000 s",
    )?;
    let quiet = realtime::quiet();
    let control = Control::default();
    let (clock_result, hog_result) = std::thread::scope(|scope| {
        let (params, control) = (&params, &control);
        let hog = std::thread::Builder::new()
            .name("tare-hog".into())
            .spawn_scoped(scope, move || {
                let cpus = params.cpu.map_or(context.cpus.to_vec(), |cpu| vec![cpu]);
                run_hog(&cpus, params, control)
            })?;
        let awake = hog.thread().clone();
        let clock = std::thread::Builder::new()
            .name("tare-hog-clock".into())
            .spawn_scoped(scope, move || run_clock(context, params, control, &awake))?;
        let clock_result = clock
            .join()
            .map_err(|_| Failure("the hog's clock panicked".into()))?;
        control.over.store(true, Ordering::SeqCst);
        hog.thread().unpark();
        let hog_result = hog
            .join()
            .map_err(|_| Failure("the hog panicked".into()))??;
        Ok::<_, Failure>((clock_result?, hog_result))
    })?;
    report(context, &params, clock_result, hog_result, quiet.warnings)
}

/// The hog: run whenever a run is requested.
fn run_hog(cpus: &[usize], params: &Params, control: &Control) -> Result<HogResult, Failure> {
    let mut warnings = Vec::new();
    let policy = realtime::settle(cpus, params.priority, &mut warnings)?;
    let length = (params.length_ns as f64 * 1e-9 * tsc::calibrate()?) as u64;
    let mut runs = prefault::touched(params.count as usize, Run::default());
    runs.clear();
    control.thread.store(sys::thread_id(), Ordering::SeqCst);
    control.settled.store(true, Ordering::SeqCst);
    loop {
        while control.runs.load(Ordering::SeqCst) <= runs.len() as u64 {
            if control.over.load(Ordering::SeqCst) {
                return Ok(HogResult {
                    runs,
                    policy,
                    warnings,
                });
            }
            std::thread::park();
        }
        let begin = tsc::read();
        let mut end = begin;
        while end.wrapping_sub(begin) < length {
            end = tsc::read();
        }
        runs.push(Run { begin, end });
        control.ended.store(runs.len() as u64, Ordering::SeqCst);
    }
}

/// The clock: request a run every period, from another CPU if there is one.
fn run_clock(
    context: &Context,
    params: &Params,
    control: &Control,
    hog: &Thread,
) -> Result<ClockResult, Failure> {
    let _aside = realtime::Aside::step(params.cpu.as_slice());
    realtime::settle(&[], params.priority, &mut Vec::new())?;
    let settling = monotonic_ns() + SETTLING_NS;
    while !control.settled.load(Ordering::SeqCst) && monotonic_ns() < settling {
        sleep_until(monotonic_ns() + 1_000_000);
    }
    context.sink.barrier()?;
    let start = tsc::Anchor::take();
    let mut missed = 0;
    let mut charged = prefault::touched(params.count as usize + 1, 0u64);
    charged.clear();
    let account = || witness::cpu_time_ns(control.thread.load(Ordering::SeqCst));
    let idle = || control.ended.load(Ordering::SeqCst) == control.runs.load(Ordering::SeqCst);
    let mut between_runs = true;
    let mut next = monotonic_ns() + params.period_ns;
    for asked in 1..=params.count {
        sleep_until(next);
        if context.stop.load(Ordering::Relaxed) {
            break;
        }
        between_runs &= idle();
        charged.extend(account());
        control.runs.store(asked, Ordering::SeqCst);
        hog.unpark();
        next += params.period_ns;
        let now = monotonic_ns();
        while next < now {
            next += params.period_ns;
            missed += 1;
        }
    }
    for _ in 0..QUIET_PERIODS {
        if !context.stop.load(Ordering::Relaxed) {
            sleep_until(next);
            next += params.period_ns;
        }
    }
    between_runs &= idle();
    charged.extend(account());
    Ok(ClockResult {
        anchors: (start, tsc::Anchor::take()),
        missed,
        charged_ns: charged,
        between_runs,
    })
}

fn report(
    context: &Context,
    params: &Params,
    clock_result: ClockResult,
    hog_result: HogResult,
    mut warnings: Vec<String>,
) -> Result<Value, Failure> {
    warnings.extend(hog_result.warnings);
    let (start, end) = &clock_result.anchors;
    let hz = start.hz_until(end);
    if !(hz.is_finite() && hz > 0.0) {
        return Err(Failure(
            "the cycle counter or the clock ran backwards".into(),
        ));
    }
    let ns = |ticks: u64| ticks as f64 / hz * 1e9;
    let raw = |stamp: u64| start.raw_ns + ns(stamp.wrapping_sub(start.ticks)).round() as u64;
    let total: f64 = hog_result
        .runs
        .iter()
        .map(|run| ns(run.end.wrapping_sub(run.begin)))
        .sum();
    let mut table = Table::new()
        .u64s("begin_ns", hog_result.runs.iter().map(|run| raw(run.begin)))
        .u64s("end_ns", hog_result.runs.iter().map(|run| raw(run.end)));
    // If a run was requested before the previous one had ended, or the kernel does not account CPU
    // time, the charges of the runs cannot be separated.
    let charged = &clock_result.charged_ns;
    if charged.len() == hog_result.runs.len() + 1
        && clock_result.missed == 0
        && clock_result.between_runs
    {
        table = table.u64s(
            "charged_ns",
            charged.windows(2).map(|pair| pair[1] - pair[0]),
        );
    }
    table.send(context.sink, "runs");
    Ok(json!({
        "runs": hog_result.runs.len(),
        "missed": clock_result.missed,
        "total_s": total * 1e-9,
        "period_s": params.period_ns as f64 * 1e-9,
        "length_s": params.length_ns as f64 * 1e-9,
        "clock_error_ns": ns(start.width.max(end.width)) / 2.0,
        "policy": hog_result.policy,
        "warnings": warnings,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn runs_as_often_and_as_long_as_requested() {
        let (result, collected) = run_with(
            run,
            &json!({"period_ns": 4_000_000, "length_ns": 500_000, "count": 5}),
            &[],
        );
        assert_eq!(result["runs"], 5, "{result}");
        let series = collected.series.lock().unwrap();
        let (begins, ends) = (series[0].words("begin_ns"), series[0].words("end_ns"));
        for (begin, end) in begins.iter().zip(&ends) {
            assert!(end - begin >= 499_000, "{begin} {end}");
        }
        assert!(begins.windows(2).all(|pair| pair[1] > pair[0]));
        // On a busy computer a run may start after the next one was due; then there is no such column.
        if series[0]
            .columns
            .iter()
            .any(|(column, _)| column == "charged_ns")
        {
            let charged = series[0].words("charged_ns");
            assert_eq!(charged.len(), begins.len());
            for ((begin, end), charge) in begins.iter().zip(&ends).zip(charged) {
                assert!(charge > 0 && charge < 4_000_000, "{charge} {begin} {end}");
            }
        }
        assert!(result["total_s"].as_f64().unwrap() >= 5.0 * 499e-6);
    }

    #[test]
    fn bad_parameters_are_refused_with_their_name() {
        for (params, name) in [
            (json!({"priority": 0}), "priority"),
            (json!({"count": 0}), "count"),
            (
                json!({"length_ns": 5_000_000, "period_ns": 4_000_000}),
                "length_ns",
            ),
            (json!({"lenght_ns": 5}), "lenght_ns"),
        ] {
            let (result, _) = run_with(run, &params, &[]);
            let reason = result["error"].as_str().unwrap_or_default();
            assert!(reason.contains(name), "{name}: {result}");
        }
    }
}
