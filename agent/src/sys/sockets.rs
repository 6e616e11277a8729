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

/// What is new on a socket.
pub type News = EventFlags;

pub const READABLE: News = News::IN;
pub const WRITABLE: News = News::OUT;
/// The other end sends no more; with what is waiting, that is all there will be.
pub const ENDED: News = News::RDHUP.union(News::HUP);
pub const FAILED: News = News::ERR;

/// Begin to connect. Returns the socket, and whether the connection stands already.
pub fn connect(to: SocketAddrV4) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &to) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error.into()),
    }
}

/// Call again what a stop signal interrupted: of a socket with a time limit, and of epoll, the
/// kernel does not (signal(7)). That a machine stood still is seen elsewhere.
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

/// Take what went wrong on a socket since it was last asked.
pub fn take_error(socket: &OwnedFd) -> Option<io::Error> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error.into()),
    }
}

/// Tells which of many descriptors have something new.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// One that tells of at most `most` descriptors at once.
    pub fn new(most: usize) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(most),
        })
    }

    /// Tell of `fd` under `key` whenever something of `interest` is new; closing it ends that.
    pub fn add(&self, fd: &impl AsFd, interest: News, key: u64) -> io::Result<()> {
        let (data, flags) = (EventData::new_u64(key), Self::flags(interest));
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    pub fn change(&self, fd: &impl AsFd, interest: News, key: u64) -> io::Result<()> {
        let (data, flags) = (EventData::new_u64(key), Self::flags(interest));
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    fn flags(interest: News) -> EventFlags {
        interest | EventFlags::ET | EventFlags::RDHUP
    }

    /// Wait until something is new; returns how many descriptors [`Poller::news`] tells of.
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

    /// The key of a descriptor, and what was new of it at the last wait.
    pub fn news(&self, at: usize) -> (u64, News) {
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

    /// Say that the moment has come, so that the same one can be set again.
    pub fn rang(&mut self) {
        self.set = 0;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
