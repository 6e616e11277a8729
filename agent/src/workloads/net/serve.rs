//! `net-server`: answers requests over TCP, counts datagrams, and sends probes back, until stopped.

use super::reach::{is_wait, PROBE};
use crate::contract::{Context, Failure};
use crate::measure::clock::monotonic_ns;
use crate::measure::params;
use crate::sys::sockets::uninterrupted;
use crate::sys::{self, datagrams};
use serde::Deserialize;
use serde_json::{json, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What may be sent at once, in either direction.
pub const MOST_BYTES: usize = 16 << 20;
/// How long a wait lasts until the stop flag is looked at again.
const WAIT: Duration = Duration::from_millis(50);
/// The receive buffer: the kernel's default maximum.
const ROOM: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    address: Ipv4Addr,
    port: u16,
    request_bytes: usize,
    response_bytes: usize,
    /// Close each connection after its first answer.
    once: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            request_bytes: 1,
            response_bytes: 1,
            once: false,
        }
    }
}

/// The datagrams that came; moments in nanoseconds of one clock.
#[derive(Default)]
struct Datagrams {
    count: u64,
    first_ns: u64,
    last_ns: u64,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let sizes = 1..=MOST_BYTES;
    params::require(
        sizes.contains(&params.request_bytes) && sizes.contains(&params.response_bytes),
        "request_bytes and response_bytes: 1 to 16 MiB",
    )?;
    let at = SocketAddrV4::new(params.address, params.port);
    let failed = |error: io::Error| Failure(format!("cannot serve at {at}: {error}"));
    let listener = TcpListener::bind(at).map_err(failed)?;
    let udp = UdpSocket::bind(at).map_err(failed)?;
    udp.set_read_timeout(Some(WAIT)).map_err(failed)?;
    context.sink.barrier()?;
    let (requests, connections) = (AtomicU64::new(0), AtomicU64::new(0));
    let (params, requests, stop) = (&params, &requests, context.stop);
    std::thread::scope(|scope| -> Result<Value, Failure> {
        let receiver = scope.spawn(|| receive(&udp, stop));
        let mut failure = None;
        while !stop.load(Ordering::Relaxed) {
            match accept(&listener) {
                Ok(None) => {}
                Ok(Some(stream)) => {
                    connections.fetch_add(1, Ordering::Relaxed);
                    if params.once {
                        // A thread for each would cost more than what is measured.
                        let _ = answer(stream, params, requests, stop);
                    } else {
                        scope.spawn(move || answer(stream, params, requests, stop));
                    }
                }
                Err(error) => {
                    failure = Some(failed(error));
                    break;
                }
            }
        }
        let datagrams = receiver
            .join()
            .map_err(|_| Failure("the receiver panicked".into()))?
            .map_err(failed)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let span_s = (datagrams.last_ns - datagrams.first_ns) as f64 * 1e-9;
        Ok(json!({
            "connections": connections.load(Ordering::Relaxed),
            "requests": requests.load(Ordering::Relaxed),
            "packets": datagrams.count,
            "packets_span_s": span_s,
            "packets_per_s": datagrams.count.saturating_sub(1) as f64 / span_s.max(1e-9),
            "warnings": [],
        }))
    })
}

fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    if !sys::wait_readable(&listener, Some(WAIT))? {
        return Ok(None);
    }
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        // It was gone again before it was accepted.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionAborted | ErrorKind::WouldBlock
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn answer(
    mut stream: TcpStream,
    params: &Params,
    requests: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    let response = vec![0x5a; params.response_bytes];
    let mut buffer = vec![0; params.request_bytes.min(256 << 10)];
    loop {
        let mut left = params.request_bytes;
        while left > 0 {
            let room = left.min(buffer.len());
            match stream.read(&mut buffer[..room]) {
                Ok(0) => return Ok(()),
                Ok(count) => left -= count,
                Err(error) if is_wait(&error) && !stop.load(Ordering::Relaxed) => {}
                Err(error) => return Err(error),
            }
        }
        let mut sent = 0;
        while sent < response.len() {
            match stream.write(&response[sent..]) {
                Ok(count) => sent += count,
                Err(error) if is_wait(&error) && !stop.load(Ordering::Relaxed) => {}
                Err(error) => return Err(error),
            }
        }
        requests.fetch_add(1, Ordering::Relaxed);
        if params.once {
            return Ok(());
        }
    }
}

fn receive(udp: &UdpSocket, stop: &AtomicBool) -> io::Result<Datagrams> {
    let mut datagrams = Datagrams::default();
    let (mut first, mut rest) = (vec![0; ROOM], vec![0; 64]);
    while !stop.load(Ordering::Relaxed) {
        let (count, length) = match peeked(udp, &mut first)? {
            Peeked::Nothing => continue,
            Peeked::Probe => {
                let (length, from) = uninterrupted(|| udp.recv_from(&mut first))?;
                // If the way back is too narrow, the client reports that no answer came.
                let _ = datagrams::never_fragment(udp);
                let _ = udp.send_to(&first[..length], from);
                continue;
            }
            Peeked::Data => match datagrams::receive_many(udp, &mut first, &mut rest) {
                Ok(received) => received,
                Err(error) if is_wait(&error) => continue,
                Err(error) => return Err(error),
            },
        };
        let _ = length;
        datagrams.last_ns = monotonic_ns();
        if datagrams.count == 0 {
            datagrams.first_ns = datagrams.last_ns;
        }
        datagrams.count += count as u64;
    }
    Ok(datagrams)
}

enum Peeked {
    Nothing,
    Probe,
    Data,
}

fn peeked(udp: &UdpSocket, room: &mut [u8]) -> io::Result<Peeked> {
    match udp.peek(&mut room[..PROBE.len()]) {
        Ok(_) if room.starts_with(PROBE) => Ok(Peeked::Probe),
        Ok(_) => {
            room[0] = 0;
            Ok(Peeked::Data)
        }
        Err(error) if is_wait(&error) => Ok(Peeked::Nothing),
        // The client's port was closed when a probe was sent back.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Peeked::Nothing),
        Err(error) => Err(error),
    }
}
