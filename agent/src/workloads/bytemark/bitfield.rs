//! Bitfield: set, clear and complement runs of bits, bit by bit, in a map of 32768 words.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;
use std::hint::black_box;

const WORDS: usize = 32_768;
const BITS: usize = WORDS * 32;
/// What the map holds before the first run.
const PATTERN: u32 = 0x5555_5555;
/// Ten runs of each of the three kinds …
const RUNS: usize = 30;
/// … of at most an eighth of the map.
const LONGEST: usize = BITS / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Clear,
    Complement,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    change: Change,
    first: usize,
    length: usize,
}

pub struct Bitfield {
    map: Vec<u32>,
    runs: Vec<Run>,
}

impl Kernel for Bitfield {
    const MOST_AT_ONCE: usize = 1 << 10;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let kinds = [Change::Set, Change::Clear, Change::Complement];
        let runs = (0..RUNS)
            .map(|number| {
                let first = random.below(BITS);
                Run {
                    change: kinds[number % kinds.len()],
                    first,
                    length: 1 + random.below(LONGEST.min(BITS - first)),
                }
            })
            .collect();
        Self {
            map: vec![PATTERN; WORDS],
            runs,
        }
    }

    fn prepare(&mut self, _iterations: usize) {
        self.map.fill(PATTERN);
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            for &run in black_box(&self.runs) {
                bit_by_bit(&mut self.map, run);
            }
            black_box(&mut self.map);
        }
    }

    /// The same runs once more, by masks of whole words.
    fn verify(&self, iterations: usize) -> Result<(), String> {
        let mut right = vec![PATTERN; WORDS];
        for _ in 0..iterations {
            for &run in &self.runs {
                word_by_word(&mut right, run);
            }
        }
        if self.map == right {
            Ok(())
        } else {
            Err(wrong("bitfield"))
        }
    }
}

#[inline(never)]
fn bit_by_bit(map: &mut [u32], run: Run) {
    let bits = run.first..run.first + run.length;
    match run.change {
        Change::Set => bits.for_each(|bit| map[bit / 32] |= 1 << (bit % 32)),
        Change::Clear => bits.for_each(|bit| map[bit / 32] &= !(1 << (bit % 32))),
        Change::Complement => bits.for_each(|bit| map[bit / 32] ^= 1 << (bit % 32)),
    }
}

fn word_by_word(map: &mut [u32], run: Run) {
    let end = run.first + run.length;
    for (index, word) in map.iter_mut().enumerate().take(end.div_ceil(32)) {
        let low = run.first.saturating_sub(index * 32).min(32);
        let high = (end - index * 32).min(32);
        if low >= high {
            continue;
        }
        let mask = (((1u64 << high) - 1) & !((1u64 << low) - 1)) as u32;
        match run.change {
            Change::Set => *word |= mask,
            Change::Clear => *word &= !mask,
            Change::Complement => *word ^= mask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: usize = 5 * 32;

    fn runs() -> impl Strategy<Value = Vec<Run>> {
        let run = (0..3usize, 0..SMALL, 0..SMALL).prop_map(|(kind, first, length)| Run {
            change: [Change::Set, Change::Clear, Change::Complement][kind],
            first,
            length: length.min(SMALL - first),
        });
        prop::collection::vec(run, 0..20)
    }

    proptest! {
        #[test]
        fn both_ways_agree_with_a_list_of_truth_values(runs in runs()) {
            let (mut bits, mut words) = ([PATTERN; SMALL / 32], [PATTERN; SMALL / 32]);
            let mut model: Vec<bool> = (0..SMALL).map(|bit| bit % 2 == 0).collect();
            for run in runs {
                bit_by_bit(&mut bits, run);
                word_by_word(&mut words, run);
                for value in &mut model[run.first..run.first + run.length] {
                    *value = match run.change {
                        Change::Set => true,
                        Change::Clear => false,
                        Change::Complement => !*value,
                    };
                }
            }
            let found: Vec<bool> =
                (0..SMALL).map(|bit| bits[bit / 32] >> (bit % 32) & 1 == 1).collect();
            prop_assert_eq!(found, model);
            prop_assert_eq!(bits, words);
        }
    }

    #[test]
    fn every_kind_of_run_has_its_third() {
        let runs = Bitfield::new().runs;
        for kind in [Change::Set, Change::Clear, Change::Complement] {
            let count = runs.iter().filter(|run| run.change == kind).count();
            assert_eq!(count, RUNS / 3);
        }
        assert!(runs.iter().all(|run| run.first + run.length <= BITS));
    }

    #[test]
    fn verification_sees_one_wrong_bit() {
        let mut kernel = Bitfield::new();
        kernel.prepare(2);
        assert!(kernel.verify(2).is_err(), "not done yet");
        kernel.work(2);
        kernel.verify(2).unwrap();
        kernel.map[20_000] ^= 1 << 17;
        assert!(kernel.verify(2).is_err());
    }
}
