//! `wakeup`: how late a real-time thread runs that a timer, or a thread on another CPU, wakes up.
//!
//! A thread that spins sees what is taken from it, but not this: the interrupt that has to arrive,
//! the idle CPU that has to wake, the scheduler that has to choose. Cyclictest measures the same.

mod record;
mod wake;

use crate::contract::{Context, Failure, Sink};
use crate::measure::witness::Witness;
use crate::measure::{clock, params, realtime, scheduling};
use record::Recorder;
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wake::Times;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Wake-ups before the measured ones, which bring code and data into the caches.
const WARM_UP: u64 = 10;

/// What wakes the measuring thread.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Nanosleep,
    Timerfd,
    Futex,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    by: By,
    interval_ns: u64,
    seconds: f64,
    /// SCHED_FIFO priority; 0: the ordinary policy. The highest one if left out.
    priority: Option<i32>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            by: By::Nanosleep,
            interval_ns: 1_000_000,
            seconds: 5.0,
            priority: None,
        }
    }
}

/// What the measuring thread hands back.
struct Measured {
    recorder: Recorder,
    seconds: f64,
    policy: &'static str,
    witness: Value,
    warnings: Vec<String>,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    check(&params)?;
    let quiet = realtime::quiet();
    let measured = {
        let aside = realtime::Aside::step(context.cpus);
        std::thread::scope(|scope| {
            let params = &params;
            let allowed = aside.before().to_vec();
            // A report from the only CPU would disturb the measurement.
            let live = allowed.len() > context.cpus.len().max(1);
            let (started, start) = mpsc::channel();
            let measuring = std::thread::Builder::new()
                .name("tare-wakeup".into())
                .spawn_scoped(scope, move || measure(context, params, &allowed, started))?;
            report_progress(context.sink, &start, params.seconds, live);
            measuring
                .join()
                .map_err(|_| Failure("the measuring thread panicked".into()))?
        })?
    };
    result(context, &params, measured, &quiet)
}

fn check(params: &Params) -> Result<(), Failure> {
    params::require(
        (50_000..=1_000_000_000).contains(&params.interval_ns),
        "interval_ns: 50 thousand to a thousand million",
    )?;
    params::require(
        params.seconds > 0.0 && params.seconds <= 1e6,
        "seconds: above 0, at most a million",
    )?;
    params::require(
        params
            .priority
            .is_none_or(|priority| (0..=99).contains(&priority)),
        "priority: 0 to 99",
    )
}

/// Report the elapsed share of the time once a second, until the measuring thread ends.
fn report_progress(sink: &dyn Sink, start: &Receiver<()>, seconds: f64, live: bool) {
    if start.recv().is_err() {
        return;
    }
    let began = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = start.recv_timeout(REPORT_INTERVAL) {
        if live {
            let passed = began.elapsed().as_secs_f64();
            let left = (seconds - passed).max(0.0);
            sink.progress((passed / seconds).min(1.0), json!({"left_s": left}));
        }
    }
}

fn measure(
    context: &Context,
    params: &Params,
    allowed: &[usize],
    started: mpsc::Sender<()>,
) -> Result<Measured, Failure> {
    let mut warnings = Vec::new();
    // Not asked to be pinned: undo what the parent did to itself to step aside.
    let cpus = match context.cpus {
        [] => allowed,
        given => given,
    };
    let (own, waker) = match params.by {
        By::Futex => split_cpus(cpus)?,
        By::Nanosleep | By::Timerfd => (cpus, cpus),
    };
    let priority = params.priority.unwrap_or(scheduling::HIGHEST_PRIORITY);
    let policy = realtime::settle(own, priority, &mut warnings)?;
    let pinned = (own.len() == 1).then(|| own[0]);
    let mut recorder = Recorder::new();
    let spell = |seconds: f64, recorder: &mut Recorder| {
        let times = Times::from_now(params.interval_ns, seconds);
        match params.by {
            By::Nanosleep => {
                wake::by_nanosleep(&times, context.stop, recorder);
                Ok(())
            }
            By::Timerfd => wake::by_timerfd(&times, context.stop, recorder),
            By::Futex => wake::by_futex(&times, context.stop, recorder, &|| {
                realtime::settle(waker, priority, &mut Vec::new()).map(|_| ())
            }),
        }
    };
    spell(
        WARM_UP as f64 * params.interval_ns as f64 * 1e-9,
        &mut recorder,
    )?;
    recorder.restart();
    context.sink.barrier()?;
    let _ = started.send(());
    let before = Witness::take(pinned);
    let start = clock::monotonic_ns();
    spell(params.seconds, &mut recorder)?;
    let seconds = (clock::monotonic_ns() - start) as f64 * 1e-9;
    Ok(Measured {
        recorder,
        seconds,
        policy,
        witness: Witness::take(pinned).since(&before),
        warnings,
    })
}

/// The CPUs of the woken thread, and of the thread that wakes it.
fn split_cpus(cpus: &[usize]) -> Result<(&[usize], &[usize]), Failure> {
    if cpus.len() < 2 {
        return Err(Failure(format!(
            "a futex's wake-up goes from one CPU to another, and this machine offers {} for it: \
             give it 2 vCPUs",
            cpus.len()
        )));
    }
    Ok((&cpus[..1], &cpus[1..2]))
}

fn result(
    context: &Context,
    params: &Params,
    measured: Measured,
    quiet: &realtime::Quiet,
) -> Result<Value, Failure> {
    let recorder = &measured.recorder;
    let samples = recorder.histogram.count();
    if samples == 0 {
        return Err(Failure("no wake-up was measured".into()));
    }
    let mut warnings = quiet.warnings.clone();
    warnings.extend(measured.warnings);
    warnings.extend(recorder.warnings());
    recorder
        .histogram
        .table(1.0)
        .send(context.sink, "histogram");
    let mut result = json!({
        "samples": samples,
        "seconds": measured.seconds,
        "interval_s": params.interval_ns as f64 * 1e-9,
        "wakeup": recorder.histogram.summary(1e-9),
        "wakeup_min_s": recorder.shortest as f64 * 1e-9,
        "wakeup_max_s": recorder.longest as f64 * 1e-9,
        "missed": recorder.missed,
        "early": recorder.early,
        "awake": recorder.awake,
        "policy": measured.policy,
        "witness": measured.witness,
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

    fn number(result: &Value, name: &str) -> f64 {
        result[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name} in {result}"))
    }

    #[test]
    fn measures_each_kind_of_wake_up_and_orders_them() {
        let cpus = scheduling::affinity().unwrap();
        for by in ["nanosleep", "timerfd", "futex"] {
            if by == "futex" && cpus.len() < 2 {
                continue;
            }
            let params = json!({"by": by, "seconds": 0.2, "interval_ns": 1_000_000});
            let (result, collected) = run_with(run, &params, &cpus);
            // Each moment was met, or missed and counted.
            let met = number(&result, "samples") + number(&result, "missed");
            let met = met + number(&result, "awake") + number(&result, "early");
            assert_eq!(met, 200.0, "{by}: {result}");
            let tails = ["median_s", "p99_s", "p999_s", "p9999_s"]
                .map(|name| result["wakeup"][name].as_f64().unwrap());
            assert!(tails.windows(2).all(|pair| pair[0] <= pair[1]), "{result}");
            assert!(number(&result, "wakeup_min_s") > 0.0, "{result}");
            assert!(number(&result, "wakeup_min_s") <= tails[0] * 1.01);
            assert!(tails[3] <= number(&result, "wakeup_max_s") * 1.01);
            assert_eq!((collected.barriers(), collected.names().len()), (1, 1));
        }
    }

    #[test]
    fn a_futex_on_one_cpu_is_refused() {
        let cpu = scheduling::affinity().unwrap()[0];
        let (result, _) = run_with(run, &json!({"by": "futex"}), &[cpu]);
        let reason = result["error"].as_str().unwrap();
        assert!(reason.contains("2 vCPUs"), "{reason}");
    }

    #[test]
    fn bad_parameters_are_refused_with_their_name() {
        for (params, name) in [
            (json!({"by": "alarm"}), "alarm"),
            (json!({"interval_ns": 10}), "interval_ns"),
            (json!({"seconds": 0}), "seconds"),
            (json!({"priority": 100}), "priority"),
        ] {
            let (result, _) = run_with(run, &params, &[]);
            let reason = result["error"].as_str().unwrap_or_default();
            assert!(reason.contains(name), "{name}: {result}");
        }
    }

    #[test]
    fn ends_when_stopped() {
        let collected = Collected::stopped();
        for by in ["nanosleep", "timerfd", "futex"] {
            let params = json!({"by": by, "seconds": 1e6});
            let result = collected.run(run, &params, &scheduling::affinity().unwrap());
            assert!(result["error"].is_string(), "{by}: {result}");
        }
    }
}
