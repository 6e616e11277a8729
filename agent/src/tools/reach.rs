//! `tare-agent reach`: finds the largest packets that reach an address and are answered.
//!
//! No server is needed: a kernel answers a datagram to a closed port with *port unreachable* (RFC 1122,
//! 4.1.3.1), which a connected socket reports as an error.

use crate::sys::datagrams;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// The headers of IPv4 and UDP, without options.
const HEADERS: usize = 28;
const ANSWER: Duration = Duration::from_millis(200);
/// A bridge or a tunnel that was just made may take a moment.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Return the largest of the sizes that gets there.
pub fn command(arguments: &[String]) -> Result<usize, String> {
    let wrong = || "reach takes ADDRESS:PORT and sizes of packets in bytes".to_string();
    let (to, sizes) = arguments.split_first().ok_or_else(wrong)?;
    let to: SocketAddrV4 = to.parse().map_err(|_| wrong())?;
    let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
    let sizes = sizes.map_err(|_| wrong())?;
    if sizes.is_empty() || sizes.iter().any(|size| !(HEADERS..=65_535).contains(size)) {
        return Err(wrong());
    }
    largest(sizes, |bytes| answers(to, bytes)).map_err(|error| format!("{to}: {error}"))
}

/// The largest of `sizes` that `answers`; an error where not even the smallest does.
///
/// Kernels limit the rate of these answers, so as few as possible are requested.
fn largest(mut sizes: Vec<usize>, answers: impl Fn(usize) -> io::Result<()>) -> io::Result<usize> {
    sizes.sort_unstable();
    let (smallest, larger) = (sizes[0], &sizes[1..]);
    answers(smallest)?;
    let found = larger.iter().rev().find(|bytes| answers(**bytes).is_ok());
    Ok(found.copied().unwrap_or(smallest))
}

/// Check that a packet of `bytes`, which must not be fragmented, is answered.
fn answers(to: SocketAddrV4, bytes: usize) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER))?;
    datagrams::never_fragment(&socket)?;
    let datagram = vec![0x5a; bytes - HEADERS];
    let since = Instant::now();
    loop {
        let answer = socket.send(&datagram).and_then(|_| socket.recv(&mut [0]));
        match answer {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Err(error),
            Err(error) if since.elapsed() > PATIENCE => return Err(describe(error)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(ANSWER),
        }
    }
}

fn describe(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no answer"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kernel_answers_for_a_closed_port() {
        let port = {
            let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            taken.local_addr().unwrap().port()
        };
        let arguments = [format!("127.0.0.1:{port}"), "1500".into(), "100".into()];
        assert_eq!(command(&arguments), Ok(1500));
    }

    #[test]
    fn silence_is_an_error() {
        let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let arguments = [deaf.local_addr().unwrap().to_string(), "100".into()];
        assert!(command(&arguments).unwrap_err().ends_with("no answer"));
    }

    #[test]
    fn wrong_arguments_are_errors() {
        for line in [
            "",
            "127.0.0.1:9",
            "127.0.0.1 99",
            "127.0.0.1:9 27",
            "127.0.0.1:9 x",
        ] {
            let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
            assert!(command(&arguments).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn the_largest_that_fits_is_found(
            sizes in proptest::collection::vec(28..9000usize, 1..8), narrow in 28..9000usize
        ) {
            let found = largest(sizes.clone(), |bytes| {
                (bytes <= narrow).then_some(()).ok_or_else(|| ErrorKind::TimedOut.into())
            });
            let fits = sizes.into_iter().filter(|bytes| *bytes <= narrow).max();
            prop_assert_eq!(found.ok(), fits);
        }
    }
}
