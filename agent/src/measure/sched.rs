//! Where and how the calling thread runs, and what the kernel may do to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::{size_of, zeroed};

/// Let the calling thread run on `cpus` only.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a zeroed cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: `cpu` is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is valid for the size given; thread 0 is the caller.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) })
}

/// The CPUs the calling thread may run on.
pub fn affinity() -> io::Result<Vec<usize>> {
    // SAFETY: as in `pin`; the kernel fills the set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    Ok((0..libc::CPU_SETSIZE as usize)
        // SAFETY: `cpu` is within the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// The CPU the calling thread runs on at this moment.
pub fn current_cpu() -> usize {
    // SAFETY: takes nothing, returns a number (negative only where unsupported).
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// The highest SCHED_FIFO priority.
pub fn highest_priority() -> i32 {
    // SAFETY: takes a policy, returns a number.
    unsafe { libc::sched_get_priority_max(libc::SCHED_FIFO) }
}

/// Give the calling thread SCHED_FIFO at `priority`.
pub fn fifo(priority: i32) -> io::Result<()> {
    // SAFETY: zeroed is valid for this plain struct; thread 0 is the caller.
    let mut parameter: libc::sched_param = unsafe { zeroed() };
    parameter.sched_priority = priority;
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) })
}

/// Give the calling thread up to the next of its priority.
#[inline(always)]
pub fn yield_now() {
    // SAFETY: takes nothing and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// Read `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call; both clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleep until `CLOCK_MONOTONIC` shows `ns`; signals may end it early, so block them before.
pub fn sleep_until(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` outlives the call; no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    };
}

/// Let no signal interrupt the calling thread.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used; both outlive the calls.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Keeps all present and future memory resident while it lives.
pub struct LockedMemory(());

impl LockedMemory {
    pub fn lock() -> io::Result<Self> {
        // SAFETY: takes flags only.
        check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })?;
        Ok(Self(()))
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: takes nothing.
        unsafe { libc::munlockall() };
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

/// Involuntary switches of the calling thread so far.
pub fn nonvoluntary_switches() -> u64 {
    // SAFETY: zeroed is valid for rusage, which outlives the call.
    unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw as u64
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
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
