//! Traffic between two agents: one serves, the other asks it and measures.

mod exchange;
mod load;
mod packets;
mod program;
mod reach;
mod serve;

pub use exchange::{run_connecting, run_kept};
pub use load::{run_echo, run_load, Meeting, Partner};
pub use packets::run as run_packets;
pub use program::run as run_program;
pub use serve::run as run_server;

/// How a datagram begins that is to be sent back as it is.
const PROBE: &[u8] = b"tare: send this back";

/// What may be sent at once, in either direction.
const MOST_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests;
