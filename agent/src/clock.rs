//! The machine's clocks, and its cycle counter.

use serde_json::{json, Value};

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call's only write.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW: what the machine's own oscillator says, undisciplined.
pub fn monotonic_raw_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_RAW)
}

/// Nanoseconds of CLOCK_MONOTONIC: what timers go by.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// The cycle counter after all earlier instructions have ended (TSC; on aarch64 CNTVCT).
#[cfg(target_arch = "x86_64")]
pub fn counter() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions exist on every x86-64 processor and touch no memory.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

#[cfg(target_arch = "aarch64")]
pub fn counter() -> u64 {
    let value: u64;
    // SAFETY: reads a counter register that user code may read; touches no memory.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack)) };
    value
}

/// All clocks at one moment, as the answer to the `clock` request.
pub fn reading() -> Value {
    json!({
        "monotonic_raw_ns": monotonic_raw_ns(),
        "realtime_ns": realtime_ns(),
        "tsc": counter(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn clocks_do_not_go_back() {
        let (raw, cycles) = (super::monotonic_raw_ns(), super::counter());
        assert!(super::monotonic_raw_ns() >= raw);
        assert!(super::counter() >= cycles);
        assert!(super::realtime_ns() > 1_600_000_000_000_000_000);
    }
}
