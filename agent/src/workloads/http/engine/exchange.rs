//! One request on its connection: sent, answered, begun again on another one, or failed.

use super::{Engine, State};
use crate::measure::clock::monotonic_ns;
use crate::sys::sockets::{self, News, ENDED, FAILED, READABLE, WRITABLE};
use crate::workloads::http::response::Malformed;
use crate::workloads::http::tally::Trouble;
use std::io::ErrorKind;

/// Without a rate, a connection that failed rests so long, lest the errors be the only load.
const REST_NS: u64 = 10_000_000;
/// A server that was told to close has so long before this end does.
const LINGER_NS: u64 = 1_000_000_000;

impl Engine<'_> {
    /// Send the slot's request, over its connection or a new one.
    pub(super) fn start(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.socket.is_some() {
            slot.state = State::Sending(0);
            self.send(index, false);
            return;
        }
        let (socket, stands) = match sockets::connect(self.plan.target) {
            Ok(begun) => begun,
            Err(error) => return self.fail(index, Trouble::of(&error)),
        };
        slot.generation = slot.generation.wrapping_add(1);
        slot.used = false;
        let key = key(index, slot.generation);
        slot.socket = Some(socket);
        if stands {
            slot.state = State::Sending(0);
            slot.moments.connected = monotonic_ns();
            self.send(index, true);
        } else {
            slot.state = State::Connecting;
        }
        let slot = &self.slots[index];
        if let Some(socket) = &slot.socket {
            let interest = match slot.state {
                State::Receiving => READABLE,
                _ => READABLE | WRITABLE,
            };
            if let Err(error) = self.poller.add(socket, interest, key) {
                self.fail(index, Trouble::of(&error));
            }
        }
    }

    /// Send what is left of the request. `fresh`: the poller does not know the socket yet.
    fn send(&mut self, index: usize, fresh: bool) {
        let slot = &mut self.slots[index];
        let request = &self.plan.requests[slot.request];
        while let (State::Sending(sent), Some(socket)) = (slot.state, &slot.socket) {
            if sent == request.len() {
                slot.state = State::Receiving;
                return;
            }
            match sockets::send(socket, &request[sent..]) {
                Ok(more) => slot.state = State::Sending(sent + more),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Rare: a request fits into an empty socket's buffer.
                    let all = READABLE | WRITABLE;
                    let key = key(index, slot.generation);
                    let told = if fresh {
                        Ok(())
                    } else {
                        self.poller.change(socket, all, key)
                    };
                    if let Err(error) = told {
                        self.fail(index, Trouble::of(&error));
                    }
                    return;
                }
                Err(error) => {
                    if !self.begin_again(index) {
                        self.fail(index, Trouble::of(&error));
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn handle(&mut self, key: u64, what: News) {
        let (index, generation) = ((key & 0xffff_ffff) as usize, (key >> 32) as u32);
        let slot = &mut self.slots[index];
        let Some(socket) = &slot.socket else { return };
        if slot.generation != generation {
            return;
        }
        if slot.state == State::Connecting {
            if let Some(error) = sockets::take_error(socket) {
                return self.fail(index, Trouble::of(&error));
            }
            if !what.contains(WRITABLE) {
                return;
            }
            slot.moments.connected = monotonic_ns();
            slot.state = State::Sending(0);
        }
        if let State::Sending(_) = self.slots[index].state {
            self.send(index, false);
        }
        if what.intersects(READABLE | ENDED | FAILED) {
            self.receive(index, what.intersects(ENDED));
        }
    }

    /// Take what has come; `ended`: there is no more behind it.
    fn receive(&mut self, index: usize, ended: bool) {
        loop {
            let slot = &mut self.slots[index];
            let Some(socket) = &slot.socket else { return };
            let count = match sockets::receive(socket, &mut self.buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Where the response is whole, how the connection ends is no matter of it.
                    if matches!(slot.state, State::Idle | State::Closing) {
                        self.close(index);
                    } else if !self.begin_again(index) {
                        self.fail(index, Trouble::of(&error));
                    }
                    return;
                }
            };
            if count == 0 {
                return self.ended(index);
            }
            if slot.moments.first_byte == 0 {
                slot.moments.first_byte = monotonic_ns();
            }
            let taken = match slot.state {
                State::Receiving | State::Sending(_) => slot.response.take(&self.buffer[..count]),
                _ => Err(Malformed),
            };
            if taken.is_err() {
                match slot.state {
                    State::Idle | State::Closing => self.close(index),
                    _ => self.fail(index, Trouble::Malformed),
                }
                return;
            }
            // Less than there was room for is all there was (epoll(7)).
            let drained = count < self.buffer.len();
            if slot.response.is_done() && slot.state == State::Receiving {
                self.answered(index);
            }
            if drained {
                if ended {
                    self.ended(index);
                }
                return;
            }
        }
    }

    /// The server sends no more.
    fn ended(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if matches!(slot.state, State::Idle | State::Closing) {
            self.close(index);
        } else if slot.state == State::Receiving && slot.response.end() {
            self.answered(index);
            self.close(index);
        } else if !self.begin_again(index) {
            self.fail(index, Trouble::CutShort);
        }
    }

    /// A server may close a kept connection just as it is used again, which RFC 9112 (9.3.1) has
    /// clients meet with another connection; the time that takes counts.
    fn begin_again(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        if !slot.used || slot.response.has_begun() {
            return false;
        }
        slot.socket = None;
        slot.used = false;
        slot.moments.first_byte = 0;
        self.start(index);
        true
    }

    /// The response is whole: count it, and have the slot ready for the next one.
    fn answered(&mut self, index: usize) {
        let now = monotonic_ns();
        let slot = &mut self.slots[index];
        let body = slot.response.body;
        if slot.response.status != self.plan.expected_status {
            self.tally.failed(slot.moments, now, Trouble::WrongStatus);
        } else if self.plan.expected_bytes.is_some_and(|bytes| bytes != body) {
            self.tally.failed(slot.moments, now, Trouble::WrongLength);
        } else {
            self.tally.answered(slot.moments, now, body);
        }
        if self.plan.keep_alive && !slot.response.closes {
            slot.state = State::Idle;
            slot.used = true;
            slot.limit_ns = u64::MAX;
            self.under_way -= 1;
            self.free.push_back(index);
        } else {
            slot.state = State::Closing;
            slot.limit_ns = now + self.plan.timeout_ns.min(LINGER_NS);
        }
    }

    /// Close the connection; a slot that waited for that is free again.
    pub(super) fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.socket = None;
        slot.limit_ns = u64::MAX;
        if slot.state == State::Closing {
            slot.state = State::Idle;
            self.under_way -= 1;
            self.free.push_back(index);
        }
    }

    pub(super) fn fail(&mut self, index: usize, trouble: Trouble) {
        let now = monotonic_ns();
        let slot = &mut self.slots[index];
        self.tally.failed(slot.moments, now, trouble);
        slot.socket = None;
        slot.state = State::Idle;
        slot.limit_ns = u64::MAX;
        self.under_way -= 1;
        if self.span.schedule.is_none() {
            self.resting.push_back((now + REST_NS, index));
        } else {
            self.free.push_back(index);
        }
    }
}

fn key(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}
