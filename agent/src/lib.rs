//! The agent: the small static program that measures inside a machine.

pub mod clock;
pub mod counters;
pub mod frame;
pub mod init;
pub mod keep;
pub mod launch;
pub mod measure;
pub mod network;
pub mod outbox;
pub mod program;
pub mod proof;
pub mod protocol;
pub mod runs;
pub mod scheduling;
pub mod scratch;
pub mod serve;
pub mod sys;
pub mod toolbox;
pub mod workload;
pub mod workloads;
