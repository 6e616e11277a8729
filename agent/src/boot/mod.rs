//! A machine's beginning and end, where the agent is its init.

mod blank;
mod dhcp;
mod drivers;
pub mod init;
mod live;
mod medium;
pub mod network;
mod scratch;
