//! Clocks and constants that the C library reads without entering the kernel.
//!
//! rustix cannot be used: it finds the vDSO in the auxiliary vector, which kernels before 6.4 show only
//! in `/proc`, and init reads clocks before `/proc` is mounted.

#![expect(
    unsafe_code,
    reason = "rustix cannot do it in init, as explained above"
)]

use std::io;

/// Turn the result of a call of the C library into an error where it is negative.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// What a clock shows, in nanoseconds.
#[inline]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call's only write. A clock that is not there leaves it alone.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a clock's smallest step is, in nanoseconds; nothing where there is no such clock.
pub fn clock_step_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut step = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `step` is valid for the call's only write.
    let known = unsafe { libc::clock_getres(clock, &mut step) } == 0;
    known.then_some(step.tv_sec as u64 * 1_000_000_000 + step.tv_nsec as u64)
}

/// The size of a page of memory, in bytes.
pub fn page_size() -> u64 {
    constant(libc::_SC_PAGESIZE)
}

/// How many of the ticks in which `/proc` counts time make a second.
pub fn clock_ticks_per_s() -> u64 {
    constant(libc::_SC_CLK_TCK).max(1)
}

fn constant(name: libc::c_int) -> u64 {
    // SAFETY: takes a name and returns a number.
    let value = unsafe { libc::sysconf(name) };
    value.max(0) as u64
}
