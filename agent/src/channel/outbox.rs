//! What the agent sends: numbered, kept until the host has acknowledged it, and resent on request.

use super::frame::{Kind, MAX_PAYLOAD};
use super::protocol;
use super::sending::{State, CHUNK, WINDOW};
use crate::sys;
use serde_json::{json, Value};
use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Stop waiting for a host that has acknowledged nothing for this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The sending half of a channel, shared by all threads.
pub struct Outbox {
    state: Mutex<State>,
    moved: Condvar,
}

impl Outbox {
    pub fn new(stream: File) -> Self {
        Self {
            state: Mutex::new(State::new(stream)),
            moved: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send a message; its sequence number.
    pub fn send(&self, message: &Value) -> u32 {
        let mut payload = message.to_string().into_bytes();
        if payload.len() > MAX_PAYLOAD {
            let reason = format!("the answer is too long ({} bytes)", payload.len());
            let id = message.get("id").and_then(Value::as_u64);
            payload = protocol::error(id, &reason).to_string().into_bytes();
        }
        self.lock().send(Kind::Message, &payload)
    }

    /// Send a binary series in chunks, waiting for the host where too much is on its way.
    pub fn send_series(
        &self,
        id: u64,
        name: &str,
        rows: usize,
        columns: &[(&str, &str)],
        data: &[u8],
    ) {
        let mut offset = 0;
        loop {
            let chunk = &data[offset..data.len().min(offset + CHUNK)];
            let header = json!({
                "id": id, "name": name, "rows": rows, "columns": columns,
                "offset": offset, "total": data.len(),
            });
            let payload = protocol::series_payload(&header, chunk);
            self.wait_for_room().send(Kind::Series, &payload);
            offset += chunk.len();
            if offset >= data.len() {
                return;
            }
        }
    }

    fn wait_for_room(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let since = Instant::now();
        while state.kept_bytes > WINDOW && !state.lost {
            let left = PATIENCE.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            let (next, _) = self
                .moved
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
        state
    }

    /// The host has everything up to and including `seq`.
    pub fn acknowledge(&self, seq: u32) {
        let mut state = self.lock();
        if seq >= state.next_seq {
            return;
        }
        state.acknowledged = state.acknowledged.max(seq + 1);
        while state.kept.front().is_some_and(|kept| kept.seq <= seq) {
            state.forget_oldest();
        }
        self.moved.notify_all();
    }

    /// Send frames again; report the ones that are no longer kept.
    pub fn resend(&self, seqs: &[u32]) {
        let mut state = self.lock();
        let mut missing = Vec::new();
        for seq in seqs {
            if !state.repeat(*seq) {
                missing.push(*seq);
            }
        }
        if !missing.is_empty() {
            // In sequence it would wait for the very frames that are gone.
            state.send_at_once(&protocol::gone(&missing));
        }
    }

    /// Wait until the host has acknowledged `seq`, sending it again every `interval`; gives up
    /// after `attempts`.
    pub fn see_arrived(&self, seq: u32, interval: Duration, attempts: u32) {
        for _ in 0..attempts {
            let since = Instant::now();
            let mut state = self.lock();
            loop {
                if state.acknowledged > seq || state.lost {
                    return;
                }
                let left = interval.saturating_sub(since.elapsed());
                if left.is_zero() {
                    break;
                }
                let (next, _) = self
                    .moved
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
            }
            state.repeat(seq);
        }
    }

    /// The host is gone: send nothing any more, and end all waits.
    pub fn close(&self) {
        self.lock().lost = true;
        self.moved.notify_all();
    }

    /// Send the last message, and return when it has left the machine, as far as that is known.
    pub fn send_last(&self, message: &Value) {
        let mut state = self.lock();
        // A write that waits returns when the hypervisor has taken the data.
        let _ = sys::set_blocking(&state.stream, true);
        if sys::wait_writable(&state.stream).unwrap_or(false) {
            state.send(Kind::Message, message.to_string().as_bytes());
        }
        sys::drain(&state.stream);
    }

    /// Report a fatal error outside the sequence; skipped if another thread holds the outbox.
    pub fn send_fatal(&self, reason: &str) {
        if let Ok(mut state) = self.state.try_lock() {
            state.send_at_once(&protocol::fatal(reason));
        }
    }

    /// Send a message outside the order: it is neither kept nor repeated.
    pub fn send_at_once(&self, message: &Value) {
        self.lock().send_at_once(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::frame::{Decoder, Frame, OUT_OF_BAND};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    struct Far(UnixStream, Decoder);

    impl Far {
        /// The next frame that the host gets.
        fn next(&mut self) -> Frame {
            let mut buffer = [0u8; 1 << 16];
            loop {
                if let Some(frame) = self.1.next_frame() {
                    return frame;
                }
                let count = self.0.read(&mut buffer).unwrap();
                assert!(count > 0, "the outbox has closed the stream");
                self.1.push(&buffer[..count]);
            }
        }

        fn next_message(&mut self) -> (u32, Value) {
            let frame = self.next();
            let message = serde_json::from_slice(&frame.payload).unwrap();
            (frame.seq, message)
        }
    }

    fn pair() -> (Arc<Outbox>, Far) {
        let (near, far) = UnixStream::pair().unwrap();
        let near = File::from(std::os::fd::OwnedFd::from(near));
        (Arc::new(Outbox::new(near)), Far(far, Decoder::new()))
    }

    #[test]
    fn kept_frames_are_resent_and_lost_ones_named() {
        let (outbox, mut far) = pair();
        for number in 0..3 {
            assert_eq!(outbox.send(&json!({ "n": number })), number);
        }
        outbox.acknowledge(0);
        outbox.resend(&[1, 2, 7, 0]);
        let seen: Vec<u32> = (0..5).map(|_| far.next_message().0).collect();
        assert_eq!(seen, [0, 1, 2, 1, 2]);
        let gone = (OUT_OF_BAND, json!({"type": "gone", "seqs": [7]}));
        assert_eq!(far.next_message(), gone);
    }

    #[test]
    fn an_acknowledgement_from_the_future_changes_nothing() {
        let (outbox, mut far) = pair();
        outbox.send(&json!({}));
        outbox.acknowledge(u32::MAX);
        outbox.resend(&[0]);
        assert_eq!((far.next().seq, far.next().seq), (0, 0));
    }

    #[test]
    fn a_result_is_sent_again_until_it_has_arrived() {
        let (outbox, mut far) = pair();
        let seq = outbox.send(&json!({"type": "result"}));
        let waiting = outbox.clone();
        let thread = std::thread::spawn(move || {
            waiting.see_arrived(seq, Duration::from_millis(5), u32::MAX);
        });
        assert_eq!((far.next().seq, far.next().seq), (seq, seq));
        outbox.acknowledge(seq);
        thread.join().unwrap();
    }

    #[test]
    fn series_wait_for_the_host_and_arrive_whole() {
        let (outbox, mut far) = pair();
        let data: Vec<u8> = (0..3 * WINDOW).map(|at| (at % 251) as u8).collect();
        let (sender, sent) = (outbox.clone(), data.clone());
        let thread = std::thread::spawn(move || {
            sender.send_series(9, "s", sent.len(), &[("v", "u8")], &sent);
        });
        // As a host does, this one reads on while its acknowledgements are on their way.
        let (frames, arrived) = std::sync::mpsc::channel();
        std::thread::spawn(move || while frames.send(far.next()).is_ok() {});
        let mut received = Vec::new();
        while received.len() < data.len() {
            let frame = arrived.recv().unwrap();
            assert_eq!(frame.kind, Kind::Series);
            let at = frame
                .payload
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap();
            let header: Value = serde_json::from_slice(&frame.payload[..at]).unwrap();
            assert_eq!(header["offset"], received.len());
            received.extend_from_slice(&frame.payload[at + 1..]);
            outbox.acknowledge(frame.seq);
            let kept = outbox.lock().kept_bytes;
            assert!(kept <= WINDOW + 2 * CHUNK, "{kept} bytes are kept");
        }
        thread.join().unwrap();
        assert!(received == data);
    }

    #[test]
    fn a_message_that_does_not_fit_at_once_arrives_whole() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let outbox = Outbox::new(File::from(std::os::fd::OwnedFd::from(near)));
        let mut far = Far(far, Decoder::new());
        // More than a socket buffers before the other end reads.
        let message = json!({"v": "x".repeat(MAX_PAYLOAD / 2)});
        let sent = message.clone();
        let thread = std::thread::spawn(move || outbox.send(&sent));
        assert!(far.next_message().1 == message);
        thread.join().unwrap();
    }

    #[test]
    fn nothing_waits_for_a_host_that_is_gone() {
        let (outbox, far) = pair();
        drop(far);
        let data = vec![0; 2 * WINDOW];
        outbox.send_series(1, "s", data.len(), &[("v", "u8")], &data);
        let seq = outbox.send(&json!({}));
        outbox.see_arrived(seq, Duration::from_secs(3600), 1);
    }

    #[test]
    fn an_answer_may_be_as_long_as_a_frame_holds() {
        let (outbox, mut far) = pair();
        let around = json!({"v": ""}).to_string().len();
        let message = json!({"v": "x".repeat(MAX_PAYLOAD - around)});
        let sent = message.clone();
        let thread = std::thread::spawn(move || outbox.send(&sent));
        assert!(far.next_message().1 == message);
        thread.join().unwrap();
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let (outbox, mut far) = pair();
        let long = "x".repeat(MAX_PAYLOAD);
        outbox.send(&json!({"type": "result", "id": 4, "value": long}));
        let (_, message) = far.next_message();
        assert_eq!(
            (&message["type"], &message["id"]),
            (&json!("error"), &json!(4))
        );
    }
}
