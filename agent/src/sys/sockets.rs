//! TCP sockets that do not block, readiness of many of them at once, and an exact timer.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, sockopt, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
    Timespec,
};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

/// The events of a socket.
pub type Events = EventFlags;

pub const READABLE: Events = Events::IN;
pub const WRITABLE: Events = Events::OUT;
/// The other end has closed its sending side.
pub const ENDED: Events = Events::RDHUP.union(Events::HUP);
pub const FAILED: Events = Events::ERR;

/// Begin to connect. Returns the socket, and whether it is connected already.
pub fn connect(to: SocketAddrV4) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &to) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error.into()),
    }
}

/// Repeat a call that a stop signal interrupted: the kernel does not restart calls on sockets with a
/// timeout, nor epoll (signal(7)). Standstills of a machine are detected elsewhere.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Send what fits; the number of bytes that did.
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    uninterrupted(|| Ok(net::send(socket, bytes, SendFlags::NOSIGNAL)?))
}

/// Receive what has come; 0 at the end of the stream.
pub fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    uninterrupted(|| Ok(net::recv(socket, &mut *buffer, RecvFlags::empty())?.0))
}

/// Take and clear a socket's pending error.
pub fn take_error(socket: &OwnedFd) -> Option<io::Error> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error.into()),
    }
}

/// Waits for events on many descriptors.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// Create one that returns at most `most` events at once.
    pub fn new(most: usize) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(most),
        })
    }

    /// Watch `fd` for the events of `interest`, under `key`, until it is closed.
    pub fn add(&self, fd: &impl AsFd, interest: Events, key: u64) -> io::Result<()> {
        let (data, flags) = (EventData::new_u64(key), Self::flags(interest));
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    pub fn change(&self, fd: &impl AsFd, interest: Events, key: u64) -> io::Result<()> {
        let (data, flags) = (EventData::new_u64(key), Self::flags(interest));
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    fn flags(interest: Events) -> EventFlags {
        interest | EventFlags::ET | EventFlags::RDHUP
    }

    /// Wait for events; returns how many [`Poller::event`] can return.
    pub fn wait(&mut self) -> io::Result<usize> {
        loop {
            self.events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The key of a descriptor, and its events at the last wait.
    pub fn event(&self, at: usize) -> (u64, Events) {
        // Copied, for the kernel's structure is packed.
        let event = self.events[at];
        (event.data.u64(), event.flags)
    }
}

/// Becomes readable at a moment of CLOCK_MONOTONIC.
pub struct Timer {
    fd: OwnedFd,
    set: u64,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, set: 0 })
    }

    /// Set the moment, in nanoseconds; one that is past counts at once.
    pub fn set(&mut self, moment_ns: u64) -> io::Result<()> {
        if moment_ns == self.set {
            return Ok(());
        }
        // Zero would disarm it.
        let moment = moment_ns.max(1);
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (moment / 1_000_000_000) as _,
                tv_nsec: (moment % 1_000_000_000) as _,
            },
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        self.set = moment_ns;
        Ok(())
    }

    /// Note that it has expired, so that the same moment can be set again.
    pub fn expired(&mut self) {
        self.set = 0;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
