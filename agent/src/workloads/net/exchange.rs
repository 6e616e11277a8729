//! `request-response` and `connect-request-response`: how many exchanges one end gets from the
//! other, one after the other on each of some connections, or each over a connection of its own.

use super::reach;
use super::serve::MOST_BYTES;
use crate::contract::{Context, Failure};
use crate::measure::clock::monotonic_ns;
use crate::measure::{params, scheduling};
use crate::sys::sockets::uninterrupted;
use crate::workloads::http::{count, durations, summary};
use hdrhistogram::Histogram;
use serde::Deserialize;
use serde_json::{json, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    address: Ipv4Addr,
    port: u16,
    request_bytes: usize,
    response_bytes: usize,
    connections: usize,
    seconds: f64,
    warmup_s: f64,
    timeout_s: f64,
    patience_s: f64,
    /// Before anything else, packets of this size must get there and back.
    probe_bytes: Option<usize>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            request_bytes: 1,
            response_bytes: 1,
            connections: 1,
            seconds: 5.0,
            warmup_s: 0.2,
            timeout_s: 5.0,
            patience_s: 5.0,
            probe_bytes: None,
        }
    }
}

/// What one connection after the other, or one kept, was used for.
struct Done {
    exchange: Histogram<u64>,
    connect: Histogram<u64>,
}

pub fn run_kept(context: &Context) -> Result<Value, Failure> {
    run(context, true)
}

pub fn run_connecting(context: &Context) -> Result<Value, Failure> {
    run(context, false)
}

fn run(context: &Context, kept: bool) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let sizes = 1..=MOST_BYTES;
    params::require(
        sizes.contains(&params.request_bytes) && sizes.contains(&params.response_bytes),
        "request_bytes and response_bytes: 1 to 16 MiB",
    )?;
    params::require(
        (1..=1024).contains(&params.connections),
        "connections: 1 to 1024",
    )?;
    for (name, value, least) in [
        ("seconds", params.seconds, 1e-3),
        ("warmup_s", params.warmup_s, 0.0),
        ("timeout_s", params.timeout_s, 1e-3),
        ("patience_s", params.patience_s, 0.0),
    ] {
        let fine = (least..=1e6).contains(&value);
        params::require(fine, &format!("{name}: {least} to 1,000,000"))?;
    }
    let to = SocketAddrV4::new(params.address, params.port);
    let patience = Duration::from_secs_f64(params.patience_s);
    let first = reach::connect(to, patience, context.stop)?;
    if let Some(bytes) = params.probe_bytes {
        reach::probe(to, bytes)?;
    }
    let failed = |error: io::Error| Failure(format!("{to}: {}", describe(&error)));
    let mut streams = vec![first];
    while kept && streams.len() < params.connections {
        streams.push(reach::connect(to, patience, context.stop)?);
    }
    for stream in &streams {
        prepare(stream, &params).map_err(failed)?;
    }
    if !kept {
        // Use up the connection that was opened to check that the server is there.
        exchange(&mut streams[0], &params, &mut vec![0; 1 << 16]).map_err(failed)?;
        streams.clear();
    }
    context.sink.barrier()?;
    let started = monotonic_ns();
    let counted = started + (params.warmup_s * 1e9) as u64;
    let end = counted + (params.seconds * 1e9) as u64;
    let (gate, streams) = (
        Barrier::new(params.connections),
        std::sync::Mutex::new(streams),
    );
    let work = |number: usize| -> io::Result<Done> {
        if let [_, ..] = context.cpus {
            scheduling::pin(&[context.cpus[number % context.cpus.len()]])?;
        }
        let own = streams.lock().ok().and_then(|mut left| left.pop());
        gate.wait();
        repeat(own, to, &params, counted, end, context.stop)
    };
    let mut all = Done {
        exchange: durations(),
        connect: durations(),
    };
    std::thread::scope(|scope| -> Result<(), Failure> {
        let work = &work;
        let running: Vec<_> = (0..params.connections)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for thread in running {
            let done = thread
                .join()
                .map_err(|_| Failure("a connection's thread panicked".into()))?
                .map_err(failed)?;
            all.exchange.add(&done.exchange).map_err(Failure::from)?;
            all.connect.add(&done.connect).map_err(Failure::from)?;
        }
        Ok(())
    })?;
    if all.exchange.is_empty() {
        return Err(Failure(format!(
            "not a single exchange with {to} ended within {} s",
            params.seconds
        )));
    }
    let seconds = (monotonic_ns().min(end).saturating_sub(counted)) as f64 * 1e-9;
    Ok(json!({
        "seconds": seconds,
        "exchanges": all.exchange.len(),
        "exchanges_per_s": all.exchange.len() as f64 / seconds.max(1e-9),
        "exchange": summary(&all.exchange),
        "connect": summary(&all.connect),
        "warnings": [],
    }))
}

fn prepare(stream: &TcpStream, params: &Params) -> io::Result<()> {
    let limit = Some(Duration::from_secs_f64(params.timeout_s));
    stream.set_nodelay(true)?;
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(limit)
}

/// Exchange until the end; what began before `counted` is warm-up.
fn repeat(
    mut kept: Option<TcpStream>,
    to: SocketAddrV4,
    params: &Params,
    counted: u64,
    end: u64,
    stop: &AtomicBool,
) -> io::Result<Done> {
    let mut done = Done {
        exchange: durations(),
        connect: durations(),
    };
    let mut buffer = vec![0x5a; params.request_bytes.max(params.response_bytes).min(1 << 20)];
    let limit = Duration::from_secs_f64(params.timeout_s);
    loop {
        let began = monotonic_ns();
        if began >= end || stop.load(Ordering::Relaxed) {
            return Ok(done);
        }
        let mut connected = 0;
        match &mut kept {
            Some(stream) => exchange(stream, params, &mut buffer)?,
            None => {
                let mut stream = TcpStream::connect_timeout(&to.into(), limit)?;
                connected = monotonic_ns();
                prepare(&stream, params)?;
                exchange(&mut stream, params, &mut buffer)?;
                // The server's end first, so that the port here is free again at once.
                if uninterrupted(|| stream.read(&mut buffer))? != 0 {
                    return Err(io::Error::other("it sent more than it should"));
                }
            }
        }
        if began >= counted {
            count(&mut done.exchange, monotonic_ns() - began);
            if connected > 0 {
                count(&mut done.connect, connected - began);
            }
        }
    }
}

fn exchange(stream: &mut TcpStream, params: &Params, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = params.request_bytes;
    while left > 0 {
        let piece = left.min(buffer.len());
        stream.write_all(&buffer[..piece])?;
        left -= piece;
    }
    let mut left = params.response_bytes;
    while left > 0 {
        let room = left.min(buffer.len());
        match uninterrupted(|| stream.read(&mut buffer[..room]))? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => left -= count,
        }
    }
    Ok(())
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".into(),
        ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => error.to_string(),
    }
}
