//! The processor's own counters, through perf_event_open(2).

#![expect(unsafe_code, reason = "rustix has no call for it")]

use super::library::check;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

/// Counted by the processor (`PERF_TYPE_HARDWARE`) or by the kernel (`PERF_TYPE_SOFTWARE`).
pub const HARDWARE: u32 = 0;
pub const SOFTWARE: u32 = 1;
/// The processor's event for cycles in which a CPU was not idle (`PERF_COUNT_HW_CPU_CYCLES`).
pub const CYCLES: u64 = 0;
/// As a thread's id: the calling thread.
pub const THIS_THREAD: i32 = 0;
const TIMES: u64 = 0b11;
const INHERIT: u64 = 1 << 1;
const ANYBODY: libc::pid_t = -1;
const ANYWHERE: libc::c_int = -1;

const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// `struct perf_event_attr` as it first was (`PERF_ATTR_SIZE_VER0`), which every kernel takes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

/// One counter.
pub struct Counter {
    file: File,
}

impl Counter {
    /// Begin to count for a thread, wherever it runs, and for those that it starts later. Fails
    /// where there is no such counter, or it may not be used.
    pub fn of_thread(kind: u32, config: u64, thread: i32) -> io::Result<Self> {
        Self::opened(kind, config, INHERIT, thread, ANYWHERE)
    }

    /// Begin to count on one CPU, for all threads that run there.
    pub fn on_cpu(kind: u32, config: u64, cpu: usize) -> io::Result<Self> {
        Self::opened(kind, config, 0, ANYBODY, cpu as libc::c_int)
    }

    fn opened(
        kind: u32,
        config: u64,
        flags: u64,
        pid: libc::pid_t,
        cpu: libc::c_int,
    ) -> io::Result<Self> {
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: 0,
            sample_type: 0,
            read_format: TIMES,
            flags,
            wakeup_events: 0,
            breakpoint: 0,
            config1: 0,
        };
        // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                cpu,
                -1 as libc::c_int,
                CLOSE_ON_EXEC,
            )
        };
        let number = check(opened as libc::c_int)?;
        // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { file: owned.into() })
    }

    /// What was counted, and the share of the time in which it was: where more counters are asked
    /// for than the processor has, they take turns.
    pub fn read(&self) -> io::Result<(u64, f64)> {
        let mut bytes = [0u8; 24];
        (&self.file).read_exact(&mut bytes)?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (value, enabled, running) = (word(0), word(8), word(16));
        // A thread that never ran, such as an idle vCPU, did nothing: the count of zero is right.
        let share = match enabled {
            0 => 1.0,
            _ => running as f64 / enabled as f64,
        };
        Ok((value, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU_CLOCK: u64 = 0;

    #[test]
    fn a_counter_that_every_computer_has_counts_on() {
        // Not allowed on this computer: nothing to test.
        let Ok(counter) = Counter::on_cpu(SOFTWARE, CPU_CLOCK, 0) else {
            return;
        };
        let (first, _) = counter.read().unwrap();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 5 {
            std::hint::spin_loop();
        }
        assert!(counter.read().unwrap().0 - first >= 4_000_000);
    }

    #[test]
    fn a_missing_cpu_has_no_counter() {
        assert!(Counter::on_cpu(HARDWARE, CYCLES, 1 << 20).is_err());
    }
}
