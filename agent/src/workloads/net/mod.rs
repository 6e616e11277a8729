//! Traffic between two agents: one serves, the other asks it and measures.

mod exchange;
mod load;
mod packets;
mod program;
mod reach;
mod serve;

pub use exchange::{run_connecting, run_kept};
pub use load::{run_echo, run_load, Partner, Rendezvous};
pub use packets::run as run_packets;
pub use program::run as run_program;
pub use serve::run as run_server;

#[cfg(test)]
mod tests;
