//! `program`: programs of the toolbox, run again and again; what they take and what they write.

use crate::contract::{Context, Failure};
use crate::measure::columns::Table;
use crate::measure::params;
use crate::tools::program::{last_lines, Outcome, Program};
use crate::tools::toolbox::{self, Toolbox};
use serde::Deserialize;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const KEPT_LEAST: usize = 1 << 10;
/// More would not fit into one message.
const KEPT_MOST: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Run once, before anything is measured.
    #[serde(default)]
    prepare: Vec<Step>,
    /// Run before each repetition, and not measured.
    #[serde(default)]
    before: Vec<Step>,
    /// Measured together, in this order.
    steps: Vec<Step>,
    /// How often the steps are repeated.
    #[serde(default = "one")]
    repeats: usize,
    /// Removed before each repetition: files or folders.
    #[serde(default)]
    clean: Vec<String>,
    /// What must be right after each repetition.
    #[serde(default)]
    checks: Vec<Check>,
    /// Seconds after which a step is killed.
    #[serde(default = "long")]
    timeout_s: f64,
    /// Bytes that are kept of the last step's output.
    #[serde(default = "kept")]
    keep: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    argv: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    stdin: Option<String>,
    stdout: Option<String>,
    /// Exit codes that mean success; 0 alone otherwise.
    #[serde(default)]
    codes: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    path: String,
    /// The SHA-256 in hexadecimal that the file must have.
    sha256: Option<String>,
    /// The name under which the toolbox knows that checksum.
    expected: Option<String>,
    #[serde(default = "one")]
    least_bytes: usize,
}

fn one() -> usize {
    1
}

fn long() -> f64 {
    3600.0
}

fn kept() -> usize {
    64 << 10
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require(!params.steps.is_empty(), "steps: at least one")?;
    params::require(
        (1..=100_000).contains(&params.repeats),
        "repeats: 1 to 100000",
    )?;
    params::require(
        params.timeout_s > 0.0 && params.timeout_s <= 1e6,
        "timeout_s: above 0, at most 1000000",
    )?;
    let toolbox = toolbox::open()?;
    let job = Job {
        context,
        toolbox,
        params: &params,
    };
    job.require_programs()?;
    for step in &params.prepare {
        job.run_step(step)?;
    }
    job.make_ready()?;
    context.sink.barrier()?;
    let mut rounds = Vec::new();
    let mut checked = Value::Null;
    let mut last = None;
    for number in 0..params.repeats {
        if number > 0 {
            job.make_ready()?;
        }
        let round = job.round()?;
        checked = job.check()?;
        rounds.push(round.times);
        last = Some(round.last);
        let stopped = context.stop.load(Ordering::Relaxed);
        if stopped {
            break;
        }
        context.sink.progress(
            (number + 1) as f64 / params.repeats as f64,
            json!({"repetitions": number + 1}),
        );
    }
    job.clean()?;
    Ok(job.result(&rounds, checked, last))
}

/// The total time and usage of the measured steps.
#[derive(Clone, Copy, Default)]
struct Times {
    wall_s: f64,
    user_s: f64,
    system_s: f64,
    max_rss_bytes: u64,
    major_faults: u64,
    involuntary_switches: u64,
}

struct Round {
    times: Times,
    last: Outcome,
}

struct Job<'a> {
    context: &'a Context<'a>,
    toolbox: &'static Toolbox,
    params: &'a Params,
}

impl Job<'_> {
    /// Name a program that the toolbox lacks before anything is started. What is named by its path
    /// may yet be made by a step before.
    fn require_programs(&self) -> Result<(), Failure> {
        let params = self.params;
        let steps = params.prepare.iter().chain(&params.before);
        for step in steps.chain(&params.steps) {
            match step.argv.first() {
                Some(name) if name.starts_with('/') => {}
                Some(name) => drop(self.toolbox.program(name)?),
                None => return Err("argv: a program and its arguments".into()),
            }
        }
        Ok(())
    }

    fn run_step(&self, step: &Step) -> Result<Outcome, Failure> {
        let program = Program {
            argv: step.argv.clone(),
            env: step.env.clone(),
            cwd: step.cwd.clone(),
            stdin: step.stdin.clone(),
            stdout: step.stdout.clone(),
            keep: self.params.keep.clamp(KEPT_LEAST, KEPT_MOST),
        };
        let deadline = Instant::now() + Duration::from_secs_f64(self.params.timeout_s);
        let outcome = program.run(self.toolbox, Some(deadline), self.context.stop)?;
        let codes: &[i32] = if step.codes.is_empty() {
            &[0]
        } else {
            &step.codes
        };
        outcome.require(&step.argv[0], codes)?;
        Ok(outcome)
    }

    fn make_ready(&self) -> Result<(), Failure> {
        self.clean()?;
        for step in &self.params.before {
            self.run_step(step)?;
        }
        Ok(())
    }

    fn round(&self) -> Result<Round, Failure> {
        let mut times = Times::default();
        let mut last = None;
        for step in &self.params.steps {
            let outcome = self.run_step(step)?;
            times.wall_s += outcome.wall_s;
            times.user_s += outcome.usage.user_s;
            times.system_s += outcome.usage.system_s;
            times.max_rss_bytes = times.max_rss_bytes.max(outcome.usage.max_rss_bytes);
            times.major_faults += outcome.usage.major_faults;
            times.involuntary_switches += outcome.usage.involuntary_switches;
            last = Some(outcome);
        }
        let last = last.ok_or("no step was measured")?;
        Ok(Round { times, last })
    }

    fn clean(&self) -> Result<(), Failure> {
        for path in &self.params.clean {
            let file = self.toolbox.outside(path);
            let removed = match fs::symlink_metadata(&file) {
                Ok(about) if about.is_dir() => fs::remove_dir_all(&file),
                Ok(_) => fs::remove_file(&file),
                Err(_) => Ok(()),
            };
            removed.map_err(|error| format!("{path} cannot be removed: {error}"))?;
        }
        Ok(())
    }

    /// Check every file; what does not fit fails the workload.
    fn check(&self) -> Result<Value, Failure> {
        let mut checked = Vec::new();
        for check in &self.params.checks {
            let (bytes, digest) = self.digest(&check.path)?;
            if bytes < check.least_bytes as u64 {
                return Err(Failure(format!(
                    "{} has {bytes} bytes, but at least {} were expected",
                    check.path, check.least_bytes
                )));
            }
            let known = check.expected.as_deref();
            let wanted = check
                .sha256
                .as_deref()
                .or_else(|| known.and_then(|name| self.toolbox.expected(name)));
            if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
                return Err(Failure(format!(
                    "{} is wrong: its SHA-256 is {digest}, but {wanted} was expected",
                    check.path
                )));
            }
            checked.push(json!({
                "path": check.path, "bytes": bytes, "sha256": digest,
                "verified": wanted.is_some(),
            }));
        }
        Ok(Value::Array(checked))
    }

    fn digest(&self, path: &str) -> Result<(u64, String), Failure> {
        let failed = |error: std::io::Error| Failure(format!("{path} was not written: {error}"));
        let mut file = File::open(self.toolbox.outside(path)).map_err(failed)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            digest.update(&buffer[..count]);
            bytes += count as u64;
        }
        let hex = digest
            .finalize()
            .into_iter()
            .map(|byte| format!("{byte:02x}"));
        Ok((bytes, hex.collect()))
    }

    fn result(&self, rounds: &[Times], checked: Value, last: Option<Outcome>) -> Value {
        Table::new()
            .f64s("duration_ns", rounds.iter().map(|round| round.wall_s * 1e9))
            .f64s("user_ns", rounds.iter().map(|round| round.user_s * 1e9))
            .f64s("system_ns", rounds.iter().map(|round| round.system_s * 1e9))
            .send(self.context.sink, "repetitions");
        let of = |value: fn(&Times) -> f64| median(rounds.iter().map(value).collect());
        let output = last.as_ref().map(|last| &last.output[..]);
        json!({
            "repetitions": rounds.len(),
            "wall_s": of(|round| round.wall_s),
            "user_s": of(|round| round.user_s),
            "system_s": of(|round| round.system_s),
            "cpu_s": of(|round| round.user_s + round.system_s),
            "max_rss_bytes": rounds.iter().map(|round| round.max_rss_bytes).max(),
            "major_faults": rounds.iter().map(|round| round.major_faults).sum::<u64>(),
            "involuntary_switches":
                rounds.iter().map(|round| round.involuntary_switches).sum::<u64>(),
            "checks": checked,
            "output": String::from_utf8_lossy(output.unwrap_or_default()),
            "errors": last.map(|last| last_lines(&last.errors)).unwrap_or_default(),
            "toolbox": self.toolbox.identity(),
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => (values[(count - 1) / 2] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_lies_between() {
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert_eq!(median(vec![5.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
