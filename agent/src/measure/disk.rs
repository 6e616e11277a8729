//! The activity of a block device during a measurement, from the kernel's counters.

use super::scratch;
use serde_json::{json, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Sectors of the counters, whatever the device's own are (the kernel's Documentation/block/stat.rst).
const SECTOR: f64 = 512.0;

/// The fields of the kernel's `stat` file of a block device, in its order; older kernels end sooner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    reads: u64,
    reads_merged: u64,
    sectors_read: u64,
    read_ms: u64,
    writes: u64,
    writes_merged: u64,
    sectors_written: u64,
    write_ms: u64,
    in_flight: u64,
    io_ms: u64,
    weighted_ms: u64,
    flushes: u64,
    flush_ms: u64,
}

impl Counters {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let at = |index: usize| fields.get(index).copied();
        Some(Self {
            reads: at(0)?,
            reads_merged: at(1)?,
            sectors_read: at(2)?,
            read_ms: at(3)?,
            writes: at(4)?,
            writes_merged: at(5)?,
            sectors_written: at(6)?,
            write_ms: at(7)?,
            in_flight: at(8)?,
            io_ms: at(9)?,
            weighted_ms: at(10)?,
            flushes: at(15).unwrap_or(0),
            flush_ms: at(16).unwrap_or(0),
        })
    }
}

/// Watches the device behind a folder from `begin` to `end`.
pub struct Witness {
    device: Option<PathBuf>,
    before: Option<Counters>,
    began: Instant,
}

impl Witness {
    pub fn begin(path: &Path) -> Self {
        let device = scratch::device_folder(path);
        Self {
            before: device.as_deref().and_then(counters),
            device,
            began: Instant::now(),
        }
    }

    /// Rates, queue, wait and utilisation since the beginning; null where there is no device.
    pub fn end(&self) -> Value {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        match (self.before, self.device.as_deref().and_then(counters)) {
            (Some(before), Some(after)) => rates_between(before, after, seconds),
            _ => Value::Null,
        }
    }
}

fn counters(folder: &Path) -> Option<Counters> {
    Counters::parse(&fs::read_to_string(folder.join("stat")).ok()?)
}

/// What collectl derives from two readings: the queue is the mean number of requests under way, the
/// wait the mean time from a request's arrival to its end.
fn rates_between(before: Counters, after: Counters, seconds: f64) -> Value {
    let delta = |field: fn(&Counters) -> u64| field(&after).saturating_sub(field(&before)) as f64;
    let (reads, writes) = (delta(|c| c.reads), delta(|c| c.writes));
    let waited = delta(|c| c.read_ms) + delta(|c| c.write_ms);
    let requests = reads + writes;
    json!({
        "seconds": seconds,
        "read_bytes_per_s": delta(|c| c.sectors_read) * SECTOR / seconds,
        "write_bytes_per_s": delta(|c| c.sectors_written) * SECTOR / seconds,
        "reads_per_s": reads / seconds,
        "writes_per_s": writes / seconds,
        "merged_per_s": (delta(|c| c.reads_merged) + delta(|c| c.writes_merged)) / seconds,
        "flushes_per_s": delta(|c| c.flushes) / seconds,
        "queue": delta(|c| c.weighted_ms) * 1e-3 / seconds,
        "wait_s": if requests > 0.0 { waited * 1e-3 / requests } else { 0.0 },
        "utilisation": (delta(|c| c.io_ms) * 1e-3 / seconds).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEFORE: &str = "  10 1 80 5 20 2 160 10 0 100 15 0 0 0 0 3 1";

    #[test]
    fn two_readings_give_rates() {
        let after = "110 51 880 105 220 2 1760 310 1 1100 415 0 0 0 0 13 2";
        let rates = rates_between(
            Counters::parse(BEFORE).unwrap(),
            Counters::parse(after).unwrap(),
            2.0,
        );
        assert_eq!(rates["read_bytes_per_s"], 800.0 * 512.0 / 2.0);
        assert_eq!(rates["write_bytes_per_s"], 1600.0 * 512.0 / 2.0);
        assert_eq!((rates["reads_per_s"].as_f64()), Some(50.0));
        assert_eq!(rates["merged_per_s"], 25.0);
        assert_eq!(rates["flushes_per_s"], 5.0);
        assert_eq!(rates["queue"], 0.2);
        assert!((rates["wait_s"].as_f64().unwrap() - 0.4 / 300.0).abs() < 1e-12);
        assert_eq!(rates["utilisation"], 0.5);
    }

    #[test]
    fn a_folder_without_a_device_has_no_rates() {
        assert_eq!(Witness::begin(Path::new("/proc")).end(), Value::Null);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail(text in "([0-9]{0,12} ?){0,20}\\PC{0,20}") {
            let _ = Counters::parse(&text);
        }

        #[test]
        fn counters_that_go_back_give_no_negative_rates(fields in prop::collection::vec(any::<u32>(), 34)) {
            let text = |part: &[u32]| part.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let (one, two) = (Counters::parse(&text(&fields[..17])).unwrap(), Counters::parse(&text(&fields[17..])).unwrap());
            let rates = rates_between(one, two, 1.0);
            for value in rates.as_object().unwrap().values() {
                prop_assert!(value.as_f64().unwrap() >= 0.0);
            }
        }
    }
}
