//! Fourier: the first 100 pairs of coefficients of (x+1)^x on the interval [0, 2], each integral
//! by the trapezoid rule with 200 steps.

use super::harness::{wrong, Kernel};
use std::f64::consts::PI;
use std::hint::black_box;

const PAIRS: usize = 100;
const STEPS: usize = 200;
const END: f64 = 2.0;
/// (order, cosine, sine): by adaptive quadrature for oscillating integrands (QUADPACK's QAWO, to
/// 1e-13), independently of this program.
const KNOWN: [(usize, f64, f64); 4] = [
    (0, 2.881_918_137_544_8, 0.0),
    (1, 1.134_035_595_673_7, -1.882_090_265_021_0),
    (2, 0.362_220_469_865_1, -1.164_806_409_278_4),
    (3, 0.170_317_082_662_8, -0.814_709_320_683_9),
];
/// The trapezoid rule with these steps comes within 7e-4 of them.
const TOLERANCE: f64 = 1e-3;

#[derive(Default)]
pub struct Fourier {
    pairs: Vec<(f64, f64)>,
}

impl Kernel for Fourier {
    const MOST_AT_ONCE: usize = 1 << 16;

    fn new() -> Self {
        Self::default()
    }

    fn prepare(&mut self, _iterations: usize) {
        self.pairs = vec![(0.0, 0.0); PAIRS];
    }

    fn work(&mut self, iterations: usize) {
        for _ in 0..iterations {
            for (order, pair) in black_box(&mut self.pairs).iter_mut().enumerate() {
                *pair = coefficients(order);
            }
        }
    }

    fn verify(&self, _iterations: usize) -> Result<(), String> {
        let near = |found: f64, known: f64| (found - known).abs() < TOLERANCE;
        let right = KNOWN.iter().all(|&(order, cosine, sine)| {
            near(self.pairs[order].0, cosine) && near(self.pairs[order].1, sine)
        });
        if right
            && self
                .pairs
                .iter()
                .all(|pair| pair.0.is_finite() && pair.1.is_finite())
        {
            Ok(())
        } else {
            Err(wrong("fourier"))
        }
    }
}

/// The cosine and the sine coefficient of one order, as of a function with period 2: a_n is the
/// integral of f(x) cos(nπx), b_n that of f(x) sin(nπx), and a_0 half of that (Euler–Fourier).
fn coefficients(order: usize) -> (f64, f64) {
    let omega = order as f64 * PI;
    if order == 0 {
        return (trapezoid(function) / END, 0.0);
    }
    (
        trapezoid(|x| function(x) * (omega * x).cos()),
        trapezoid(|x| function(x) * (omega * x).sin()),
    )
}

fn function(x: f64) -> f64 {
    (x + 1.0).powf(x)
}

fn trapezoid(f: impl Fn(f64) -> f64) -> f64 {
    let step = END / STEPS as f64;
    let inner: f64 = (1..STEPS).map(|i| f(i as f64 * step)).sum();
    step * (inner + (f(0.0) + f(END)) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_agree_with_adaptive_quadrature() {
        for (order, cosine, sine) in KNOWN {
            let found = coefficients(order);
            assert!((found.0 - cosine).abs() < TOLERANCE, "a{order}: {found:?}");
            assert!((found.1 - sine).abs() < TOLERANCE, "b{order}: {found:?}");
        }
    }

    #[test]
    fn the_trapezoid_rule_is_exact_for_lines() {
        assert!((trapezoid(|x| 3.0 * x + 1.0) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn verification_sees_a_wrong_coefficient() {
        let mut kernel = Fourier::new();
        kernel.prepare(1);
        assert!(kernel.verify(1).is_err(), "not computed yet");
        kernel.work(1);
        kernel.verify(1).unwrap();
        kernel.pairs[2].1 += 0.01;
        assert!(kernel.verify(1).is_err());
    }
}
