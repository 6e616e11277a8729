//! CPU time that others had while this machine wanted it, as its kernel learned from the hypervisor.

use crate::sys;
use std::fs;

/// Nanoseconds stolen from these CPUs since the machine's start; from all of them where none is
/// named. Nothing where no hypervisor tells (proc(5), `/proc/stat`).
pub fn stolen_ns(cpus: &[usize]) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_ticks(&text, cpus) * (1_000_000_000 / sys::clock_ticks_per_s())
}

fn stolen_ticks(stat: &str, cpus: &[usize]) -> u64 {
    let wanted = |name: &str| match cpus {
        [] => name == "cpu",
        _ => cpus.iter().any(|cpu| name == format!("cpu{cpu}")),
    };
    stat.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let name = fields.next()?;
            let field = fields.nth(7)?.parse::<u64>().ok()?;
            wanted(name).then_some(field)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  1 2 3 4 5 6 7 30 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\n\
                        cpu1 1 2 3 4 5 6 7 20 0 0\nintr 5 1\nctxt 9\n";

    #[test]
    fn steal_is_that_of_the_cpus_named() {
        assert_eq!(stolen_ticks(STAT, &[]), 30);
        assert_eq!(stolen_ticks(STAT, &[1]), 20);
        assert_eq!(stolen_ticks(STAT, &[0, 1]), 30);
        assert_eq!(stolen_ticks(STAT, &[7]), 0);
        assert_eq!(stolen_ticks("", &[]), 0);
    }
}
