//! Pseudo-random data: the same on every machine for the same seed value.

/// Marsaglia's xorshift64* (Vigna 2016, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled").
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number below `bound`, which must fit into 32 bits (Lemire 2019, without the rejection:
    /// the bias is below bound/2³²).
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound <= 1 << 32);
        ((u64::from(self.word()) * bound as u64) >> 32) as usize
    }

    /// A number from −1 to 1.
    pub fn signed_unit(&mut self) -> f64 {
        f64::from(self.word()) / f64::from(1u32 << 31) - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bounds_and_reaches_all_of_them() {
        let mut random = Random::new(3);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7)] = true;
            assert!((-1.0..=1.0).contains(&random.signed_unit()));
        }
        assert_eq!(seen, [true; 7]);
    }
}
