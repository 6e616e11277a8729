//! What the kernel counted on the measured CPU, before and after: interrupts, steal, preemption.

use super::{scheduling, steal};
use crate::sys;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::fs;

/// The counters at one moment, of one CPU or (when the thread is not pinned) of all together.
pub struct Witness {
    cpu: Option<usize>,
    interrupts: BTreeMap<String, u64>,
    steal_ticks: Option<u64>,
    nonvoluntary: u64,
    run_delay_ns: u64,
}

impl Witness {
    /// Read the counters; the thread's own ones are the caller's.
    pub fn take(cpu: Option<usize>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu,
            interrupts: interrupts(&read("/proc/interrupts"), cpu),
            steal_ticks: steal_ticks(&read("/proc/stat"), cpu),
            nonvoluntary: scheduling::involuntary_switches(),
            run_delay_ns: run_delay(&read("/proc/thread-self/schedstat")),
        }
    }

    /// What was counted since `before`, as JSON; only interrupts that occurred are named.
    pub fn since(&self, before: &Self) -> Value {
        let mut occurred = Map::new();
        let mut total = 0;
        for (name, count) in &self.interrupts {
            let new = count.saturating_sub(*before.interrupts.get(name).unwrap_or(&0));
            if new > 0 {
                occurred.insert(name.clone(), json!(new));
                total += new;
            }
        }
        json!({
            "cpu": self.cpu,
            "interrupts": occurred,
            "interrupts_total": total,
            "steal_s": self.steal_s(before),
            "nonvoluntary_switches": self.nonvoluntary.saturating_sub(before.nonvoluntary),
            "run_delay_s": self.run_delay_ns.saturating_sub(before.run_delay_ns) as f64 * 1e-9,
        })
    }

    /// Seconds of steal time since `before`; `None` unless a hypervisor is known to report it.
    fn steal_s(&self, before: &Self) -> Option<f64> {
        // A first non-zero value shows that steal time is counted; it was 0 before.
        let now = self.steal_ticks?;
        let ticks = now.saturating_sub(before.steal_ticks.unwrap_or(0));
        Some(ticks as f64 / sys::clock_ticks_per_s() as f64)
    }
}

fn interrupts(text: &str, cpu: Option<usize>) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let cpus: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let wanted = cpu.map(|cpu| format!("CPU{cpu}"));
    let mut counts = BTreeMap::new();
    for line in lines {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let numbers = fields
            .iter()
            .take(cpus.len())
            .map_while(|field| field.parse::<u64>().ok());
        let count = cpus
            .iter()
            .zip(numbers)
            .filter(|(column, _)| wanted.as_deref().is_none_or(|name| name == **column))
            .map(|(_, number)| number)
            .sum();
        // A device's interrupt is known by its number and, at the line's end, the device.
        let label = match name.trim().parse::<u32>() {
            Ok(_) if fields.len() > cpus.len() => {
                format!("{} {}", name.trim(), fields[fields.len() - 1])
            }
            _ => name.trim().to_string(),
        };
        counts.insert(label, count);
    }
    counts
}

fn steal_ticks(stat: &str, cpu: Option<usize>) -> Option<u64> {
    if !steal::known(stat) {
        return None;
    }
    let row = cpu.map_or("cpu".to_string(), |cpu| format!("cpu{cpu}"));
    stat.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next() == Some(&row)).then(|| fields.nth(7)?.parse().ok())?
    })
}

fn run_delay(schedstat: &str) -> u64 {
    field(schedstat, 1).unwrap_or(0)
}

fn field(schedstat: &str, number: usize) -> Option<u64> {
    schedstat.split_whitespace().nth(number)?.parse().ok()
}

/// The CPU time of a thread of this process, in nanoseconds, as the kernel accounts it.
///
/// Exact while the thread sleeps: the kernel updates it when the thread leaves the CPU. `None` if the
/// kernel does not account it (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`).
pub fn cpu_time_ns(thread: i32) -> Option<u64> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    field(&fs::read_to_string(path).ok()?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str =
        "           CPU0       CPU2\n  24:   5   7  IO-APIC 24-edge  virtio0\n\
                              LOC:  100  200  Local timer interrupts\nERR:  3\n";

    #[test]
    fn picks_one_cpu_or_all() {
        let one = interrupts(INTERRUPTS, Some(2));
        assert_eq!(one["24 virtio0"], 7);
        assert_eq!(one["LOC"], 200);
        assert_eq!(interrupts(INTERRUPTS, None)["LOC"], 300);
    }

    #[test]
    fn reads_steal_and_delay() {
        let stat = "cpu  1 2 3 4 5 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(steal_ticks(stat, Some(0)), Some(8));
        assert_eq!(steal_ticks(stat, None), Some(80));
        assert_eq!(steal_ticks("", None), None);
        assert_eq!(run_delay("1000 234 5\n"), 234);
    }

    #[test]
    fn unreported_steal_is_not_zero() {
        let mut before = Witness::take(None);
        let mut after = Witness::take(None);
        (before.steal_ticks, after.steal_ticks) = (None, None);
        assert_eq!(after.since(&before)["steal_s"], Value::Null);
        (before.steal_ticks, after.steal_ticks) = (Some(5), Some(5));
        assert_eq!(after.since(&before)["steal_s"], json!(0.0));
        (before.steal_ticks, after.steal_ticks) = (None, Some(sys::clock_ticks_per_s()));
        assert_eq!(after.since(&before)["steal_s"], json!(1.0));
    }

    #[test]
    fn lists_only_interrupts_that_occurred() {
        let before = Witness::take(None);
        let mut after = Witness::take(None);
        after.interrupts = before.interrupts.clone();
        *after.interrupts.entry("LOC".into()).or_default() += 4;
        let counted = after.since(&before);
        assert_eq!(counted["interrupts"], json!({"LOC": 4}));
    }
}
