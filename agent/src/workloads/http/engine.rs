//! One thread that keeps many requests under way, without ever waiting for a single one.

use super::response::{Malformed, Response};
use super::schedule::Schedule;
use super::tally::{Moments, Tally, Trouble};
use super::transport::{Asked, Carrier, Layers};
use crate::measure::clock::monotonic_ns;
use crate::sys::sockets::{self, News, Poller, Timer, ENDED, FAILED, READABLE, WRITABLE};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// What all threads do.
pub struct Plan {
    pub target: SocketAddrV4,
    /// The requests as they are sent, in turn.
    pub requests: Vec<Asked>,
    /// What lies between them and their sockets.
    pub layers: Layers,
    pub keep_alive: bool,
    pub expected_status: u16,
    pub expected_bytes: Option<u64>,
    pub timeout_ns: u64,
}

/// When no new request is begun any more, and how many may be under way.
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub connections: usize,
    /// None: the next one as soon as one has ended.
    pub schedule: Option<Schedule>,
}

const TIMER: u64 = u64::MAX;
/// How often requests are looked at for their time limit, and the stop flag with them.
const SWEEP_NS: u64 = 20_000_000;
/// One response seldom has more; what has is read in several turns.
const BUFFER: usize = 256 << 10;
/// What a record of TLS holds at most (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;

/// Without a rate, a connection that failed rests so long, lest the errors be the only load.
const REST_NS: u64 = 10_000_000;
/// A server that was told to close has so long before this end does.
const LINGER_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing under way; with a connection where requests share them.
    Idle,
    Connecting,
    Sending(usize),
    Receiving,
    /// The response is whole: the server's end is waited for, so that the port is free again.
    Closing,
}

struct Slot {
    socket: Option<OwnedFd>,
    /// What lies between the request and the socket, where that is something.
    carrier: Option<Box<Carrier>>,
    /// Told apart in events from sockets that this slot had before.
    generation: u32,
    state: State,
    moments: Moments,
    /// The connection has carried a response before.
    used: bool,
    request: usize,
    response: Response,
    /// The last moment for what is under way.
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
    /// Slots that rest after an error, with when they may go on.
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
            carrier: None,
            generation: 0,
            state: State::Idle,
            moments: Moments::default(),
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

    /// Carry the span out. At its end, what is still under way has its time limit to end in, and
    /// whatever was due but could not begin is counted as given up.
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
                let (key, what) = self.poller.news(at);
                if key == TIMER {
                    self.timer.rang();
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
            slot.moments = Moments {
                due,
                begun,
                ..Moments::default()
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
                let moments = Moments {
                    due,
                    begun: due,
                    ..Moments::default()
                };
                self.tally.failed(moments, now, Trouble::TimedOut);
            }
        }
    }

    /// Give up what has taken longer than it may.
    fn sweep(&mut self, now: u64) {
        for index in 0..self.slots.len() {
            if self.slots[index].limit_ns > now {
                continue;
            }
            match self.slots[index].state {
                State::Idle => {}
                State::Closing => self.close(index),
                _ => self.fail(index, Trouble::TimedOut),
            }
        }
    }
}

/// One request on its connection: sent, answered, begun again on another one, or failed.
impl Engine<'_> {
    /// Send the slot's request, over its connection or a new one.
    fn start(&mut self, index: usize) {
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

    fn handle(&mut self, key: u64, what: News) {
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
    fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        (slot.socket, slot.carrier) = (None, None);
        slot.limit_ns = u64::MAX;
        if slot.state == State::Closing {
            slot.state = State::Idle;
            self.under_way -= 1;
            self.free.push_back(index);
        }
    }

    fn fail(&mut self, index: usize, trouble: Trouble) {
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
