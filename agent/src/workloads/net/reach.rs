//! Check that the other end is there, and that unfragmented packets reach it.

use crate::contract::Failure;
use crate::sys::datagrams;
use crate::sys::sockets::uninterrupted;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The start of a datagram that the receiver sends back unchanged.
pub const PROBE: &[u8] = b"tare: send this back";
/// The headers of IPv4 and UDP, without options.
const HEADERS: usize = 28;
const PAUSE: Duration = Duration::from_millis(20);
const ANSWER: Duration = Duration::from_millis(300);
const PROBES: usize = 5;

/// Connect, and retry until the time limit.
pub fn connect(
    to: SocketAddrV4,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<TcpStream, Failure> {
    let since = Instant::now();
    loop {
        let left = patience.saturating_sub(since.elapsed()).max(PAUSE);
        match TcpStream::connect_timeout(&to.into(), left) {
            Ok(stream) => return Ok(stream),
            Err(error) if since.elapsed() >= patience || stop.load(Ordering::Relaxed) => {
                return Err(Failure(format!(
                    "cannot connect to {to}: {}",
                    reason(&error)
                )));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}

/// Send a packet of `bytes` there and back, which must not be fragmented.
pub fn probe(to: SocketAddrV4, bytes: usize) -> Result<(), Failure> {
    let fail = |what: String| {
        Failure(format!(
            "packets of {bytes} bytes do not get to {to} and back: {what}; is the MTU the same on \
             the whole way?"
        ))
    };
    let failed = |error: io::Error| fail(error.to_string());
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    socket.connect(to).map_err(failed)?;
    socket.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    datagrams::never_fragment(&socket).map_err(failed)?;
    let mut datagram = PROBE.to_vec();
    datagram.resize(bytes.saturating_sub(HEADERS).max(PROBE.len()), 0x5a);
    let mut back = vec![0; datagram.len() + 1];
    for _ in 0..PROBES {
        match uninterrupted(|| socket.send(&datagram)) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                return Err(failed(error))
            }
            Err(_) => {
                std::thread::sleep(PAUSE);
                continue;
            }
        }
        match uninterrupted(|| socket.recv(&mut back)) {
            Ok(length) if back[..length] == datagram => return Ok(()),
            Ok(length) => return Err(fail(format!("{length} other bytes came back"))),
            Err(_) => {}
        }
    }
    Err(fail("no answer".into()))
}

/// Whether a read or write only ran into its time limit, or was interrupted.
pub fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
