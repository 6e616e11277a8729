//! `packet-rate`: small datagrams, as many as go out; the other end counts what arrives.

use super::reach;
use crate::contract::{Context, Failure};
use crate::measure::clock::monotonic_ns;
use crate::measure::{params, scheduling};
use crate::sys::datagrams::{self, BATCH};
use serde::Deserialize;
use serde_json::{json, Value};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a datagram may hold, 65,535 less the headers of IPv4 and UDP.
const MOST: usize = 65_507;
/// Sends between two looks at the time.
const ROUNDS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    address: Ipv4Addr,
    port: u16,
    bytes: usize,
    threads: usize,
    seconds: f64,
    patience_s: f64,
    probe_bytes: Option<usize>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            bytes: 18,
            threads: 1,
            seconds: 5.0,
            patience_s: 5.0,
            probe_bytes: None,
        }
    }
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require((1..=MOST).contains(&params.bytes), "bytes: 1 to 65507")?;
    params::require((1..=256).contains(&params.threads), "threads: 1 to 256")?;
    let fine = (1e-3..=1e6).contains(&params.seconds);
    params::require(fine, "seconds: 0.001 to 1,000,000")?;
    let fine = (0.0..=3600.0).contains(&params.patience_s);
    params::require(fine, "patience_s: 0 to 3600")?;
    let to = SocketAddrV4::new(params.address, params.port);
    // Lost datagrams cause no error, so first check that the server is there.
    let patience = Duration::from_secs_f64(params.patience_s);
    drop(reach::connect(to, patience, context.stop)?);
    if let Some(bytes) = params.probe_bytes {
        reach::probe(to, bytes)?;
    }
    context.sink.barrier()?;
    let started = monotonic_ns();
    let end = started + (params.seconds * 1e9) as u64;
    let work = |number: usize| {
        if let [_, ..] = context.cpus {
            scheduling::pin(&[context.cpus[number % context.cpus.len()]])?;
        }
        send(to, params.bytes, end, context.stop)
    };
    let (mut sent, mut refused) = (0, 0);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let work = &work;
        let running: Vec<_> = (0..params.threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for thread in running {
            let (more, failed) = thread
                .join()
                .map_err(|_| Failure("a sender panicked".into()))?
                .map_err(|error| Failure(format!("cannot send to {to}: {error}")))?;
            sent += more;
            refused += failed;
        }
        Ok(())
    })?;
    let seconds = (monotonic_ns() - started) as f64 * 1e-9;
    Ok(json!({
        "seconds": seconds,
        "sent": sent,
        "sent_per_s": sent as f64 / seconds,
        "refused": refused,
        "warnings": [],
    }))
}

/// Send until `end`; returns how many were sent, and how often the kernel's buffer was full.
fn send(
    to: SocketAddrV4,
    bytes: usize,
    end: u64,
    stop: &AtomicBool,
) -> std::io::Result<(u64, u64)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    let datagram = vec![0x5a; bytes];
    let (mut sent, mut refused) = (0, 0);
    while monotonic_ns() < end && !stop.load(Ordering::Relaxed) {
        for _ in 0..ROUNDS {
            match datagrams::send_many(&socket, &datagram, BATCH) {
                Ok(count) => sent += count as u64,
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS)
                        || matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::Interrupted
                        ) =>
                {
                    refused += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok((sent, refused))
}
