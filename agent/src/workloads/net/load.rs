//! `net-load` and `net-echo`: endless sending to a partner elsewhere, which sends everything back (a
//! neighbour that keeps the host's network busy).
//!
//! The partner connects, because some machines can be reached but cannot connect elsewhere. It does so
//! before the common start, so that the load can start at any time.

use super::reach::{self, is_wait};
use crate::contract::{Context, Failure};
use crate::measure::params;
use crate::sys;
use serde::Deserialize;
use serde_json::{json, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a wait lasts until the stop flag is looked at again.
const WAIT: Duration = Duration::from_millis(20);
/// What is handed to the kernel at once.
const PIECE: usize = 64 << 10;
/// How long what is under way may take to come back when a load ends.
const DRAIN: Duration = Duration::from_secs(2);

/// Where the load meets its partner.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rendezvous {
    pub address: Ipv4Addr,
    pub port: u16,
    pub connections: usize,
    pub patience_s: f64,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            connections: 1,
            patience_s: 20.0,
        }
    }
}

impl Rendezvous {
    fn at(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port)
    }

    fn check(&self) -> Result<(), Failure> {
        params::require((1..=64).contains(&self.connections), "connections: 1 to 64")?;
        params::require(
            (0.0..=3600.0).contains(&self.patience_s),
            "patience_s: 0 to 3600",
        )
    }

    /// Begin to listen, so that the partner can connect.
    pub fn listen(&self) -> Result<TcpListener, Failure> {
        self.check()?;
        TcpListener::bind(self.at())
            .map_err(|error| Failure(format!("cannot serve at {}: {error}", self.at())))
    }

    /// Wait until the partner has made all its connections.
    pub fn accept_partner(
        &self,
        listener: &TcpListener,
        stop: &AtomicBool,
    ) -> Result<Partner, Failure> {
        let since = Instant::now();
        let mut streams = Vec::new();
        while streams.len() < self.connections {
            if sys::wait_readable(listener, Some(WAIT))? {
                let (stream, _) = listener.accept()?;
                streams.push(prepared(stream)?);
            } else if since.elapsed().as_secs_f64() > self.patience_s {
                return Err(Failure(format!(
                    "no partner connected to {} within {} s",
                    self.at(),
                    self.patience_s
                )));
            } else if stop.load(Ordering::Relaxed) {
                return Err(Failure(format!(
                    "stopped before a partner connected to {}",
                    self.at()
                )));
            }
        }
        Ok(Partner { streams })
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    Ok(stream)
}

/// The other end, which sends back whatever it gets.
pub struct Partner {
    streams: Vec<TcpStream>,
}

impl Partner {
    /// Send and receive until stopped, or for some seconds.
    pub fn load(&self, stop: &AtomicBool, seconds: Option<f64>) -> Result<Value, Failure> {
        let account = Account::new(self.streams.len());
        let over = AtomicBool::new(false);
        let began = Instant::now();
        let outcome = std::thread::scope(|scope| -> io::Result<()> {
            let (over, account) = (&over, &account);
            let running: Vec<_> = self
                .streams
                .iter()
                .flat_map(|stream| {
                    [
                        scope.spawn(move || account.ended(send(stream, over, account))),
                        scope.spawn(move || receive(stream, over, account)),
                    ]
                })
                .collect();
            while !stop.load(Ordering::Relaxed)
                && !running.iter().any(|thread| thread.is_finished())
                && !seconds.is_some_and(|most| began.elapsed().as_secs_f64() >= most)
            {
                std::thread::sleep(WAIT / 4);
            }
            over.store(true, Ordering::Relaxed);
            let mut outcome = Ok(());
            for thread in running {
                let ended = thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")));
                outcome = outcome.and(ended);
            }
            outcome
        });
        let seconds = began.elapsed().as_secs_f64().max(1e-9);
        if let Err(error) = outcome {
            return Err(Failure(format!("the partner of the network load: {error}")));
        }
        let (sent, received) = (account.sent.into_inner(), account.received.into_inner());
        let bytes = sent + received;
        Ok(json!({
            "seconds": seconds,
            "connections": self.streams.len(),
            "bytes_sent": sent,
            "bytes_received": received,
            "bytes": bytes,
            "bytes_per_s": bytes as f64 / seconds,
            "warnings": [],
        }))
    }
}

/// What all connections together have carried.
struct Account {
    sent: AtomicU64,
    received: AtomicU64,
    /// Connections over which something may still be sent.
    sending: AtomicUsize,
}

impl Account {
    fn new(connections: usize) -> Self {
        Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sending: AtomicUsize::new(connections),
        }
    }

    fn ended(&self, outcome: io::Result<()>) -> io::Result<()> {
        self.sending.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn is_even(&self) -> bool {
        self.sending.load(Ordering::SeqCst) == 0
            && self.received.load(Ordering::SeqCst) >= self.sent.load(Ordering::SeqCst)
    }
}

fn send(mut stream: &TcpStream, over: &AtomicBool, account: &Account) -> io::Result<()> {
    let piece = vec![0x5a; PIECE];
    while !over.load(Ordering::Relaxed) {
        match stream.write(&piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => account.sent.fetch_add(count as u64, Ordering::SeqCst),
            Err(error) if is_wait(&error) => continue,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Receive what comes back, at the end also what is still in flight, so that the next load does not.
fn receive(mut stream: &TcpStream, over: &AtomicBool, account: &Account) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut ended: Option<Instant> = None;
    loop {
        if over.load(Ordering::Relaxed) {
            let since = *ended.get_or_insert_with(Instant::now);
            if account.is_even() || since.elapsed() > DRAIN {
                return Ok(());
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "it closed the connection",
                ))
            }
            Ok(count) => {
                account.received.fetch_add(count as u64, Ordering::SeqCst);
            }
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Params {
    at: Rendezvous,
    /// End by itself after so long; else only when stopped.
    seconds: Option<f64>,
}

pub fn run_load(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let listener = params.at.listen()?;
    let partner = params.at.accept_partner(&listener, context.stop)?;
    context.sink.barrier()?;
    partner.load(context.stop, params.seconds)
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EchoParams {
    at: Rendezvous,
    /// Leave after so long; else when the load does, or when stopped.
    seconds: Option<f64>,
}

pub fn run_echo(context: &Context) -> Result<Value, Failure> {
    let params: EchoParams = params::parse(context.params)?;
    params.at.check()?;
    context.sink.barrier()?;
    let began = Instant::now();
    let echo = Echo {
        at: &params.at,
        began,
        end: params
            .seconds
            .map(|seconds| began + Duration::from_secs_f64(seconds.clamp(0.0, 1e6))),
        stop: context.stop,
        bytes: AtomicU64::new(0),
    };
    std::thread::scope(|scope| -> Result<(), Failure> {
        let echo = &echo;
        let running: Vec<_> = (0..params.at.connections)
            .map(|_| scope.spawn(move || echo.serve()))
            .collect();
        let mut outcome = Ok(());
        for thread in running {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(Failure("a thread of the echo panicked".into())));
            outcome = outcome.and(ended);
        }
        outcome
    })?;
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    let bytes = echo.bytes.into_inner();
    Ok(json!({
        "seconds": seconds,
        "bytes": bytes,
        "bytes_per_s": bytes as f64 / seconds,
        "warnings": [],
    }))
}

/// Sends everything back until the other end closes, or it is time to leave.
struct Echo<'a> {
    at: &'a Rendezvous,
    began: Instant,
    end: Option<Instant>,
    stop: &'a AtomicBool,
    bytes: AtomicU64,
}

impl Echo<'_> {
    fn leaves(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Serve one connection. A forwarded connection may open before the load listens, and close at once;
    /// so one without any data is retried until the time limit.
    fn serve(&self) -> Result<(), Failure> {
        let patience = Duration::from_secs_f64(self.at.patience_s);
        loop {
            let left = patience.saturating_sub(self.began.elapsed());
            let stream = prepared(reach::connect(self.at.at(), left, self.stop)?)?;
            if self.echo(&stream) > 0 || self.leaves() || self.began.elapsed() >= patience {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
    }

    /// Send back what arrives; returns the number of bytes. The other end reports errors.
    fn echo(&self, mut stream: &TcpStream) -> u64 {
        let mut buffer = vec![0; PIECE];
        let mut carried = 0;
        while !self.leaves() {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_wait(&error) => continue,
                Err(_) => break,
            };
            carried += count as u64;
            self.bytes.fetch_add(count as u64, Ordering::Relaxed);
            let mut rest = &buffer[..count];
            while !rest.is_empty() && !self.leaves() {
                match stream.write(rest) {
                    Ok(0) => return carried,
                    Ok(gone) => rest = &rest[gone..],
                    Err(error) if is_wait(&error) => {}
                    Err(_) => return carried,
                }
            }
        }
        carried
    }
}
