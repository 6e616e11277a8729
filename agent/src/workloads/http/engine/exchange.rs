//! One request on its connection: sent, answered, begun again on another one, or failed.

use super::{Engine, State};
use crate::measure::clock::monotonic_ns;
use crate::sys::sockets::{self, News, ENDED, FAILED, READABLE, WRITABLE};
use crate::workloads::http::carrier::{Asked, Carrier};
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
            if self.asked(index) {
                self.send(index, false);
            }
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
        slot.state = State::Connecting;
        if !self.asked(index) {
            return;
        }
        if stands {
            let slot = &mut self.slots[index];
            slot.state = State::Sending(0);
            slot.moments.connected = monotonic_ns();
            self.send(index, true);
        }
        let slot = &self.slots[index];
        if let Some(socket) = &slot.socket {
            let interest = match slot.state {
                State::Receiving if slot.carrier.is_none() => READABLE,
                _ => READABLE | WRITABLE,
            };
            if let Err(error) = self.poller.add(socket, interest, key) {
                self.fail(index, Trouble::of(&error));
            }
        }
    }

    /// Give the slot's request to the layers that lie between it and the socket, if any do. Whether
    /// it is still under way on this connection.
    fn asked(&mut self, index: usize) -> bool {
        if self.plan.layers.none() {
            return true;
        }
        let slot = &mut self.slots[index];
        let ready = match slot.carrier.take() {
            Some(known) => Ok(known),
            None => Carrier::new(&self.plan.layers).map(Box::new),
        };
        let request = &self.plan.requests[slot.request];
        let told = ready.and_then(|mut carrier| {
            carrier.ask(request, &mut slot.response)?;
            Ok(carrier)
        });
        match told {
            Ok(carrier) => {
                slot.carrier = Some(carrier);
                true
            }
            Err(trouble) => {
                if !self.begin_again(index) {
                    self.fail(index, trouble);
                }
                false
            }
        }
    }

    /// Send what is left of the request. `fresh`: the poller does not know the socket yet.
    fn send(&mut self, index: usize, fresh: bool) {
        let slot = &mut self.slots[index];
        let Asked::One(request) = &self.plan.requests[slot.request] else {
            return self.flush(index);
        };
        if slot.carrier.is_some() {
            return self.flush(index);
        }
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

    /// Send what the layers have to say. What does not fit waits until the socket is writable, of
    /// which the poller always tells where there are layers.
    fn flush(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        while let (Some(carrier), Some(socket)) = (&mut slot.carrier, &slot.socket) {
            if carrier.leaving().is_empty() {
                if let State::Sending(_) = slot.state {
                    slot.state = State::Receiving;
                }
                return;
            }
            match sockets::send(socket, carrier.leaving()) {
                Ok(count) => carrier.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) if matches!(slot.state, State::Idle | State::Closing) => {
                    return self.close(index);
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
        let slot = &self.slots[index];
        if matches!(slot.state, State::Sending(_))
            || slot.carrier.is_some() && what.contains(WRITABLE)
        {
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
            if slot.carrier.is_some() {
                if !self.opened(index, count) {
                    return;
                }
                let drained = count < self.buffer.len();
                if drained {
                    if ended {
                        self.ended(index);
                    }
                    return;
                }
                continue;
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

    /// Have the layers take what came. Whether the connection is still there.
    fn opened(&mut self, index: usize, count: usize) -> bool {
        let slot = &mut self.slots[index];
        let Some(carrier) = &mut slot.carrier else {
            return false;
        };
        let bytes = &self.buffer[..count];
        let taken = carrier.arrived(bytes, &mut self.clear, &mut slot.response);
        if let Some((resumed, suite)) = carrier.handshake() {
            self.tally
                .secured(slot.moments, monotonic_ns(), resumed, suite);
        }
        if slot.moments.first_byte == 0 && slot.response.has_begun() {
            slot.moments.first_byte = monotonic_ns();
        }
        let resting = matches!(slot.state, State::Idle | State::Closing);
        match taken {
            Err(_) if resting => {
                self.close(index);
                return false;
            }
            Err(trouble) => {
                if !self.begin_again(index) {
                    self.fail(index, trouble);
                }
                return false;
            }
            Ok(()) => {}
        }
        if !resting && slot.response.is_done() {
            self.answered(index);
        }
        self.flush(index);
        self.slots[index].socket.is_some()
    }

    /// The server sends no more.
    fn ended(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(carrier) = &mut slot.carrier {
            // What it makes of that shows in the response.
            let _ = carrier.ended(&mut slot.response);
        }
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
        (slot.socket, slot.carrier) = (None, None);
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
        (slot.socket, slot.carrier) = (None, None);
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
        (slot.socket, slot.carrier) = (None, None);
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
