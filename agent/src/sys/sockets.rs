//! TCP sockets that do not block, readiness of many of them at once, and an exact timer.

use super::check;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub use libc::epoll_event as Event;

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The other end sends no more; with what is waiting, that is all there will be.
pub const ENDED: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32;
pub const FAILED: u32 = libc::EPOLLERR as u32;

fn address(of: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: of.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*of.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

/// Begin to connect. Returns the socket, and whether the connection stands already.
pub fn connect(to: SocketAddrV4) -> io::Result<(OwnedFd, bool)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain numbers; a descriptor that was just made is owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind, 0))?) };
    let address = address(to);
    // SAFETY: the address lives until the call ends, and its size is passed.
    let result = check(unsafe {
        libc::connect(
            socket.as_raw_fd(),
            std::ptr::addr_of!(address).cast(),
            std::mem::size_of_val(&address) as libc::socklen_t,
        )
    });
    match result {
        Ok(_) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Send what fits; the number of bytes that did.
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receive what has come; 0 at the end of the stream.
pub fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let received = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
        )
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Take what went wrong on a socket since it was last asked.
pub fn take_error(socket: &OwnedFd) -> Option<io::Error> {
    let mut code: libc::c_int = 0;
    let mut size = std::mem::size_of_val(&code) as libc::socklen_t;
    // SAFETY: `code` and `size` are valid for the call's only writes.
    let asked = check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            std::ptr::addr_of_mut!(code).cast(),
            &mut size,
        )
    });
    match asked {
        Err(error) => Some(error),
        Ok(_) if code != 0 => Some(io::Error::from_raw_os_error(code)),
        Ok(_) => None,
    }
}

/// Tells which of many descriptors have something new.
pub struct Poller(OwnedFd);

impl Poller {
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain numbers; a descriptor that was just made is owned by nobody else.
        Ok(Self(unsafe {
            OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?)
        }))
    }

    /// Tell of `fd` under `key` whenever something of `interest` is new; closing it ends that.
    pub fn add(&self, fd: RawFd, interest: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, key)
    }

    pub fn change(&self, fd: RawFd, interest: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, key)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, interest: u32, key: u64) -> io::Result<()> {
        let mut event = Event {
            events: interest | (libc::EPOLLET | libc::EPOLLRDHUP) as u32,
            u64: key,
        };
        // SAFETY: the event lives until the call ends.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) }).map(|_| ())
    }

    /// Wait until something is new; how many of `events` were filled.
    pub fn wait(&self, events: &mut [Event]) -> io::Result<usize> {
        loop {
            // SAFETY: the kernel fills at most as many events as there are.
            let found = check(unsafe {
                libc::epoll_wait(
                    self.0.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as libc::c_int,
                    -1,
                )
            });
            match found {
                Ok(count) => return Ok(count as usize),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// No event: what room for events begins with.
pub const NOTHING: Event = Event { events: 0, u64: 0 };

/// Becomes readable at a moment of CLOCK_MONOTONIC.
pub struct Timer {
    fd: OwnedFd,
    set: u64,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: plain numbers; a descriptor that was just made is owned by nobody else.
        let fd = unsafe {
            OwnedFd::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?)
        };
        Ok(Self { fd, set: 0 })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Set the moment, in nanoseconds; one that is past counts at once.
    pub fn set(&mut self, moment_ns: u64) -> io::Result<()> {
        if moment_ns == self.set {
            return Ok(());
        }
        // Zero would disarm it.
        let moment = moment_ns.max(1);
        let new = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: (moment / 1_000_000_000) as _,
                tv_nsec: (moment % 1_000_000_000) as _,
            },
        };
        let absolute = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the times live until the call ends; no old value is asked for.
        check(unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), absolute, &new, std::ptr::null_mut())
        })?;
        self.set = moment_ns;
        Ok(())
    }

    /// Say that the moment has come, so that the same one can be set again.
    pub fn rang(&mut self) {
        self.set = 0;
    }
}

/// How many datagrams one call carries at most.
pub const BATCH: usize = 64;

/// Send the same datagram up to `times` times (at most [`BATCH`]) over a connected socket; how
/// often it was sent.
pub fn send_many(socket: &impl AsRawFd, datagram: &[u8], times: usize) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: datagram.as_ptr().cast_mut().cast(),
        iov_len: datagram.len(),
    };
    // SAFETY: mmsghdr is plain numbers and pointers, for which zero means nothing.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for header in &mut headers {
        header.msg_hdr.msg_iov = &mut part;
        header.msg_hdr.msg_iovlen = 1;
    }
    let times = times.min(BATCH) as libc::c_uint;
    // SAFETY: the headers and what they point to live until the call ends; it only reads the
    // datagram.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), times, 0) };
    Ok(check(sent)? as usize)
}

/// Receive the datagrams that are waiting, at least one and at most [`BATCH`]. Only the beginning
/// of the first one is kept, in `first`; returns how many came and how long the first one was.
pub fn receive_many(
    socket: &impl AsRawFd,
    first: &mut [u8],
    rest: &mut [u8],
) -> io::Result<(usize, usize)> {
    let mut parts = [
        libc::iovec {
            iov_base: first.as_mut_ptr().cast(),
            iov_len: first.len(),
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        },
    ];
    let [one, other] = &mut parts;
    // SAFETY: mmsghdr is plain numbers and pointers, for which zero means nothing.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for header in &mut headers {
        header.msg_hdr.msg_iov = other;
        header.msg_hdr.msg_iovlen = 1;
    }
    headers[0].msg_hdr.msg_iov = one;
    // SAFETY: both buffers are valid for their lengths and live until the call ends; that later
    // datagrams overwrite each other is meant.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            BATCH as libc::c_uint,
            libc::MSG_WAITFORONE as _,
            std::ptr::null_mut(),
        )
    };
    Ok((check(count)? as usize, headers[0].msg_len as usize))
}

/// Send a socket's packets whole or not at all, whatever is known of the way.
pub fn never_fragment(socket: &impl AsRawFd) -> io::Result<()> {
    let value: libc::c_int = libc::IP_PMTUDISC_PROBE;
    // SAFETY: the value lives until the call ends, and its size is passed.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            std::ptr::addr_of!(value).cast(),
            std::mem::size_of_val(&value) as libc::socklen_t,
        )
    })
    .map(|_| ())
}
