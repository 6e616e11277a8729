//! The three ways to be woken up, each at moments an interval apart.

use super::record::Recorder;
use crate::contract::Failure;
use crate::measure::clock;
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
    Timespec,
};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::mpsc;

/// Moments of CLOCK_MONOTONIC, in nanoseconds.
pub struct Times {
    first: u64,
    interval: u64,
    end: u64,
}

impl Times {
    /// Moments from one interval after now on, for so many seconds.
    pub fn from_now(interval: u64, seconds: f64) -> Self {
        let now = clock::monotonic_ns();
        Self {
            first: now + interval,
            interval,
            end: now + (seconds * 1e9) as u64,
        }
    }

    /// The first moment after `due` that is also after `now`, and the number of missed ones.
    fn after(&self, due: u64, now: u64) -> (u64, u64) {
        let passed = now.saturating_sub(due) / self.interval;
        (
            due + (passed + 1) * self.interval,
            passed.min(self.left(due)),
        )
    }

    /// How many moments follow one of them.
    fn left(&self, due: u64) -> u64 {
        self.end.saturating_sub(due) / self.interval
    }
}

/// Sleep to absolute times by clock_nanosleep(2).
pub fn by_nanosleep(times: &Times, stop: &AtomicBool, recorder: &mut Recorder) {
    let mut due = times.first;
    while due <= times.end && !stop.load(Relaxed) {
        clock::sleep_until(due);
        let now = clock::monotonic_ns();
        recorder.woken(due, now);
        let (next, missed) = times.after(due, now);
        recorder.missed += missed;
        due = next;
    }
}

/// Read a timerfd(2) that expires at absolute times.
pub fn by_timerfd(
    times: &Times,
    stop: &AtomicBool,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let value = Itimerspec {
        it_value: timespec(times.first),
        it_interval: timespec(times.interval),
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &value)?;
    let mut due = times.first;
    while due <= times.end && !stop.load(Relaxed) {
        let mut expired = [0; 8];
        rustix::io::read(&timer, &mut expired)?;
        let now = clock::monotonic_ns();
        let expired = u64::from_ne_bytes(expired).max(1);
        recorder.woken(due, now);
        recorder.missed += (expired - 1).min(times.left(due));
        due += expired * times.interval;
    }
    Ok(())
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// What the waker and the woken thread share.
#[derive(Default)]
struct Bell {
    /// Counts the wake-ups; the woken thread sleeps until it changes.
    rung: AtomicU32,
    /// The last one that the woken thread has taken.
    taken: AtomicU32,
    rung_at: AtomicU64,
    missed: AtomicU64,
    over: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        self.rung.fetch_add(1, Release);
        let _ = futex::wake(&self.rung, futex::Flags::PRIVATE, 1);
    }

    /// Ring at each moment, unless the last ring is not taken yet.
    fn ring_at(&self, times: &Times, stop: &AtomicBool) {
        let mut due = times.first;
        while due <= times.end && !stop.load(Relaxed) {
            clock::sleep_until(due);
            if self.taken.load(Acquire) == self.rung.load(Relaxed) {
                self.rung_at.store(clock::monotonic_ns(), Relaxed);
                self.ring();
            } else {
                self.missed.fetch_add(1, Relaxed);
            }
            let (next, missed) = times.after(due, clock::monotonic_ns());
            self.missed.fetch_add(missed, Relaxed);
            due = next;
        }
        // If the end were signalled before the last ring is taken, that ring would be lost.
        while self.taken.load(Acquire) != self.rung.load(Relaxed) && !self.over.load(Relaxed) {
            clock::sleep_until(clock::monotonic_ns() + times.interval);
        }
        self.over.store(true, Relaxed);
        self.ring();
    }

    fn listen(&self, recorder: &mut Recorder) -> Result<(), Failure> {
        let mut seen = 0;
        loop {
            let slept = match futex::wait(&self.rung, futex::Flags::PRIVATE, seen, None) {
                Ok(()) => true,
                Err(Errno::AGAIN) => false,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let now = clock::monotonic_ns();
            let rung = self.rung.load(Acquire);
            if rung == seen {
                continue;
            }
            if self.over.load(Relaxed) {
                return Ok(());
            }
            if slept {
                recorder.woken(self.rung_at.load(Relaxed), now);
            } else {
                recorder.awake += 1;
            }
            seen = rung;
            self.taken.store(rung, Release);
        }
    }
}

/// Wait on a futex(2) that a thread elsewhere wakes; `settle` puts that thread to its CPU.
pub fn by_futex(
    times: &Times,
    stop: &AtomicBool,
    recorder: &mut Recorder,
    settle: &(dyn Fn() -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let bell = Bell::default();
    std::thread::scope(|scope| {
        let bell = &bell;
        let (settled, ready) = mpsc::channel();
        std::thread::Builder::new()
            .name("tare-waker".into())
            .spawn_scoped(scope, move || {
                let done = settle();
                let go = done.is_ok();
                let _ = settled.send(done);
                if go {
                    bell.ring_at(times, stop);
                }
            })?;
        ready
            .recv()
            .map_err(|_| Failure("the waking thread panicked".into()))??;
        // A thread that has stopped listening takes no ring: do not wait for it.
        let stop_waiting = |_: &Failure| bell.over.store(true, Relaxed);
        bell.listen(recorder).inspect_err(stop_waiting)
    })?;
    recorder.missed += bell.missed.load(Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_before_the_wake_up_are_missed() {
        let times = Times {
            first: 100,
            interval: 10,
            end: 1000,
        };
        assert_eq!(times.after(100, 103), (110, 0));
        assert_eq!(times.after(100, 110), (120, 1));
        assert_eq!(times.after(100, 135), (140, 3));
        assert_eq!(times.after(100, 90), (110, 0));
    }

    #[test]
    fn moments_after_the_end_are_not_missed() {
        let times = Times {
            first: 100,
            interval: 10,
            end: 205,
        };
        assert_eq!(times.after(190, 2000), (2000 + 10, 1));
        assert_eq!(times.after(200, 2000), (2000 + 10, 0));
    }
}
