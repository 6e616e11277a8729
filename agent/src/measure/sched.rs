//! Where and how the calling thread runs, and what the kernel may do to it.

use crate::sys;
pub use crate::sys::{block_signals, current_cpu, involuntary_switches, yield_now};
use rustix::mm::{mlockall, munlockall, MlockAllFlags};
use rustix::thread::{clock_nanosleep_absolute, ClockId};
use rustix::time::Timespec;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The highest priority of SCHED_FIFO on Linux (sched(7)).
pub const HIGHEST_PRIORITY: i32 = 99;

/// Let the calling thread run on `cpus` only.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    sys::set_affinity(0, cpus)
}

/// The CPUs the calling thread may run on.
pub fn affinity() -> io::Result<Vec<usize>> {
    sys::affinity(0)
}

/// Give the calling thread SCHED_FIFO at `priority`.
pub fn fifo(priority: i32) -> io::Result<()> {
    sys::set_fifo(priority)
}

/// Sleep until `CLOCK_MONOTONIC` shows `ns`; signals may end it early, so block them before.
pub fn sleep_until(ns: u64) {
    let time = Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

/// More than a measurement takes, in bytes.
const ENOUGH: u64 = 1 << 30;

/// Keeps all present and future memory resident while it lives.
pub struct LockedMemory(());

impl LockedMemory {
    /// Refuses where future memory could not all be locked: the kernel would then give none, and
    /// whoever asks for some would fall.
    pub fn lock() -> io::Result<Self> {
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
pub struct ShallowIdle {
    _held: File,
}

impl ShallowIdle {
    pub fn hold() -> io::Result<Self> {
        let mut held = OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")?;
        held.write_all(&0i32.to_ne_bytes())?;
        Ok(Self { _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_and_reads_back() {
        std::thread::spawn(|| {
            let cpu = *affinity().unwrap().last().unwrap();
            pin(&[cpu]).unwrap();
            assert_eq!(affinity().unwrap(), vec![cpu]);
            assert_eq!(current_cpu(), cpu);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn refuses_cpus_that_cannot_be() {
        assert!(pin(&[100_000]).is_err());
    }
}
