//! `hog`: take a CPU away for a known time again and again, and log when: the known disturbance that
//! the host's side is validated with.

use crate::measure::columns::Table;
use crate::measure::{params, prefault, realtime, sched, tsc};
use crate::workload::{Context, Failure};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// From one beginning to the next.
    period_ns: u64,
    /// How long it runs each time.
    length_ns: u64,
    /// How often; it may be stopped before.
    count: u64,
    /// SCHED_FIFO priority.
    priority: i32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period_ns: 20_000_000,
            length_ns: 1_000_000,
            count: 50,
            priority: 99,
        }
    }
}

/// First and last stamp of one run, and the CPU time that the thread had since the last stamp of the
/// run before, in ns. That counts what the kernel did for it, going to sleep and waking up, and
/// leaves out what was taken from it in turn.
#[derive(Clone, Copy)]
struct Run {
    begin: u64,
    end: u64,
    ran_ns: u64,
}

impl Run {
    const NONE: Self = Self {
        begin: 0,
        end: 0,
        ran_ns: 0,
    };
}

struct Taken {
    anchors: (tsc::Anchor, tsc::Anchor),
    runs: Vec<Run>,
    /// Beginnings that had passed when the run before them ended.
    missed: u64,
    policy: &'static str,
    warnings: Vec<String>,
}

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
    let taken = std::thread::scope(|scope| {
        let params = &params;
        std::thread::Builder::new()
            .name("tare-hog".into())
            .spawn_scoped(scope, move || take(context, params))?
            .join()
            .map_err(|_| Failure("the hog panicked".into()))?
    })?;
    report(context, &params, taken, quiet.warnings)
}

fn take(context: &Context, params: &Params) -> Result<Taken, Failure> {
    let mut warnings = Vec::new();
    let policy = realtime::settle(context.cpus, params.priority, &mut warnings)?;
    let length = (params.length_ns as f64 * 1e-9 * tsc::calibrate()?) as u64;
    let mut runs = prefault::touched(params.count as usize, Run::NONE);
    runs.clear();
    context.sink.barrier()?;
    let start_anchor = tsc::Anchor::take();
    let mut missed = 0;
    let mut ran_before = sched::thread_ran_ns();
    let mut next = sched::monotonic_ns() + params.period_ns;
    while (runs.len() as u64) < params.count && !context.stop.load(Ordering::Relaxed) {
        sched::sleep_until(next);
        let begin = tsc::read();
        let mut end = begin;
        while end.wrapping_sub(begin) < length {
            end = tsc::read();
        }
        let ran = sched::thread_ran_ns();
        runs.push(Run {
            begin,
            end,
            ran_ns: ran - ran_before,
        });
        ran_before = ran;
        next += params.period_ns;
        let now = sched::monotonic_ns();
        while next < now {
            next += params.period_ns;
            missed += 1;
        }
    }
    Ok(Taken {
        anchors: (start_anchor, tsc::Anchor::take()),
        runs,
        missed,
        policy,
        warnings,
    })
}

fn report(
    context: &Context,
    params: &Params,
    taken: Taken,
    mut warnings: Vec<String>,
) -> Result<Value, Failure> {
    warnings.extend(taken.warnings);
    let (start, end) = &taken.anchors;
    let hz = start.hz_until(end);
    if !(hz.is_finite() && hz > 0.0) {
        return Err(Failure(
            "the cycle counter or the clock ran backwards".into(),
        ));
    }
    let ns = |ticks: u64| ticks as f64 / hz * 1e9;
    let raw = |stamp: u64| start.raw_ns + ns(stamp.wrapping_sub(start.ticks)).round() as u64;
    let total: f64 = taken
        .runs
        .iter()
        .map(|run| ns(run.end.wrapping_sub(run.begin)))
        .sum();
    Table::new()
        .u64s("begin_ns", taken.runs.iter().map(|run| raw(run.begin)))
        .u64s("end_ns", taken.runs.iter().map(|run| raw(run.end)))
        .u64s("ran_ns", taken.runs.iter().map(|run| run.ran_ns))
        .send(context.sink, "runs");
    Ok(json!({
        "runs": taken.runs.len(),
        "missed": taken.missed,
        "total_s": total * 1e-9,
        "period_s": params.period_ns as f64 * 1e-9,
        "length_s": params.length_ns as f64 * 1e-9,
        "clock_error_ns": ns(start.width.max(end.width)) / 2.0,
        "policy": taken.policy,
        "warnings": warnings,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn runs_as_often_and_as_long_as_told() {
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
