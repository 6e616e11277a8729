//! The agent: the small static program that measures inside a machine.
//!
//! Each module uses only the ones below it: `boot` starts the machine and calls `channel`, which runs
//! `workloads`; these use `tools`, `measure` and, at the bottom, `sys`. `contract` is shared by all
//! above `sys`.

pub mod boot;
pub mod channel;
pub mod contract;
pub mod measure;
pub mod sys;
pub mod tools;
pub mod workloads;
