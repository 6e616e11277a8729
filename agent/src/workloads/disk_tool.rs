//! `fio` and `bonnie`: the real programs of the toolbox, on the machine's own disk.
//!
//! The agent makes a folder for them, lets the kernel forget its caches before it measures, watches
//! the disk meanwhile, and hands over what they wrote.

use super::filebench::{forget_caches, free_space, Folder};
use crate::contract::{Context, Failure};
use crate::measure::columns::Table;
use crate::measure::disk::Witness;
use crate::measure::params;
use crate::measure::scratch;
use crate::sys;
use crate::tools::program::{Outcome, Program};
use crate::tools::toolbox::{self, Toolbox};
use serde::Deserialize;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The folder's name; programs find it below `/scratch`.
const FOLDER: &str = "tare-files";
/// fio's histograms are long, and are read here.
const KEPT: usize = 16 << 20;
/// A message must hold what is left.
const MOST_OUTPUT: usize = 128 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The program and its arguments; its files belong into `/scratch/tare-files`.
    argv: Vec<String>,
    /// Run before, such as to make the files.
    #[serde(default)]
    prepare: Vec<Vec<String>>,
    /// The bytes that its files take.
    bytes: u64,
    timeout_s: f64,
    #[serde(default)]
    memory_bytes: Option<u64>,
    /// Whether it goes past the page cache.
    #[serde(default)]
    direct: bool,
    /// How many times the memory its files are to take, where less makes the page cache count.
    #[serde(default)]
    times_memory: f64,
}

/// The outcome of a program, and the result with the disk's activity.
struct Done {
    outcome: Outcome,
    result: Value,
}

pub fn fio(context: &Context) -> Result<Value, Failure> {
    let done = run(context)?;
    let text = String::from_utf8_lossy(&done.outcome.output);
    // Warnings may precede it.
    let start = text.find('{').unwrap_or(0);
    let mut report: Value = serde_json::from_str(&text[start..])
        .map_err(|error| format!("what fio wrote is not JSON: {error}"))?;
    let bins = take_bins(&mut report);
    Table::new()
        .u64s("direction", bins.iter().map(|bin| bin.0))
        .u64s("latency_ns", bins.iter().map(|bin| bin.1))
        .u64s("count", bins.iter().map(|bin| bin.2))
        .send(context.sink, "operations");
    let mut result = done.result;
    result["fio"] = report;
    Ok(result)
}

pub fn bonnie(context: &Context) -> Result<Value, Failure> {
    let done = run(context)?;
    let text = String::from_utf8_lossy(&done.outcome.output);
    let mut result = done.result;
    result["output"] = text[text.len().saturating_sub(MOST_OUTPUT)..].into();
    Ok(result)
}

fn run(context: &Context) -> Result<Done, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require(!params.argv.is_empty(), "argv: a program is needed")?;
    params::require(
        params.timeout_s > 0.0 && params.timeout_s <= 1e6,
        "timeout_s: above 0, at most 1000000",
    )?;
    let scratch = scratch::required()?;
    let toolbox = toolbox::open()?;
    let folder = Folder::make(&scratch, FOLDER)?;
    let space = sys::space(&scratch)?;
    if params.bytes > space.free {
        return Err(Failure(format!(
            "the machine's disk is too small: the files take {} MiB, and {} of {} MiB are free; \
             give the shape a larger `disk`, or take smaller files",
            params.bytes >> 20,
            space.free >> 20,
            space.total >> 20
        )));
    }
    for argv in &params.prepare {
        run_program(context, toolbox, argv, &params, &scratch)?;
    }
    let dropped = forget_caches(folder.path(), files(folder.path()))
        .map_err(|error| format!("the files cannot be brought to the disk: {error}"))?;
    context.sink.barrier()?;
    let witness = Witness::begin(&scratch);
    let outcome = run_program(context, toolbox, &params.argv, &params, &scratch)?;
    let result = json!({
        "disk": witness.end(),
        "wall_s": outcome.wall_s,
        "file_set_bytes": params.bytes,
        "memory_bytes": params.memory_bytes,
        "direct": params.direct,
        "caches_dropped": dropped,
        "toolbox": toolbox.identity(),
        "warnings": warnings(&params),
    });
    Ok(Done { outcome, result })
}

/// Run a program to its end; if it fails because the disk is full, the error starts with that.
fn run_program(
    context: &Context,
    toolbox: &Toolbox,
    argv: &[String],
    params: &Params,
    scratch: &Path,
) -> Result<Outcome, Failure> {
    let program = Program {
        keep: KEPT,
        ..Program::new(argv.iter().cloned())
    };
    let deadline = Instant::now() + Duration::from_secs_f64(params.timeout_s);
    let outcome = program.run(toolbox, Some(deadline), context.stop)?;
    outcome.require(&argv[0], &[0]).map_err(|Failure(reason)| {
        match reason.contains("No space left") {
            true => Failure(format!(
                "the machine's disk is full{}: {reason}",
                free_space(scratch)
            )),
            false => Failure(reason),
        }
    })?;
    Ok(outcome)
}

fn files(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
}

fn warnings(params: &Params) -> Vec<String> {
    let Some(memory) = params.memory_bytes else {
        return Vec::new();
    };
    if params.direct || params.bytes as f64 >= params.times_memory * memory as f64 {
        return Vec::new();
    }
    vec![format!(
        "the files take {} MiB, less than {} times the machine's memory of {} MiB: the page cache \
         serves a part of what is read, and takes a part of what is written",
        params.bytes >> 20,
        params.times_memory,
        memory >> 20
    )]
}

/// Take the histograms of fio's `json+` out of its report: (0 read, 1 write, 2 sync; ns; count).
fn take_bins(report: &mut Value) -> Vec<(u64, u64, u64)> {
    let mut taken = Vec::new();
    let Some(jobs) = report.get_mut("jobs").and_then(Value::as_array_mut) else {
        return taken;
    };
    for job in jobs {
        for (number, direction) in ["read", "write", "sync"].iter().enumerate() {
            let wanted = if number == 2 { "lat_ns" } else { "clat_ns" };
            for kind in ["slat_ns", "clat_ns", "lat_ns"] {
                let Some(bins) = job
                    .get_mut(*direction)
                    .and_then(|all| all.get_mut(kind))
                    .and_then(|all| all.as_object_mut())
                    .and_then(|all| all.remove("bins"))
                else {
                    continue;
                };
                for (value, count) in bins.as_object().into_iter().flatten() {
                    if let (true, Ok(value), Some(count)) =
                        (kind == wanted, value.parse(), count.as_u64())
                    {
                        taken.push((number as u64, value, count));
                    }
                }
            }
        }
    }
    taken.sort_unstable();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn histograms_are_taken_out_of_the_report() {
        let mut report = json!({"jobs": [{
            "read": {"clat_ns": {"mean": 5, "bins": {"100": 2, "20": 1}}, "lat_ns": {"bins": {"9": 9}}},
            "sync": {"lat_ns": {"bins": {"7": 3}}},
        }]});
        assert_eq!(take_bins(&mut report), [(0, 20, 1), (0, 100, 2), (2, 7, 3)]);
        assert_eq!(
            report["jobs"][0]["read"],
            json!({"clat_ns": {"mean": 5}, "lat_ns": {}})
        );
    }

    #[test]
    fn small_files_are_warned_of_unless_they_go_past_the_cache() {
        let params = |bytes, direct| Params {
            argv: vec![],
            prepare: vec![],
            bytes,
            timeout_s: 1.0,
            memory_bytes: Some(256 << 20),
            direct,
            times_memory: 2.0,
        };
        assert!(warnings(&params(1 << 20, false))[0].contains("less than 2 times"));
        assert!(warnings(&params(1 << 20, true)).is_empty());
        assert!(warnings(&params(512 << 20, false)).is_empty());
    }

    proptest! {
        #[test]
        fn no_report_makes_the_reader_fail(key in "jobs|read|bins", value in -5i64..5, text in "\\PC{0,8}") {
            for mut report in [
                json!({"jobs": [{&key: {"clat_ns": {"bins": {&text: value}}}}]}),
                json!({"jobs": {&key: value}}),
                json!([value]),
                json!({"jobs": [value, {"read": [value]}, {"read": {"clat_ns": text}}]}),
            ] {
                let _ = take_bins(&mut report);
            }
        }
    }
}
