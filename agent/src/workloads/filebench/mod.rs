//! `filebench`: filebench's personalities as operations on files of the machine's own disk, and its
//! microbenchmarks of reading and writing. Written anew from their published tables and loops.

mod counts;
mod fileset;
mod gamma;
mod limit;
mod micro;
mod params;
mod personality;
mod worker;
mod workspace;

use crate::contract::{Context, Failure};
use crate::measure::disk::Witness;
use crate::measure::scratch;
use crate::sys;
use counts::Account;
pub(super) use limit::room;
use limit::{End, Limit};
use params::{Plan, Work};
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
pub(super) use worker::forget_caches;
use worker::Worker;
use workspace::Stage;

const FOLDER: &str = "tare-filebench";
const PROGRESS: Duration = Duration::from_millis(500);

pub fn run(context: &Context) -> Result<Value, Failure> {
    let plan = params::plan(context.params)?;
    let scratch = scratch::required()?;
    let folder = Folder::make(&scratch, FOLDER)?;
    let began = Instant::now();
    let space = sys::space(&scratch)?;
    if plan.bytes() > space.free {
        return Err(Failure(format!(
            "the machine's disk is too small: the files take about {} MiB, and {} of {} MiB are \
             free; give the shape a larger `disk`, or take fewer or smaller files",
            plan.bytes() >> 20,
            space.free >> 20,
            space.total >> 20
        )));
    }
    let stage = Stage::prepare(&plan, &folder.0, space.free, context.stop)
        .map_err(|end| Failure(words(end)))?;
    let caches = stage.forget_caches(&folder.0)?;
    let prepared_s = began.elapsed().as_secs_f64();
    let measured = measure(context, &plan, &stage, &scratch)?;
    measured.send(context);
    Ok(result(&plan, &stage, &measured, prepared_s, caches))
}

fn words(end: End) -> String {
    match end {
        End::Over => "stopped before the files were there".into(),
        End::Failed(reason) => reason,
    }
}

/// A folder of the run's own, gone in the end however that comes.
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn make(scratch: &Path, name: &str) -> Result<Self, Failure> {
        let path = scratch.join(name);
        // A run that was broken off may have left one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| words(End::io("create", &path, &error)))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What all threads did together.
struct Measured {
    account: Account,
    seconds: f64,
    disk: Value,
}

impl Measured {
    fn send(&self, context: &Context) {
        let bins = self.account.bins();
        crate::measure::columns::Table::new()
            .u64s("operation", bins.iter().map(|bin| bin.0))
            .u64s("up_to_ns", bins.iter().map(|bin| bin.1))
            .u64s("count", bins.iter().map(|bin| bin.2))
            .send(context.sink, "operations");
    }
}

fn measure(
    context: &Context,
    plan: &Plan,
    stage: &Stage,
    scratch: &Path,
) -> Result<Measured, Failure> {
    let (ready, go) = (
        Barrier::new(plan.threads + 1),
        Barrier::new(plan.threads + 1),
    );
    let limit: Mutex<Option<Instant>> = Mutex::new(None);
    let abandoned = AtomicBool::new(false);
    let all = Mutex::new((Account::default(), None::<String>, 0usize));
    let work = |number: usize| {
        let opened = stage.open(number);
        ready.wait();
        go.wait();
        let until = limit.lock().ok().and_then(|limit| *limit);
        let (until, account, end) = match (until, opened) {
            (Some(until), Ok(opened)) => {
                let limit = Limit {
                    stop: context.stop,
                    until,
                };
                let seed = plan.seed ^ ((number as u64 + 1) << 32);
                let mut worker = Worker::new(seed, &limit, stage.data());
                let end = stage.work(&mut worker, number, opened, &abandoned);
                (true, worker.account, end)
            }
            (_, Err(end)) => (true, Account::default(), end),
            (None, Ok(_)) => (false, Account::default(), End::Over),
        };
        let mut all = all.lock().unwrap_or_else(|broken| broken.into_inner());
        all.0.add(&account);
        all.2 += usize::from(until);
        if let End::Failed(reason) = end {
            abandoned.store(true, Ordering::Relaxed);
            all.1.get_or_insert(reason);
        }
    };
    let (seconds, disk) = std::thread::scope(|scope| {
        let work = &work;
        for number in 0..plan.threads {
            let named = std::thread::Builder::new().name(format!("files-{number}"));
            // Small stacks: a hundred threads are a part of a small machine's memory.
            let spawned = named
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || work(number));
            spawned.expect("a thread of the files cannot be started");
        }
        ready.wait();
        let started = context.sink.barrier();
        let witness = Witness::begin(scratch);
        let began = Instant::now();
        let until = began + Duration::from_secs_f64(plan.seconds);
        if started.is_ok() {
            if let Ok(mut limit) = limit.lock() {
                *limit = Some(until);
            }
        }
        go.wait();
        let done = |threads: &Mutex<(Account, Option<String>, usize)>| {
            threads.lock().map_or(true, |all| all.2 == plan.threads)
        };
        while started.is_ok() && !done(&all) {
            std::thread::sleep(PROGRESS.min(Duration::from_secs_f64(plan.seconds / 4.0)));
            let share = began.elapsed().as_secs_f64() / plan.seconds;
            context.sink.progress(share.min(1.0), json!({}));
        }
        let seconds = began.elapsed().as_secs_f64();
        started.map(|()| (seconds, witness.end()))
    })?;
    match all.into_inner() {
        Ok((_, Some(reason), _)) => Err(Failure(reason)),
        Ok((account, None, _)) => Ok(Measured {
            account,
            seconds,
            disk,
        }),
        Err(_) => Err(Failure("a thread of the files panicked".into())),
    }
}

fn result(plan: &Plan, stage: &Stage, measured: &Measured, prepared_s: f64, caches: &str) -> Value {
    let (account, seconds) = (&measured.account, measured.seconds);
    let rate = |count: u64| count as f64 / seconds;
    let bytes = account.read_bytes + account.written_bytes;
    json!({
        "work": plan.work.name(),
        "seconds": seconds,
        "prepared_s": prepared_s,
        "threads": plan.threads,
        "files": plan.files,
        "file_set_bytes": stage.bytes,
        "width": plan.width,
        "io_bytes": plan.io_bytes,
        "direct": plan.direct,
        "flushed": plan.flushed,
        "caches_dropped": caches,
        "memory_bytes": plan.memory_bytes,
        "scaled": plan.scaled(),
        "log_turns": stage.log_turns(),
        "operations": account.all_operations(),
        "operations_per_s": rate(account.all_operations()),
        "read_bytes_per_s": rate(account.read_bytes),
        "written_bytes_per_s": rate(account.written_bytes),
        "bytes_per_s": rate(bytes),
        "latency": account.latency(),
        "by_operation": account.by_operation(seconds),
        "disk": measured.disk,
        "warnings": warnings(plan, stage),
    })
}

fn warnings(plan: &Plan, stage: &Stage) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(memory) = plan.memory_bytes {
        if !plan.direct && stage.bytes < memory {
            told.push(format!(
                "the files take {} MiB and the machine's memory {} MiB: once read, they come from \
                 the page cache",
                stage.bytes >> 20,
                memory >> 20
            ));
        }
    }
    let scaled = plan.scaled();
    if !scaled.is_empty() && matches!(plan.work, Work::Personality(_)) {
        told.push(format!("not as published: {}", scaled.join(", ")));
    }
    told
}

#[cfg(test)]
mod tests;
