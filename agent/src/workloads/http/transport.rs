//! What lies between a request and its socket, where that is not nothing: TLS, HTTP/2, or both.

use super::http2::Two;
use super::response::Response;
use super::tally::Trouble;
use crate::tools::pinned;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

/// A request as it is sent.
pub enum Asked {
    One(Vec<u8>),
    Two(http::Request<()>),
}

/// How all requests are carried.
#[derive(Clone, Default)]
pub struct Layers {
    pub tls: Option<Arc<ClientConfig>>,
    pub two: bool,
}

impl Layers {
    /// Whether requests go into their sockets as they are.
    pub fn none(&self) -> bool {
        self.tls.is_none() && !self.two
    }
}

/// The layers of one connection.
pub struct Carrier {
    tls: Option<ClientConnection>,
    two: Option<Two>,
    /// Whether it is told that its handshake is over.
    told: bool,
    leaving: Vec<u8>,
    sent: usize,
}

impl Carrier {
    pub fn new(layers: &Layers) -> Result<Self, Trouble> {
        let tls = layers
            .tls
            .as_ref()
            .map(|config| ClientConnection::new(config.clone(), pinned::name()));
        Ok(Self {
            tls: tls.transpose().map_err(|_| Trouble::Handshake)?,
            two: layers.two.then(Two::new).transpose()?,
            told: false,
            leaving: Vec::new(),
            sent: 0,
        })
    }

    /// Ask; what that sends is to be taken from [`Carrier::leaving`].
    pub fn ask(&mut self, asked: &Asked, response: &mut Response) -> Result<(), Trouble> {
        match (asked, &mut self.two) {
            (Asked::Two(request), Some(two)) => two.ask(request, response)?,
            (Asked::One(bytes), None) => self.seal(bytes)?,
            _ => return Err(Trouble::Other),
        }
        self.gather()
    }

    /// What is to be sent.
    pub fn leaving(&self) -> &[u8] {
        &self.leaving[self.sent..]
    }

    /// So much of it was.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.leaving.len() {
            self.leaving.clear();
            self.sent = 0;
        }
    }

    /// Take what came; `clear` is room for what it was before it was sealed.
    pub fn arrived(
        &mut self,
        mut bytes: &[u8],
        clear: &mut [u8],
        response: &mut Response,
    ) -> Result<(), Trouble> {
        if self.tls.is_none() {
            self.opened(bytes, response)?;
            return self.gather();
        }
        while !bytes.is_empty() {
            self.open(&mut bytes)?;
            while let Some(count) = self.read_clear(clear)? {
                self.opened(&clear[..count], response)?;
            }
        }
        self.gather()
    }

    /// Take that no more will come.
    pub fn ended(&mut self, response: &mut Response) -> Result<(), Trouble> {
        match &mut self.two {
            Some(two) => two.ended(response),
            None => Ok(()),
        }
    }

    /// How the handshake ended, once: whether it was resumed, and the cipher.
    pub fn handshake(&mut self) -> Option<(bool, String)> {
        let tls = self.tls.as_ref()?;
        if self.told || tls.is_handshaking() {
            return None;
        }
        self.told = true;
        let suite = tls.negotiated_cipher_suite()?.suite();
        let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        Some((resumed, format!("{suite:?}")))
    }

    fn open(&mut self, bytes: &mut &[u8]) -> Result<(), Trouble> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let wrong = match tls.is_handshaking() {
            true => Trouble::Handshake,
            false => Trouble::Malformed,
        };
        let count = tls.read_tls(bytes).map_err(|_| wrong)?;
        tls.process_new_packets().map_err(|_| wrong)?;
        // Behind the goodbye nothing is taken any more.
        if count == 0 {
            *bytes = &[];
        }
        Ok(())
    }

    fn read_clear(&mut self, clear: &mut [u8]) -> Result<Option<usize>, Trouble> {
        let Some(tls) = &mut self.tls else {
            return Ok(None);
        };
        match tls.reader().read(clear) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(Trouble::CutShort),
        }
    }

    fn opened(&mut self, bytes: &[u8], response: &mut Response) -> Result<(), Trouble> {
        match &mut self.two {
            Some(two) => two.arrived(bytes, response),
            None => response.take(bytes).map_err(|_| Trouble::Malformed),
        }
    }

    fn seal(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(bytes).map_err(|_| Trouble::Other),
            None => {
                self.leaving.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Put together what all layers have to send.
    fn gather(&mut self) -> Result<(), Trouble> {
        if let Some(two) = &mut self.two {
            let bytes = two.leaving();
            self.seal(&bytes)?;
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.leaving)
                    .map_err(|_| Trouble::Other)?;
            }
        }
        Ok(())
    }
}
