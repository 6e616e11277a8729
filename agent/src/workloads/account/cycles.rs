//! The cycles that a computer's CPUs made meanwhile.

use crate::sys::{Counter, CYCLES, HARDWARE};
use serde_json::{json, Map, Value};
use std::fs;
use std::io;

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// So many CPUs a list may name; no computer has as many.
const MOST: usize = 1 << 16;

/// A counter for each CPU, or why there is none.
pub struct Count(Result<Vec<(usize, Counter)>, String>);

impl Count {
    pub fn begin() -> Self {
        Self(begun().map_err(|error| error.to_string()))
    }

    /// Cycles by CPU; or under `absent` why they are not known.
    pub fn end(self) -> Value {
        let counted = self.0.and_then(|counters| {
            let cycles = counters.iter().map(|(cpu, counter)| match counter.read() {
                Ok((count, share)) if share > 0.0 => {
                    Ok((cpu.to_string(), ((count as f64 / share) as u64).into()))
                }
                Ok(_) => Err("the counter was never scheduled".to_owned()),
                Err(error) => Err(error.to_string()),
            });
            cycles.collect::<Result<Map<String, Value>, String>>()
        });
        match counted {
            Ok(cpus) => json!({"cpus": cpus}),
            Err(reason) => json!({"absent": reason}),
        }
    }
}

fn begun() -> io::Result<Vec<(usize, Counter)>> {
    let text = fs::read_to_string(ONLINE)?;
    let cpus = listed(&text).ok_or_else(|| io::Error::other(format!("{ONLINE} is not a list")))?;
    cpus.into_iter()
        .map(|cpu| Ok((cpu, Counter::on_cpu(HARDWARE, CYCLES, cpu)?)))
        .collect()
}

/// The numbers of a list as the kernel writes them: `0-3,8`.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cycles_are_counted_or_absent_with_a_reason() {
        let cycles = Count::begin().end();
        match cycles["absent"].as_str() {
            Some(reason) => assert!(!reason.is_empty()),
            None => assert!(!cycles["cpus"].as_object().unwrap().is_empty(), "{cycles}"),
        }
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(listed("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(listed("\n"), Some(vec![]));
        assert_eq!(listed("0-x"), None);
        assert_eq!(listed("0-99999999999"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_none(text in "[0-9,x-]{0,12}") {
            let _ = listed(&text);
        }
    }
}
