//! A machine's beginning and end, where the agent is its init.

pub mod init;
pub mod network;
mod scratch;
