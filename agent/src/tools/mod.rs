//! Programs that are not the agent's own: the toolbox's, and those that Tare starts on a host.

pub mod arguments;
pub mod cont;
pub mod count;
pub mod guard;
pub mod keep;
pub mod launch;
pub mod pinned;
pub mod program;
pub mod reach;
pub mod sched;
pub mod tap;
pub mod toolbox;
