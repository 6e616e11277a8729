//! A stream of frames that outlives the connections it travels over.
//!
//! Each message or data frame has a number. The sender keeps it until the other end has acknowledged it,
//! and resends it over the next connection; the receiver drops duplicates.

use serde_json::{json, Value};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

/// About the link itself; not numbered, and lost with its connection.
pub const CONTROL: u8 = 0;
/// A JSON object.
pub const MESSAGE: u8 = 1;
/// A stream's number (u32 LE), then bytes of it.
pub const DATA: u8 = 2;

const HEAD: usize = 9;
const LONGEST: usize = 4 << 20;
/// Received bytes after which an acknowledgement is sent.
const ACKNOWLEDGE_AFTER: usize = 256 << 10;

#[derive(Debug, PartialEq)]
pub struct Frame {
    pub kind: u8,
    pub number: u64,
    pub payload: Vec<u8>,
}

/// Length (u32 LE, of what follows), kind (u8), number (u64 LE), payload.
pub fn encode(kind: u8, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + HEAD + payload.len());
    bytes.extend(((HEAD + payload.len()) as u32).to_le_bytes());
    bytes.push(kind);
    bytes.extend(number.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Read the next frame; `None` at the end of the connection.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if !(HEAD..=LONGEST).contains(&length) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes"),
        ));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[1..HEAD]);
    Ok(Some(Frame {
        kind: bytes[0],
        number: u64::from_le_bytes(number),
        payload: bytes.split_off(HEAD),
    }))
}

#[derive(Default)]
struct State {
    /// The connection, once its other end has stated what it has received.
    connection: Option<UnixStream>,
    /// What was sent and is not known to have arrived.
    kept: VecDeque<(u64, Vec<u8>)>,
    sent: u64,
    received: u64,
    unacknowledged: usize,
}

impl State {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(connection) = &mut self.connection {
            if connection.write_all(bytes).is_err() {
                self.connection = None;
            }
        }
    }

    fn acknowledge(&mut self) {
        self.unacknowledged = 0;
        let acknowledgement = json!({"received": self.received}).to_string();
        self.write(&encode(CONTROL, 0, acknowledgement.as_bytes()));
    }
}

#[derive(Default)]
pub struct Link {
    state: Mutex<State>,
}

impl Link {
    pub fn message(&self, value: &Value) {
        self.send(MESSAGE, value.to_string().as_bytes());
    }

    pub fn data(&self, stream: u32, bytes: &[u8]) {
        self.send(DATA, &[&stream.to_le_bytes(), bytes].concat());
    }

    fn send(&self, kind: u8, payload: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state.sent += 1;
        let bytes = encode(kind, state.sent, payload);
        state.write(&bytes);
        let number = state.sent;
        state.kept.push_back((number, bytes));
    }

    /// Resume over a connection whose other end has received frames up to `theirs`.
    pub fn resume(&self, connection: UnixStream, theirs: u64, hello: &Value) {
        let mut state = self.state.lock().unwrap();
        state.connection = Some(connection);
        let mut hello = hello.clone();
        hello["received"] = json!(state.received);
        state.write(&encode(CONTROL, 0, hello.to_string().as_bytes()));
        state.kept.retain(|(number, _)| *number > theirs);
        let again: Vec<Vec<u8>> = state.kept.iter().map(|(_, bytes)| bytes.clone()).collect();
        for bytes in again {
            state.write(&bytes);
        }
    }

    /// Note what the other end has received; acknowledge in turn if it requests that.
    pub fn arrived(&self, theirs: u64, wants_reply: bool) {
        let mut state = self.state.lock().unwrap();
        state.kept.retain(|(number, _)| *number > theirs);
        if wants_reply {
            state.acknowledge();
        }
    }

    /// Whether a frame is the next one, which counts as received then, or came before.
    ///
    /// A frame after a gap is an error: missing frames are resent only over the next connection.
    pub fn is_new(&self, frame: &Frame) -> io::Result<bool> {
        let mut state = self.state.lock().unwrap();
        let next = state.received + 1;
        if frame.number > next {
            let reason = format!("frame {} came where {next} was due", frame.number);
            return Err(io::Error::other(reason));
        }
        let new = frame.number == next;
        if new {
            state.received = frame.number;
            state.unacknowledged += frame.payload.len();
            if state.unacknowledged >= ACKNOWLEDGE_AFTER {
                state.acknowledge();
            }
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_back(kind in 0u8..3, number: u64, payload: Vec<u8>) {
            let bytes = encode(kind, number, &payload);
            let read = read_frame(&mut &bytes[..]).unwrap();
            prop_assert_eq!(read, Some(Frame { kind, number, payload }));
        }

        #[test]
        fn nothing_makes_it_panic(bytes: Vec<u8>) {
            let _ = read_frame(&mut &bytes[..]);
        }
    }

    #[test]
    fn unacknowledged_frames_are_resent() {
        let link = Link::default();
        for text in ["a", "b", "c"] {
            link.message(&json!(text));
        }
        let (near, mut far) = UnixStream::pair().unwrap();
        link.resume(near, 1, &json!({}));
        let numbers: Vec<u64> = (0..3)
            .map(|_| read_frame(&mut far).unwrap().unwrap().number)
            .collect();
        assert_eq!(numbers, [0, 2, 3]);
    }

    #[test]
    fn a_duplicate_frame_counts_once() {
        let link = Link::default();
        let frame = |number| Frame {
            kind: DATA,
            number,
            payload: vec![],
        };
        let taken = [1, 1, 2, 3, 2].map(|number| link.is_new(&frame(number)).unwrap());
        assert_eq!(taken, [true, false, true, true, false]);
    }

    #[test]
    fn a_frame_after_a_gap_is_an_error() {
        let link = Link::default();
        let frame = |number| Frame {
            kind: DATA,
            number,
            payload: vec![],
        };
        assert!(link.is_new(&frame(1)).unwrap());
        let acknowledgement = link.is_new(&frame(3)).unwrap_err().to_string();
        assert_eq!(acknowledgement, "frame 3 came where 2 was due");
        assert!(link.is_new(&frame(2)).unwrap());
    }
}
