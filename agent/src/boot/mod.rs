//! A machine's beginning and end, where the agent is its init.

mod dhcp;
mod drivers;
mod empty_disk;
pub mod init;
mod live;
mod medium;
pub mod network;
mod scratch;
