//! When requests are due, whatever becomes of those before them.

use crate::measure::random::Random;
use serde::Deserialize;

/// The distribution of a rate's requests over time.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// Independently of each other, as those of many users do (exponential gaps).
    Poisson,
}

/// One thread's share of the requests that are due, in order.
pub struct Schedule {
    start_ns: u64,
    gap_ns: f64,
    next: f64,
    random: Option<Random>,
}

impl Schedule {
    /// `rate` is that of all `threads` together, per second; this is the share of `thread`.
    pub fn new(
        start_ns: u64,
        rate: f64,
        arrivals: Arrivals,
        thread: usize,
        threads: usize,
    ) -> Self {
        let gap_ns = threads as f64 * 1e9 / rate;
        let mut schedule = Self {
            start_ns,
            gap_ns,
            next: 0.0,
            random: None,
        };
        match arrivals {
            Arrivals::Constant => schedule.next = thread as f64 * 1e9 / rate,
            Arrivals::Poisson => {
                schedule.random = Some(Random::new(thread as u64 + 1));
                schedule.next = schedule.gap();
            }
        }
        schedule
    }

    fn gap(&mut self) -> f64 {
        match &mut self.random {
            None => self.gap_ns,
            // Inversion of the exponential distribution function.
            Some(random) => {
                let unit = f64::from(random.word()) / (1u64 << 32) as f64;
                -(1.0 - unit).ln() * self.gap_ns
            }
        }
    }

    /// When the next request is due.
    pub fn due_ns(&self) -> u64 {
        self.start_ns + self.next as u64
    }

    /// Take that request.
    pub fn take(&mut self) -> u64 {
        let due = self.due_ns();
        self.next += self.gap();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn until(mut schedule: Schedule, end_ns: u64) -> Vec<u64> {
        std::iter::repeat_with(|| schedule.take())
            .take_while(|due| *due < end_ns)
            .collect()
    }

    proptest! {
        #[test]
        fn threads_together_keep_the_rate(rate in 1.0..5_000.0f64, threads in 1usize..9) {
            let second = 1_000_000_000u64;
            let start = 7 * second;
            let mut all: Vec<u64> = (0..threads)
                .flat_map(|n| until(Schedule::new(start, rate, Arrivals::Constant, n, threads), start + second))
                .collect();
            all.sort_unstable();
            prop_assert!((all.len() as f64 - rate).abs() <= 1.0 + threads as f64 * 1e-3);
            let gap = 1e9 / rate;
            for pair in all.windows(2) {
                prop_assert!(((pair[1] - pair[0]) as f64 - gap).abs() < 2.0 + gap * 1e-3);
            }
        }

        #[test]
        fn poisson_arrivals_have_the_rate_and_the_spread(threads in 1usize..4) {
            let rate = 20_000.0;
            let all: usize = (0..threads)
                .map(|n| until(Schedule::new(0, rate, Arrivals::Poisson, n, threads), 1_000_000_000).len())
                .sum();
            // Five standard deviations of a Poisson count.
            prop_assert!((all as f64 - rate).abs() < 5.0 * rate.sqrt(), "{}", all);
        }
    }

    #[test]
    fn due_times_never_decrease() {
        let mut schedule = Schedule::new(5, 1e6, Arrivals::Poisson, 0, 1);
        let mut last = 0;
        for _ in 0..10_000 {
            let due = schedule.take();
            assert!(due >= last);
            last = due;
        }
    }
}
