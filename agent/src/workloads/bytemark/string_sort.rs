//! String sort: heap-sort strings of 4 to 80 bytes that fill an array of 8111 bytes.
//!
//! The array holds the strings one after the other, each after a byte with its length. So two
//! strings of unequal length can only be swapped by moving everything between them: the sort
//! exercises memory more than comparisons.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;

const BYTES: usize = 8111;
const SHORTEST: usize = 4;
const LONGEST: usize = 80;

pub struct StringSort {
    original: Strings,
    copies: Vec<Strings>,
    checksum: (usize, u64, u64),
}

impl Kernel for StringSort {
    const MOST_AT_ONCE: usize = 32;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let mut original = Strings::default();
        while original.bytes.len() < BYTES {
            let left = BYTES - original.bytes.len() - 1;
            let length = SHORTEST + random.below(LONGEST - SHORTEST + 1);
            // What is left over is too short for a string of its own: the last one takes it.
            let length = if left <= length + SHORTEST {
                left.min(u8::MAX.into())
            } else {
                length
            };
            let text: Vec<u8> = (0..length).map(|_| b' ' + random.below(95) as u8).collect();
            original.push(&text);
        }
        Self {
            checksum: original.checksum(),
            original,
            copies: Vec::new(),
        }
    }

    fn prepare(&mut self, iterations: usize) {
        self.copies.resize(iterations, Strings::default());
        for copy in &mut self.copies {
            copy.clone_from(&self.original);
        }
    }

    fn work(&mut self, iterations: usize) {
        for copy in &mut self.copies[..iterations] {
            copy.heap_sort();
        }
    }

    fn verify(&self, iterations: usize) -> Result<(), String> {
        let right =
            |copy: &Strings| copy.gapless() && copy.sorted() && copy.checksum() == self.checksum;
        if self.copies[..iterations].iter().all(right) {
            Ok(())
        } else {
            Err(wrong("string-sort"))
        }
    }
}

/// Strings packed into one array, and the position of each one's length.
#[derive(Clone, Default)]
struct Strings {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Strings {
    fn push(&mut self, text: &[u8]) {
        self.places.push(self.bytes.len());
        self.bytes
            .push(text.len().try_into().expect("at most 255 bytes"));
        self.bytes.extend_from_slice(text);
    }

    fn get(&self, index: usize) -> &[u8] {
        let place = self.places[index];
        let length = usize::from(self.bytes[place]);
        &self.bytes[place + 1..place + 1 + length]
    }

    /// Swap two strings, and move everything between them.
    fn exchange(&mut self, first: usize, second: usize) {
        debug_assert!(first < second);
        let (start, middle) = (self.places[first], self.places[second]);
        let before = self.get(first).len() + 1;
        let after = self.get(second).len() + 1;
        let mut kept = [0; u8::MAX as usize + 1];
        kept[..before].copy_from_slice(&self.bytes[start..start + before]);
        let mut moved = [0; u8::MAX as usize + 1];
        moved[..after].copy_from_slice(&self.bytes[middle..middle + after]);
        self.bytes
            .copy_within(start + before..middle, start + after);
        self.bytes[start..start + after].copy_from_slice(&moved[..after]);
        let end = middle + after;
        self.bytes[end - before..end].copy_from_slice(&kept[..before]);
        if before != after {
            for place in &mut self.places[first + 1..second] {
                *place = *place + after - before;
            }
            self.places[second] = end - before;
        }
    }

    /// Williams' heap sort with Floyd's heap construction (CACM 7, 1964).
    fn heap_sort(&mut self) {
        let length = self.places.len();
        for root in (0..length / 2).rev() {
            self.sift_down(root, length);
        }
        for end in (1..length).rev() {
            self.exchange(0, end);
            self.sift_down(0, end);
        }
    }

    fn sift_down(&mut self, mut root: usize, end: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                return;
            }
            if child + 1 < end && self.get(child) < self.get(child + 1) {
                child += 1;
            }
            if self.get(root) >= self.get(child) {
                return;
            }
            self.exchange(root, child);
            root = child;
        }
    }

    fn sorted(&self) -> bool {
        (1..self.places.len()).all(|index| self.get(index - 1) <= self.get(index))
    }

    /// Whether each string begins where the one before it ends, and the last one ends the array.
    fn gapless(&self) -> bool {
        let mut next = 0;
        for &place in &self.places {
            if place != next || place >= self.bytes.len() {
                return false;
            }
            next = place + 1 + usize::from(self.bytes[place]);
        }
        next == self.bytes.len()
    }

    /// What sorting must not change: how many strings there are, and the sum and the exclusive-or
    /// of their hashes (FNV-1a).
    fn checksum(&self) -> (usize, u64, u64) {
        let hash = |text: &[u8]| {
            text.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        (0..self.places.len())
            .map(|index| hash(self.get(index)))
            .fold((0, 0, 0), |(count, sum, xor), hash| {
                (count + 1, hash.wrapping_add(sum), xor ^ hash)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_like_the_standard_library(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..60)
        ) {
            let mut strings = Strings::default();
            for text in &texts {
                strings.push(text);
            }
            let before = strings.checksum();
            strings.heap_sort();
            let mut sorted = texts;
            sorted.sort();
            let found: Vec<Vec<u8>> =
                (0..sorted.len()).map(|index| strings.get(index).to_vec()).collect();
            prop_assert_eq!(found, sorted);
            prop_assert!(strings.gapless() && strings.sorted());
            prop_assert_eq!(strings.checksum(), before);
        }
    }

    #[test]
    fn the_strings_fill_the_array() {
        let strings = StringSort::new().original;
        assert_eq!(strings.bytes.len(), BYTES);
        assert!(strings.gapless());
        let lengths = (0..strings.places.len()).map(|index| strings.get(index).len());
        assert!(lengths.clone().min().unwrap() >= SHORTEST);
        assert!(lengths.max().unwrap() <= LONGEST + SHORTEST);
        assert!((150..250).contains(&strings.places.len()));
    }

    #[test]
    fn verification_sees_disorder_and_changed_bytes() {
        let mut kernel = StringSort::new();
        kernel.prepare(2);
        assert!(kernel.verify(2).is_err(), "not sorted yet");
        kernel.work(2);
        kernel.verify(2).unwrap();
        let last = kernel.copies[1].bytes.last_mut().unwrap();
        *last = last.wrapping_add(1);
        assert!(kernel.verify(2).is_err());
    }
}
