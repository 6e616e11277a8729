//! Protect the calling thread from disturbances as far as this machine allows, and report what was
//! refused.

use super::{scheduling, sysfs};
use crate::contract::Failure;
use crate::sys;
use rustix::mm::{mlockall, munlockall, MlockAllFlags};
use serde_json::{json, Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Held while the process measures; memory is unlocked and idle states return on drop.
pub struct Quiet {
    _memory: Option<LockedMemory>,
    _idle: Option<ShallowIdle>,
    pub warnings: Vec<String>,
    pub facts: Map<String, Value>,
}

/// Lock the process's memory and keep CPUs out of deep idle; what is refused becomes a warning.
pub fn quiet() -> Quiet {
    let mut warnings = Vec::new();
    let memory = LockedMemory::lock()
        .map_err(|error| warnings.push(format!("memory is not locked (mlockall: {error})")))
        .ok();
    let idle = ShallowIdle::hold()
        .map_err(|error| {
            warnings.push(format!(
                "deep idle states stay on (/dev/cpu_dma_latency: {error})"
            ));
        })
        .ok();
    let mut facts = Map::new();
    facts.insert("memory_locked".into(), json!(memory.is_some()));
    facts.insert("idle_latency_held".into(), json!(idle.is_some()));
    throttling(&mut warnings, &mut facts);
    Quiet {
        _memory: memory,
        _idle: idle,
        warnings,
        facts,
    }
}

/// More than a measurement takes, in bytes.
const ENOUGH: u64 = 1 << 30;

/// Keeps all present and future memory resident while it lives.
struct LockedMemory(());

impl LockedMemory {
    /// Fails if not all future memory could be locked: the kernel would then refuse allocations, and
    /// the process would abort.
    fn lock() -> io::Result<Self> {
        if let Some(most) = sys::lockable().filter(|most| *most < ENOUGH) {
            return Err(io::Error::other(format!(
                "this user may lock {} KiB (`ulimit -l`)",
                most >> 10
            )));
        }
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?;
        Ok(Self(()))
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        let _ = munlockall();
    }
}

/// Keeps every CPU out of deep idle states while it lives.
struct ShallowIdle {
    _held: File,
}

impl ShallowIdle {
    fn hold() -> io::Result<Self> {
        let mut held = OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")?;
        held.write_all(&0i32.to_ne_bytes())?;
        Ok(Self { _held: held })
    }
}

fn throttling(warnings: &mut Vec<String>, facts: &mut Map<String, Value>) {
    let runtime = sysfs::number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = sysfs::number("/proc/sys/kernel/sched_rt_period_us");
    facts.insert("rt_runtime_us".into(), json!(runtime));
    if let (Some(runtime), Some(period)) = (runtime, period) {
        if (0..period).contains(&runtime) {
            warnings.push(format!(
                "real-time throttling is on (sched_rt_runtime_us={runtime} of {period}): the \
                 kernel itself may take the CPU away"
            ));
        }
    }
    let server = sysfs::number("/sys/kernel/debug/sched/fair_server/cpu0/runtime");
    facts.insert("fair_server_runtime_ns".into(), json!(server));
}

/// Set in the agent's environment when the host decides how the agent's threads are scheduled:
/// workloads then keep the policy, nice and slice that they inherit.
pub const SCHEDULING_GIVEN: &str = "TARE_SCHEDULING_GIVEN";

/// How the host decided that workloads are scheduled, if it did: as the calling thread is.
pub fn given() -> Option<scheduling::Found> {
    std::env::var_os(SCHEDULING_GIVEN)?;
    scheduling::read(0).ok()
}

/// Give the calling thread SCHED_FIFO, `above` steps higher than a given priority; do nothing if
/// the given policy is not SCHED_FIFO.
///
/// Otherwise a workload that never sleeps would keep the agent, on the same CPU and at the same
/// priority, from ever reading from the host again.
pub fn follow(given: Option<scheduling::Found>, above: i32) {
    if let Some(given) = given.filter(|it| it.policy == libc::SCHED_FIFO) {
        let _ = sys::set_fifo((given.priority + above).min(scheduling::HIGHEST_PRIORITY));
    }
}

/// Pin the calling thread to `cpus` (none: leave it free), block its signals and give it
/// SCHED_FIFO at `priority`; 0 leaves it under SCHED_OTHER. Where the host decides about
/// scheduling, the policy stays as it is.
///
/// Returns the policy in force. A refused policy becomes a warning; an unavailable CPU is a failure,
/// because the measurement would be of another CPU.
pub fn settle(
    cpus: &[usize],
    priority: i32,
    warnings: &mut Vec<String>,
) -> Result<&'static str, Failure> {
    if !cpus.is_empty() {
        scheduling::pin(cpus)
            .map_err(|error| Failure(format!("cannot run on CPUs {cpus:?}: {error}")))?;
    }
    scheduling::block_signals();
    if std::env::var_os(SCHEDULING_GIVEN).is_some() {
        let found = scheduling::read(0)?;
        return Ok(scheduling::policy_name(found.policy));
    }
    if priority == 0 {
        return Ok("SCHED_OTHER");
    }
    match sys::set_fifo(priority) {
        Ok(()) => Ok("SCHED_FIFO"),
        Err(error) => {
            warnings.push(format!(
                "ran under SCHED_OTHER: SCHED_FIFO was refused ({error}); \
                 other programs may have taken the CPU"
            ));
            Ok("SCHED_OTHER")
        }
    }
}

/// Keeps the calling thread off the measured CPUs, where there are others, until dropped.
pub struct Aside {
    before: Vec<usize>,
}

impl Aside {
    pub fn step(measured: &[usize]) -> Self {
        let before = scheduling::affinity().unwrap_or_default();
        let others: Vec<usize> = before
            .iter()
            .copied()
            .filter(|cpu| !measured.contains(cpu))
            .collect();
        if !others.is_empty() && !measured.is_empty() {
            let _ = scheduling::pin(&others);
        }
        Self { before }
    }

    /// The CPUs the thread had before it stepped aside.
    pub fn before(&self) -> &[usize] {
        &self.before
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = scheduling::pin(&self.before);
    }
}
