//! `memory-bandwidth`: copy, scale, add and triad over arrays that no cache can hold, on 64-bit
//! integers and on doubles (the four kernels of McCalpin's STREAM, rewritten).

mod kernels;

use super::load;
use crate::contract::{Context, Failure};
use crate::measure::columns::Table;
use crate::measure::hardware::Hardware;
use crate::measure::{machine, params, scheduling, tsc};
use kernels::{Element, Kernel, Part};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

const TIMES_LAST_LEVEL: u64 = 4;
/// Where the machine does not show its caches.
const UNKNOWN_LAST_LEVEL: u64 = 32 << 20;
/// The three arrays together take at most this share of the memory the host gave the machine …
const SHARE: f64 = 0.3;
/// … and of what is really available: this one only guards against being killed.
const AVAILABLE_SHARE: f64 = 0.6;
const ALIGN: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Default: one per CPU given.
    threads: Option<usize>,
    /// Each kernel repeats for at least so long, and at least three times.
    seconds: f64,
    /// Bytes of each array; 0 or nothing: four times the last-level cache.
    array_bytes: u64,
    /// The last-level cache as the host knows it; else as this machine shows it.
    last_level_bytes: Option<u64>,
    /// The machine's memory as the host knows it; else what this machine has available.
    memory_bytes: Option<u64>,
    /// Whether the processor's counters count along, from the making of the arrays on.
    counters: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threads: None,
            seconds: 0.2,
            array_bytes: 0,
            last_level_bytes: None,
            memory_bytes: None,
            counters: false,
        }
    }
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let threads = load::threads(context, params.threads);
    params::require((1..=1024).contains(&threads), "threads: 1 to 1024")?;
    params::require(
        params.seconds > 0.0 && params.seconds <= 3600.0,
        "seconds: above 0, at most 3600",
    )?;
    let last_level = params
        .last_level_bytes
        .or_else(|| machine::caches().map(|caches| caches.last_level));
    let (array, warnings) = array_bytes(&params, last_level, machine::memory_available())?;
    let length = array as usize / 8;
    let mut rows = Vec::new();
    let mut rates = Map::new();
    let counting = params.counters.then(Hardware::begin);
    let whole = bandwidths::<u64>(context, &params, threads, length)?;
    let real = bandwidths::<f64>(context, &params, threads, length)?;
    let hardware = counting.map(Hardware::end);
    for (number, (name, times, kernel)) in whole.into_iter().chain(real).enumerate() {
        let moved = kernel.arrays_moved() * array;
        rates.insert(name, rate(&times, moved as f64));
        rows.extend(times.into_iter().map(|seconds| (number as u64, seconds)));
    }
    Table::new()
        .u64s("kernel", rows.iter().map(|row| row.0))
        .f64s("duration_ns", rows.iter().map(|row| row.1 * 1e9))
        .send(context.sink, "repetitions");
    let mut result = json!({
        "threads": threads,
        "array_bytes": array,
        "last_level_bytes": last_level,
        "capped": array < wanted(&params, last_level),
        "verified": true,
        "bandwidth": rates,
        "warnings": warnings,
    });
    if let Some(counted) = hardware {
        result["hardware"] = counted;
    }
    Ok(result)
}

fn wanted(params: &Params, last_level: Option<u64>) -> u64 {
    match params.array_bytes {
        0 => TIMES_LAST_LEVEL * last_level.unwrap_or(UNKNOWN_LAST_LEVEL),
        requested => requested,
    }
}

/// The size of each array in bytes, and warnings if it differs from the default.
fn array_bytes(
    params: &Params,
    last_level: Option<u64>,
    available: u64,
) -> Result<(u64, Vec<String>), Failure> {
    let mut warnings = Vec::new();
    if params.array_bytes == 0 && last_level.is_none() {
        warnings.push("this machine does not show its caches; 32 MiB assumed".into());
    }
    let wanted = wanted(params, last_level);
    let share = |memory: u64, share: f64| (memory as f64 * share) as u64 / 3;
    let guard = share(available, AVAILABLE_SHARE);
    if params.array_bytes > guard {
        return Err(Failure(format!(
            "three arrays of {} MiB do not fit into {:.0} % of the {} MiB available",
            wanted >> 20,
            AVAILABLE_SHARE * 100.0,
            available >> 20
        )));
    }
    let most = match params.array_bytes {
        0 => share(params.memory_bytes.unwrap_or(available), SHARE),
        requested => requested,
    };
    let array = wanted.min(most).min(guard).max(ALIGN) / ALIGN * ALIGN;
    if wanted.min(most) > guard {
        warnings.push(format!(
            "the arrays had to shrink to {} MiB, because only {} MiB of memory are available: \
             do not compare with machines that had more",
            array >> 20,
            available >> 20
        ));
    } else if wanted > most {
        warnings.push(format!(
            "each array has {} MiB instead of {} MiB (four times the last-level cache), because \
             all three may take {:.0} % of the machine's memory: caches may serve a part",
            array >> 20,
            wanted >> 20,
            SHARE * 100.0
        ));
    }
    Ok((array, warnings))
}

fn rate(times: &[f64], bytes: f64) -> Value {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    json!({
        "median_bytes_per_s": bytes / median,
        "best_bytes_per_s": bytes / sorted[0],
        "repetitions": times.len(),
    })
}

type Timed = (String, Vec<f64>, Kernel);

/// Run the four kernels on elements of one type; every repetition's seconds, verified.
fn bandwidths<T: Element>(
    context: &Context,
    params: &Params,
    threads: usize,
    length: usize,
) -> Result<Vec<Timed>, Failure> {
    let team = Team {
        context,
        gate: Barrier::new(threads),
        over: AtomicBool::new(false),
        failure: Mutex::new(None),
        seconds: params.seconds,
        threads,
    };
    let timed = std::thread::scope(|scope| {
        let team = &team;
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let part = length * number / threads..length * (number + 1) / threads;
                scope.spawn(move || team.member::<T>(number, part))
            })
            .collect();
        let mut results = running.into_iter().map(|thread| thread.join());
        let first = results.next().expect("at least one thread");
        results.fold(first, |first, other| other.and(first))
    });
    let timed = timed.map_err(|_| Failure("a thread of the kernels panicked".into()))?;
    match team.failure.into_inner() {
        Ok(None) => Ok(timed),
        Ok(Some(reason)) => Err(Failure(reason)),
        Err(_) => Err(Failure("a thread of the kernels panicked".into())),
    }
}

/// The threads that run every kernel in step.
struct Team<'a> {
    context: &'a Context<'a>,
    gate: Barrier,
    over: AtomicBool,
    failure: Mutex<Option<String>>,
    seconds: f64,
    threads: usize,
}

impl Team<'_> {
    fn fail(&self, reason: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(reason);
        }
    }

    fn failed(&self) -> bool {
        self.failure
            .lock()
            .map_or(true, |failure| failure.is_some())
    }

    /// One thread's part; the first thread times, and returns all times.
    fn member<T: Element>(&self, number: usize, range: std::ops::Range<usize>) -> Vec<Timed> {
        let cpus = self.context.cpus;
        if !cpus.is_empty() {
            if let Err(error) = scheduling::pin(&[cpus[number % cpus.len()]]) {
                self.fail(format!("cannot run on CPUs {cpus:?}: {error}"));
            }
        }
        // Touched by the thread that will use it, so that it is on that CPU's memory node.
        let mut part = Part::<T>::new(range);
        self.gate.wait();
        if number == 0 {
            if let Err(Failure(reason)) = self.context.sink.barrier() {
                self.fail(reason);
            }
        }
        self.gate.wait();
        if self.failed() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for kernel in Kernel::ALL {
            let times = self.repeat(number, || part.run(kernel));
            if let Err(reason) = part.verify(kernel) {
                self.fail(reason);
            }
            all.push((format!("{}-{}", kernel.name(), T::NAME), times, kernel));
        }
        all
    }

    /// Repeat `kernel` in step with the others; the time of each repetition is that of the
    /// slowest thread. The first repetition warms up and is left out.
    fn repeat(&self, number: usize, mut kernel: impl FnMut()) -> Vec<f64> {
        let begin = tsc::monotonic_raw_ns();
        let mut times: Vec<f64> = Vec::new();
        self.gate.wait();
        self.over.store(false, Ordering::SeqCst);
        kernel();
        loop {
            self.gate.wait();
            if self.over.load(Ordering::SeqCst) {
                break;
            }
            let start = tsc::monotonic_raw_ns();
            kernel();
            if self.threads > 1 {
                self.gate.wait();
            }
            let end = tsc::monotonic_raw_ns();
            if number == 0 {
                times.push((end - start).max(1) as f64 * 1e-9);
                let enough = times.len() >= 3 && (end - begin) as f64 * 1e-9 >= self.seconds;
                let stopped = self.context.stop.load(Ordering::Relaxed);
                self.over.store(enough || stopped, Ordering::SeqCst);
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn measures_all_eight_and_verifies_them() {
        for threads in [1, 3] {
            let params = json!({"seconds": 0.01, "array_bytes": 1 << 20, "threads": threads});
            let (result, collected) = run_with(run, &params, &[]);
            let bandwidth = result["bandwidth"].as_object().expect("an object");
            assert_eq!(bandwidth.len(), 8, "{result}");
            for kernel in ["copy", "scale", "add", "triad"] {
                for kind in ["u64", "f64"] {
                    let found = &bandwidth[&format!("{kernel}-{kind}")];
                    assert!(found["median_bytes_per_s"].as_f64().unwrap() > 0.0);
                    assert!(found["repetitions"].as_u64().unwrap() >= 3);
                }
            }
            assert_eq!(result["capped"], false);
            assert_eq!(collected.names(), ["repetitions"]);
        }
    }

    #[test]
    fn arrays_are_four_times_the_last_level() {
        let (array, warnings) = array_bytes(&Params::default(), Some(8 << 20), 8 << 30).unwrap();
        assert_eq!((array, warnings.len()), (32 << 20, 0));
    }

    #[test]
    fn the_share_of_the_stated_memory_applies_to_every_machine() {
        let params = Params {
            memory_bytes: Some(256 << 20),
            ..Params::default()
        };
        let (guest, warnings) = array_bytes(&params, Some(480 << 20), 200 << 20).unwrap();
        let (bare, _) = array_bytes(&params, Some(480 << 20), 24 << 30).unwrap();
        assert_eq!(guest, bare);
        assert!(warnings[0].contains("instead of 1920 MiB"), "{warnings:?}");
    }

    #[test]
    fn available_memory_limits_the_arrays() {
        let params = Params {
            memory_bytes: Some(1 << 30),
            ..Params::default()
        };
        let (array, warnings) = array_bytes(&params, Some(480 << 20), 100 << 20).unwrap();
        assert!(array <= 20 << 20);
        assert!(warnings[0].contains("shrink"));
        let requested = Params {
            array_bytes: 1 << 30,
            ..Params::default()
        };
        assert!(array_bytes(&requested, None, 1 << 30).is_err());
    }
}
