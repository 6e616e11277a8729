//! What every workload is to the agent: a name, a function, and a sink for what it finds.

use serde_json::Value;
use std::sync::atomic::AtomicBool;

/// Why a workload could not be carried out, in words for the user.
#[derive(Debug)]
pub struct Failure(pub String);

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(reason: T) -> Self {
        Failure(reason.to_string())
    }
}

/// Where a workload reports while it runs and when it has ended.
///
/// Nothing of this may be called inside a measured loop.
pub trait Sink: Sync {
    /// Tell how far the work is (0 to 1), with any further fields (such as a live rate).
    fn progress(&self, done: f64, fields: Value);

    /// Say that all is prepared, and wait for the common start signal where one was asked for.
    fn barrier(&self) -> Result<(), Failure>;

    /// Hand over a binary series: `columns` name little-endian fixed-width columns
    /// (`("time_ns", "u64")`), `data` holds them one column after the other.
    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]);
}

/// What one execution of a workload is given.
pub struct Context<'a> {
    pub params: &'a Value,
    /// The CPUs (as the machine numbers them) that the workload may use; empty: any.
    pub cpus: &'a [usize],
    /// Set when the host asks for an early end; endless loads poll it between batches.
    pub stop: &'a AtomicBool,
    pub sink: &'a dyn Sink,
}

/// A workload: measures, and returns its result as a JSON object.
pub type Run = fn(&Context) -> Result<Value, Failure>;
