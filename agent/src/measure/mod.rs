//! The tools of measurements: clocks, counters, memory, scheduling, and facts about the machine.

pub mod clock;
pub mod columns;
pub mod counters;
pub mod cpuid;
pub mod disk;
pub mod hardware;
pub mod histogram;
pub mod machine;
pub mod memory_group;
pub mod pages;
pub mod params;
pub mod prefault;
pub mod proof;
pub mod random;
pub mod realtime;
pub mod scheduling;
pub mod scratch;
pub mod steal;
pub mod sysfs;
pub mod tsc;
pub mod witness;
