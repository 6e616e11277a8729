//! The machine's clocks, and its cycle counter.

use crate::sys;
use rustix::thread::{clock_nanosleep_absolute, ClockId};
use rustix::time::Timespec;
use std::fs;
use std::sync::OnceLock;

/// Nanoseconds of CLOCK_MONOTONIC_RAW: the machine's own oscillator, not adjusted by NTP.
#[inline]
pub fn monotonic_raw_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_MONOTONIC_RAW)
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock of timers.
#[inline]
pub fn monotonic_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_REALTIME)
}

/// Sleep until `CLOCK_MONOTONIC` shows `ns`; signals may end it early, so block them before.
pub fn sleep_until(ns: u64) {
    let time = Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

/// The kernel parameter that makes work start at multiples of so many nanoseconds.
const ALIGN: &str = "tare.align";

/// Wait for the next multiple of the period on the kernel's command line; return at once if there is
/// none.
///
/// In a machine whose time counts instructions, only the arrival of a request depends on the outside.
/// Waiting for a moment of the machine's own clock removes that dependency, and costs nothing because
/// idle time passes at once.
pub fn align() {
    if let Some(period) = period() {
        sleep_until(next_multiple(monotonic_ns(), period));
    }
}

/// The first multiple of `period` that is still to come.
fn next_multiple(now: u64, period: u64) -> u64 {
    (now / period + 1) * period
}

/// Whether work starts at such moments. Waiting then takes no real time, so deadlines on the machine's
/// clock are meaningless for the host.
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
    fn the_wait_ends_at_the_next_multiple() {
        for (now, period, expected) in [(0, 10, 10), (9, 10, 10), (10, 10, 20), (25, 10, 30)] {
            assert_eq!(
                super::next_multiple(now, period),
                expected,
                "{now}, {period}"
            );
        }
    }

    #[test]
    fn clocks_do_not_go_back() {
        let raw = super::monotonic_raw_ns();
        assert!(super::monotonic_raw_ns() >= raw);
        assert!(super::realtime_ns() > 1_600_000_000_000_000_000);
    }
}
