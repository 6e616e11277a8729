//! The processor's cycle counter, read in order, and tied to `CLOCK_MONOTONIC_RAW`.

#![expect(unsafe_code, reason = "instructions without a Rust intrinsic")]

use super::clock;
pub use super::clock::monotonic_raw_ns;
use crate::contract::Failure;
use serde_json::{json, Value};

/// Two calibrations must agree within this share.
const AGREEMENT: f64 = 1e-3;
const FIRST_WINDOW_NS: u64 = 4_000_000;
const LONGEST_WINDOW_NS: u64 = 512_000_000;

/// Read the counter once everything before it has completed.
#[inline(always)]
pub fn read() -> u64 {
    await_completion();
    read_unordered()
}

/// Wait until everything before has completed; nothing after it begins earlier.
///
/// The memory clobber keeps the compiler from moving loads and stores across.
#[inline(always)]
pub fn await_completion() {
    // SAFETY: a fence, without operands or effects on registers.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("lfence", options(nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

/// Read the counter; instructions since the last `await_completion` may not have completed yet.
#[inline(always)]
pub fn read_unordered() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (low, high): (u64, u64);
        // SAFETY: reads a counter, and writes eax and edx only.
        unsafe {
            std::arch::asm!("rdtsc", out("rax") low, out("rdx") high,
                            options(nostack, preserves_flags));
        }
        high << 32 | low
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which Linux lets user space read.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks,
                            options(nostack, preserves_flags));
        }
        ticks
    }
}

/// All clocks at one moment, as the answer to the `clock` request.
pub fn reading() -> Value {
    json!({
        "monotonic_raw_ns": monotonic_raw_ns(),
        "realtime_ns": clock::realtime_ns(),
        "tsc": read(),
    })
}

/// The counter and the kernel's raw clock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    pub ticks: u64,
    pub raw_ns: u64,
    /// Ticks between the two readings around the raw clock.
    pub width: u64,
}

impl Anchor {
    /// Read both clocks; of 16 tries keep the one with the tightest bracket around the raw clock.
    pub fn take() -> Self {
        let mut best = (
            u64::MAX,
            Anchor {
                ticks: 0,
                raw_ns: 0,
                width: 0,
            },
        );
        for _ in 0..16 {
            let before = read();
            let raw_ns = monotonic_raw_ns();
            let width = read().wrapping_sub(before);
            if width < best.0 {
                best = (
                    width,
                    Anchor {
                        ticks: before + width / 2,
                        raw_ns,
                        width,
                    },
                );
            }
        }
        best.1
    }

    /// Ticks per second between two anchors; not finite or not positive when a clock misbehaves.
    pub fn hz_until(&self, later: &Anchor) -> f64 {
        let ticks = later.ticks.wrapping_sub(self.ticks) as i64 as f64;
        let ns = later.raw_ns.wrapping_sub(self.raw_ns) as i64 as f64;
        ticks / ns * 1e9
    }
}

/// Find the counter's frequency in Hz: longer and longer windows until two in a row agree
/// within 1/1000.
///
/// Spins rather than sleeps, because the counter is judged as it will be used.
pub fn calibrate() -> Result<f64, Failure> {
    let mut window_ns = FIRST_WINDOW_NS;
    let mut last = f64::NAN;
    while window_ns <= LONGEST_WINDOW_NS {
        for _ in 0..4 {
            let hz = window(window_ns);
            if hz > 0.0 && (hz / last - 1.0).abs() < AGREEMENT {
                return Ok(hz);
            }
            last = hz;
        }
        window_ns *= 2;
    }
    Err(Failure(format!(
        "the cycle counter does not keep time with CLOCK_MONOTONIC_RAW: \
         no two calibrations agreed within 1/1000 (last: {last:.0} Hz)"
    )))
}

fn window(ns: u64) -> f64 {
    let start = Anchor::take();
    while monotonic_raw_ns() - start.raw_ns < ns {
        std::hint::spin_loop();
    }
    start.hz_until(&Anchor::take())
}

/// Whether the counter runs at one rate and never stops, as the kernel sees it; else why not.
pub fn untrusted() -> Option<String> {
    if cfg!(target_arch = "aarch64") {
        return None; // The architecture guarantees both for the generic timer.
    }
    untrusted_by(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn untrusted_by(cpuinfo: &str) -> Option<String> {
    let flags: Vec<&str> = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .and_then(|line| line.split(':').nth(1))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !flags.contains(flag))
        .collect();
    (!missing.is_empty())
        .then(|| format!("this machine's CPU does not state {}", missing.join(", ")))
}

/// Refuse an untrusted counter unless `allowed`; then return the warning the result must carry.
pub fn admit(allowed: bool) -> Result<Option<String>, Failure> {
    match untrusted() {
        None => Ok(None),
        Some(why) if allowed => Ok(Some(format!(
            "measured with an untrusted cycle counter: {why}; \
             differences in its rate would show as time"
        ))),
        Some(why) => Err(Failure(format!(
            "the cycle counter is not trusted: {why}; \
             set allow_untrusted_tsc to measure anyway, with a warning"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_moves_forward_and_calibrates() {
        let before = read();
        let hz = calibrate().unwrap();
        assert!(read() > before);
        assert!(hz > 1e6, "{hz}");
    }

    #[test]
    fn anchors_give_the_rate() {
        let start = Anchor {
            ticks: 1000,
            raw_ns: 500,
            width: 20,
        };
        let end = Anchor {
            ticks: 1000 + 26_000_000,
            raw_ns: 500 + 10_000_000,
            width: 20,
        };
        assert_eq!(start.hz_until(&end), 2.6e9);
        assert!(end.hz_until(&start) > 0.0);
        let backwards = Anchor {
            ticks: 0,
            raw_ns: 1500,
            width: 20,
        };
        assert!(start.hz_until(&backwards) < 0.0);
    }

    #[test]
    fn trust_needs_both_flags() {
        let both = "processor : 0\nflags : fpu tsc constant_tsc nonstop_tsc\n";
        assert_eq!(untrusted_by(both), None);
        let one = untrusted_by("flags : fpu tsc constant_tsc\n").unwrap();
        assert!(one.contains("nonstop_tsc") && !one.contains("constant_tsc"));
        assert!(untrusted_by("").is_some());
    }
}
