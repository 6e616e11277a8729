//! One thread that keeps many requests under way, without ever waiting for a single one.

mod exchange;

use super::carrier::{Asked, Carrier, Layers};
use super::response::Response;
use super::schedule::Schedule;
use super::tally::{Moments, Tally, Trouble};
use crate::measure::clock::monotonic_ns;
use crate::sys::sockets::{Poller, Timer, READABLE};
use std::collections::VecDeque;
use std::io;
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
