//! What was done: how many operations of each kind, how many bytes, how long each took.

use hdrhistogram::Histogram;
use serde_json::{json, Map, Value};

/// One kind of operation on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create,
    Open,
    Write,
    Append,
    Read,
    Sync,
    Close,
    Delete,
    Stat,
}

impl Op {
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Open,
        Self::Write,
        Self::Append,
        Self::Read,
        Self::Sync,
        Self::Close,
        Self::Delete,
        Self::Stat,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Write => "write",
            Self::Append => "append",
            Self::Read => "read",
            Self::Sync => "sync",
            Self::Close => "close",
            Self::Delete => "delete",
            Self::Stat => "stat",
        }
    }
}

/// Two significant digits: 1 % of each value. Grows as it needs, because a hundred threads have nine.
fn empty() -> Histogram<u64> {
    Histogram::new(2).expect("two digits are allowed")
}

/// The operations of one thread, or of several together.
#[derive(Default)]
pub struct Counts {
    latency: [Option<Histogram<u64>>; Op::ALL.len()],
    nanoseconds: [u64; Op::ALL.len()],
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Counts {
    /// One operation of this kind took so long.
    pub fn count(&mut self, op: Op, nanoseconds: u64) {
        let histogram = self.latency[op as usize].get_or_insert_with(empty);
        let counted = histogram.record(nanoseconds.max(1));
        counted.expect("a histogram that grows takes any value");
        self.nanoseconds[op as usize] += nanoseconds;
    }

    pub fn add(&mut self, other: &Self) {
        for (at, from) in other.latency.iter().enumerate() {
            if let Some(from) = from {
                let to = self.latency[at].get_or_insert_with(empty);
                to.add(from)
                    .expect("a histogram that grows takes any value");
            }
            self.nanoseconds[at] += other.nanoseconds[at];
        }
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// How many operations of this kind there were.
    pub fn operations(&self, op: Op) -> u64 {
        self.latency[op as usize].as_ref().map_or(0, Histogram::len)
    }

    pub fn all_operations(&self) -> u64 {
        Op::ALL.iter().map(|op| self.operations(*op)).sum()
    }

    /// The share of all operations' time, for each kind that there was, and the tails of each.
    pub fn by_operation(&self, seconds: f64) -> Value {
        let whole = self.nanoseconds.iter().sum::<u64>().max(1) as f64;
        let mut found = Map::new();
        for op in Op::ALL {
            if let Some(histogram) = &self.latency[op as usize] {
                let mut entry = tails(histogram);
                entry["count"] = histogram.len().into();
                entry["per_s"] = (histogram.len() as f64 / seconds).into();
                entry["time_share"] = (self.nanoseconds[op as usize] as f64 / whole).into();
                found.insert(op.name().into(), entry);
            }
        }
        Value::Object(found)
    }

    /// The tails over all operations of every kind.
    pub fn latency(&self) -> Value {
        let mut all = empty();
        for histogram in self.latency.iter().flatten() {
            all.add(histogram)
                .expect("a histogram that grows takes any value");
        }
        tails(&all)
    }

    /// The bins that hold anything: (kind, highest nanosecond, count).
    pub fn bins(&self) -> Vec<(u64, u64, u64)> {
        let mut found = Vec::new();
        for op in Op::ALL {
            for bin in self.latency[op as usize]
                .iter()
                .flat_map(|all| all.iter_recorded())
            {
                found.push((op as u64, bin.value_iterated_to(), bin.count_at_value()));
            }
        }
        found
    }
}

fn tails(histogram: &Histogram<u64>) -> Value {
    let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
    let at = |share: f64| seconds(histogram.value_at_quantile(share));
    json!({
        "mean_s": histogram.mean() * 1e-9,
        "median_s": at(0.5),
        "p90_s": at(0.9),
        "p99_s": at(0.99),
        "p999_s": at(0.999),
        "max_s": seconds(histogram.max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_when_threads_are_added(
            counted in prop::collection::vec((0usize..9, 1u64..1 << 50), 0..60), split in 0usize..60,
        ) {
            let (mut one, mut two, mut all) = (Counts::default(), Counts::default(), Counts::default());
            for (at, (op, took)) in counted.iter().enumerate() {
                let part = if at < split { &mut one } else { &mut two };
                part.count(Op::ALL[*op], *took);
                all.count(Op::ALL[*op], *took);
            }
            one.add(&two);
            prop_assert_eq!(one.all_operations(), counted.len() as u64);
            for op in Op::ALL {
                prop_assert_eq!(one.operations(op), all.operations(op));
            }
            prop_assert_eq!(one.by_operation(1.0), all.by_operation(1.0));
            prop_assert_eq!(one.latency(), all.latency());
            prop_assert_eq!(one.bins().iter().map(|bin| bin.2).sum::<u64>(), counted.len() as u64);
        }

        #[test]
        fn tails_are_within_a_percent(values in prop::collection::vec(1u64..1 << 40, 1..300)) {
            let mut counts = Counts::default();
            values.iter().for_each(|value| counts.count(Op::Read, *value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = sorted[(values.len() as f64 * 0.5).ceil() as usize - 1] as f64;
            let found = counts.latency()["median_s"].as_f64().unwrap() * 1e9;
            prop_assert!((found / exact - 1.0).abs() < 0.01 + 1.0 / exact, "{found} for {exact}");
        }
    }
}
