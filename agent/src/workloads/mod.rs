//! All workloads, by name.

pub mod account;
pub mod bytemark;
pub mod cpu_load;
pub mod disk_load;
pub mod disk_tool;
pub mod exits;
pub mod filebench;
pub mod hog;
pub mod http;
pub mod load;
pub mod memory_bandwidth;
pub mod memory_latency;
pub mod memory_load;
pub mod net;
pub mod phased_load;
pub mod program;
pub mod run_command;
pub mod stacks;
pub mod switch;
#[cfg(test)]
pub mod testing;
pub mod tick;
pub mod tsc_loop;
pub mod wakeup;

use crate::contract::Run;

/// The workloads that this agent can run.
pub const ALL: &[(&str, Run)] = &[
    ("account", account::run),
    ("assignment", bytemark::ASSIGNMENT),
    ("bitfield", bytemark::BITFIELD),
    ("bonnie", disk_tool::bonnie),
    ("bytemark", bytemark::run),
    ("connect-request-response", net::run_connecting),
    ("cpu-load", cpu_load::run),
    ("disk-load", disk_load::run),
    ("exits", exits::run),
    ("filebench", filebench::run),
    ("fio", disk_tool::fio),
    ("fourier", bytemark::FOURIER),
    ("fp-emulation", bytemark::FP_EMULATION),
    ("hog", hog::run),
    ("http-load", http::run),
    ("huffman", bytemark::HUFFMAN),
    ("idea", bytemark::IDEA),
    ("lu", bytemark::LU),
    ("memory-bandwidth", memory_bandwidth::run),
    ("memory-latency", memory_latency::run),
    ("memory-load", memory_load::run),
    ("net-echo", net::run_echo),
    ("net-load", net::run_load),
    ("net-server", net::run_server),
    ("neural-net", bytemark::NEURAL_NET),
    ("numeric-sort", bytemark::NUMERIC_SORT),
    ("phased-load", phased_load::run),
    ("program", program::run),
    ("packet-rate", net::run_packets),
    ("request-response", net::run_kept),
    ("serve-program", net::run_program),
    ("stacks", stacks::run),
    ("string-sort", bytemark::STRING_SORT),
    ("switch", switch::run),
    ("tick", tick::run),
    ("tsc-loop", tsc_loop::run),
    ("wakeup", wakeup::run),
];

/// Find a workload by its name.
pub fn find(name: &str) -> Option<Run> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
