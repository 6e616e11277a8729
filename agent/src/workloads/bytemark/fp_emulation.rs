//! FP emulation: add, subtract, multiply and divide 3000 numbers by integer arithmetic alone.

use super::harness::{wrong, Kernel, SEED};
use super::soft_float::{add, divide, multiply, subtract};
use crate::measure::random::Random;
use std::hint::black_box;

const LENGTH: usize = 3000;
/// The operands' exponents, so that no result is infinite and none vanishes.
const EXPONENTS: i32 = 300;

pub struct FpEmulation {
    left: Vec<u64>,
    right: Vec<u64>,
    results: Vec<u64>,
}

impl Kernel for FpEmulation {
    const MOST_AT_ONCE: usize = 1 << 16;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let mut operands = || {
            (0..LENGTH)
                .map(|_| {
                    let power = random.below(2 * EXPONENTS as usize) as i32 - EXPONENTS;
                    // Two words, so that all 53 bits of the significand are in use.
                    let fine = 1.0 + random.signed_unit() * 2f64.powi(-22);
                    ((random.signed_unit() + 1e-3) * fine * 2f64.powi(power)).to_bits()
                })
                .collect()
        };
        Self {
            left: operands(),
            right: operands(),
            results: vec![0; LENGTH],
        }
    }

    fn prepare(&mut self, _iterations: usize) {
        self.results.fill(0);
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            let operands = black_box(&self.left).iter().zip(&self.right);
            let each = self.results.iter_mut().zip(operands);
            for (index, (result, (&a, &b))) in each.enumerate() {
                *result = match index % 4 {
                    0 => add(a, b),
                    1 => subtract(a, b),
                    2 => multiply(a, b),
                    _ => divide(a, b),
                };
            }
            black_box(&mut self.results);
        }
    }

    /// Against the machine's own floating-point unit, in every bit.
    fn verify(&self, _iterations: usize) -> Result<(), String> {
        let hardware = |index: usize| {
            let a = f64::from_bits(self.left[index]);
            let b = f64::from_bits(self.right[index]);
            match index % 4 {
                0 => a + b,
                1 => a - b,
                2 => a * b,
                _ => a / b,
            }
        };
        if (0..LENGTH).all(|index| self.results[index] == hardware(index).to_bits()) {
            Ok(())
        } else {
            Err(wrong("fp-emulation"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_ordinary_numbers() {
        let kernel = FpEmulation::new();
        for bits in kernel.left.iter().chain(&kernel.right) {
            assert!(f64::from_bits(*bits).is_normal());
        }
    }

    #[test]
    fn verification_sees_the_last_bit() {
        let mut kernel = FpEmulation::new();
        kernel.prepare(1);
        assert!(kernel.verify(1).is_err(), "not computed yet");
        kernel.work(1);
        kernel.verify(1).unwrap();
        for index in [0, 1, 2, 3, LENGTH - 1] {
            kernel.results[index] ^= 1;
            assert!(kernel.verify(1).is_err());
            kernel.results[index] ^= 1;
        }
    }
}
