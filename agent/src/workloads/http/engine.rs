//! One thread that keeps many requests under way, without ever waiting for a single one.

use super::response::Response;
use super::schedule::Schedule;
use super::tally::{Moments, Tally, Trouble};
use crate::clock::monotonic_ns;
use crate::sys::sockets::{self, Poller, Timer, ENDED, FAILED, READABLE, WRITABLE};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// What all threads do.
pub struct Plan {
    pub target: SocketAddrV4,
    /// The requests as they are sent, in turn.
    pub requests: Vec<Vec<u8>>,
    pub keep_alive: bool,
    pub expected_status: u16,
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
/// Without a rate, a connection that failed rests so long, lest the errors be the only load.
const REST_NS: u64 = 10_000_000;
/// A server that was told to close has so long before this end does.
const LINGER_NS: u64 = 1_000_000_000;
/// One response seldom has more; what has is read in several turns.
const BUFFER: usize = 256 << 10;

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
    pub tally: Tally,
}

impl<'a> Engine<'a> {
    pub fn new(plan: &'a Plan, span: Span, tally: Tally, stop: &'a AtomicBool) -> io::Result<Self> {
        let slot = |_| Slot {
            socket: None,
            generation: 0,
            state: State::Idle,
            moments: Moments::default(),
            used: false,
            request: 0,
            response: Response::default(),
            limit_ns: u64::MAX,
        };
        let (poller, timer) = (Poller::new()?, Timer::new()?);
        poller.add(timer.fd(), READABLE, TIMER)?;
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
            tally,
            span,
        })
    }

    /// Carry the span out. At its end, what is still under way has its time limit to end in, and
    /// whatever was due but could not begin is counted as given up.
    pub fn run(mut self) -> io::Result<Tally> {
        let mut events = vec![sockets::NOTHING; self.slots.len().clamp(16, 1024)];
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
            let count = self.poller.wait(&mut events)?;
            for event in &events[..count] {
                // Copied, for the kernel's structure is packed.
                let (key, what) = (event.u64, event.events);
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
                connected: 0,
                first_byte: 0,
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

    /// Send the slot's request, over its connection or a new one.
    fn start(&mut self, index: usize) {
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
        let fd = socket.as_raw_fd();
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
        if slot.socket.is_some() {
            let interest = match slot.state {
                State::Receiving => READABLE,
                _ => READABLE | WRITABLE,
            };
            if let Err(error) = self.poller.add(fd, interest, key) {
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
                    let (fd, key) = (socket.as_raw_fd(), key(index, slot.generation));
                    let told = if fresh {
                        Ok(())
                    } else {
                        self.poller.change(fd, all, key)
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

    fn handle(&mut self, key: u64, what: u32) {
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
            if what & WRITABLE == 0 {
                return;
            }
            slot.moments.connected = monotonic_ns();
            slot.state = State::Sending(0);
        }
        if let State::Sending(_) = self.slots[index].state {
            self.send(index, false);
        }
        if what & (READABLE | ENDED | FAILED) != 0 {
            self.receive(index, what & ENDED != 0);
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
                _ => Err(super::response::Malformed),
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
        if slot.response.status == self.plan.expected_status {
            self.tally.answered(slot.moments, now, slot.response.body);
        } else {
            self.tally.failed(slot.moments, now, Trouble::WrongStatus);
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
        slot.socket = None;
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

fn key(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}
