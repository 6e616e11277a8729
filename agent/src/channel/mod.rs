//! The protocol with the host: frames, requests, the runs they start, and retransmission.

pub mod dial;
pub mod frame;
pub mod outbox;
pub mod protocol;
pub mod runs;
mod sending;
pub mod serve;
