//! The four kernels over one thread's part of the arrays.
//!
//! Each is idempotent: however often it ran, verification knows what every element must be.

use std::ops::{Add, Mul, Range};

/// What the arrays hold.
pub trait Element: Copy + PartialEq + Add<Output = Self> + Mul<Output = Self> + Send {
    const NAME: &'static str;
    const FACTOR: Self;
    /// A small number that differs between neighbouring elements.
    fn at(index: usize) -> Self;
}

impl Element for u64 {
    const NAME: &'static str = "u64";
    const FACTOR: Self = 3;
    fn at(index: usize) -> Self {
        (index % 8191) as u64 + 1
    }
}

impl Element for f64 {
    const NAME: &'static str = "f64";
    const FACTOR: Self = 3.0;
    fn at(index: usize) -> Self {
        (index % 8191) as f64 + 1.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Copy,
    Scale,
    Add,
    Triad,
}

impl Kernel {
    pub const ALL: [Self; 4] = [Self::Copy, Self::Scale, Self::Add, Self::Triad];

    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Scale => "scale",
            Self::Add => "add",
            Self::Triad => "triad",
        }
    }

    /// How many arrays are read or written.
    pub fn arrays_moved(self) -> u64 {
        match self {
            Self::Copy | Self::Scale => 2,
            Self::Add | Self::Triad => 3,
        }
    }
}

/// One thread's part of the three arrays: `one` is read by all kernels, `other` by add and triad.
pub struct Part<T> {
    first: usize,
    one: Vec<T>,
    other: Vec<T>,
    target: Vec<T>,
}

impl<T: Element> Part<T> {
    /// Fill all three arrays, which touches every page.
    pub fn new(range: Range<usize>) -> Self {
        Self {
            first: range.start,
            one: range.clone().map(T::at).collect(),
            other: range.clone().map(|index| T::at(index + 1)).collect(),
            target: range.map(|_| T::FACTOR).collect(),
        }
    }

    /// Run `kernel` once over the part.
    #[inline(never)]
    pub fn run(&mut self, kernel: Kernel) {
        let target = self.target.iter_mut();
        let both = target.zip(&self.one);
        match kernel {
            Kernel::Copy => both.for_each(|(to, &a)| *to = a),
            Kernel::Scale => both.for_each(|(to, &a)| *to = a * T::FACTOR),
            Kernel::Add => both.zip(&self.other).for_each(|((to, &a), &b)| *to = a + b),
            Kernel::Triad => {
                both.zip(&self.other)
                    .for_each(|((to, &a), &b)| *to = a + b * T::FACTOR);
            }
        }
        std::hint::black_box(&mut self.target);
    }

    /// Check every element of the target after `kernel`.
    pub fn verify(&self, kernel: Kernel) -> Result<(), String> {
        for (offset, &found) in self.target.iter().enumerate() {
            let (a, b) = (T::at(self.first + offset), T::at(self.first + offset + 1));
            let right = match kernel {
                Kernel::Copy => a,
                Kernel::Scale => a * T::FACTOR,
                Kernel::Add => a + b,
                Kernel::Triad => a + b * T::FACTOR,
            };
            if found != right {
                return Err(format!(
                    "{}-{} computed a wrong value at element {}: this machine's CPU or memory \
                     cannot be trusted",
                    kernel.name(),
                    T::NAME,
                    self.first + offset
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computes<T: Element + std::fmt::Debug>() {
        for kernel in Kernel::ALL {
            let mut part = Part::<T>::new(100..20_000);
            assert!(part.verify(kernel).is_err(), "not yet run");
            part.run(kernel);
            part.run(kernel);
            part.verify(kernel).unwrap();
            part.target[7000] = T::FACTOR;
            assert!(part.verify(kernel).unwrap_err().contains("7100"));
        }
    }

    #[test]
    fn kernels_compute_and_errors_are_seen() {
        computes::<u64>();
        computes::<f64>();
    }

    #[test]
    fn triad_by_hand() {
        let mut part = Part::<f64>::new(0..3);
        part.run(Kernel::Triad);
        assert_eq!(
            part.target,
            vec![1.0 + 2.0 * 3.0, 2.0 + 3.0 * 3.0, 3.0 + 4.0 * 3.0]
        );
    }
}
