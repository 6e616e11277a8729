//! `tick`: time a busy loop again and again; what exceeds the undisturbed duration was taken away
//! by an interrupt or by the hypervisor ("clock tick processing duration", fayyad2013, 6.2.1).

pub mod chain;
mod plan;
mod progress;
mod report;
mod walk;

use crate::contract::{Context, Failure};
use crate::measure::hardware::Hardware;
use crate::measure::witness::Witness;
use crate::measure::{params, prefault, realtime, scheduling, tsc};
use chain::Recorder;
use plan::{Params, Plan};
use progress::{Pace, SampleCounter};
use report::Measured;
use serde_json::Value;
use std::sync::mpsc;
use walk::{Interval, Walk};

/// How the measuring thread lets another thread report its progress.
struct Reporter<'a> {
    counter: &'a SampleCounter,
    /// Sends the pace at the start of a long run; dropped at the run's end.
    start: mpsc::Sender<Pace>,
    /// Whether there is another CPU than the measured one to report from.
    live: bool,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params.check()?;
    let untrusted = tsc::admit(params.allow_untrusted_tsc)?;
    let mut quiet = realtime::quiet();
    quiet.warnings.extend(untrusted);
    let counter = SampleCounter::default();
    let measured = {
        let aside = realtime::Aside::step(context.cpus);
        std::thread::scope(|scope| {
            let params = &params;
            let allowed = aside.before().to_vec();
            let (start, started) = mpsc::channel();
            let reporter = Reporter {
                counter: &counter,
                start,
                live: allowed.len() > context.cpus.len().max(1),
            };
            let measuring = std::thread::Builder::new()
                .name("tare-tick".into())
                .spawn_scoped(scope, move || measure(context, params, &allowed, reporter))?;
            progress::report_progress(context.sink, &counter, &started);
            measuring
                .join()
                .map_err(|_| Failure("the measuring thread panicked".into()))?
        })?
    };
    report::result(context.sink, &params, measured, &quiet)
}

fn measure(
    context: &Context,
    params: &Params,
    allowed: &[usize],
    reporter: Reporter,
) -> Result<Measured, Failure> {
    let mut warnings = Vec::new();
    // Not asked to be pinned: undo what the parent did to itself to step aside.
    let cpus = if context.cpus.is_empty() {
        allowed
    } else {
        context.cpus
    };
    let policy = realtime::settle(
        cpus,
        params.priority.unwrap_or(scheduling::HIGHEST_PRIORITY),
        &mut warnings,
    )?;
    let pinned = (context.cpus.len() == 1).then(|| context.cpus[0]);
    let calibrated_hz = tsc::calibrate()?;
    let ticks = |ns: f64| (ns * 1e-9 * calibrated_hz) as u64;
    let mut recorder = Recorder::new(4 * ticks(params.loop_ns), params.log_capacity);
    let (iterations, warm) = walk::warm_up(
        &mut recorder,
        ticks(params.loop_ns),
        ticks(walk::WARM_UP_NS),
    );
    let sample_s = warm as f64 / calibrated_hz;
    let plan = Plan::new(params, sample_s);
    let pace = Pace::new(&plan, sample_s);
    let mut raw = match params.raw {
        true => prefault::touched(plan.raw_room()?, 0u32),
        false => Vec::new(),
    };
    let mut intervals = prefault::touched(plan.rows, Interval::EMPTY);
    intervals.clear();
    recorder.restart(warm + ticks(params.threshold_ns).max(1));

    if pace.is_long() {
        context.sink.progress(0.0, pace.expectation(reporter.live));
    }

    context.sink.barrier()?;

    if pace.is_long() && reporter.live {
        let _ = reporter.start.send(pace);
    }
    let counting = params.counters.then(Hardware::begin);
    let before = Witness::take(pinned);
    let start_anchor = tsc::Anchor::take();
    let walk = Walk {
        plan: &plan,
        iterations,
        stop: context.stop,
        counter: reporter.counter,
        hz: calibrated_hz,
    };
    let (first, last, samples) = match (iterations > 0, params.raw) {
        (false, false) => walk.go::<false, false>(&mut recorder, &mut intervals, &mut raw),
        (false, true) => walk.go::<false, true>(&mut recorder, &mut intervals, &mut raw),
        (true, false) => walk.go::<true, false>(&mut recorder, &mut intervals, &mut raw),
        (true, true) => walk.go::<true, true>(&mut recorder, &mut intervals, &mut raw),
    };
    let end_anchor = tsc::Anchor::take();
    let witness = Witness::take(pinned).since(&before);
    let hardware = counting.map(Hardware::end);
    if params.raw && samples > raw.len() as u64 {
        warnings.push(format!(
            "only the first {} samples were kept raw",
            raw.len()
        ));
    }
    raw.truncate(samples as usize);
    Ok(Measured {
        recorder,
        intervals,
        raw,
        first,
        last,
        anchors: (start_anchor, end_anchor),
        calibrated_hz,
        iterations,
        policy,
        pinned,
        witness,
        hardware,
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, Collected};
    use serde_json::json;

    fn tick(mut params: Value) -> (Value, Collected) {
        params["allow_untrusted_tsc"] = json!(true);
        run_with(run, &params, &[])
    }

    fn number(result: &Value, name: &str) -> f64 {
        result[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name} in {result}"))
    }

    #[test]
    fn takes_the_requested_samples_and_orders_its_durations() {
        for raw in [false, true] {
            let (result, collected) = tick(json!({
                "samples": 1000, "loop_ns": 10_000, "raw": raw, "intervals": 50
            }));
            assert_eq!(
                number(&result, "samples") + number(&result, "tsc_backwards"),
                1000.0
            );
            assert!(number(&result, "duration_min_s") <= number(&result, "undisturbed_s") * 1.01);
            assert!(number(&result, "duration_mean_s") <= number(&result, "duration_max_s"));
            assert!(result["slowdown"].is_null() || number(&result, "slowdown") >= 1.0);
            let share = number(&result, "stolen_share");
            assert!((0.0..=1.0).contains(&share), "{share}");
            assert_eq!(collected.names().contains(&"raw".to_string()), raw);
            let series = collected.series.lock().unwrap();
            assert_eq!(series[0].name, "scatter");
            assert_eq!(series[0].words("samples").iter().sum::<u64>(), 1000);
            for taken in series.iter() {
                assert_eq!(taken.data.len(), taken.expected_bytes(), "{}", taken.name);
            }
        }
    }

    #[test]
    fn gaps_are_in_the_log_until_it_is_full() {
        // Every sample is a gap when the threshold is below the loop's own scatter.
        let (result, collected) =
            tick(json!({"samples": 5000, "loop_ns": 2000, "threshold_ns": 1, "log_capacity": 3}));
        let series = collected.series.lock().unwrap();
        let logged = series
            .iter()
            .find(|taken| taken.name == "gaps")
            .map_or(0, |log| log.rows);
        assert!(logged <= 3);
        assert_eq!(
            number(&result, "gaps"),
            logged as f64 + number(&result, "gaps_not_logged"),
            "{result}"
        );
    }

    #[test]
    fn the_bare_chain_takes_seconds() {
        let (result, _) = tick(json!({"seconds": 0.02, "loop_ns": 0}));
        assert!(number(&result, "seconds") >= 0.02 * 0.99, "{result}");
        assert_eq!(result["loop_iterations"], 0);
        assert!(number(&result, "samples") > 1000.0);
        assert!(number(&result, "slowdown") >= 1.0, "{result}");
    }

    #[test]
    fn bad_parameters_are_refused_with_their_name() {
        for (params, name) in [
            (json!({"samples": 0}), "samples"),
            (json!({"samples": 5, "seconds": 1}), "not both"),
            (json!({"loop_ns": -1}), "loop_ns"),
            (json!({"threshold_ns": 0}), "threshold_ns"),
            (json!({"intervals": 0}), "intervals"),
            (json!({"priority": 100}), "priority"),
            (json!({"sampels": 5}), "sampels"),
            (json!({"raw": true, "samples": 1u64 << 60}), "raw"),
        ] {
            let (result, _) = tick(params);
            let reason = result["error"].as_str().unwrap_or_default();
            assert!(reason.contains(name), "{name}: {result}");
        }
    }
}
