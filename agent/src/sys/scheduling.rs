//! How the kernel schedules and interrupts a thread, and what it counted of that.

#![expect(unsafe_code, reason = "rustix has no call for these but `sched_yield`")]

use super::check;
use std::io;
use std::mem::{size_of, zeroed};

/// `struct sched_attr` of linux/sched/types.h, as its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Of the structure, in bytes.
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
    rustix::thread::sched_yield();
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
