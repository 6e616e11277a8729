//! A chain of pointers through a working set, in random order: each load says where the next one
//! goes, so that nothing can be fetched ahead.

#![expect(unsafe_code, reason = "the pointers in memory are what is measured")]

use crate::measure::random::Random;

/// Caches move memory in pieces of this size, or twice that.
const LINE: usize = 64;
/// Loads between two looks at how many are left.
const UNROLLED: u64 = 16;

/// One cycle through all places of a working set; borrows its memory.
pub struct Chain<'a> {
    memory: &'a mut [u64],
    /// Index of the word at which the chain begins and ends.
    start: usize,
    at: usize,
    places: usize,
}

impl<'a> Chain<'a> {
    /// Lay a chain through `memory`, one place in every `stride` bytes.
    ///
    /// The cycle is one of all (places − 1)! with equal probability (Sattolo 1986). Where a stride
    /// has more than one line, places begin at its lines by turns: otherwise all of them would
    /// compete for the same few sets of the caches.
    pub fn new(memory: &'a mut [u64], stride: usize, seed: u64) -> Self {
        let places = memory.len() * 8 / stride;
        let lines = (stride / LINE).max(1);
        let word = |place: usize| (place * stride + place % lines * LINE) / 8;
        let mut random = Random::new(seed);
        let mut order: Vec<u32> = (0..places as u32).collect();
        for last in (1..places).rev() {
            order.swap(last, random.below(last));
        }
        let base = memory.as_ptr() as u64;
        for (from, &to) in order.iter().enumerate() {
            memory[word(from)] = base + word(to as usize) as u64 * 8;
        }
        Self {
            memory,
            start: 0,
            at: 0,
            places,
        }
    }

    pub fn places(&self) -> u64 {
        self.places as u64
    }

    /// Whether the chain is where it began.
    pub fn at_start(&self) -> bool {
        self.at == self.start
    }

    /// Follow the chain for `loads` loads.
    #[inline(never)]
    pub fn follow(&mut self, loads: u64) {
        let base = self.memory.as_ptr();
        let mut next = self.memory[self.at..].as_ptr();
        let step = |from: *const u64| {
            // SAFETY: `from` points to a place of the chain, which is within `memory` (`at` is one
            // at first, and `new` wrote into each place the address of another place). `memory` is
            // borrowed exclusively while the chain lives, so nothing else was written there.
            // Volatile, so that no load is left out.
            unsafe { std::ptr::read_volatile(from) as *const u64 }
        };
        for _ in 0..loads / UNROLLED {
            for _ in 0..UNROLLED {
                next = step(next);
            }
        }
        for _ in 0..loads % UNROLLED {
            next = step(next);
        }
        self.at = (next as usize - base as usize) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_is_met_once_before_the_first_again(
            places in 1..300usize, words in prop::sample::select(vec![1usize, 2, 8, 9, 24, 512]), seed: u64
        ) {
            let mut memory = vec![0; places * words + words / 2];
            let mut chain = Chain::new(&mut memory, words * 8, seed);
            prop_assert_eq!(chain.places(), places as u64);
            let mut met = vec![false; places];
            for _ in 0..places {
                let place = chain.at / words;
                prop_assert!(!met[place], "met twice");
                met[place] = true;
                chain.follow(1);
            }
            prop_assert!(chain.at_start());
            chain.follow(3 * chain.places() + 17);
            let by_many = chain.at;
            chain.at = 0;
            (0..17).for_each(|_| chain.follow(1));
            prop_assert_eq!(by_many, chain.at);
        }
    }

    #[test]
    fn neighbours_in_the_chain_are_not_neighbours_in_memory() {
        let mut memory = vec![0; 8 * 4096];
        let mut chain = Chain::new(&mut memory, 64, 1);
        let mut near = 0;
        for _ in 0..4096 {
            let before = chain.at;
            chain.follow(1);
            near += u32::from(chain.at.abs_diff(before) <= 16);
        }
        assert!(near < 20, "{near} of 4096 within two lines");
    }

    #[test]
    fn long_strides_use_every_line() {
        let mut memory = vec![0; 512 * 128];
        let mut chain = Chain::new(&mut memory, 4096, 1);
        let mut lines = [false; 64];
        for _ in 0..chain.places() {
            lines[chain.at % 512 / 8] = true;
            chain.follow(1);
        }
        assert_eq!(lines, [true; 64]);
    }
}
