//! The conversation with the host: frames, requests, the runs they start, and what is owed to it.

pub mod dial;
pub mod frame;
pub mod outbox;
pub mod protocol;
pub mod runs;
mod sending;
pub mod serve;
