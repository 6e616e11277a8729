//! Sizes that are gamma distributed, the same on every machine for the same seed.

use crate::measure::random::Random;

/// A gamma distribution of shape 1 or more, by Marsaglia and Tsang, "A simple method for generating
/// gamma variables", ACM TOMS 26 (2000).
#[derive(Clone, Copy, Debug)]
pub struct Gamma {
    d: f64,
    c: f64,
    scale: f64,
}

impl Gamma {
    /// With this shape and mean.
    pub fn new(shape: f64, mean: f64) -> Self {
        assert!(shape >= 1.0, "the method needs a shape of at least 1");
        let d = shape - 1.0 / 3.0;
        Self {
            d,
            c: 1.0 / (9.0 * d).sqrt(),
            scale: mean / shape,
        }
    }

    pub fn draw(&self, random: &mut Random) -> f64 {
        loop {
            let x = normal(random);
            let v = (1.0 + self.c * x).powi(3);
            if v <= 0.0 {
                continue;
            }
            let u = unit(random);
            if u.ln() < 0.5 * x * x + self.d - self.d * v + self.d * v.ln() {
                return self.d * v * self.scale;
            }
        }
    }

    /// A size in whole bytes, at least one.
    pub fn size(&self, random: &mut Random) -> u64 {
        (self.draw(random).round() as u64).max(1)
    }
}

/// Above 0 and at most 1.
fn unit(random: &mut Random) -> f64 {
    (f64::from(random.word()) + 1.0) / 4_294_967_296.0
}

/// The standard normal distribution, by Marsaglia's polar method.
fn normal(random: &mut Random) -> f64 {
    loop {
        let (x, y) = (random.signed_unit(), random.signed_unit());
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * s.ln() / s).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mean_spread_and_skewness_are_those_of_the_distribution() {
        let (shape, mean, count) = (1.5, 131_072.0, 400_000);
        let (gamma, mut random) = (Gamma::new(shape, mean), Random::new(11));
        let drawn: Vec<f64> = (0..count).map(|_| gamma.draw(&mut random)).collect();
        let moment = |order: i32, about: f64| {
            drawn.iter().map(|x| (x - about).powi(order)).sum::<f64>() / f64::from(count)
        };
        let found = moment(1, 0.0);
        assert!((found / mean - 1.0).abs() < 0.01, "mean {found}");
        let deviation = moment(2, found).sqrt();
        assert!((deviation / (mean / shape.sqrt()) - 1.0).abs() < 0.02);
        let skewness = moment(3, found) / deviation.powi(3);
        assert!(
            (skewness / (2.0 / shape.sqrt()) - 1.0).abs() < 0.1,
            "{skewness}"
        );
    }

    proptest! {
        #[test]
        fn sizes_are_positive_and_repeat_with_the_seed(seed in any::<u64>(), mean in 1.0f64..1e7) {
            let gamma = Gamma::new(1.5, mean);
            let draw = || {
                let mut random = Random::new(seed);
                (0..20).map(|_| gamma.size(&mut random)).collect::<Vec<_>>()
            };
            let sizes = draw();
            prop_assert!(sizes.iter().all(|size| *size >= 1));
            prop_assert_eq!(sizes, draw());
        }
    }
}
