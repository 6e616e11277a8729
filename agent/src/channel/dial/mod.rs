//! Dialling back to the host: TLS 1.3 to a server that is identified by its certificate's hash, and one
//! line with this machine's key. The protocol that follows is the same as on any other channel.

mod configuration;
mod relay;

pub use configuration::{
    find, read, Configuration, EmptyDisk, Host, IsolatedCard, StaticAddress, Way,
};

use crate::tools::pinned;
use rustls::crypto::ring;
use rustls::{ClientConnection, Error};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the host is tried: a guest may be up before its network is.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);

/// An open channel to the host.
pub struct Dialled {
    own: UnixStream,
    relay: JoinHandle<()>,
    /// The machine's own address on the way to the host.
    pub address: IpAddr,
}

impl Dialled {
    /// The agent's end of the channel.
    pub fn stream(&self) -> io::Result<File> {
        Ok(OwnedFd::from(self.own.try_clone()?).into())
    }

    /// Send what is buffered, and close the channel.
    pub fn finish(self) {
        let _ = self.own.shutdown(Shutdown::Write);
        let _ = self.relay.join();
    }
}

/// The line that authenticates the machine to the host.
pub fn greeting(key: &str) -> String {
    format!("tare-callback 1 {key}\n")
}

/// Dial the host until it answers.
pub fn dial(host: &Host, key: &str) -> Result<Dialled, String> {
    let since = Instant::now();
    loop {
        match attempt(host, key) {
            Ok(dialled) => return Ok(dialled),
            Err(error) if since.elapsed() > PATIENCE => {
                return Err(format!("{} cannot be reached: {error}", host.callback));
            }
            // A wrong certificate stays wrong: do not retry.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(format!("{} is not the host: {error}", host.callback));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn attempt(host: &Host, key: &str) -> io::Result<Dialled> {
    let mut tcp = TcpStream::connect_timeout(&host.callback, CONNECT)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(CONNECT))?;
    tcp.set_write_timeout(Some(CONNECT))?;
    let mut tls = begin(host.certificate).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    tls.writer().write_all(greeting(key).as_bytes())?;
    while tls.wants_write() {
        tls.write_tls(&mut tcp)?;
    }
    let address = tcp.local_addr()?.ip();
    let (own, inner) = UnixStream::pair()?;
    let relay = std::thread::Builder::new()
        .name("dial-back".into())
        .spawn(move || {
            // Any error ends the channel, which the agent notices.
            let _ = relay::relay(tls, tcp, inner);
        })?;
    Ok(Dialled {
        own,
        relay,
        address,
    })
}

fn begin(certificate: [u8; 32]) -> Result<ClientConnection, Error> {
    let config = pinned::config(ring::default_provider(), certificate)?;
    ClientConnection::new(Arc::new(config), pinned::name())
}
