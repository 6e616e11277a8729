//! All workloads, by name.

use crate::workload::Run;

/// The workloads this agent can carry out.
pub const ALL: &[(&str, Run)] = &[];

/// Find a workload by its name.
pub fn find(name: &str) -> Option<Run> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
