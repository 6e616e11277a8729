//! The agent: the small static program that measures inside a machine.

pub mod workload;
pub mod workloads;
