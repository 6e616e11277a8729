//! All workloads, by name.

pub mod bytemark;
pub mod cpu_load;
pub mod hog;
pub mod load;
pub mod memory_bandwidth;
pub mod memory_load;
pub mod switch;
#[cfg(test)]
pub mod testing;
pub mod tick;
pub mod tsc_loop;

use crate::workload::Run;

/// The workloads this agent can carry out.
pub const ALL: &[(&str, Run)] = &[
    ("cpu-load", cpu_load::run),
    ("fourier", bytemark::fourier),
    ("hog", hog::run),
    ("idea", bytemark::idea),
    ("memory-bandwidth", memory_bandwidth::run),
    ("memory-load", memory_load::run),
    ("numeric-sort", bytemark::numeric_sort),
    ("switch", switch::run),
    ("tick", tick::run),
    ("tsc-loop", tsc_loop::run),
];

/// Find a workload by its name.
pub fn find(name: &str) -> Option<Run> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
