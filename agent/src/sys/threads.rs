//! Threads: the CPUs they may run on, how the kernel schedules and interrupts them, and what it counted
//! of that.

#![expect(
    unsafe_code,
    reason = "rustix's set of CPUs ends at 1024, and it has no call for most of the rest"
)]

use super::library::check;
use rustix::thread::{self, MembarrierCommand};
use std::io;
use std::mem::{size_of, size_of_val, zeroed};

/// The kernel's id of the calling thread.
pub fn thread_id() -> i32 {
    thread::gettid().as_raw_nonzero().get()
}

/// The CPU the calling thread runs on at this moment.
pub fn current_cpu() -> usize {
    thread::sched_getcpu()
}

/// How many CPUs Linux can number (CONFIG_NR_CPUS with MAXSMP); libc's `cpu_set_t` ends at 1024.
pub const MOST_CPUS: usize = 8192;
const BITS: usize = u64::BITS as usize;

/// The CPUs a thread may run on (0: the calling one).
pub fn affinity(thread: i32) -> io::Result<Vec<usize>> {
    let mut mask = [0_u64; MOST_CPUS / BITS];
    // SAFETY: the kernel writes at most the size of the mask, which it gets as an argument.
    let result =
        unsafe { libc::sched_getaffinity(thread, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    check(result)?;
    let all = 0..MOST_CPUS;
    Ok(all
        .filter(|cpu| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1)
        .collect())
}

/// Bind a thread (0: the calling one) to these CPUs.
pub fn set_affinity(thread: i32, cpus: &[usize]) -> io::Result<()> {
    let mut mask = [0_u64; MOST_CPUS / BITS];
    for &cpu in cpus {
        if cpu >= MOST_CPUS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("CPU {cpu} is beyond what the system can name"),
            ));
        }
        mask[cpu / BITS] |= 1 << (cpu % BITS);
    }
    // SAFETY: the kernel reads at most the size of the mask, which it gets as an argument.
    let result =
        unsafe { libc::sched_setaffinity(thread, size_of_val(&mask), mask.as_ptr().cast()) };
    check(result)?;
    Ok(())
}

/// `struct sched_attr` of linux/sched/types.h, as its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The structure's size in bytes.
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

impl Default for Attributes {
    /// SCHED_OTHER, with the kernel's own slice.
    fn default() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice: 0,
            priority: 0,
            runtime: 0,
            deadline: 0,
            period: 0,
        }
    }
}

/// What the kernel says of a thread (0: the calling one).
pub fn scheduling_of(thread: i32) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    let size = found.size;
    // SAFETY: the kernel writes at most `size` bytes into `found`, which has that size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &mut found, size, 0u32) };
    check(result as libc::c_int).map(|_| found)
}

/// Have the kernel schedule a thread (0: the calling one) so.
pub fn set_scheduling(thread: i32, attributes: &Attributes) -> io::Result<()> {
    assert!(attributes.size as usize <= size_of::<Attributes>());
    // SAFETY: the kernel reads as many bytes as `size` says, which are there.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, attributes, 0u32) };
    check(result as libc::c_int).map(|_| ())
}

/// Put the calling thread under SCHED_FIFO at a priority (1 to 99), or back under SCHED_OTHER (0).
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let policy = if priority > 0 {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameter` lives until the call ends.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameter) }).map(|_| ())
}

/// Give the calling thread up to the next of its priority.
#[inline(always)]
pub fn yield_now() {
    thread::sched_yield();
}

/// Allow this process [`barrier_everywhere`].
pub fn allow_barriers() -> io::Result<()> {
    Ok(thread::membarrier(
        MembarrierCommand::RegisterPrivateExpedited,
    )?)
}

/// Interrupt every other CPU that runs a thread of this process, and wait until each has answered.
pub fn barrier_everywhere() -> io::Result<()> {
    Ok(thread::membarrier(MembarrierCommand::PrivateExpedited)?)
}

/// Let no signal interrupt the calling thread.
pub fn block_signals() {
    // SAFETY: sigset_t is plain numbers.
    let mut all: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: `all` is valid for the call's only write.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: `all` lives until the call ends; the set of before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()) };
}

/// How often the calling thread was preempted so far.
pub fn involuntary_switches() -> u64 {
    // SAFETY: rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: `usage` is valid for the call's only write.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nivcsw as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_some_of_its_cpus() {
        let before = affinity(0).unwrap();
        set_affinity(0, &before[..1]).unwrap();
        assert_eq!(affinity(0).unwrap(), &before[..1]);
        set_affinity(0, &before).unwrap();
    }

    #[test]
    fn cpus_beyond_1024_are_named_and_ignored_where_they_are_not_there() {
        let before = affinity(0).unwrap();
        let mut wanted = before.clone();
        wanted.push(MOST_CPUS - 1);
        set_affinity(0, &wanted).unwrap();
        assert_eq!(affinity(0).unwrap(), before);
        assert!(set_affinity(0, &[MOST_CPUS]).is_err());
        assert!(set_affinity(0, &[MOST_CPUS - 1]).is_err());
    }
}
