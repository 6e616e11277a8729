//! Numeric sort: heap-sort an array of 8111 32-bit integers.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;

const LENGTH: usize = 8111;

pub struct NumericSort {
    original: Vec<i32>,
    arrays: Vec<Vec<i32>>,
    checksum: (u64, u32),
}

impl Kernel for NumericSort {
    const MOST_AT_ONCE: usize = 32;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let original: Vec<i32> = (0..LENGTH).map(|_| random.word() as i32).collect();
        Self {
            checksum: checksum(&original),
            original,
            arrays: Vec::new(),
        }
    }

    fn prepare(&mut self, iterations: usize) {
        self.arrays.resize(iterations, Vec::new());
        for array in &mut self.arrays {
            array.clone_from(&self.original);
        }
    }

    fn work(&mut self, iterations: usize) {
        for array in &mut self.arrays[..iterations] {
            heap_sort(array);
        }
    }

    fn verify(&self, iterations: usize) -> Result<(), String> {
        let right = |array: &Vec<i32>| sorted(array) && checksum(array) == self.checksum;
        if self.arrays[..iterations].iter().all(right) {
            Ok(())
        } else {
            Err(wrong("numeric-sort"))
        }
    }
}

fn sorted(values: &[i32]) -> bool {
    values.windows(2).all(|pair| pair[0] <= pair[1])
}

/// Sum and exclusive-or of all values: what sorting must not change.
fn checksum(values: &[i32]) -> (u64, u32) {
    values.iter().fold((0, 0), |(sum, xor), &value| {
        (sum + u64::from(value as u32), xor ^ value as u32)
    })
}

/// Williams' heap sort with Floyd's heap construction (CACM 7, 1964).
fn heap_sort(values: &mut [i32]) {
    for root in (0..values.len() / 2).rev() {
        sift_down(values, root);
    }
    for end in (1..values.len()).rev() {
        values.swap(0, end);
        sift_down(&mut values[..end], 0);
    }
}

fn sift_down(heap: &mut [i32], mut root: usize) {
    loop {
        let mut child = 2 * root + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && heap[child] < heap[child + 1] {
            child += 1;
        }
        if heap[root] >= heap[child] {
            return;
        }
        heap.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_like_the_standard_library(mut values in prop::collection::vec(any::<i32>(), 0..300)) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            heap_sort(&mut values);
            prop_assert_eq!(values, sorted);
        }
    }

    #[test]
    fn verification_sees_disorder_and_lost_values() {
        let mut kernel = NumericSort::new();
        kernel.prepare(2);
        assert!(kernel.verify(2).is_err(), "not sorted yet");
        kernel.work(2);
        kernel.verify(2).unwrap();
        kernel.arrays[1][0] = kernel.arrays[1][1];
        assert!(kernel.verify(2).is_err());
    }
}
