//! Assignment: give each of 101 machines one of 101 tasks so that the sum of costs is least, by
//! the Hungarian method (Kuhn 1955) in Munkres' form (1957): reduce, star, prime and cover zeros.

use super::harness::{wrong, Kernel, SEED};
use crate::measure::random::Random;

const SIZE: usize = 101;
const DEAREST: usize = 5_000_000;

pub struct Assignment {
    costs: Vec<i64>,
    problems: Vec<Problem>,
}

impl Kernel for Assignment {
    const MOST_AT_ONCE: usize = 32;

    fn new() -> Self {
        let mut random = Random::new(SEED);
        let costs = (0..SIZE * SIZE)
            .map(|_| random.below(DEAREST + 1) as i64)
            .collect();
        Self {
            costs,
            problems: Vec::new(),
        }
    }

    fn prepare(&mut self, iterations: usize) {
        self.problems
            .resize_with(iterations, || Problem::new(SIZE, &self.costs));
        for problem in &mut self.problems {
            problem.reduced.copy_from_slice(&self.costs);
            problem.starred.fill(None);
        }
    }

    fn work(&mut self, iterations: usize) {
        for problem in &mut self.problems[..iterations] {
            problem.solve();
        }
    }

    fn verify(&self, iterations: usize) -> Result<(), String> {
        let right = |problem: &Problem| problem.proven(&self.costs);
        if self.problems[..iterations].iter().all(right) {
            Ok(())
        } else {
            Err(wrong("assignment"))
        }
    }
}

/// A square matrix of costs, reduced step by step, and the column starred in each row.
struct Problem {
    size: usize,
    reduced: Vec<i64>,
    starred: Vec<Option<usize>>,
    starred_in: Vec<Option<usize>>,
    primed: Vec<Option<usize>>,
    row_covered: Vec<bool>,
    column_covered: Vec<bool>,
}

impl Problem {
    fn new(size: usize, costs: &[i64]) -> Self {
        Self {
            size,
            reduced: costs.to_vec(),
            starred: vec![None; size],
            starred_in: vec![None; size],
            primed: vec![None; size],
            row_covered: vec![false; size],
            column_covered: vec![false; size],
        }
    }

    fn solve(&mut self) {
        self.reduce();
        self.star();
        loop {
            self.primed.fill(None);
            self.row_covered.fill(false);
            for (covered, star) in self.column_covered.iter_mut().zip(&self.starred_in) {
                *covered = star.is_some();
            }
            if self.column_covered.iter().all(|&covered| covered) {
                return;
            }
            let (row, column) = self.prime();
            self.augment(row, column);
        }
    }

    /// Subtract the least of each row, then of each column.
    fn reduce(&mut self) {
        for row in self.reduced.chunks_mut(self.size) {
            let least = row.iter().copied().min().unwrap_or(0);
            row.iter_mut().for_each(|cost| *cost -= least);
        }
        for column in 0..self.size {
            let cells = (0..self.size).map(|row| row * self.size + column);
            let least = cells.clone().map(|cell| self.reduced[cell]).min();
            cells.for_each(|cell| self.reduced[cell] -= least.unwrap_or(0));
        }
    }

    /// Star a zero wherever none is starred in its row or column.
    fn star(&mut self) {
        self.starred_in.fill(None);
        for row in 0..self.size {
            let costs = &self.reduced[row * self.size..(row + 1) * self.size];
            let free = |column: &usize| costs[*column] == 0 && self.starred_in[*column].is_none();
            if let Some(column) = (0..self.size).find(free) {
                self.starred[row] = Some(column);
                self.starred_in[column] = Some(row);
            }
        }
    }

    /// Prime zeros that are not covered until one has no star in its row; cover and lower as
    /// needed.
    fn prime(&mut self) -> (usize, usize) {
        loop {
            while let Some((row, column)) = self.uncovered_zero() {
                self.primed[row] = Some(column);
                let Some(starred) = self.starred[row] else {
                    return (row, column);
                };
                self.row_covered[row] = true;
                self.column_covered[starred] = false;
            }
            self.lower();
        }
    }

    fn uncovered_zero(&self) -> Option<(usize, usize)> {
        let rows = self.reduced.chunks(self.size).zip(&self.row_covered);
        for (row, (costs, _)) in rows.enumerate().filter(|(_, (_, &covered))| !covered) {
            let zero = costs
                .iter()
                .zip(&self.column_covered)
                .position(|(&cost, &covered)| cost == 0 && !covered);
            if let Some(column) = zero {
                return Some((row, column));
            }
        }
        None
    }

    /// Subtract the least cost that is not covered from all such, and add it where covers cross.
    fn lower(&mut self) {
        let mut least = i64::MAX;
        for (costs, &row) in self.reduced.chunks(self.size).zip(&self.row_covered) {
            if !row {
                for (&cost, &column) in costs.iter().zip(&self.column_covered) {
                    if !column {
                        least = least.min(cost);
                    }
                }
            }
        }
        for (costs, &row) in self.reduced.chunks_mut(self.size).zip(&self.row_covered) {
            for (cost, &column) in costs.iter_mut().zip(&self.column_covered) {
                match (row, column) {
                    (true, true) => *cost += least,
                    (false, false) => *cost -= least,
                    _ => {}
                }
            }
        }
    }

    /// Along the path of primes and stars in turn, unstar the stars and star the primes.
    fn augment(&mut self, mut row: usize, mut column: usize) {
        loop {
            let before = self.starred_in[column].replace(row);
            self.starred[row] = Some(column);
            let Some(other) = before else { return };
            row = other;
            column = self.primed[row].expect("a star on the path has a prime in its row");
        }
    }

    /// Whether the optimum is proven: each row and each column has one star, at a zero; what was
    /// subtracted is a number for each row and one for each column; and nothing is below zero. No
    /// assignment can then cost less than all those numbers together, and this one costs just that
    /// (duality of linear programs).
    fn proven(&self, costs: &[i64]) -> bool {
        let size = self.size;
        let mut used = vec![false; size];
        for (row, starred) in self.starred.iter().enumerate() {
            match *starred {
                Some(column) if !used[column] && self.reduced[row * size + column] == 0 => {
                    used[column] = true;
                }
                _ => return false,
            }
        }
        let taken = |row: usize, column: usize| {
            let cell = row * size + column;
            costs[cell] - self.reduced[cell]
        };
        (0..size).all(|row| {
            (0..size).all(|column| {
                self.reduced[row * size + column] >= 0
                    && taken(row, column) + taken(0, 0) == taken(row, 0) + taken(0, column)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost_of(problem: &Problem, costs: &[i64]) -> i64 {
        let rows = problem.starred.iter().enumerate();
        rows.map(|(row, column)| costs[row * problem.size + column.unwrap()])
            .sum()
    }

    /// The least cost by another way: shortest augmenting paths with potentials, one row after
    /// the other (Edmonds & Karp 1972, Tomizawa 1971).
    fn by_shortest_paths(size: usize, costs: &[i64]) -> i64 {
        let (mut of_row, mut of_column) = (vec![0; size + 1], vec![0; size + 1]);
        let mut row_of = vec![0; size + 1];
        for row in 1..=size {
            row_of[0] = row;
            let mut distance = vec![i64::MAX; size + 1];
            let mut previous = vec![0; size + 1];
            let mut done = vec![false; size + 1];
            let mut at = 0;
            while row_of[at] != 0 {
                done[at] = true;
                let from = row_of[at];
                let (mut step, mut next) = (i64::MAX, 0);
                for column in (1..=size).filter(|&column| !done[column]) {
                    let cost = costs[(from - 1) * size + column - 1];
                    let slack = cost - of_row[from] - of_column[column];
                    if slack < distance[column] {
                        (distance[column], previous[column]) = (slack, at);
                    }
                    if distance[column] < step {
                        (step, next) = (distance[column], column);
                    }
                }
                for column in 0..=size {
                    if done[column] {
                        of_row[row_of[column]] += step;
                        of_column[column] -= step;
                    } else {
                        distance[column] -= step;
                    }
                }
                at = next;
            }
            while at != 0 {
                row_of[at] = row_of[previous[at]];
                at = previous[at];
            }
        }
        (1..=size)
            .map(|column| costs[(row_of[column] - 1) * size + column - 1])
            .sum()
    }

    fn by_trying_all(size: usize, costs: &[i64], row: usize, used: u32) -> i64 {
        if row == size {
            return 0;
        }
        (0..size)
            .filter(|column| used & 1 << column == 0)
            .map(|column| {
                costs[row * size + column] + by_trying_all(size, costs, row + 1, used | 1 << column)
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn finds_the_least_cost(
            (size, costs) in (1..7usize).prop_flat_map(|size| {
                (Just(size), prop::collection::vec(0..12i64, size * size))
            })
        ) {
            let mut problem = Problem::new(size, &costs);
            problem.solve();
            prop_assert!(problem.proven(&costs));
            let least = by_trying_all(size, &costs, 0, 0);
            prop_assert_eq!(cost_of(&problem, &costs), least);
            prop_assert_eq!(by_shortest_paths(size, &costs), least);
        }
    }

    #[test]
    fn the_kernels_optimum_is_that_of_another_algorithm() {
        let mut kernel = Assignment::new();
        kernel.prepare(1);
        kernel.work(1);
        assert_eq!(
            cost_of(&kernel.problems[0], &kernel.costs),
            by_shortest_paths(SIZE, &kernel.costs)
        );
    }

    #[test]
    fn verification_sees_a_worse_assignment() {
        let mut kernel = Assignment::new();
        kernel.prepare(2);
        assert!(kernel.verify(2).is_err(), "not solved yet");
        kernel.work(2);
        kernel.verify(2).unwrap();
        kernel.problems[1].starred.swap(3, 4);
        assert!(kernel.verify(2).is_err());
        kernel.problems[1].starred.swap(3, 4);
        kernel.verify(2).unwrap();
        kernel.problems[1].reduced[7] += 1;
        assert!(kernel.verify(2).is_err());
    }
}
