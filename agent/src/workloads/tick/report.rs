//! Turn the tick loop's recording into its result.

use super::chain::{Extremes, Recorder};
use super::plan::Params;
use super::walk::Interval;
use crate::contract::{Failure, Sink};
use crate::measure::columns::Table;
use crate::measure::realtime::Quiet;
use crate::measure::tsc::{self, Anchor};
use serde_json::{json, Value};

/// The calibration and the whole run must agree on the counter's rate within this share.
const AGREEMENT: f64 = 1e-3;
/// Anchors closer than this say less about the rate than the calibration did.
const SHORT_NS: u64 = 20_000_000;

/// What the measuring thread hands back.
pub struct Measured {
    pub recorder: Recorder,
    pub intervals: Vec<Interval>,
    pub raw: Vec<u32>,
    pub first: u64,
    pub last: u64,
    pub anchors: (Anchor, Anchor),
    pub calibrated_hz: f64,
    pub iterations: u64,
    pub policy: &'static str,
    pub pinned: Option<usize>,
    pub witness: Value,
    pub hardware: Option<Value>,
    pub warnings: Vec<String>,
}

pub fn result(
    sink: &dyn Sink,
    params: &Params,
    mut measured: Measured,
    quiet: &Quiet,
) -> Result<Value, Failure> {
    let mut warnings = quiet.warnings.clone();
    warnings.append(&mut measured.warnings);
    let hz = rate(&measured, &mut warnings);
    let tick_s = 1.0 / hz;
    let recorder = &measured.recorder;
    let extremes = measured
        .intervals
        .iter()
        .fold(Extremes::NONE, |all, row| all.merge(row.extremes));
    let counted = recorder.histogram.count();
    if counted == 0 {
        return Err(Failure("no sample was taken before the stop".into()));
    }
    let (mode, known) = recorder.histogram.undisturbed();
    let wall = measured.last.wrapping_sub(measured.first) as i64 as f64;
    let stolen = (recorder.gap_ticks as f64 - recorder.gaps as f64 * mode).max(0.0);
    warn(&measured, counted, mode, &mut warnings);
    let slowdown = slowdown(wall / counted as f64, mode, known, &mut warnings);

    let mut result = json!({
        "samples": counted,
        "seconds": wall * tick_s,
        "samples_per_s": counted as f64 / (wall * tick_s),
        "undisturbed_s": mode * tick_s,
        "duration_min_s": extremes.shortest as f64 * tick_s,
        "duration_mean_s": wall / counted as f64 * tick_s,
        "duration_max_s": extremes.longest as f64 * tick_s,
        "duration": recorder.histogram.summary(tick_s),
        "excess_max_s": (extremes.longest as f64 - mode).max(0.0) * tick_s,
        "slowdown": slowdown,
        "counter_step_s": recorder.histogram.step() as f64 * tick_s,
        "gap_limit_s": recorder.gap_limit as f64 * tick_s,
        "threshold_s": params.threshold_ns * 1e-9,
        "gaps": recorder.gaps,
        "gaps_not_logged": recorder.log_dropped,
        "stolen_s": stolen * tick_s,
        "stolen_share": stolen / wall,
        "interval_mean_median_s": interval_median(&measured.intervals) * tick_s,
        "tsc_hz": hz,
        "tsc_hz_calibrated": measured.calibrated_hz,
        "tsc_trusted": tsc::untrusted().is_none(),
        "tsc_backwards": recorder.backwards,
        "tsc_backwards_max_s": recorder.backwards_most as f64 * tick_s,
        "loop_s": params.loop_ns * 1e-9,
        "loop_iterations": measured.iterations,
        "loop_rate": measured.iterations as f64 / (mode * tick_s),
        "policy": measured.policy,
        "pinned": measured.pinned,
        "witness": measured.witness,
        "clock": clock(&measured, hz),
        "warnings": warnings,
    });
    if let Value::Object(fields) = &mut result {
        fields.extend(quiet.facts.clone());
        if let Some(counted) = &measured.hardware {
            fields.insert("hardware".into(), counted.clone());
        }
    }
    series(sink, &measured, mode, tick_s * 1e9);
    Ok(result)
}

/// How many times longer than undisturbed a sample was on average; `None` if that is unknown.
///
/// No machine is faster than undisturbed. A mean that is lower by no more than the uncertainty of the
/// undisturbed duration counts as equal; a lower one shows that the machine's speed changed, and then
/// there is no slowdown.
fn slowdown(mean: f64, undisturbed: f64, known: f64, warnings: &mut Vec<String>) -> Option<f64> {
    if mean >= undisturbed {
        return Some(mean / undisturbed);
    }
    if undisturbed - mean <= known {
        return Some(1.0);
    }
    warnings.push(format!(
        "a sample was shorter on average than undisturbed ({:.4} times): the machine's speed \
         changed, so the slowdown is unknown",
        mean / undisturbed
    ));
    None
}

/// The first and the last timestamp on the machine's `CLOCK_MONOTONIC_RAW`, and their uncertainty: half
/// the time that the anchors' readings took.
fn clock(measured: &Measured, hz: f64) -> Value {
    let raw_ns = |anchor: &Anchor, stamp: u64| {
        let since_ns = stamp.wrapping_sub(anchor.ticks) as i64 as f64 / hz * 1e9;
        anchor.raw_ns as i64 + since_ns.round() as i64
    };
    let (start, end) = &measured.anchors;
    json!({
        "first_raw_ns": raw_ns(start, measured.first),
        "last_raw_ns": raw_ns(end, measured.last),
        "first_ticks": measured.first,
        "last_ticks": measured.last,
        "error_ns": start.width.max(end.width) as f64 / 2.0 / hz * 1e9,
    })
}

/// The counter's rate in Hz: over the whole run where that is long enough, else as calibrated.
fn rate(measured: &Measured, warnings: &mut Vec<String>) -> f64 {
    let (start, end) = &measured.anchors;
    let hz = start.hz_until(end);
    let long = end.raw_ns.wrapping_sub(start.raw_ns) >= SHORT_NS;
    let agrees = (hz / measured.calibrated_hz - 1.0).abs() < AGREEMENT;
    if long && agrees {
        return hz;
    }
    if long {
        warnings.push(format!(
            "the cycle counter ran at {hz:.0} Hz during the run, but at {:.0} Hz when calibrated; \
             times are by the calibration",
            measured.calibrated_hz
        ));
    }
    measured.calibrated_hz
}

fn warn(measured: &Measured, counted: u64, mode: f64, warnings: &mut Vec<String>) {
    let recorder = &measured.recorder;
    if recorder.backwards > 0 {
        warnings.push(format!(
            "the cycle counter stepped backwards {} times; those samples are left out",
            recorder.backwards
        ));
    }
    if recorder.log_dropped > 0 {
        warnings.push(format!(
            "{} gaps did not fit into the log; they are counted and summed, but not listed",
            recorder.log_dropped
        ));
    }
    if mode >= recorder.gap_limit as f64 || recorder.gaps > counted / 2 {
        warnings.push(
            "most samples are longer than the warm-up's median and the threshold: \
             the machine slowed down after the warm-up, so the gaps mean little"
                .into(),
        );
    }
}

/// The median over intervals of the mean sample, in ticks: free of rare disturbances and of the
/// histogram's bins.
fn interval_median(intervals: &[Interval]) -> f64 {
    let mut means: Vec<f64> = intervals
        .iter()
        .map(|row| row.end.wrapping_sub(row.start) as i64 as f64 / row.samples as f64)
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    means[means.len() / 2]
}

fn series(sink: &dyn Sink, measured: &Measured, mode: f64, tick_ns: f64) {
    let since_start =
        |stamp: u64| (stamp.wrapping_sub(measured.first) as i64 as f64 * tick_ns).max(0.0) as u64;
    let rows = || {
        measured
            .intervals
            .iter()
            .filter(|row| row.extremes.shortest != u64::MAX)
    };
    Table::new()
        .u64s("time_ns", rows().map(|row| since_start(row.start)))
        .f64s(
            "min_ns",
            rows().map(|row| row.extremes.shortest as f64 * tick_ns),
        )
        .f64s(
            "max_ns",
            rows().map(|row| row.extremes.longest as f64 * tick_ns),
        )
        .u64s("samples", rows().map(|row| row.samples))
        .send(sink, "scatter");
    let log = || measured.recorder.log.iter();
    let excess = |ticks: u64| ((ticks as f64 - mode).max(0.0) * tick_ns) as u64;
    Table::new()
        .u64s("time_ns", log().map(|&(start, _)| since_start(start)))
        .u64s("excess_ns", log().map(|&(_, ticks)| excess(ticks)))
        .send(sink, "gaps");
    measured
        .recorder
        .histogram
        .table(tick_ns)
        .send(sink, "histogram");
    Table::new()
        .u32s(
            "duration_ns",
            measured
                .raw
                .iter()
                .map(|&ticks| (f64::from(ticks) * tick_ns).round() as u32),
        )
        .send(sink, "raw");
}

#[cfg(test)]
mod tests {
    use super::slowdown;

    #[test]
    fn nothing_is_faster_than_undisturbed() {
        let mut warnings = Vec::new();
        assert_eq!(slowdown(110.0, 100.0, 0.2, &mut warnings), Some(1.1));
        assert_eq!(slowdown(99.9, 100.0, 0.2, &mut warnings), Some(1.0));
        assert!(warnings.is_empty());
        assert_eq!(slowdown(90.0, 100.0, 0.2, &mut warnings), None);
        assert!(warnings[0].contains("0.9000 times"), "{warnings:?}");
    }
}
