//! Threads, and the CPUs they may run on.

use rustix::process::Pid;
use rustix::thread::{self, CpuSet};
use std::io;

/// The kernel's id of the calling thread.
pub fn thread_id() -> i32 {
    thread::gettid().as_raw_nonzero().get()
}

/// The CPU the calling thread runs on at this moment.
pub fn current_cpu() -> usize {
    thread::sched_getcpu()
}

/// The CPUs a thread may run on (0: the calling one).
pub fn affinity(thread: i32) -> io::Result<Vec<usize>> {
    let set = thread::sched_getaffinity(Pid::from_raw(thread))?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|cpu| set.is_set(*cpu)).collect())
}

/// Bind a thread (0: the calling one) to these CPUs.
pub fn set_affinity(thread: i32, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("CPU {cpu} is beyond what the system can name"),
            ));
        }
        set.set(cpu);
    }
    Ok(thread::sched_setaffinity(Pid::from_raw(thread), &set)?)
}
