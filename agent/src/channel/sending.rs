//! One stream's frames: numbered, written as far as there is room, and kept until they have arrived.

use super::frame::{encode, Kind, HEADER, MAX_PAYLOAD, OUT_OF_BAND, TRAILER};
use crate::sys;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// Series travel in chunks of this size, so that damage on a slow line costs little.
pub(super) const CHUNK: usize = 64 << 10;
/// How much unacknowledged data is kept before series wait for the host.
pub(super) const WINDOW: usize = 4 << 20;
/// How often to poll a port whose host has not connected yet.
const UNCONNECTED_PAUSE: Duration = Duration::from_millis(2);

pub(super) struct Kept {
    pub(super) seq: u32,
    bytes: Vec<u8>,
}

pub(super) struct State {
    pub(super) stream: File,
    pub(super) next_seq: u32,
    /// Everything before this sequence number has arrived.
    pub(super) acknowledged: u32,
    pub(super) kept: VecDeque<Kept>,
    pub(super) kept_bytes: usize,
    /// Whether anything was sent, so the host has been connected.
    connected: bool,
    pub(super) lost: bool,
}

impl State {
    pub(super) fn new(stream: File) -> Self {
        Self {
            stream,
            next_seq: 0,
            acknowledged: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            connected: false,
            lost: false,
        }
    }

    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) -> u32 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let bytes = encode(kind, seq, payload);
        self.write(&bytes);
        self.kept_bytes += bytes.len();
        self.kept.push_back(Kept { seq, bytes });
        let most = WINDOW + CHUNK + HEADER + TRAILER + MAX_PAYLOAD;
        while self.kept_bytes > most && self.kept.len() > 1 {
            self.forget_oldest();
        }
        seq
    }

    pub(super) fn send_at_once(&mut self, message: &Value) {
        let bytes = encode(Kind::Message, OUT_OF_BAND, message.to_string().as_bytes());
        self.write(&bytes);
    }

    pub(super) fn repeat(&mut self, seq: u32) -> bool {
        let Some(kept) = self.kept.iter().position(|kept| kept.seq == seq) else {
            // An acknowledged frame is not missing.
            return seq < self.acknowledged;
        };
        let bytes = std::mem::take(&mut self.kept[kept].bytes);
        self.write(&bytes);
        self.kept[kept].bytes = bytes;
        true
    }

    pub(super) fn forget_oldest(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.kept_bytes -= kept.bytes.len();
        }
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            match self.stream.write(bytes) {
                Ok(0) => self.lost = true,
                Ok(count) => {
                    self.connected = true;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // Reading from the channel will end too, and that ends the agent.
                Err(_) => self.lost = true,
            }
        }
    }

    /// Wait for buffer space. A port without a host never has any: the host is lost if it was connected.
    fn wait(&mut self) {
        if !sys::wait_writable(&self.stream).unwrap_or(false) {
            self.lost = self.connected;
            std::thread::sleep(UNCONNECTED_PAUSE);
        }
    }
}
