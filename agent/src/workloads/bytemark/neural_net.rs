//! Neural net: teach a network of 35 inputs, 8 hidden and 8 output neurons the letters A to Z by
//! back-propagation (Rumelhart, Hinton & Williams 1986): 5×7 dots in, the letter's code out.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;
use std::hint::black_box;

const INPUTS: usize = 35;
const HIDDEN: usize = 8;
const OUTPUTS: usize = 8;
const LETTERS: usize = 26;
const RATE: f64 = 0.5;
const MOMENTUM: f64 = 0.5;
/// Learned, once every output is this near to what it should be.
const TOLERANCE: f64 = 0.1;
/// A neuron's target output for a bit that is 0, and for one that is 1.
const TARGETS: [f64; 2] = [0.1, 0.9];
/// Far more than it takes; only a machine that computes wrongly comes so far.
const MOST_PASSES: u32 = 10_000;

pub struct NeuralNet {
    lessons: Vec<Lesson>,
    start: Net,
    net: Net,
    passes: u32,
}

impl Kernel for NeuralNet {
    const MOST_AT_ONCE: usize = 1 << 10;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let start = Net::new(|| random.signed_unit() * 0.5);
        Self {
            lessons: lessons(),
            net: start.clone(),
            start,
            passes: 0,
        }
    }

    fn prepare(&mut self, _iterations: usize) {
        self.net = self.start.clone();
        self.passes = 0;
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            self.net.clone_from(black_box(&self.start));
            self.passes = self.net.learn(&self.lessons);
            black_box(&mut self.net);
        }
    }

    fn verify(&self, _iterations: usize) -> Result<(), String> {
        // Every letter read back from dots, and as many passes as on every other machine.
        let known = |lesson: &Lesson| self.net.read(&lesson.dots) == lesson.code;
        if self.passes == PASSES && self.lessons.iter().all(known) {
            Ok(())
        } else {
            Err(wrong("neural-net"))
        }
    }
}

/// What it takes to learn. The arithmetic is exact to the last bit on every machine, so this is so
/// everywhere.
const PASSES: u32 = 228;

struct Lesson {
    dots: [f64; INPUTS],
    targets: [f64; OUTPUTS],
    code: u8,
}

fn lessons() -> Vec<Lesson> {
    let letters = GLYPHS.iter().zip(b'A'..);
    letters
        .map(|(rows, code)| Lesson {
            dots: std::array::from_fn(|dot| f64::from(rows[dot / 5] >> (4 - dot % 5) & 1)),
            targets: std::array::from_fn(|bit| TARGETS[usize::from(code >> bit & 1)]),
            code,
        })
        .collect()
}

/// Weights of a layer: those of the inputs, and last the bias; and what each changed by last time.
#[derive(Clone)]
struct Layer<const FROM: usize, const TO: usize> {
    weights: [[f64; FROM]; TO],
    biases: [f64; TO],
    changes: [[f64; FROM]; TO],
    bias_changes: [f64; TO],
}

impl<const FROM: usize, const TO: usize> Layer<FROM, TO> {
    fn new(mut weight: impl FnMut() -> f64) -> Self {
        Self {
            weights: std::array::from_fn(|_| std::array::from_fn(|_| weight())),
            biases: std::array::from_fn(|_| weight()),
            changes: [[0.0; FROM]; TO],
            bias_changes: [0.0; TO],
        }
    }

    fn outputs(&self, inputs: &[f64; FROM]) -> [f64; TO] {
        std::array::from_fn(|to| {
            let weighted = self.weights[to].iter().zip(inputs);
            let sum: f64 = weighted.map(|(weight, input)| weight * input).sum();
            sigmoid(sum + self.biases[to])
        })
    }

    fn correct(&mut self, inputs: &[f64; FROM], deltas: &[f64; TO]) {
        for (to, delta) in deltas.iter().enumerate() {
            let pairs = self.weights[to].iter_mut().zip(&mut self.changes[to]);
            for ((weight, change), input) in pairs.zip(inputs) {
                *change = RATE * delta * input + MOMENTUM * *change;
                *weight += *change;
            }
            self.bias_changes[to] = RATE * delta + MOMENTUM * self.bias_changes[to];
            self.biases[to] += self.bias_changes[to];
        }
    }
}

#[derive(Clone)]
struct Net {
    hidden: Layer<INPUTS, HIDDEN>,
    output: Layer<HIDDEN, OUTPUTS>,
}

impl Net {
    fn new(mut weight: impl FnMut() -> f64) -> Self {
        Self {
            hidden: Layer::new(&mut weight),
            output: Layer::new(weight),
        }
    }

    /// Teach all lessons in turn until the worst error of a whole pass is within tolerance; the
    /// number of passes.
    fn learn(&mut self, lessons: &[Lesson]) -> u32 {
        for pass in 1..=MOST_PASSES {
            let errors = lessons.iter().map(|lesson| self.teach(lesson));
            if errors.fold(0.0, f64::max) <= TOLERANCE {
                return pass;
            }
        }
        MOST_PASSES
    }

    /// One step of back-propagation; the largest error before it.
    fn teach(&mut self, lesson: &Lesson) -> f64 {
        let hidden = self.hidden.outputs(&lesson.dots);
        let outputs = self.output.outputs(&hidden);
        let errors: [f64; OUTPUTS] = std::array::from_fn(|at| lesson.targets[at] - outputs[at]);
        let deltas = std::array::from_fn(|at| errors[at] * outputs[at] * (1.0 - outputs[at]));
        let hidden_deltas = self.hidden_deltas(&hidden, &deltas);
        self.output.correct(&hidden, &deltas);
        self.hidden.correct(&lesson.dots, &hidden_deltas);
        errors
            .iter()
            .fold(0.0, |worst, error| f64::max(worst, error.abs()))
    }

    fn hidden_deltas(&self, hidden: &[f64; HIDDEN], deltas: &[f64; OUTPUTS]) -> [f64; HIDDEN] {
        std::array::from_fn(|from| {
            let back = self.output.weights.iter().zip(deltas);
            let sum: f64 = back.map(|(weights, delta)| weights[from] * delta).sum();
            sum * hidden[from] * (1.0 - hidden[from])
        })
    }

    fn read(&self, dots: &[f64; INPUTS]) -> u8 {
        let outputs = self.output.outputs(&self.hidden.outputs(dots));
        let bits = outputs.iter().enumerate();
        bits.fold(0, |code, (bit, &output)| {
            code | u8::from(output > 0.5) << bit
        })
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exponential(-x))
}

/// e^x for |x| up to 700, to about 1e-15, by basic operations alone.
///
/// Libraries choose other code by the CPU's features, with other last bits: then learning would
/// take more or fewer passes on one machine than on another. Here x = k·ln 2 + r, and e^r is its
/// Taylor series (13 terms: |r| ≤ 0.35 leaves 1e-17).
fn exponential(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let halves = (x * std::f64::consts::LOG2_E).round();
    // ln 2 in two parts, so that r keeps all its places (Cody & Waite 1980).
    let rest = (x - halves * LN_2_HIGH) - halves * LN_2_LOW;
    let series = (1..=13)
        .rev()
        .fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    series * f64::from_bits(((halves as i64 + 1023) as u64) << 52)
}

/// The first 33 bits of ln 2, and the rest.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// The letters A to Z, row by row; the highest of five bits is the leftmost dot.
#[rustfmt::skip]
const GLYPHS: [[u8; 7]; LETTERS] = [
    [0b01110, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001],
    [0b11110, 0b10001, 0b10001, 0b11110, 0b10001, 0b10001, 0b11110],
    [0b01110, 0b10001, 0b10000, 0b10000, 0b10000, 0b10001, 0b01110],
    [0b11110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b11110],
    [0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b11111],
    [0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b10000],
    [0b01110, 0b10001, 0b10000, 0b10111, 0b10001, 0b10001, 0b01110],
    [0b10001, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001],
    [0b01110, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
    [0b00111, 0b00010, 0b00010, 0b00010, 0b00010, 0b10010, 0b01100],
    [0b10001, 0b10010, 0b10100, 0b11000, 0b10100, 0b10010, 0b10001],
    [0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b11111],
    [0b10001, 0b11011, 0b10101, 0b10101, 0b10001, 0b10001, 0b10001],
    [0b10001, 0b11001, 0b11001, 0b10101, 0b10011, 0b10011, 0b10001],
    [0b01110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110],
    [0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000, 0b10000],
    [0b01110, 0b10001, 0b10001, 0b10001, 0b10101, 0b10010, 0b01101],
    [0b11110, 0b10001, 0b10001, 0b11110, 0b10100, 0b10010, 0b10001],
    [0b01111, 0b10000, 0b10000, 0b01110, 0b00001, 0b00001, 0b11110],
    [0b11111, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100],
    [0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110],
    [0b10001, 0b10001, 0b10001, 0b10001, 0b01010, 0b01010, 0b00100],
    [0b10001, 0b10001, 0b10001, 0b10101, 0b10101, 0b11011, 0b10001],
    [0b10001, 0b10001, 0b01010, 0b00100, 0b01010, 0b10001, 0b10001],
    [0b10001, 0b10001, 0b01010, 0b00100, 0b00100, 0b00100, 0b00100],
    [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b10000, 0b11111],
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_exponential_agrees_with_the_librarys(x in -700.0..700.0f64) {
            let (found, known) = (exponential(x), x.exp());
            prop_assert!((found - known).abs() <= 1e-15 * known, "{x}: {found} {known}");
        }
    }

    /// The direction in which back-propagation changes each weight is that in which the squared
    /// error falls fastest, by differences.
    #[test]
    fn a_step_follows_the_gradient() {
        let mut random = Random::new(5);
        let net = Net::new(|| random.signed_unit());
        let lesson = &lessons()[17];
        let error = |net: &Net| -> f64 {
            let outputs = net.output.outputs(&net.hidden.outputs(&lesson.dots));
            let pairs = outputs.iter().zip(&lesson.targets);
            pairs
                .map(|(found, target)| (target - found).powi(2) / 2.0)
                .sum()
        };
        let mut taught = net.clone();
        taught.teach(lesson);
        let slope = |change: &dyn Fn(&mut Net, f64)| {
            let (mut up, mut down) = (net.clone(), net.clone());
            change(&mut up, 1e-5);
            change(&mut down, -1e-5);
            (error(&up) - error(&down)) / 2e-5
        };
        let near = |step: f64, slope: f64| {
            assert!((step + RATE * slope).abs() < 1e-9, "{step} against {slope}");
        };
        for to in 0..HIDDEN {
            for from in 0..INPUTS {
                let step = taught.hidden.weights[to][from] - net.hidden.weights[to][from];
                near(step, slope(&|net, by| net.hidden.weights[to][from] += by));
            }
            let step = taught.hidden.biases[to] - net.hidden.biases[to];
            near(step, slope(&|net, by| net.hidden.biases[to] += by));
        }
        for to in 0..OUTPUTS {
            for from in 0..HIDDEN {
                let step = taught.output.weights[to][from] - net.output.weights[to][from];
                near(step, slope(&|net, by| net.output.weights[to][from] += by));
            }
        }
    }

    #[test]
    fn no_two_letters_look_alike() {
        for (index, glyph) in GLYPHS.iter().enumerate() {
            assert!(!GLYPHS[..index].contains(glyph));
        }
    }

    #[test]
    fn learns_every_letter_and_verification_sees_an_error() {
        let mut kernel = NeuralNet::new();
        kernel.prepare(1);
        assert!(kernel.verify(1).is_err(), "knows nothing yet");
        kernel.work(1);
        assert_eq!(kernel.passes, PASSES);
        kernel.verify(1).unwrap();
        kernel.net.output.biases[3] = -9.0;
        assert!(kernel.verify(1).is_err());
    }
}
