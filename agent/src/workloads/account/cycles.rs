//! The cycles that a computer's CPUs made meanwhile.

use crate::sys::{Counter, CYCLES, HARDWARE};
use crate::tools::arguments::cpu_list;
use serde_json::{json, Map, Value};
use std::fs;
use std::io;

const ONLINE: &str = "/sys/devices/system/cpu/online";

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
    let cpus = cpu_list(&text).map_err(io::Error::other)?;
    cpus.into_iter()
        .map(|cpu| Ok((cpu, Counter::on_cpu(HARDWARE, CYCLES, cpu)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_counted_or_absent_with_a_reason() {
        let cycles = Count::begin().end();
        match cycles["absent"].as_str() {
            Some(reason) => assert!(!reason.is_empty()),
            None => assert!(!cycles["cpus"].as_object().unwrap().is_empty(), "{cycles}"),
        }
    }
}
