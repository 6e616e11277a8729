//! The machine's clocks, and its cycle counter.

use crate::measure::sched;
use serde_json::{json, Value};
use std::fs;
use std::sync::OnceLock;

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

/// The word on the kernel's command line that makes work begin at multiples of so many nanoseconds.
const ALIGN: &str = "tare.align";

/// Wait for the next multiple of the time that the kernel's command line names; not at all where it
/// names none.
///
/// Where time counts instructions, only the moment at which a request arrives comes from outside.
/// Waiting for a moment that the machine's own clock names takes that out again, and costs nothing,
/// since idle time passes at once.
pub fn align() {
    if let Some(period) = period() {
        sched::sleep_until((monotonic_ns() / period + 1) * period);
    }
}

/// Whether work begins at such moments. Then a machine that waits waits for no time at all, and no
/// deadline says anything of the outside.
pub fn aligned() -> bool {
    period().is_some()
}

fn period() -> Option<u64> {
    static PERIOD: OnceLock<Option<u64>> = OnceLock::new();
    *PERIOD.get_or_init(|| period_in(&fs::read_to_string("/proc/cmdline").unwrap_or_default()))
}

fn period_in(cmdline: &str) -> Option<u64> {
    cmdline
        .split_whitespace()
        .find_map(|word| word.strip_prefix(ALIGN)?.strip_prefix('='))
        .and_then(|value| value.parse().ok())
        .filter(|period| *period > 0)
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
    fn only_a_positive_period_counts() {
        let period = super::period_in;
        assert_eq!(period("quiet tare.align=1000 panic=-1\n"), Some(1000));
        for wrong in [
            "",
            "tare.align",
            "tare.align=0",
            "tare.align=x",
            "tare.aligned=5",
        ] {
            assert_eq!(period(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn clocks_do_not_go_back() {
        let (raw, cycles) = (super::monotonic_raw_ns(), super::counter());
        assert!(super::monotonic_raw_ns() >= raw);
        assert!(super::counter() >= cycles);
        assert!(super::realtime_ns() > 1_600_000_000_000_000_000);
    }
}
