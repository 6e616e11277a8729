//! The workloads under way, each in a thread of its own.

use super::outbox::Outbox;
use super::protocol;
use crate::contract::{Context, Failure, Run, Sink};
use crate::measure::scheduling::Found;
use crate::measure::{clock, realtime, steal};
use crate::{sys, workloads};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A result is sent again this often, until the host has it.
pub const RESULT_INTERVAL: Duration = Duration::from_secs(2);
pub const RESULT_ATTEMPTS: u32 = 5;
/// How many finished runs are remembered for requests that come twice.
const FINISHED: usize = 64;

/// One run under way, as its thread and the agent's loop share it.
struct Task {
    id: u64,
    cpus: Vec<usize>,
    barrier: bool,
    stop: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
    /// Whether runs on other machines start on the same signal.
    together: AtomicBool,
    /// When the barrier was passed (monotonic raw), 0 before.
    started_ns: AtomicU64,
    outbox: Arc<Outbox>,
}

impl Task {
    fn release(&self, together: bool) {
        self.together.store(together, Ordering::SeqCst);
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        // Under the lock, so that a waiting run cannot miss it.
        let _open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.opened.notify_all();
    }
}

impl Sink for Task {
    fn progress(&self, done: f64, fields: Value) {
        self.outbox.send(&protocol::progress(self.id, done, fields));
    }

    fn barrier(&self) -> Result<(), Failure> {
        if self.barrier {
            self.outbox.send(&protocol::ready(self.id));
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            while !*open && !self.stop.load(Ordering::SeqCst) {
                open = self
                    .opened
                    .wait(open)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if !*open {
                return Err(Failure::from("stopped before the start signal"));
            }
        }
        // Each machine has its own clock: a machine that waits for an aligned moment starts too late for
        // the others, because idle time no longer passes at once while they work.
        if !self.together.load(Ordering::SeqCst) {
            clock::align();
        }
        self.started_ns
            .store(clock::monotonic_raw_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]) {
        self.outbox.send_series(self.id, name, rows, columns, data);
    }
}

#[derive(Default)]
struct Table {
    running: BTreeMap<u64, Arc<Task>>,
    finished: VecDeque<(u64, Value)>,
}

/// All runs of this agent.
pub struct Runs {
    table: Mutex<Table>,
    ended: Condvar,
    outbox: Arc<Outbox>,
    /// The CPUs that the agent could use when it started.
    home: Vec<usize>,
    /// How the host wants workloads to be scheduled; `None`: it did not specify that.
    given: Option<Found>,
}

impl Runs {
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            table: Mutex::new(Table::default()),
            ended: Condvar::new(),
            outbox,
            home: sys::affinity(0).unwrap_or_default(),
            given: realtime::given(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start a workload, or answer again where this id is known.
    pub fn start(
        self: &Arc<Self>,
        id: u64,
        name: &str,
        params: Value,
        cpus: Vec<usize>,
        barrier: bool,
    ) {
        let mut table = self.lock();
        if table.running.contains_key(&id) {
            drop(table);
            self.outbox.send(&protocol::accepted(id));
            return;
        }
        if let Some((_, answer)) = table.finished.iter().find(|(known, _)| *known == id) {
            self.outbox.send(answer);
            return;
        }
        let run = match self.check(name, &cpus) {
            Ok(run) => run,
            Err(reason) => {
                let answer = protocol::error(Some(id), &reason);
                table.finish(id, answer.clone());
                drop(table);
                self.outbox.send(&answer);
                return;
            }
        };
        let task = Arc::new(Task {
            id,
            cpus,
            barrier,
            stop: AtomicBool::new(false),
            open: Mutex::new(false),
            opened: Condvar::new(),
            together: AtomicBool::new(false),
            started_ns: AtomicU64::new(0),
            outbox: self.outbox.clone(),
        });
        table.running.insert(id, task.clone());
        drop(table);
        self.outbox.send(&protocol::accepted(id));
        realtime::follow(self.given, 1);
        let runs = self.clone();
        let thread = std::thread::Builder::new().name(name.chars().take(15).collect());
        let spawned = thread.spawn(move || runs.execute(&task, run, &params));
        if let Err(error) = spawned {
            let reason = format!("no thread could be started: {error}");
            self.finish(id, protocol::error(Some(id), &reason));
        }
    }

    fn check(&self, name: &str, cpus: &[usize]) -> Result<Run, String> {
        let run = workloads::find(name).ok_or_else(|| {
            let known: Vec<&str> = workloads::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "this agent has no workload '{name}'; it has: {}",
                known.join(", ")
            )
        })?;
        match cpus.iter().find(|cpu| !self.home.contains(cpu)) {
            Some(cpu) => Err(format!(
                "CPU {cpu} is not among those this agent may use: {:?}",
                self.home
            )),
            None => Ok(run),
        }
    }

    fn execute(&self, task: &Task, run: Run, params: &Value) {
        let cpus = if task.cpus.is_empty() {
            &self.home
        } else {
            &task.cpus
        };
        let pinned = sys::set_affinity(0, cpus);
        realtime::follow(self.given, 0);
        clock::align();
        let stolen_before = steal::stolen_ns(&task.cpus);
        let accepted_ns = clock::monotonic_raw_ns();
        let context = Context {
            params,
            cpus: &task.cpus,
            stop: &task.stop,
            sink: task,
        };
        let outcome = match pinned {
            Ok(()) => run(&context),
            Err(error) => Err(Failure(format!("cannot use CPUs {cpus:?}: {error}"))),
        };
        let ended_ns = clock::monotonic_raw_ns();
        let stolen_after = steal::stolen_ns(&task.cpus);
        // A workload may leave its thread at a real-time priority; sending needs none.
        let _ = sys::set_fifo(0);
        let answer = match outcome {
            Ok(value) => {
                let mut answer = protocol::result(task.id, value);
                let started_ns = match task.started_ns.load(Ordering::Relaxed) {
                    0 => accepted_ns,
                    started => started,
                };
                answer["timing"] = json!({
                    "accepted_ns": accepted_ns, "started_ns": started_ns, "ended_ns": ended_ns,
                });
                if let Some(after) = stolen_after {
                    let stolen_ns = after.saturating_sub(stolen_before.unwrap_or(0));
                    answer["timing"]["stolen_ns"] = json!(stolen_ns);
                }
                answer
            }
            Err(Failure(reason)) => protocol::error(Some(task.id), &reason),
        };
        let seq = self.finish(task.id, answer);
        // With aligned work, a retransmission would be answered in the middle of the next run.
        if !clock::aligned() {
            self.outbox
                .see_arrived(seq, RESULT_INTERVAL, RESULT_ATTEMPTS);
        }
    }

    fn finish(&self, id: u64, answer: Value) -> u32 {
        let mut table = self.lock();
        table.running.remove(&id);
        table.finish(id, answer.clone());
        self.ended.notify_all();
        drop(table);
        self.outbox.send(&answer)
    }

    /// Let a run pass its barrier. Returns whether there is such a run.
    pub fn go(&self, id: u64, together: bool) -> bool {
        let task = self.lock().running.get(&id).cloned();
        task.inspect(|task| task.release(together)).is_some()
    }

    /// Ask a run to end. Returns whether there is such a run.
    pub fn stop(&self, id: u64) -> bool {
        let task = self.lock().running.get(&id).cloned();
        task.inspect(|task| task.end()).is_some()
    }

    /// Ask all runs to end, and wait a little for them.
    pub fn stop_all(&self, grace: Duration) {
        let since = Instant::now();
        let mut table = self.lock();
        for task in table.running.values() {
            task.end();
        }
        while !table.running.is_empty() {
            let left = grace.saturating_sub(since.elapsed());
            if left.is_zero() {
                return;
            }
            let (next, _) = self
                .ended
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner);
            table = next;
        }
    }

    /// The CPUs on which no run was placed; all, where every one has a run.
    pub fn free_cpus(&self) -> Vec<usize> {
        let table = self.lock();
        let taken: BTreeSet<usize> = table
            .running
            .values()
            .flat_map(|t| t.cpus.iter().copied())
            .collect();
        let free: Vec<usize> = self
            .home
            .iter()
            .copied()
            .filter(|cpu| !taken.contains(cpu))
            .collect();
        if free.is_empty() {
            self.home.clone()
        } else {
            free
        }
    }
}

impl Table {
    fn finish(&mut self, id: u64, answer: Value) {
        self.finished.push_back((id, answer));
        if self.finished.len() > FINISHED {
            self.finished.pop_front();
        }
    }
}
