//! One thread that keeps many requests in flight, without ever waiting for a single one.

use super::response::{Malformed, Response};
use super::schedule::Schedule;
use super::tally::{RequestError, Tally, Timestamps};
use super::transport::{Layers, Request, Transport};
use crate::measure::clock::monotonic_ns;
use crate::sys::sockets::{self, Events, Poller, Timer, ENDED, FAILED, READABLE, WRITABLE};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// What all threads do.
pub struct Plan {
    pub target: SocketAddrV4,
    /// The requests as they are sent, in turn.
    pub requests: Vec<Request>,
    /// The layers between requests and sockets.
    pub layers: Layers,
    pub keep_alive: bool,
    pub expected_status: u16,
    pub expected_bytes: Option<u64>,
    pub timeout_ns: u64,
}

/// When requests start, and how many may be in flight.
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub connections: usize,
    /// `None`: start the next request as soon as one has ended.
    pub schedule: Option<Schedule>,
}

const TIMER: u64 = u64::MAX;
/// How often requests are looked at for their time limit, and the stop flag with them.
const SWEEP_NS: u64 = 20_000_000;
/// One response seldom has more; what has is read in several turns.
const BUFFER: usize = 256 << 10;
/// What a record of TLS holds at most (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;

/// Without a rate, a failed connection pauses for this long, so that errors do not become the load.
const REST_NS: u64 = 10_000_000;
/// How long a server may take to close a finished connection before this end closes it.
const LINGER_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No request in flight; a kept connection may be open.
    Idle,
    Connecting,
    Sending(usize),
    Receiving,
    /// The response is complete: wait for the server to close, so that the port is free again.
    Closing,
}

struct Slot {
    socket: Option<OwnedFd>,
    /// The layers between request and socket, if there are any.
    transport: Option<Box<Transport>>,
    /// Distinguishes events of this socket from those of the slot's earlier sockets.
    generation: u32,
    state: State,
    timestamps: Timestamps,
    /// The connection has carried a response before.
    used: bool,
    request: usize,
    response: Response,
    /// The deadline of the request in flight.
    limit_ns: u64,
}

/// One thread's requests and connections.
pub struct Engine<'a> {
    plan: &'a Plan,
    span: Span,
    stop: &'a AtomicBool,
    poller: Poller,
    timer: Timer,
    slots: Vec<Slot>,
    free: VecDeque<usize>,
    /// Slots that pause after an error, and until when.
    resting: VecDeque<(u64, usize)>,
    under_way: usize,
    next_request: usize,
    buffer: Vec<u8>,
    /// What was in the buffer, once it is opened.
    clear: Vec<u8>,
    pub tally: Tally,
}

impl<'a> Engine<'a> {
    pub fn new(plan: &'a Plan, span: Span, tally: Tally, stop: &'a AtomicBool) -> io::Result<Self> {
        let slot = |_| Slot {
            socket: None,
            transport: None,
            generation: 0,
            state: State::Idle,
            timestamps: Timestamps::default(),
            used: false,
            request: 0,
            response: Response::default(),
            limit_ns: u64::MAX,
        };
        let (poller, timer) = (
            Poller::new(span.connections.clamp(16, 1024))?,
            Timer::new()?,
        );
        poller.add(&timer, READABLE, TIMER)?;
        Ok(Self {
            plan,
            stop,
            poller,
            timer,
            slots: (0..span.connections).map(slot).collect(),
            free: (0..span.connections).collect(),
            resting: VecDeque::new(),
            under_way: 0,
            next_request: 0,
            buffer: vec![0; BUFFER],
            clear: match plan.layers.tls {
                Some(_) => vec![0; RECORD],
                None => Vec::new(),
            },
            tally,
            span,
        })
    }

    /// Run for the span. After its end, requests in flight may still end within their time limit, and
    /// requests that were due but could not start count as timed out.
    pub fn run(mut self) -> io::Result<Tally> {
        let mut sweep_ns = self.span.start_ns;
        loop {
            let now = monotonic_ns();
            if now >= sweep_ns {
                sweep_ns = now + SWEEP_NS;
                self.sweep(now);
                if self.stop.load(Ordering::Relaxed) {
                    self.span.end_ns = self.span.end_ns.min(now);
                }
            }
            self.begin_due(now);
            if self.under_way == 0 && now >= self.span.end_ns && !self.is_due(now) {
                return Ok(self.tally);
            }
            self.timer.set(self.next_moment(sweep_ns))?;
            for at in 0..self.poller.wait()? {
                let (key, what) = self.poller.event(at);
                if key == TIMER {
                    self.timer.expired();
                } else {
                    self.handle(key, what);
                }
            }
        }
    }

    /// Whether a request is due that was not begun.
    fn is_due(&self, now: u64) -> bool {
        let due = self.span.schedule.as_ref().map(Schedule::due_ns);
        due.is_some_and(|due| due < self.span.end_ns.min(now))
    }

    fn next_moment(&self, sweep_ns: u64) -> u64 {
        match &self.span.schedule {
            Some(schedule) if !self.free.is_empty() && schedule.due_ns() < self.span.end_ns => {
                schedule.due_ns().min(sweep_ns)
            }
            _ => sweep_ns,
        }
    }

    fn begin_due(&mut self, now: u64) {
        while let Some(&(until, index)) = self.resting.front() {
            if until > now {
                break;
            }
            self.resting.pop_front();
            self.free.push_back(index);
        }
        while let Some(&index) = self.free.front() {
            let begun = monotonic_ns();
            let due = match &mut self.span.schedule {
                None if begun >= self.span.start_ns && begun < self.span.end_ns => begun,
                Some(schedule)
                    if schedule.due_ns() <= begun && schedule.due_ns() < self.span.end_ns =>
                {
                    schedule.take()
                }
                _ => return,
            };
            self.free.pop_front();
            self.under_way += 1;
            let slot = &mut self.slots[index];
            slot.timestamps = Timestamps {
                due,
                begun,
                ..Timestamps::default()
            };
            slot.limit_ns = begun.max(due) + self.plan.timeout_ns;
            slot.request = self.next_request;
            self.next_request = (self.next_request + 1) % self.plan.requests.len();
            slot.response.clear();
            self.start(index);
        }
        // Nothing is free: what has waited for longer than a request may take is given up, so
        // that it is counted even where no connection ever becomes free again.
        if let Some(schedule) = &mut self.span.schedule {
            let end = self.span.end_ns;
            while self.free.is_empty()
                && schedule.due_ns() < end
                && schedule.due_ns() + self.plan.timeout_ns <= now
            {
                let due = schedule.take();
                let timestamps = Timestamps {
                    due,
                    begun: due,
                    ..Timestamps::default()
                };
                self.tally.failed(timestamps, now, RequestError::TimedOut);
            }
        }
    }

    /// Time out the requests that have taken too long.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.slots.len() {
            if self.slots[index].limit_ns > now {
                continue;
            }
            match self.slots[index].state {
                State::Idle => {}
                State::Closing => self.close(index),
                _ => self.fail(index, RequestError::TimedOut),
            }
        }
    }
}

/// One request on its connection: sent, answered, retried on another one, or failed.
impl Engine<'_> {
    /// Send the slot's request, over its connection or a new one.
    fn start(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.socket.is_some() {
            slot.state = State::Sending(0);
            if self.hand_to_transport(index) {
                self.send(index, false);
            }
            return;
        }
        let (socket, connected) = match sockets::connect(self.plan.target) {
            Ok(begun) => begun,
            Err(error) => return self.fail(index, RequestError::of(&error)),
        };
        slot.generation = slot.generation.wrapping_add(1);
        slot.used = false;
        let key = key(index, slot.generation);
        slot.socket = Some(socket);
        slot.state = State::Connecting;
        if !self.hand_to_transport(index) {
            return;
        }
        if connected {
            let slot = &mut self.slots[index];
            slot.state = State::Sending(0);
            slot.timestamps.connected = monotonic_ns();
            self.send(index, true);
        }
        let slot = &self.slots[index];
        if let Some(socket) = &slot.socket {
            let interest = match slot.state {
                State::Receiving if slot.transport.is_none() => READABLE,
                _ => READABLE | WRITABLE,
            };
            if let Err(error) = self.poller.add(socket, interest, key) {
                self.fail(index, RequestError::of(&error));
            }
        }
    }

    /// Pass the slot's request to the layers between it and the socket, if there are any. Returns
    /// whether it is still in flight on this connection.
    fn hand_to_transport(&mut self, index: usize) -> bool {
        if self.plan.layers.none() {
            return true;
        }
        let slot = &mut self.slots[index];
        let ready = match slot.transport.take() {
            Some(known) => Ok(known),
            None => Transport::new(&self.plan.layers).map(Box::new),
        };
        let request = &self.plan.requests[slot.request];
        let outcome = ready.and_then(|mut transport| {
            transport.request(request, &mut slot.response)?;
            Ok(transport)
        });
        match outcome {
            Ok(transport) => {
                slot.transport = Some(transport);
                true
            }
            Err(error) => {
                if !self.retry(index) {
                    self.fail(index, error);
                }
                false
            }
        }
    }

    /// Send what is left of the request. `fresh`: the poller does not know the socket yet.
    fn send(&mut self, index: usize, fresh: bool) {
        let slot = &mut self.slots[index];
        let Request::Http1(request) = &self.plan.requests[slot.request] else {
            return self.flush(index);
        };
        if slot.transport.is_some() {
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
                    let outcome = if fresh {
                        Ok(())
                    } else {
                        self.poller.change(socket, all, key)
                    };
                    if let Err(error) = outcome {
                        self.fail(index, RequestError::of(&error));
                    }
                    return;
                }
                Err(error) => {
                    if !self.retry(index) {
                        self.fail(index, RequestError::of(&error));
                    }
                    return;
                }
            }
        }
    }

    /// Send what the layers have produced. What does not fit waits until the socket is writable; with
    /// layers, the poller always watches for that.
    fn flush(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        while let (Some(transport), Some(socket)) = (&mut slot.transport, &slot.socket) {
            if transport.leaving().is_empty() {
                if let State::Sending(_) = slot.state {
                    slot.state = State::Receiving;
                }
                return;
            }
            match sockets::send(socket, transport.leaving()) {
                Ok(count) => transport.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) if matches!(slot.state, State::Idle | State::Closing) => {
                    return self.close(index);
                }
                Err(error) => {
                    if !self.retry(index) {
                        self.fail(index, RequestError::of(&error));
                    }
                    return;
                }
            }
        }
    }

    fn handle(&mut self, key: u64, what: Events) {
        let (index, generation) = ((key & 0xffff_ffff) as usize, (key >> 32) as u32);
        let slot = &mut self.slots[index];
        let Some(socket) = &slot.socket else { return };
        if slot.generation != generation {
            return;
        }
        if slot.state == State::Connecting {
            if let Some(error) = sockets::take_error(socket) {
                return self.fail(index, RequestError::of(&error));
            }
            if !what.contains(WRITABLE) {
                return;
            }
            slot.timestamps.connected = monotonic_ns();
            slot.state = State::Sending(0);
        }
        let slot = &self.slots[index];
        if matches!(slot.state, State::Sending(_))
            || slot.transport.is_some() && what.contains(WRITABLE)
        {
            self.send(index, false);
        }
        if what.intersects(READABLE | ENDED | FAILED) {
            self.receive(index, what.intersects(ENDED));
        }
    }

    /// Receive what has arrived; `ended`: the server has closed its side.
    fn receive(&mut self, index: usize, ended: bool) {
        loop {
            let slot = &mut self.slots[index];
            let Some(socket) = &slot.socket else { return };
            let count = match sockets::receive(socket, &mut self.buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // With a complete response it does not matter how the connection ends.
                    if matches!(slot.state, State::Idle | State::Closing) {
                        self.close(index);
                    } else if !self.retry(index) {
                        self.fail(index, RequestError::of(&error));
                    }
                    return;
                }
            };
            if count == 0 {
                return self.ended(index);
            }
            if slot.transport.is_some() {
                if !self.receive_by_transport(index, count) {
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
            if slot.timestamps.first_byte == 0 {
                slot.timestamps.first_byte = monotonic_ns();
            }
            let taken = match slot.state {
                State::Receiving | State::Sending(_) => slot.response.take(&self.buffer[..count]),
                _ => Err(Malformed),
            };
            if taken.is_err() {
                match slot.state {
                    State::Idle | State::Closing => self.close(index),
                    _ => self.fail(index, RequestError::Malformed),
                }
                return;
            }
            // A short read means that the socket is drained (epoll(7)).
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

    /// Pass what arrived to the layers. Returns whether the connection is still open.
    fn receive_by_transport(&mut self, index: usize, count: usize) -> bool {
        let slot = &mut self.slots[index];
        let Some(transport) = &mut slot.transport else {
            return false;
        };
        let bytes = &self.buffer[..count];
        let taken = transport.arrived(bytes, &mut self.clear, &mut slot.response);
        if let Some((resumed, suite)) = transport.handshake() {
            self.tally
                .secured(slot.timestamps, monotonic_ns(), resumed, suite);
        }
        if slot.timestamps.first_byte == 0 && slot.response.has_begun() {
            slot.timestamps.first_byte = monotonic_ns();
        }
        let resting = matches!(slot.state, State::Idle | State::Closing);
        match taken {
            Err(_) if resting => {
                self.close(index);
                return false;
            }
            Err(error) => {
                if !self.retry(index) {
                    self.fail(index, error);
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
        if let Some(transport) = &mut slot.transport {
            // The response shows the effect.
            let _ = transport.ended(&mut slot.response);
        }
        if matches!(slot.state, State::Idle | State::Closing) {
            self.close(index);
        } else if slot.state == State::Receiving && slot.response.end() {
            self.answered(index);
            self.close(index);
        } else if !self.retry(index) {
            self.fail(index, RequestError::CutShort);
        }
    }

    /// Retry on another connection: a server may close a kept connection just as it is reused, and RFC
    /// 9112 (9.3.1) lets clients retry then. The extra time counts.
    fn retry(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        if !slot.used || slot.response.has_begun() {
            return false;
        }
        (slot.socket, slot.transport) = (None, None);
        slot.used = false;
        slot.timestamps.first_byte = 0;
        self.start(index);
        true
    }

    /// The response is complete: count it, and prepare the slot for the next one.
    fn answered(&mut self, index: usize) {
        let now = monotonic_ns();
        let slot = &mut self.slots[index];
        let body = slot.response.body;
        if slot.response.status != self.plan.expected_status {
            self.tally
                .failed(slot.timestamps, now, RequestError::WrongStatus);
        } else if self.plan.expected_bytes.is_some_and(|bytes| bytes != body) {
            self.tally
                .failed(slot.timestamps, now, RequestError::WrongLength);
        } else {
            self.tally.answered(slot.timestamps, now, body);
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
    fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        (slot.socket, slot.transport) = (None, None);
        slot.limit_ns = u64::MAX;
        if slot.state == State::Closing {
            slot.state = State::Idle;
            self.under_way -= 1;
            self.free.push_back(index);
        }
    }

    fn fail(&mut self, index: usize, error: RequestError) {
        let now = monotonic_ns();
        let slot = &mut self.slots[index];
        self.tally.failed(slot.timestamps, now, error);
        (slot.socket, slot.transport) = (None, None);
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
