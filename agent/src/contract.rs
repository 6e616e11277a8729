//! The contract of a workload: a name, a function, and a sink for its results.

use serde_json::Value;
use std::sync::atomic::AtomicBool;

/// Why a workload failed, for the user.
#[derive(Debug)]
pub struct Failure(pub String);

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(reason: T) -> Self {
        Failure(reason.to_string())
    }
}

/// Where a workload reports while it runs and when it has ended.
///
/// A measured loop must not call any of these methods.
pub trait Sink: Sync {
    /// Report how much of the work is done (0 to 1), with further fields (such as a live rate).
    fn progress(&self, done: f64, fields: Value);

    /// Report that all is prepared, and wait for the common start signal if the host requested one.
    fn barrier(&self) -> Result<(), Failure>;

    /// Send a binary series: `columns` name little-endian fixed-width columns
    /// (`("time_ns", "u64")`), `data` holds them one column after the other.
    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]);
}

/// The input of one run of a workload.
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
