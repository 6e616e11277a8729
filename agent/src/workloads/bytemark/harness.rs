//! Repeat a kernel on 1 to N threads for a least time, in batches that are timed and verified.

use crate::contract::{Context, Failure};
use crate::measure::columns::Table;
use crate::measure::{params, scheduling, tsc};
use crate::workloads::load;
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::Ordering;
use std::sync::Barrier;

/// All threads of all machines use the same data, so that their work is the same.
pub const SEED: u64 = 1;

/// One kernel: prepares its work, does it, and checks what came out.
pub trait Kernel: Sized {
    /// Iterations that can be prepared at once, at most.
    const MOST_AT_ONCE: usize;

    fn new() -> Self;

    /// Make the data of `iterations` ready; not timed.
    fn prepare(&mut self, iterations: usize);

    /// Do the work that was prepared; timed.
    fn work(&mut self, iterations: usize);

    /// Check the output of the last `work`.
    fn verify(&self, iterations: usize) -> Result<(), String>;
}

/// A batch of iterations lasts about this long, so that reading the clock does not matter.
const BATCH_S: f64 = 5e-3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// The least time of work, per thread.
    seconds: f64,
    /// Default: one per CPU given.
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

/// The threads that do the work, and for how long.
pub struct Team<'a> {
    context: &'a Context<'a>,
    pub threads: usize,
    pub seconds: f64,
}

impl<'a> Team<'a> {
    pub fn new(context: &'a Context<'a>) -> Result<Self, Failure> {
        let params: Params = params::parse(context.params)?;
        let threads = load::threads(context, params.threads);
        params::require((1..=1024).contains(&threads), "threads: 1 to 1024")?;
        params::require(
            params.seconds > 0.0 && params.seconds <= 86_400.0,
            "seconds: above 0, at most a day",
        )?;
        Ok(Self {
            context,
            threads,
            seconds: params.seconds,
        })
    }
}

/// One batch: when it began (raw clock), how long its work took, and its iterations.
pub struct Batch {
    pub start_ns: u64,
    work_ns: u64,
    iterations: u64,
}

impl Batch {
    pub fn iteration_ns(&self) -> f64 {
        self.work_ns as f64 / self.iterations as f64
    }
}

/// A workload that is one kernel.
pub fn alone<K: Kernel>(context: &Context) -> Result<Value, Failure> {
    let team = Team::new(context)?;
    let per_thread = batches::<K>(&team, true)?;
    let begin = begin(&per_thread);
    Table::new()
        .u64s("thread", numbered(&per_thread).map(|(thread, _)| thread))
        .u64s(
            "time_ns",
            numbered(&per_thread).map(|(_, batch)| batch.start_ns - begin),
        )
        .f64s(
            "iteration_ns",
            numbered(&per_thread).map(|(_, batch)| batch.iteration_ns()),
        )
        .send(context.sink, "iterations");
    let mut result = summary(&per_thread);
    result["threads"] = json!(team.threads);
    result["seconds"] = json!(team.seconds);
    result["verified"] = json!(true);
    result["warnings"] = json!([]);
    Ok(result)
}

/// All threads' batches, each with its thread's number.
pub fn numbered(per_thread: &[Vec<Batch>]) -> impl Iterator<Item = (u64, &Batch)> {
    let numbered = (0..).zip(per_thread);
    numbered.flat_map(|(thread, batches)| batches.iter().map(move |batch| (thread, batch)))
}

/// When the first batch began.
pub fn begin(per_thread: &[Vec<Batch>]) -> u64 {
    let starts = numbered(per_thread).map(|(_, batch)| batch.start_ns);
    starts.min().unwrap_or(0)
}

/// The iterations and their rate, of all threads together.
pub fn summary(per_thread: &[Vec<Batch>]) -> Value {
    let iterations: u64 = numbered(per_thread).map(|(_, b)| b.iterations).sum();
    let rates = per_thread.iter().map(|batches| rate(batches));
    json!({"iterations": iterations, "iterations_per_s": rates.sum::<f64>()})
}

/// Iterations per second of work; the time between batches is not counted.
fn rate(batches: &[Batch]) -> f64 {
    let iterations: u64 = batches.iter().map(|batch| batch.iterations).sum();
    let work_ns: u64 = batches.iter().map(|batch| batch.work_ns).sum();
    iterations as f64 / (work_ns.max(1) as f64 * 1e-9)
}

/// Let all threads of `crew` repeat a kernel together; each thread's batches.
///
/// `barrier`: whether to wait for the host's start signal first.
pub fn batches<K: Kernel>(team: &Team, barrier: bool) -> Result<Vec<Vec<Batch>>, Failure> {
    let gate = Barrier::new(team.threads);
    std::thread::scope(|scope| {
        let gate = &gate;
        let running: Vec<_> = (0..team.threads)
            .map(|number| scope.spawn(move || one_thread::<K>(team, number, gate, barrier)))
            .collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined
            .map(|ended| ended.map_err(|_| Failure("the kernel panicked".into()))?)
            .collect()
    })
}

fn one_thread<K: Kernel>(
    team: &Team,
    number: usize,
    gate: &Barrier,
    barrier: bool,
) -> Result<Vec<Batch>, Failure> {
    let context = team.context;
    let pinned = match context.cpus {
        [] => Ok(()),
        cpus => scheduling::pin(&[cpus[number % cpus.len()]]),
    };
    let mut kernel = K::new();
    let first = batch(&mut kernel, 1);
    let verified = kernel.verify(1);
    let one_s = first.work_ns.max(1) as f64 * 1e-9;
    let at_once = ((BATCH_S / one_s) as usize).clamp(1, K::MOST_AT_ONCE);
    gate.wait();
    let ready = if number == 0 && barrier {
        context.sink.barrier()
    } else {
        Ok(())
    };
    gate.wait();
    // Only now may a thread leave: the others wait for all at the gate.
    pinned.map_err(|error| Failure(format!("cannot run on CPUs {:?}: {error}", context.cpus)))?;
    verified.map_err(Failure)?;
    ready?;
    let least_ns = (team.seconds * 1e9) as u64;
    let expected = (team.seconds / one_s) as usize / at_once * 2;
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

/// The failure of a kernel whose result is wrong.
pub fn wrong(kernel: &str) -> String {
    format!("{kernel} computed a wrong result: this machine's CPU or memory cannot be trusted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

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
        fn new() -> Self {
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
        let params = json!({"seconds": 10, "threads": 2});
        let (result, _) = run_with(alone::<Faulty>, &params, &[]);
        assert!(
            result["error"].as_str().unwrap().contains("wrong result"),
            "{result}"
        );
    }
}
