//! Threads, and the CPUs they may run on.

#![expect(unsafe_code, reason = "rustix's set of CPUs ends at 1024")]

use super::check;
use rustix::thread;
use std::io;
use std::mem::size_of_val;

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
    // SAFETY: the kernel writes at most as many bytes as it is told the mask has.
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
    // SAFETY: the kernel reads as many bytes as it is told the mask has.
    let result =
        unsafe { libc::sched_setaffinity(thread, size_of_val(&mask), mask.as_ptr().cast()) };
    check(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_what_it_may_use_already() {
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
