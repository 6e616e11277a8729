//! Whether the machine has room for the ring: all its memory is locked, so what does not fit ends
//! the machine rather than the workload.

use crate::contract::Failure;
use crate::measure::machine;

/// What one thread takes: its stack with what the C library and Rust add to it (a second stack for
/// signals, thread-local storage), and in the kernel another stack, its descriptor, its mappings
/// and their page tables. Found as the fall of MemAvailable with 1000 threads, and rounded up.
const THREAD: u64 = 128 << 10;
/// What else the workload takes: the histogram, its copy, and the result in the agent's hands.
const FIXED: u64 = 12 << 20;

/// Refuse a ring of `threads` threads, and `series` bytes of what it records over time, that the
/// machine's memory cannot hold.
pub fn require(threads: usize, series: u64) -> Result<(), Failure> {
    fits(threads, series, machine::memory_available())
}

fn fits(threads: usize, series: u64, available: u64) -> Result<(), Failure> {
    // Twice, for the series is copied into columns before it is sent.
    let needed = FIXED + THREAD * threads as u64 + 2 * series;
    if needed <= available {
        return Ok(());
    }
    Err(Failure(format!(
        "{threads} threads need about {} MiB of locked memory, and this machine has {} MiB to \
         spare: give it more memory, or ask for fewer threads or samples",
        needed.div_ceil(1 << 20),
        available >> 20
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        assert!(fits(2, 0, 32 << 20).is_ok());
        assert!(fits(2, 16 << 20, 32 << 20).is_err());
        assert!(fits(1000, 0, 256 << 20).is_ok());
        let reason = fits(1000, 0, 70 << 20).unwrap_err().0;
        assert!(
            reason.contains("137 MiB") && reason.contains("70 MiB"),
            "{reason}"
        );
    }
}
