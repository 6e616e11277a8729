//! What the workloads measure with: the cycle counter, scheduling, prefaulted memory, histograms,
//! random data.

pub mod columns;
pub mod disk;
pub mod histogram;
pub mod machine;
pub mod pages;
pub mod params;
pub mod prefault;
pub mod random;
pub mod realtime;
pub mod sched;
pub mod steal;
pub mod tsc;
pub mod witness;
