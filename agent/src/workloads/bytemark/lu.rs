//! LU: solve 101 linear equations by decomposition into a lower and an upper triangle, with
//! partial pivoting (Crout's method).

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;

const SIZE: usize = 101;
/// The residual, scaled by size, norms and the rounding unit, must be below this (the criterion
/// of High-Performance Linpack).
const RESIDUAL: f64 = 16.0;

pub struct Lu {
    matrix: Vec<f64>,
    right: Vec<f64>,
    systems: Vec<System>,
}

impl Kernel for Lu {
    const MOST_AT_ONCE: usize = 32;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let mut numbers = |count| (0..count).map(|_| random.signed_unit()).collect();
        Self {
            matrix: numbers(SIZE * SIZE),
            right: numbers(SIZE),
            systems: Vec::new(),
        }
    }

    fn prepare(&mut self, iterations: usize) {
        self.systems
            .resize_with(iterations, || System::new(&self.matrix, &self.right));
        for system in &mut self.systems {
            system.matrix.copy_from_slice(&self.matrix);
            system.values.copy_from_slice(&self.right);
        }
    }

    fn work(&mut self, iterations: usize) {
        for system in &mut self.systems[..iterations] {
            system.solve();
        }
    }

    fn verify(&self, iterations: usize) -> Result<(), String> {
        let right = |system: &System| {
            !system.singular && residual(&self.matrix, &self.right, &system.values) < RESIDUAL
        };
        if self.systems[..iterations].iter().all(right) {
            Ok(())
        } else {
            Err(wrong("lu"))
        }
    }
}

/// How far A·x is from b: ‖A·x − b‖ / (ε · n · (‖A‖·‖x‖ + ‖b‖)), in the maximum norm.
fn residual(matrix: &[f64], right: &[f64], solution: &[f64]) -> f64 {
    let largest = |values: &mut dyn Iterator<Item = f64>| {
        // Not f64::max, which would lose a NaN.
        values.fold(0.0, |most, value: f64| {
            if value.abs() <= most {
                most
            } else {
                value.abs()
            }
        })
    };
    let size = right.len();
    let rows = || matrix.chunks(size);
    let product = |row: &[f64]| row.iter().zip(solution).map(|(a, x)| a * x).sum::<f64>();
    let off = largest(&mut rows().zip(right).map(|(row, b)| product(row) - b));
    let norm = largest(&mut rows().map(|row| row.iter().map(|a| a.abs()).sum()));
    let scale = norm * largest(&mut solution.iter().copied()) + largest(&mut right.iter().copied());
    off / (f64::EPSILON * size as f64 * scale)
}

/// The matrix, which becomes both triangles, and the right side, which becomes the solution.
struct System {
    matrix: Vec<f64>,
    values: Vec<f64>,
    singular: bool,
}

impl System {
    fn new(matrix: &[f64], right: &[f64]) -> Self {
        Self {
            matrix: matrix.to_vec(),
            values: right.to_vec(),
            singular: false,
        }
    }

    fn solve(&mut self) {
        self.decompose();
        self.substitute();
    }

    /// Column by column: first its part above the diagonal, then that below, then the pivot.
    fn decompose(&mut self) {
        let size = self.values.len();
        self.singular = false;
        let mut column = vec![0.0; size];
        for j in 0..size {
            for (value, row) in column.iter_mut().zip(self.matrix.chunks(size)) {
                *value = row[j];
            }
            for (i, row) in self.matrix.chunks_mut(size).enumerate() {
                let terms = row[..i.min(j)].iter().zip(&column);
                let sum: f64 = terms.map(|(lower, upper)| lower * upper).sum();
                column[i] -= sum;
                row[j] = column[i];
            }
            let mut pivot = j;
            for i in j + 1..size {
                if column[i].abs() > column[pivot].abs() {
                    pivot = i;
                }
            }
            if column[pivot] == 0.0 {
                self.singular = true;
                return;
            }
            if pivot != j {
                let (above, below) = self.matrix.split_at_mut(pivot * size);
                above[j * size..(j + 1) * size].swap_with_slice(&mut below[..size]);
                self.values.swap(j, pivot);
            }
            let diagonal = self.matrix[j * size + j];
            for row in self.matrix.chunks_mut(size).skip(j + 1) {
                row[j] /= diagonal;
            }
        }
    }

    /// Forwards through the lower triangle (whose diagonal is 1), back through the upper one.
    fn substitute(&mut self) {
        let size = self.values.len();
        let rows = self.matrix.chunks(size).enumerate();
        for (i, row) in rows.clone() {
            let sum: f64 = row[..i].iter().zip(&self.values).map(|(a, x)| a * x).sum();
            self.values[i] -= sum;
        }
        for (i, row) in rows.rev() {
            let known = row[i + 1..].iter().zip(&self.values[i + 1..]);
            let sum: f64 = known.map(|(a, x)| a * x).sum();
            self.values[i] = (self.values[i] - sum) / row[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn solves_regular_systems(
            (size, numbers) in (1..12usize).prop_flat_map(|size| {
                (Just(size), prop::collection::vec(-1e3..1e3f64, size * (size + 1)))
            })
        ) {
            let (matrix, right) = numbers.split_at(size * size);
            let mut system = System::new(matrix, right);
            system.solve();
            prop_assert!(system.singular || residual(matrix, right, &system.values) < RESIDUAL);
        }
    }

    #[test]
    fn a_small_system_with_a_zero_on_the_diagonal() {
        let mut system = System::new(&[0.0, 2.0, 4.0, 6.0], &[6.0, 26.0]);
        system.solve();
        assert_eq!(system.values, [2.0, 3.0]);
        assert_eq!(system.matrix, [4.0, 6.0, 0.0, 2.0]);
    }

    #[test]
    fn the_triangles_give_the_matrix_again() {
        let lu = Lu::new();
        let mut system = System::new(&lu.matrix, &lu.right);
        system.solve();
        // The product of the triangles has the matrix's rows in the order of the pivots.
        let triangle = |i: usize, k: usize, lower: bool| match (lower, i.cmp(&k)) {
            (true, std::cmp::Ordering::Equal) => 1.0,
            (true, std::cmp::Ordering::Greater) | (false, std::cmp::Ordering::Less) => {
                system.matrix[i * SIZE + k]
            }
            (false, std::cmp::Ordering::Equal) => system.matrix[i * SIZE + k],
            _ => 0.0,
        };
        let mut left: Vec<usize> = (0..SIZE).collect();
        for i in 0..SIZE {
            let row: Vec<f64> = (0..SIZE)
                .map(|j| {
                    (0..SIZE)
                        .map(|k| triangle(i, k, true) * triangle(k, j, false))
                        .sum()
                })
                .collect();
            let same = |&candidate: &usize| {
                let original = &lu.matrix[candidate * SIZE..(candidate + 1) * SIZE];
                original
                    .iter()
                    .zip(&row)
                    .all(|(a, b)| (a - b).abs() < 1e-12)
            };
            let found = left.iter().position(same).expect("a row of the matrix");
            left.remove(found);
        }
    }

    #[test]
    fn a_singular_matrix_is_detected() {
        let mut system = System::new(&[1.0, 2.0, 2.0, 4.0], &[1.0, 2.0]);
        system.solve();
        assert!(system.singular);
    }

    #[test]
    fn verification_sees_a_wrong_solution() {
        let mut kernel = Lu::new();
        kernel.prepare(2);
        assert!(kernel.verify(2).is_err(), "not solved yet");
        kernel.work(2);
        kernel.verify(2).unwrap();
        for wrong in [kernel.systems[1].values[5] * (1.0 + 1e-9), f64::NAN] {
            kernel.systems[1].values[5] = wrong;
            assert!(kernel.verify(2).is_err());
        }
    }
}
