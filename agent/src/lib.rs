//! The agent: the small static program that measures inside a machine.
//!
//! Each room uses those below it only: `boot` starts the machine and hands it to `channel`, which
//! carries out `workloads`; these use `tools`, `measure` and, at the bottom, `sys`.

pub mod boot;
pub mod channel;
pub mod contract;
pub mod measure;
pub mod sys;
pub mod tools;
pub mod workloads;
