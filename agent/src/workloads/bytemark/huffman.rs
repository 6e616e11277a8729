//! Huffman: compress 5000 bytes of text with the least redundant prefix code (Huffman 1952), and
//! expand them again: count, build the tree, write bits one by one, walk the tree bit by bit.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;
use std::hint::black_box;

const BYTES: usize = 5000;
const SYMBOLS: usize = 256;
/// Leaves and inner nodes of a tree in which every byte occurs.
const NODES: usize = 2 * SYMBOLS - 1;
const NONE: usize = usize::MAX;
/// The words of the text.
const WORDS: [&str; 40] = [
    "a", "and", "are", "as", "at", "by", "core", "cost", "disk", "down", "each", "fair", "for",
    "guest", "had", "host", "in", "is", "it", "kernel", "long", "machine", "memory", "noise", "of",
    "on", "page", "queue", "share", "short", "so", "that", "the", "tick", "time", "to", "two",
    "virtual", "was", "with",
];

pub struct Huffman {
    text: Vec<u8>,
    tree: Tree,
    packed: Vec<u8>,
    bits: usize,
    expanded: Vec<u8>,
}

impl Kernel for Huffman {
    const MOST_AT_ONCE: usize = 1 << 16;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let mut text = Vec::with_capacity(BYTES + 16);
        while text.len() < BYTES {
            text.extend_from_slice(WORDS[random.below(WORDS.len())].as_bytes());
            text.push(if random.below(10) == 0 { b'\n' } else { b' ' });
        }
        text.truncate(BYTES);
        Self {
            text,
            tree: Tree::default(),
            // No byte of a text of 5000 can need more than 17 bits (its depth is bounded by the
            // Fibonacci number of the length).
            packed: vec![0; BYTES * 17 / 8 + 1],
            bits: 0,
            expanded: vec![0; BYTES],
        }
    }

    fn prepare(&mut self, _iterations: usize) {
        self.bits = 0;
        self.packed.fill(0);
        self.expanded.fill(0);
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            let text = black_box(&self.text);
            self.tree.build(text);
            self.bits = self.tree.pack(text, &mut self.packed);
            self.tree
                .expand(black_box(&self.packed), &mut self.expanded);
            black_box(&mut self.expanded);
        }
    }

    fn verify(&self, _iterations: usize) -> Result<(), String> {
        // Within one bit a byte of the entropy, as no other kind of code (Shannon 1948).
        let entropy = entropy_bits(&self.text);
        let bits = self.bits as f64;
        if self.expanded == self.text && bits >= entropy && bits < entropy + BYTES as f64 {
            Ok(())
        } else {
            Err(wrong("huffman"))
        }
    }
}

fn entropy_bits(text: &[u8]) -> f64 {
    let mut counts = [0u32; SYMBOLS];
    text.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let seen = counts.iter().filter(|&&count| count > 0);
    seen.map(|&count| f64::from(count) * (text.len() as f64 / f64::from(count)).log2())
        .sum()
}

#[derive(Clone, Copy)]
struct Node {
    count: u32,
    parent: usize,
    /// Both `NONE` in a leaf.
    children: [usize; 2],
}

const UNUSED: Node = Node {
    count: 0,
    parent: NONE,
    children: [NONE; 2],
};

/// The first 256 nodes are the bytes' leaves.
struct Tree {
    nodes: [Node; NODES],
    root: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: [UNUSED; NODES],
            root: NONE,
        }
    }
}

impl Tree {
    /// Join the two rarest nodes without a parent until one is left.
    fn build(&mut self, text: &[u8]) {
        self.nodes.fill(UNUSED);
        for &byte in text {
            self.nodes[usize::from(byte)].count += 1;
        }
        let mut used = SYMBOLS;
        loop {
            let (rarest, next) = self.two_rarest(used);
            if next == NONE {
                self.root = rarest;
                return;
            }
            self.nodes[used] = Node {
                count: self.nodes[rarest].count + self.nodes[next].count,
                parent: NONE,
                children: [rarest, next],
            };
            self.nodes[rarest].parent = used;
            self.nodes[next].parent = used;
            used += 1;
        }
    }

    fn two_rarest(&self, used: usize) -> (usize, usize) {
        let (mut rarest, mut next) = (NONE, NONE);
        let (mut least, mut second) = (u32::MAX, u32::MAX);
        for (index, node) in self.nodes[..used].iter().enumerate() {
            if node.count == 0 || node.parent != NONE {
                continue;
            }
            if node.count < least {
                (next, second) = (rarest, least);
                (rarest, least) = (index, node.count);
            } else if node.count < second {
                (next, second) = (index, node.count);
            }
        }
        (rarest, next)
    }

    /// Write each byte's way from the root; the number of bits written.
    fn pack(&self, text: &[u8], packed: &mut [u8]) -> usize {
        let mut way = [false; SYMBOLS];
        let mut at = 0;
        for &byte in text {
            let (mut node, mut depth) = (usize::from(byte), 0);
            while self.nodes[node].parent != NONE {
                let parent = self.nodes[node].parent;
                way[depth] = self.nodes[parent].children[1] == node;
                (node, depth) = (parent, depth + 1);
            }
            for &bit in way[..depth].iter().rev() {
                let mask = 1 << (at % 8);
                if bit {
                    packed[at / 8] |= mask;
                } else {
                    packed[at / 8] &= !mask;
                }
                at += 1;
            }
        }
        at
    }

    /// Fill `text` by following the bits from the root to a leaf, again and again.
    fn expand(&self, packed: &[u8], text: &mut [u8]) {
        let mut at = 0;
        for byte in text {
            let mut node = self.root;
            while self.nodes[node].children[0] != NONE {
                let bit = packed[at / 8] >> (at % 8) & 1;
                node = self.nodes[node].children[usize::from(bit)];
                at += 1;
            }
            *byte = node as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// The least number of bits, by another way: the sum of all counts that are joined, the two
    /// smallest first, from a priority queue.
    fn least_bits(text: &[u8]) -> usize {
        let mut counts = [0usize; SYMBOLS];
        text.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        let mut queue: BinaryHeap<_> = counts.into_iter().filter(|&c| c > 0).map(Reverse).collect();
        let mut bits = 0;
        while let (Some(Reverse(one)), Some(Reverse(other))) = (queue.pop(), queue.pop()) {
            bits += one + other;
            queue.push(Reverse(one + other));
        }
        bits
    }

    proptest! {
        #[test]
        fn packs_in_the_least_bits_and_expands_again(
            text in prop::collection::vec(prop_oneof![Just(7u8), 0..4u8, any::<u8>()], 1..400)
        ) {
            let mut tree = Tree::default();
            tree.build(&text);
            let mut packed = vec![0xaa; text.len() * 32 + 1];
            prop_assert_eq!(tree.pack(&text, &mut packed), least_bits(&text));
            let mut expanded = vec![0; text.len()];
            tree.expand(&packed, &mut expanded);
            prop_assert_eq!(expanded, text);
        }
    }

    #[test]
    fn the_deepest_tree_of_its_length_fits() {
        // Counts that grow as Fibonacci's numbers make the deepest tree.
        let (mut text, mut counts) = (Vec::new(), (1, 1));
        for symbol in 0.. {
            let count = counts.0.min(BYTES - text.len());
            text.extend(std::iter::repeat_n(symbol, count));
            counts = (counts.1, counts.0 + counts.1);
            if text.len() == BYTES {
                break;
            }
        }
        let mut tree = Tree::default();
        tree.build(&text);
        let mut packed = Huffman::new().packed;
        assert!(tree.pack(&text, &mut packed) < packed.len() * 8);
    }

    #[test]
    fn verification_sees_a_changed_byte() {
        let mut kernel = Huffman::new();
        assert_eq!(kernel.text.len(), BYTES);
        kernel.prepare(1);
        assert!(kernel.verify(1).is_err(), "not packed yet");
        kernel.work(1);
        kernel.verify(1).unwrap();
        kernel.expanded[4999] ^= 1;
        assert!(kernel.verify(1).is_err());
        kernel.expanded[4999] ^= 1;
        kernel.bits = BYTES * 8;
        assert!(kernel.verify(1).is_err(), "not compressed");
    }
}
