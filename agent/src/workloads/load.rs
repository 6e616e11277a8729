//! What the endless loads share: threads that work in batches until the host stops them.

use crate::contract::{Context, Failure};
use crate::measure::{scheduling, tsc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What all threads of a load did together.
pub struct Done {
    pub batches: u64,
    pub seconds: f64,
    pub threads: usize,
}

impl Done {
    /// Batches per second.
    pub fn rate(&self) -> f64 {
        self.batches as f64 / self.seconds
    }
}

/// How many threads to run: as asked, else one per CPU given, else one.
pub fn threads(context: &Context, asked: Option<usize>) -> usize {
    asked.unwrap_or(context.cpus.len().max(1))
}

/// Run `threads` threads, thread i pinned to the i-th CPU given (in turn), each with a state from
/// `prepare`, until the stop flag or for `seconds`; each looks at the flag after every batch.
///
/// All states are prepared before the barrier, and all threads start together.
pub fn until_stopped<S>(
    context: &Context,
    threads: usize,
    seconds: Option<f64>,
    prepare: impl Fn(usize) -> S + Sync,
    batch: impl Fn(&mut S) + Sync,
) -> Result<Done, Failure> {
    let (gate, abandoned) = (std::sync::Barrier::new(threads + 1), AtomicBool::new(false));
    let work = |number: usize| -> std::io::Result<u64> {
        let pinned = match context.cpus {
            [] => Ok(()),
            cpus => scheduling::pin(&[cpus[number % cpus.len()]]),
        };
        abandoned.fetch_or(pinned.is_err(), Ordering::SeqCst);
        let mut state = prepare(number);
        gate.wait();
        gate.wait();
        pinned?;
        let start = Instant::now();
        let mut batches = 0;
        while !context.stop.load(Ordering::Relaxed) && !abandoned.load(Ordering::Relaxed) {
            if seconds.is_some_and(|seconds| start.elapsed().as_secs_f64() >= seconds) {
                break;
            }
            batch(&mut state);
            batches += 1;
        }
        Ok(batches)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        gate.wait();
        let ready = context.sink.barrier();
        abandoned.fetch_or(ready.is_err(), Ordering::SeqCst);
        let start = tsc::monotonic_raw_ns();
        gate.wait();
        let mut batches = 0;
        let mut failure = ready.err();
        for thread in running {
            match thread.join() {
                Ok(Ok(done)) => batches += done,
                Ok(Err(error)) => {
                    let cpus = context.cpus;
                    failure = Some(Failure(format!("cannot run on CPUs {cpus:?}: {error}")));
                }
                Err(_) => failure = Some(Failure("a thread of the load panicked".into())),
            }
        }
        let seconds = ((tsc::monotonic_raw_ns() - start) as f64 * 1e-9).max(1e-9);
        failure.map_or(
            Ok(Done {
                batches,
                seconds,
                threads,
            }),
            Err,
        )
    })
}
