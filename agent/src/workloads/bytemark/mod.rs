//! Bytemark's CPU kernels, written anew from their description: how often per second a fixed,
//! verified piece of work is done, by 1 to N threads.

mod fourier;
mod idea;
mod numeric_sort;
mod random;

use super::load;
use crate::measure::columns::Table;
use crate::measure::{params, sched, tsc};
use crate::workload::{Context, Failure};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering;
use std::sync::Barrier;

/// A batch of iterations lasts about this long, so that reading the clock does not matter.
const BATCH_S: f64 = 5e-3;

/// One kernel: prepares its work, does it, and checks what came out.
trait Kernel: Sized {
    /// Iterations that can be prepared at once, at most.
    const MOST_AT_ONCE: usize;

    /// A kernel whose data come from `seed`.
    fn new(seed: u64) -> Self;

    /// Make the data of `iterations` ready; not timed.
    fn prepare(&mut self, iterations: usize);

    /// Do the work that was prepared; timed.
    fn work(&mut self, iterations: usize);

    /// Check the output of the last `work`.
    fn verify(&self, iterations: usize) -> Result<(), String>;
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// The least time of work, per thread.
    seconds: f64,
    /// One per CPU given, unless told.
    threads: Option<usize>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seconds: 5.0,
            threads: None,
        }
    }
}

/// Heap-sort 8111 32-bit integers.
pub fn numeric_sort(context: &Context) -> Result<Value, Failure> {
    run::<numeric_sort::NumericSort>(context)
}

/// The first 100 pairs of Fourier coefficients of (x+1)^x on [0, 2].
pub fn fourier(context: &Context) -> Result<Value, Failure> {
    run::<fourier::Fourier>(context)
}

/// Encrypt and decrypt 4000 bytes with IDEA.
pub fn idea(context: &Context) -> Result<Value, Failure> {
    run::<idea::Idea>(context)
}

/// One batch: when it began (raw clock), how long its work took, and its iterations.
struct Batch {
    start_ns: u64,
    work_ns: u64,
    iterations: u64,
}

fn run<K: Kernel>(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let threads = load::threads(context, params.threads);
    params::require((1..=1024).contains(&threads), "threads: 1 to 1024")?;
    params::require(
        params.seconds > 0.0 && params.seconds <= 86_400.0,
        "seconds: above 0, at most a day",
    )?;
    let gate = Barrier::new(threads);
    let per_thread = std::thread::scope(|scope| {
        let (params, gate) = (&params, &gate);
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || one_thread::<K>(context, params, number, gate)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| Failure("the kernel panicked".into()))?
            })
            .collect::<Result<Vec<_>, Failure>>()
    })?;
    let begin = per_thread
        .iter()
        .flatten()
        .map(|batch| batch.start_ns)
        .min()
        .unwrap_or(0);
    let all = || {
        let numbered = per_thread.iter().enumerate();
        numbered.flat_map(|(thread, batches)| batches.iter().map(move |batch| (thread, batch)))
    };
    Table::new()
        .u64s("thread", all().map(|(thread, _)| thread as u64))
        .u64s("time_ns", all().map(|(_, batch)| batch.start_ns - begin))
        .f64s(
            "iteration_ns",
            all().map(|(_, batch)| batch.work_ns as f64 / batch.iterations as f64),
        )
        .send(context.sink, "iterations");
    let rates = per_thread.iter().map(|batches| rate(batches));
    Ok(json!({
        "threads": threads,
        "iterations": all().map(|(_, batch)| batch.iterations).sum::<u64>(),
        "seconds": params.seconds,
        "iterations_per_s": rates.sum::<f64>(),
        "verified": true,
        "warnings": [],
    }))
}

/// Iterations per second of work; what lies between batches is not counted.
fn rate(batches: &[Batch]) -> f64 {
    let iterations: u64 = batches.iter().map(|batch| batch.iterations).sum();
    let work_ns: u64 = batches.iter().map(|batch| batch.work_ns).sum();
    iterations as f64 / (work_ns.max(1) as f64 * 1e-9)
}

fn one_thread<K: Kernel>(
    context: &Context,
    params: &Params,
    number: usize,
    gate: &Barrier,
) -> Result<Vec<Batch>, Failure> {
    let pinned = match context.cpus {
        [] => Ok(()),
        cpus => sched::pin(&[cpus[number % cpus.len()]]),
    };
    let mut kernel = K::new(number as u64 + 1);
    let first = batch(&mut kernel, 1);
    let verified = kernel.verify(1);
    let one_s = first.work_ns.max(1) as f64 * 1e-9;
    let at_once = ((BATCH_S / one_s) as usize).clamp(1, K::MOST_AT_ONCE);
    gate.wait();
    let ready = if number == 0 {
        context.sink.barrier()
    } else {
        Ok(())
    };
    gate.wait();
    // Only now may a thread leave: the others wait for all at the gate.
    pinned.map_err(|error| Failure(format!("cannot run on CPUs {:?}: {error}", context.cpus)))?;
    verified.map_err(Failure)?;
    ready?;
    let least_ns = (params.seconds * 1e9) as u64;
    let expected = (params.seconds / one_s) as usize / at_once * 2;
    let mut batches = Vec::with_capacity(expected.clamp(16, 1 << 20));
    let mut worked_ns = 0;
    while worked_ns < least_ns && !(context.stop.load(Ordering::Relaxed) && worked_ns > 0) {
        let done = batch(&mut kernel, at_once);
        worked_ns += done.work_ns;
        batches.push(done);
        kernel.verify(at_once).map_err(Failure)?;
    }
    Ok(batches)
}

fn batch<K: Kernel>(kernel: &mut K, iterations: usize) -> Batch {
    kernel.prepare(iterations);
    let start_ns = tsc::monotonic_raw_ns();
    kernel.work(iterations);
    Batch {
        start_ns,
        work_ns: tsc::monotonic_raw_ns() - start_ns,
        iterations: iterations as u64,
    }
}

fn wrong(kernel: &str) -> String {
    format!("{kernel} computed a wrong result: this machine's CPU or memory cannot be trusted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Run;
    use crate::workloads::testing::run_with;

    #[test]
    fn each_kernel_runs_verifies_and_reports() {
        let kernels: [(&str, Run); 3] = [
            ("numeric-sort", numeric_sort),
            ("fourier", fourier),
            ("idea", idea),
        ];
        for (name, kernel) in kernels {
            for threads in [1, 2] {
                let params = json!({"seconds": 0.02, "threads": threads});
                let (result, collected) = run_with(kernel, &params, &[]);
                assert_eq!(result["verified"], true, "{name}: {result}");
                assert!(result["iterations_per_s"].as_f64().unwrap() > 0.0);
                let series = collected.series.lock().unwrap();
                assert_eq!(series[0].data.len(), series[0].expected_bytes());
                let mut seen = series[0].words("thread");
                seen.dedup();
                assert_eq!(seen.len(), threads, "{name}");
                assert_eq!(collected.barriers(), 1);
            }
        }
    }

    #[test]
    fn rate_counts_work_only() {
        let batch = |start_ns, work_ns, iterations| Batch {
            start_ns,
            work_ns,
            iterations,
        };
        let batches = [
            batch(0, 500_000_000, 3),
            batch(9_000_000_000, 1_500_000_000, 5),
        ];
        assert_eq!(rate(&batches), 4.0);
    }

    /// Computes wrongly from the fifth batch on.
    struct Faulty(usize);

    impl Kernel for Faulty {
        const MOST_AT_ONCE: usize = 1;
        fn new(_seed: u64) -> Self {
            Self(0)
        }
        fn prepare(&mut self, _iterations: usize) {
            self.0 += 1;
        }
        fn work(&mut self, _iterations: usize) {}
        fn verify(&self, _iterations: usize) -> Result<(), String> {
            if self.0 < 5 {
                Ok(())
            } else {
                Err(wrong("faulty"))
            }
        }
    }

    #[test]
    fn a_wrong_result_fails_the_workload() {
        let (result, _) = run_with(run::<Faulty>, &json!({"seconds": 10, "threads": 2}), &[]);
        assert!(
            result["error"].as_str().unwrap().contains("wrong result"),
            "{result}"
        );
    }
}
