//! IDEA: encrypt and decrypt 4000 bytes with the block cipher of Lai and Massey (1991).
//!
//! Written from the cipher's description: eight rounds and an output transformation over four
//! 16-bit words, mixing addition mod 2^16, exclusive-or, and multiplication mod 2^16 + 1 (in which
//! the word 0 stands for 2^16).

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;
use std::hint::black_box;

const BYTES: usize = 4000;
const ROUNDS: usize = 8;
const SUBKEYS: usize = 6 * ROUNDS + 4;

type Subkeys = [u16; SUBKEYS];
type Block = [u16; 4];

pub struct Idea {
    plain: Vec<Block>,
    coded: Vec<Block>,
    decoded: Vec<Block>,
    encryption: Subkeys,
    decryption: Subkeys,
}

impl Kernel for Idea {
    const MOST_AT_ONCE: usize = 1 << 16;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let mut words = || random.word() as u16;
        let encryption = encryption_keys(&std::array::from_fn(|_| words()));
        let plain: Vec<Block> = (0..BYTES / 8)
            .map(|_| std::array::from_fn(|_| words()))
            .collect();
        Self {
            coded: plain.clone(),
            decoded: vec![[0; 4]; plain.len()],
            plain,
            decryption: decryption_keys(&encryption),
            encryption,
        }
    }

    fn prepare(&mut self, _iterations: usize) {
        self.coded.fill([0; 4]);
        self.decoded.fill([0; 4]);
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            for (plain, coded) in black_box(&self.plain).iter().zip(&mut self.coded) {
                *coded = crypt(*plain, &self.encryption);
            }
            for (coded, decoded) in black_box(&self.coded).iter().zip(&mut self.decoded) {
                *decoded = crypt(*coded, &self.decryption);
            }
            black_box(&mut self.decoded);
        }
    }

    fn verify(&self, _iterations: usize) -> Result<(), String> {
        let coded = self
            .coded
            .iter()
            .zip(&self.plain)
            .all(|(coded, plain)| coded != plain);
        if self.decoded == self.plain && coded {
            Ok(())
        } else {
            Err(wrong("idea"))
        }
    }
}

/// Multiply mod 2^16 + 1, the word 0 standing for 2^16.
///
/// With a·b = high·2^16 + low, and 2^16 ≡ −1, the product is low − high (Lai 1992, low-high rule).
fn multiply(a: u16, b: u16) -> u16 {
    if a == 0 {
        return 1u16.wrapping_sub(b);
    }
    if b == 0 {
        return 1u16.wrapping_sub(a);
    }
    let product = u32::from(a) * u32::from(b);
    let (high, low) = ((product >> 16) as u16, product as u16);
    low.wrapping_sub(high).wrapping_add(u16::from(low < high))
}

/// The multiplicative inverse mod 2^16 + 1, a prime: a^(2^16 − 1) by Fermat's little theorem.
fn inverse(a: u16) -> u16 {
    let (mut result, mut power) = (1, a);
    for _ in 0..16 {
        result = multiply(result, power);
        power = multiply(power, power);
    }
    result
}

/// The 52 subkeys: the 128-bit key's eight words, then again after each rotation by 25 bits.
fn encryption_keys(key: &[u16; 8]) -> Subkeys {
    let mut whole = key
        .iter()
        .fold(0u128, |whole, &word| whole << 16 | u128::from(word));
    let mut subkeys = [0; SUBKEYS];
    for group in subkeys.chunks_mut(8) {
        for (place, subkey) in group.iter_mut().enumerate() {
            *subkey = (whole >> (112 - 16 * place)) as u16;
        }
        whole = whole.rotate_left(25);
    }
    subkeys
}

/// The subkeys that undo `encryption`: its rounds in reverse, additions negated, factors
/// inverted; the middle additive keys swap places except in the first and the last round.
fn decryption_keys(encryption: &Subkeys) -> Subkeys {
    let mut subkeys = [0; SUBKEYS];
    for round in 0..=ROUNDS {
        let from = &encryption[6 * (ROUNDS - round)..];
        let outer = round == 0 || round == ROUNDS;
        let (second, third) = if outer { (1, 2) } else { (2, 1) };
        let to = &mut subkeys[6 * round..];
        to[0] = inverse(from[0]);
        to[1] = from[second].wrapping_neg();
        to[2] = from[third].wrapping_neg();
        to[3] = inverse(from[3]);
        if round < ROUNDS {
            let inner = 6 * (ROUNDS - round - 1);
            to[4] = encryption[inner + 4];
            to[5] = encryption[inner + 5];
        }
    }
    subkeys
}

fn crypt(block: Block, subkeys: &Subkeys) -> Block {
    let [mut a, mut b, mut c, mut d] = block;
    let (rounds, output) = subkeys.split_at(6 * ROUNDS);
    for keys in rounds.chunks_exact(6) {
        a = multiply(a, keys[0]);
        b = b.wrapping_add(keys[1]);
        c = c.wrapping_add(keys[2]);
        d = multiply(d, keys[3]);
        let first = multiply(a ^ c, keys[4]);
        let second = multiply((b ^ d).wrapping_add(first), keys[5]);
        let first = first.wrapping_add(second);
        (a, d) = (a ^ second, d ^ first);
        (b, c) = (c ^ second, b ^ first);
    }
    [
        multiply(a, output[0]),
        c.wrapping_add(output[1]),
        b.wrapping_add(output[2]),
        multiply(d, output[3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example published with the cipher: key 1 … 8, plaintext 0, 1, 2, 3.
    #[test]
    fn agrees_with_the_published_vector() {
        let keys = encryption_keys(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            keys[8..16],
            [0x0400, 0x0600, 0x0800, 0x0a00, 0x0c00, 0x0e00, 0x1000, 0x0200]
        );
        let coded = crypt([0, 1, 2, 3], &keys);
        assert_eq!(coded, [0x11fb, 0xed2b, 0x0198, 0x6de5]);
        assert_eq!(crypt(coded, &decryption_keys(&keys)), [0, 1, 2, 3]);
    }

    #[test]
    fn verification_sees_a_flipped_bit() {
        let mut kernel = Idea::new();
        kernel.prepare(1);
        assert!(kernel.verify(1).is_err(), "not computed yet");
        kernel.work(1);
        kernel.verify(1).unwrap();
        kernel.decoded[77][2] ^= 1;
        assert!(kernel.verify(1).is_err());
    }

    proptest! {
        #[test]
        fn multiplication_is_modulo_65537(a: u16, b: u16) {
            let whole = |word: u16| if word == 0 { 65_536u64 } else { u64::from(word) };
            prop_assert_eq!(whole(multiply(a, b)), whole(a) * whole(b) % 65_537);
            prop_assert_eq!(multiply(a, inverse(a)), 1);
        }

        #[test]
        fn decryption_undoes_encryption(key: [u16; 8], block: [u16; 4]) {
            let keys = encryption_keys(&key);
            prop_assert_eq!(crypt(crypt(block, &keys), &decryption_keys(&keys)), block);
        }
    }
}
