//! Descriptors: when they can be read and written, and terminals among them.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
use rustix::net::{recv, RecvFlags};
use rustix::termios::{
    isatty, tcdrain, tcgetattr, tcsetattr, ControlModes, OptionalActions, SpecialCodeIndex,
};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The speed of serial lines, in bits per second.
const LINE_SPEED: u32 = 115_200;

/// This process's standard input and output, without the buffers of the standard library.
pub fn standard_streams() -> io::Result<(File, File)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((input.into(), output.into()))
}

/// Wait until something happens to a descriptor; `within: None` waits for ever.
fn await_any(entries: &mut [PollFd], within: Option<Duration>) -> io::Result<()> {
    let timeout = within.map(|within| Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    });
    loop {
        match poll(entries, timeout.as_ref()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Wait until a descriptor can be read (or is at its end); `None` waits for ever.
/// Returns whether it can.
pub fn wait_readable(fd: &impl AsFd, within: Option<Duration>) -> io::Result<bool> {
    let mut entries = [PollFd::new(fd, PollFlags::IN)];
    await_any(&mut entries, within)?;
    Ok(!entries[0].revents().is_empty())
}

/// Wait until a descriptor can be written to. Returns false if the other end is closed.
pub fn wait_writable(fd: &impl AsFd) -> io::Result<bool> {
    let mut entries = [PollFd::new(fd, PollFlags::OUT)];
    await_any(&mut entries, None)?;
    Ok(entries[0].revents().contains(PollFlags::OUT))
}

/// Wait until one of two descriptors can be read (or is at its end), and return which.
pub fn wait_either(one: &impl AsFd, other: &impl AsFd) -> io::Result<[bool; 2]> {
    let mut entries = [
        PollFd::new(one, PollFlags::IN),
        PollFd::new(other, PollFlags::IN),
    ];
    await_any(&mut entries, None)?;
    Ok(entries.map(|entry| !entry.revents().is_empty()))
}

/// What is waited for on a descriptor, and afterwards what can be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

/// Wait until something of what is wanted can be done on one of two descriptors. An end or an error
/// counts as readable, because reading reports it; events that were not wanted are not returned.
pub fn wait_both(
    one: (&impl AsFd, Interest),
    other: (&impl AsFd, Interest),
) -> io::Result<[Interest; 2]> {
    let flags = |wanted: Interest| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.read);
        flags.set(PollFlags::OUT, wanted.write);
        flags
    };
    let mut entries = [
        PollFd::new(one.0, flags(one.1)),
        PollFd::new(other.0, flags(other.1)),
    ];
    await_any(&mut entries, None)?;
    let ready = |entry: &PollFd, wanted: Interest| {
        let now = entry.revents();
        let over = now.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        Interest {
            read: wanted.read && (over || now.contains(PollFlags::IN)),
            write: wanted.write && (over || now.contains(PollFlags::OUT)),
        }
    };
    Ok([ready(&entries[0], one.1), ready(&entries[1], other.1)])
}

/// Let reads and writes return at once instead of waiting, or wait again.
pub fn set_blocking(fd: &impl AsFd, blocking: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(fd)?;
    flags.set(OFlags::NONBLOCK, !blocking);
    Ok(fcntl_setfl(fd, flags)?)
}

pub fn is_terminal(fd: &impl AsFd) -> bool {
    isatty(fd)
}

/// Let a terminal carry all 256 byte values unchanged, without echo or signals.
pub fn set_raw(fd: &impl AsFd) -> io::Result<()> {
    let mut modes = tcgetattr(fd)?;
    modes.make_raw();
    modes.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
    modes.control_modes -= ControlModes::CRTSCTS;
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes.set_speed(LINE_SPEED)?;
    Ok(tcsetattr(fd, OptionalActions::Now, &modes)?)
}

/// Wait until a terminal has sent everything.
pub fn drain(fd: &impl AsFd) {
    let _ = tcdrain(fd);
}

/// Read and forget what is waiting on a socket that does not block.
pub fn discard(socket: &impl AsFd) {
    let mut buffer = [0u8; 4096];
    while recv(socket, &mut buffer, RecvFlags::empty()).is_ok_and(|(count, _)| count > 0) {}
}
