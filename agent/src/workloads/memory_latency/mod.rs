//! `memory-latency`: how long a load takes that must wait for the one before it, by the size of
//! the working set, in pages of a stated size.

mod chain;

use crate::contract::{Context, Failure};
use crate::measure::columns::Table;
use crate::measure::pages::{PageSize, Pages};
use crate::measure::{machine, params, scheduling, tsc};
use chain::Chain;
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::sync::atomic::Ordering;

/// A batch of loads lasts about this long, so that reading the clock does not matter.
const BATCH_NS: f64 = 1e6;
const LEAST_BATCHES: usize = 3;
/// A working set takes at most this share of the memory the host gave the machine …
const SHARE: f64 = 0.3;
/// … and of what is really available: this one only guards against being killed. (Building the chain
/// takes another 4 bytes for each place.)
const AVAILABLE_SHARE: f64 = 0.6;
const SEED: u64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// The working sets, in bytes.
    sizes_bytes: Vec<u64>,
    /// `4k` or `2M`.
    pages: String,
    /// The chain has a place in every so many bytes.
    stride_bytes: u64,
    /// Each size is measured for so long.
    seconds: f64,
    /// The machine's memory as the host knows it; else what this machine has available.
    memory_bytes: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            sizes_bytes: (12..=26).map(|power| 1 << power).collect(),
            pages: "4k".into(),
            stride_bytes: 64,
            seconds: 0.1,
            memory_bytes: None,
        }
    }
}

impl Params {
    fn page_size(&self) -> Result<PageSize, Failure> {
        match self.pages.as_str() {
            "4k" => Ok(PageSize::Small),
            "2M" => Ok(PageSize::Huge),
            _ => Err(Failure("parameters: pages: 4k or 2M".into())),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let stride = self.stride_bytes;
        params::require(
            (8..=1 << 30).contains(&stride) && stride % 8 == 0,
            "stride_bytes: a multiple of 8, at most 1 GiB",
        )?;
        let sizes = 2 * stride..=stride << 32;
        params::require(
            !self.sizes_bytes.is_empty() && self.sizes_bytes.iter().all(|s| sizes.contains(s)),
            "sizes_bytes: at least one, each at least two strides, at most 2^32",
        )?;
        params::require(
            self.seconds > 0.0 && self.seconds <= 3600.0,
            "seconds: above 0, at most 3600",
        )
    }
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params.check()?;
    let page_size = params.page_size()?;
    let (sizes, mut warnings) = fitting(&params, machine::memory_available());
    let largest = *sizes.last().ok_or_else(|| {
        Failure("no working set fits into this machine's memory: give smaller sizes".into())
    })?;
    // A thread of its own: the pin must not outlive the workload.
    let measured = std::thread::scope(|scope| {
        let (sizes, params) = (&sizes, &params);
        let measuring = scope.spawn(move || measure(context, params, page_size, largest, sizes));
        let ended = measuring.join();
        ended.map_err(|_| Failure("the measuring thread panicked".into()))?
    })?;
    if !measured.proven {
        warnings.push("this kernel does not report the size of its pages: 4 KiB assumed".into());
    }
    let mut latency = Map::new();
    for (&size, batches) in sizes.iter().zip(&measured.batches) {
        latency.insert(size.to_string(), summary(batches));
    }
    let rows = || {
        let sized = sizes.iter().zip(&measured.batches);
        sized.flat_map(|(&size, batches)| batches.iter().map(move |batch| (size, batch)))
    };
    let begin = rows().map(|(_, batch)| batch.start_ns).min().unwrap_or(0);
    Table::new()
        .u64s("size_bytes", rows().map(|(size, _)| size))
        .u64s("time_ns", rows().map(|(_, batch)| batch.start_ns - begin))
        .f64s("load_ns", rows().map(|(_, batch)| batch.load_ns))
        .send(context.sink, "ladder");
    Ok(json!({
        "page_bytes": page_size.bytes(),
        "pages_proven": measured.proven,
        "stride_bytes": params.stride_bytes,
        "latency": latency,
        "verified": true,
        "warnings": warnings,
    }))
}

/// The sizes that fit, smallest first, and warnings about the others.
///
/// Which ones are left out follows from the memory that the host gave, alike on all machines.
fn fitting(params: &Params, available: u64) -> (Vec<u64>, Vec<String>) {
    let most = (params.memory_bytes.unwrap_or(available) as f64 * SHARE) as u64;
    let guard = (available as f64 * AVAILABLE_SHARE) as u64;
    let mut sizes = params.sizes_bytes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut warnings = Vec::new();
    let mut leave_out = |limit: u64, why: &str| {
        let out = sizes.split_off(sizes.partition_point(|&size| size <= limit));
        let out: Vec<String> = out.iter().map(|s| format!("{} KiB", s >> 10)).collect();
        if !out.is_empty() {
            warnings.push(format!("left out: {} ({why})", out.join(", ")));
        }
    };
    leave_out(most, "a working set may take 30 % of the machine's memory");
    leave_out(guard, "so much memory is not available");
    (sizes, warnings)
}

/// When it began (raw clock), and how long each of its loads took.
struct Batch {
    start_ns: u64,
    load_ns: f64,
}

struct Measured {
    proven: bool,
    /// By size.
    batches: Vec<Vec<Batch>>,
}

fn measure(
    context: &Context,
    params: &Params,
    page_size: PageSize,
    largest: u64,
    sizes: &[u64],
) -> Result<Measured, Failure> {
    if let Some(&cpu) = context.cpus.first() {
        scheduling::pin(&[cpu])
            .map_err(|error| Failure(format!("cannot run on CPU {cpu}: {error}")))?;
    }
    let mut pages = Pages::map(largest as usize, page_size).map_err(Failure)?;
    context.sink.barrier()?;
    let mut batches = Vec::with_capacity(sizes.len());
    for (number, &size) in sizes.iter().enumerate() {
        let memory = &mut pages.words()[..size as usize / 8];
        let chain = Chain::new(memory, params.stride_bytes as usize, SEED);
        batches.push(repeat(context, params.seconds, chain)?);
        let done = (number + 1) as f64 / sizes.len() as f64;
        context.sink.progress(done, json!({"size_bytes": size}));
    }
    Ok(Measured {
        proven: pages.proven,
        batches,
    })
}

/// Follow the chain for so long; the first round warms up, and the last one must end where the
/// chain began.
fn repeat(context: &Context, seconds: f64, mut chain: Chain) -> Result<Vec<Batch>, Failure> {
    let wrong = "the chain of pointers went astray: this machine's CPU or memory cannot be trusted";
    let places = chain.places();
    let loads = loads_per_batch(&mut chain);
    let whole = |chain: &Chain| chain.at_start().then_some(()).ok_or(wrong);
    whole(&chain)?;
    let begin = tsc::monotonic_raw_ns();
    let mut batches: Vec<Batch> = Vec::with_capacity(1024);
    loop {
        let start_ns = tsc::monotonic_raw_ns();
        chain.follow(loads);
        let end_ns = tsc::monotonic_raw_ns();
        let load_ns = (end_ns - start_ns).max(1) as f64 / loads as f64;
        batches.push(Batch { start_ns, load_ns });
        let enough = (end_ns - begin) as f64 >= seconds * 1e9 && batches.len() >= LEAST_BATCHES;
        if enough || context.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let followed = loads * batches.len() as u64;
    chain.follow(places - followed % places);
    whole(&chain)?;
    Ok(batches)
}

/// Warm up by whole rounds until they take as long as a batch; the loads a batch then needs.
fn loads_per_batch(chain: &mut Chain) -> u64 {
    let mut rounds = 1;
    loop {
        let loads = rounds * chain.places();
        let start = tsc::monotonic_raw_ns();
        chain.follow(loads);
        let took_ns = (tsc::monotonic_raw_ns() - start).max(1) as f64;
        if took_ns >= BATCH_NS {
            let wanted = (loads as f64 * BATCH_NS / took_ns) as u64;
            return wanted.next_multiple_of(16).max(16);
        }
        rounds *= 2;
    }
}

fn summary(batches: &[Batch]) -> Value {
    let mut sorted: Vec<f64> = batches.iter().map(|batch| batch.load_ns * 1e-9).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    json!({"median_s": median, "best_s": sorted[0], "batches": sorted.len()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, Collected};

    #[test]
    fn measures_every_size_in_one_series() {
        let params =
            json!({"seconds": 0.005, "sizes_bytes": [1 << 20, 4096, 65_536], "pages": "4k"});
        let (result, collected) = run_with(run, &params, &[]);
        let latency = result["latency"].as_object().expect("an object");
        assert_eq!(latency.len(), 3, "{result}");
        for size in ["4096", "65536", "1048576"] {
            let best = latency[size]["best_s"].as_f64().unwrap();
            assert!(best > 0.0 && best <= latency[size]["median_s"].as_f64().unwrap());
            assert!(latency[size]["batches"].as_u64().unwrap() >= 3);
        }
        assert_eq!(result["page_bytes"], 4096);
        assert_eq!(collected.barriers(), 1);
        let series = collected.series.lock().unwrap();
        let mut seen = series[0].words("size_bytes");
        seen.dedup();
        assert_eq!(seen, [4096, 65_536, 1 << 20]);
    }

    #[test]
    fn huge_pages_are_measured_or_refused_never_feigned() {
        let params = json!({"seconds": 0.002, "sizes_bytes": [4 << 20], "pages": "2M"});
        let (result, _) = run_with(run, &params, &[]);
        match result["error"].as_str() {
            None => assert_eq!(result["page_bytes"], 2 << 20),
            Some(reason) => assert!(reason.contains("pages"), "{reason}"),
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_left_out_with_a_warning() {
        let params = Params {
            sizes_bytes: vec![128 << 20, 4096, 64 << 20],
            memory_bytes: Some(256 << 20),
            ..Params::default()
        };
        let (sizes, warnings) = fitting(&params, 1 << 40);
        assert_eq!(sizes, [4096, 64 << 20]);
        assert!(warnings[0].contains("131072 KiB"), "{warnings:?}");
        let (sizes, warnings) = fitting(&params, 50 << 20);
        assert_eq!(sizes, [4096]);
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn impossible_parameters_are_refused_by_name() {
        for (params, name) in [
            (json!({"pages": "1G"}), "pages"),
            (json!({"stride_bytes": 12}), "stride_bytes"),
            (json!({"sizes_bytes": []}), "sizes_bytes"),
            (json!({"sizes_bytes": [64]}), "sizes_bytes"),
            (json!({"seconds": 0}), "seconds"),
        ] {
            let (result, _) = run_with(run, &params, &[]);
            assert!(result["error"].as_str().unwrap().contains(name), "{result}");
        }
    }

    #[test]
    fn a_stop_ends_it_soon() {
        let collected = Collected::stopped();
        let params = json!({"seconds": 3600, "sizes_bytes": [4096, 8192]});
        let result = collected.run(run, &params, &[]);
        assert_eq!(result["latency"].as_object().unwrap().len(), 2);
    }
}
