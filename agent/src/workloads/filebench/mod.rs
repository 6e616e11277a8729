//! `filebench`: filebench's personalities as operations on files of the machine's own disk, and its
//! microbenchmarks of reading and writing. Rewritten from their published tables and loops.

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
use counts::Counts;
pub(super) use limit::free_space;
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
use workspace::Workspace;

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
    let workspace = Workspace::prepare(&plan, &folder.0, space.free, context.stop)
        .map_err(|end| Failure(reason_of(end)))?;
    let caches = workspace.forget_caches(&folder.0)?;
    let prepared_s = began.elapsed().as_secs_f64();
    let measured = measure(context, &plan, &workspace, &scratch)?;
    measured.send(context);
    Ok(result(&plan, &workspace, &measured, prepared_s, caches))
}

fn reason_of(end: End) -> String {
    match end {
        End::Over => "stopped before the files were there".into(),
        End::Failed(reason) => reason,
    }
}

/// The run's folder, which is removed on drop.
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn make(scratch: &Path, name: &str) -> Result<Self, Failure> {
        let path = scratch.join(name);
        // An aborted run may have left one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| reason_of(End::io("create", &path, &error)))?;
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
    counts: Counts,
    seconds: f64,
    disk: Value,
}

impl Measured {
    fn send(&self, context: &Context) {
        let bins = self.counts.bins();
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
    workspace: &Workspace,
    scratch: &Path,
) -> Result<Measured, Failure> {
    let (ready, go) = (
        Barrier::new(plan.threads + 1),
        Barrier::new(plan.threads + 1),
    );
    let limit: Mutex<Option<Instant>> = Mutex::new(None);
    let abandoned = AtomicBool::new(false);
    let all = Mutex::new((Counts::default(), None::<String>, 0usize));
    let work = |number: usize| {
        let opened = workspace.open(number);
        ready.wait();
        go.wait();
        let until = limit.lock().ok().and_then(|limit| *limit);
        let (until, counts, end) = match (until, opened) {
            (Some(until), Ok(opened)) => {
                let limit = Limit {
                    stop: context.stop,
                    until,
                };
                let seed = plan.seed ^ ((number as u64 + 1) << 32);
                let mut worker = Worker::new(seed, &limit, workspace.data());
                let end = workspace.work(&mut worker, number, opened, &abandoned);
                (true, worker.counts, end)
            }
            (_, Err(end)) => (true, Counts::default(), end),
            (None, Ok(_)) => (false, Counts::default(), End::Over),
        };
        let mut all = all.lock().unwrap_or_else(|broken| broken.into_inner());
        all.0.add(&counts);
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
        let done = |threads: &Mutex<(Counts, Option<String>, usize)>| {
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
        Ok((counts, None, _)) => Ok(Measured {
            counts,
            seconds,
            disk,
        }),
        Err(_) => Err(Failure("a thread of the files panicked".into())),
    }
}

fn result(
    plan: &Plan,
    workspace: &Workspace,
    measured: &Measured,
    prepared_s: f64,
    caches: &str,
) -> Value {
    let (counts, seconds) = (&measured.counts, measured.seconds);
    let rate = |count: u64| count as f64 / seconds;
    let bytes = counts.read_bytes + counts.written_bytes;
    json!({
        "work": plan.work.name(),
        "seconds": seconds,
        "prepared_s": prepared_s,
        "threads": plan.threads,
        "files": plan.files,
        "file_set_bytes": workspace.bytes,
        "width": plan.width,
        "io_bytes": plan.io_bytes,
        "direct": plan.direct,
        "flushed": plan.flushed,
        "caches_dropped": caches,
        "memory_bytes": plan.memory_bytes,
        "scaled": plan.scaled(),
        "log_turns": workspace.log_turns(),
        "operations": counts.all_operations(),
        "operations_per_s": rate(counts.all_operations()),
        "read_bytes_per_s": rate(counts.read_bytes),
        "written_bytes_per_s": rate(counts.written_bytes),
        "bytes_per_s": rate(bytes),
        "latency": counts.latency(),
        "by_operation": counts.by_operation(seconds),
        "disk": measured.disk,
        "warnings": warnings(plan, workspace),
    })
}

fn warnings(plan: &Plan, workspace: &Workspace) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(memory) = plan.memory_bytes {
        if !plan.direct && workspace.bytes < memory {
            warnings.push(format!(
                "the files take {} MiB and the machine's memory {} MiB: once read, they come from \
                 the page cache",
                workspace.bytes >> 20,
                memory >> 20
            ));
        }
    }
    let scaled = plan.scaled();
    if !scaled.is_empty() && matches!(plan.work, Work::Personality(_)) {
        warnings.push(format!("not as published: {}", scaled.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests;
