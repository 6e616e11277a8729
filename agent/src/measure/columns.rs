//! Lay out a binary series: fixed-width little-endian columns, one after the other.

use crate::contract::Sink;

/// A table under construction; every column must have the same number of rows.
#[derive(Default)]
pub struct Table {
    rows: usize,
    columns: Vec<(&'static str, &'static str)>,
    data: Vec<u8>,
}

macro_rules! column {
    ($name:ident, $type:ty, $label:literal) => {
        pub fn $name(self, name: &'static str, values: impl Iterator<Item = $type>) -> Self {
            self.column(name, $label, values.map(|value| value.to_le_bytes()))
        }
    };
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    column!(u32s, u32, "u32");
    column!(u64s, u64, "u64");
    column!(f64s, f64, "f64");

    fn column<const N: usize>(
        mut self,
        name: &'static str,
        label: &'static str,
        values: impl Iterator<Item = [u8; N]>,
    ) -> Self {
        let before = self.data.len();
        for value in values {
            self.data.extend_from_slice(&value);
        }
        let rows = (self.data.len() - before) / N;
        assert!(
            self.columns.is_empty() || rows == self.rows,
            "column {name} has {rows} rows, the table {}",
            self.rows
        );
        self.rows = rows;
        self.columns.push((name, label));
        self
    }

    /// Hand the table to the sink; an empty one is left out.
    pub fn send(self, sink: &dyn Sink, name: &str) {
        if self.rows > 0 {
            sink.series(name, self.rows, &self.columns, &self.data);
        }
    }
}
