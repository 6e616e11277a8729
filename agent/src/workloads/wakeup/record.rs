//! What wake-ups leave behind.

use crate::measure::histogram::Histogram;

/// Counts how late wake-ups were, in nanoseconds; all memory is prefaulted.
pub struct Recorder {
    pub histogram: Histogram,
    pub shortest: u64,
    pub longest: u64,
    /// Moments that had passed before the thread woke up for an earlier one.
    pub missed: u64,
    /// Wake-ups before their moment, which a clock that steps back makes.
    pub early: u64,
    /// Moments at which the thread was to be woken and had not gone to sleep yet.
    pub awake: u64,
}

impl Recorder {
    pub fn new() -> Self {
        Self {
            // Bins of a nanosecond, as far as they reach; beyond them of 1/128.
            histogram: Histogram::reaching(1),
            shortest: u64::MAX,
            longest: 0,
            missed: 0,
            early: 0,
            awake: 0,
        }
    }

    /// Forget the warm-up.
    pub fn restart(&mut self) {
        self.histogram.clear();
        (self.shortest, self.longest) = (u64::MAX, 0);
        (self.missed, self.early, self.awake) = (0, 0, 0);
    }

    /// A wake-up that was due at one time and came at another.
    pub fn woken(&mut self, due_ns: u64, now_ns: u64) {
        let Some(late) = now_ns.checked_sub(due_ns) else {
            self.early += 1;
            return;
        };
        self.histogram.record(late);
        self.shortest = self.shortest.min(late);
        self.longest = self.longest.max(late);
    }

    pub fn warnings(&self) -> Vec<String> {
        let messages = [
            (
                self.missed,
                "moments had passed before the thread woke up for an earlier one: each such delay \
                 counts once, so the tails understate the delays of a program with deadlines",
            ),
            (
                self.early,
                "wake-ups came before their time, as by a clock that steps back; they are left out",
            ),
        ];
        messages
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!("{count} {words}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_extremes_and_leaves_out_early_wake_ups() {
        let mut recorder = Recorder::new();
        for (due, now) in [(100, 105), (200, 290_000), (300, 299)] {
            recorder.woken(due, now);
        }
        assert_eq!((recorder.shortest, recorder.longest), (5, 289_800));
        assert_eq!((recorder.histogram.count(), recorder.early), (2, 1));
        assert_eq!(recorder.warnings().len(), 1);
        recorder.restart();
        assert_eq!((recorder.histogram.count(), recorder.early), (0, 0));
    }
}
