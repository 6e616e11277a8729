//! Relays bytes between the agent's stream and a TLS connection, until either ends.

use crate::sys::{self, Interest};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// How much that has arrived may wait for the agent before no more is read.
const MOST: usize = 1 << 18;
const CHUNK: usize = 16 << 10;

/// Relay bytes both ways; returns when everything that was sent before the end has been relayed.
pub fn relay(
    mut tls: ClientConnection,
    mut tcp: TcpStream,
    mut agent: UnixStream,
) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    agent.set_nonblocking(true)?;
    let mut buffer = [0; CHUNK];
    let mut arrived = Vec::new();
    let (mut sent_all, mut received_all) = (false, false);
    loop {
        let sending = tls.wants_write();
        if (sent_all && !sending) || (received_all && arrived.is_empty()) {
            return Ok(());
        }
        let outside = Interest {
            read: !received_all && arrived.len() < MOST,
            write: sending,
        };
        let inside = Interest {
            // One chunk is encrypted at a time, so that what waits to be sent is bounded.
            read: !sent_all && !sending,
            write: !arrived.is_empty(),
        };
        let [outside, inside] = sys::wait_both((&tcp, outside), (&agent, inside))?;
        if outside.write {
            ready(tls.write_tls(&mut tcp))?;
        }
        if outside.read {
            received_all = ready(tls.read_tls(&mut tcp))? == Some(0);
            tls.process_new_packets().map_err(io::Error::other)?;
            while let Some(count) = ready(tls.reader().read(&mut buffer))? {
                if count == 0 {
                    received_all = true;
                    break;
                }
                arrived.extend_from_slice(&buffer[..count]);
            }
        }
        if inside.read {
            match ready(agent.read(&mut buffer))? {
                Some(0) => {
                    sent_all = true;
                    tls.send_close_notify();
                }
                Some(count) => tls.writer().write_all(&buffer[..count])?,
                None => {}
            }
        }
        if inside.write {
            if let Some(count) = ready(agent.write(&arrived))? {
                arrived.drain(..count);
            }
        }
    }
}

/// What a call that does not wait has moved; `None` where it would have had to wait.
fn ready(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        // The end of the stream, although TLS was not closed properly.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Some(0)),
        Err(error) => Err(error),
    }
}
