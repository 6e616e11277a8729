//! `tsc-loop`: what recording costs the tick loop: the bare chain of counter reads and the
//! recording one, alternating in one thread.

use super::tick::chain::{bare, Recorder};
use crate::contract::{Context, Failure};
use crate::measure::{params, prefault, realtime, scheduling, tsc};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    pairs: usize,
    /// Samples per half of a pair; few enough that most halves see no interrupt.
    samples: usize,
    raw: bool,
    threshold_ns: f64,
    allow_untrusted_tsc: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            pairs: 2_000,
            samples: 10_000,
            raw: false,
            threshold_ns: 1_000.0,
            allow_untrusted_tsc: false,
        }
    }
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require(
        params.pairs > 0 && params.samples > 0,
        "pairs and samples: at least 1",
    )?;
    let untrusted = tsc::admit(params.allow_untrusted_tsc)?;
    let mut quiet = realtime::quiet();
    quiet.warnings.extend(untrusted);
    let (result, warnings) = {
        let _aside = realtime::Aside::step(context.cpus);
        std::thread::scope(|scope| {
            let params = &params;
            std::thread::Builder::new()
                .name("tare-tsc-loop".into())
                .spawn_scoped(scope, move || measure(context, params))?
                .join()
                .map_err(|_| Failure("the measuring thread panicked".into()))?
        })?
    };
    quiet.warnings.extend(warnings);
    let mut result = result;
    result["warnings"] = json!(quiet.warnings);
    Ok(result)
}

fn measure(context: &Context, params: &Params) -> Result<(Value, Vec<String>), Failure> {
    let mut warnings = Vec::new();
    let policy = realtime::settle(context.cpus, scheduling::HIGHEST_PRIORITY, &mut warnings)?;
    let hz = tsc::calibrate()?;
    let mut recorder = Recorder::new(1, 1000);
    recorder.restart((params.threshold_ns * 1e-9 * hz) as u64);
    let mut raw = prefault::touched(if params.raw { params.samples } else { 0 }, 0u32);
    let mut halves = prefault::touched(params.pairs, (0u64, 0u64));
    halves.clear();
    context.sink.barrier()?;
    for pair in 0..params.pairs {
        if context.stop.load(Ordering::Relaxed) {
            break;
        }
        let mut half = |recording: bool| {
            let start = tsc::read();
            let end = match (recording, params.raw) {
                (false, _) => bare(params.samples),
                (true, false) => {
                    recorder
                        .stretch::<false, false>(start, params.samples, 0, &mut [])
                        .0
                }
                (true, true) => {
                    recorder
                        .stretch::<false, true>(start, params.samples, 0, &mut raw)
                        .0
                }
            };
            end.wrapping_sub(start)
        };
        // Each comes first every other time, so that neither owes its place anything.
        halves.push(if pair % 2 == 0 {
            let first = half(false);
            (first, half(true))
        } else {
            let first = half(true);
            (half(false), first)
        });
    }
    if halves.is_empty() {
        return Err(Failure("no pair was taken before the stop".into()));
    }
    let scale = 1e9 / hz / params.samples as f64;
    let of = |pick: fn(&(u64, u64)) -> f64| {
        let mut values: Vec<f64> = halves.iter().map(|half| pick(half) * scale).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
        json!({"p25_ns": at(0.25), "median_ns": at(0.5), "p75_ns": at(0.75)})
    };
    let result = json!({
        "pairs": halves.len(),
        "samples": params.samples,
        "bare": of(|half| half.0 as f64),
        "recording": of(|half| half.1 as f64),
        "difference": of(|half| half.1 as f64 - half.0 as f64),
        "tsc_hz": hz,
        "policy": policy,
    });
    Ok((result, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn compares_in_pairs() {
        for raw in [false, true] {
            let params = json!({
                "pairs": 20, "samples": 1000, "raw": raw, "allow_untrusted_tsc": true
            });
            let (result, _) = run_with(run, &params, &[]);
            assert_eq!(result["pairs"], 20, "{result}");
            assert!(result["bare"]["median_ns"].as_f64().unwrap() > 0.0);
            assert!(result["difference"]["median_ns"].is_number());
        }
    }
}
