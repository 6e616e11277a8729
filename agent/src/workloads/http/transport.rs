//! The layers between a request and its socket: TLS, HTTP/2, or both.

use super::http2::Http2;
use super::response::Response;
use super::tally::RequestError;
use crate::tools::pinned;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

/// A request as it is sent.
pub enum Request {
    Http1(Vec<u8>),
    Http2(http::Request<()>),
}

/// The layers that all requests use.
#[derive(Clone, Default)]
pub struct Layers {
    pub tls: Option<Arc<ClientConfig>>,
    pub http2: bool,
}

impl Layers {
    /// Whether requests are written to their sockets unchanged.
    pub fn none(&self) -> bool {
        self.tls.is_none() && !self.http2
    }
}

/// The layers of one connection.
pub struct Transport {
    tls: Option<ClientConnection>,
    http2: Option<Http2>,
    /// Whether the end of the handshake was reported.
    handshake_reported: bool,
    leaving: Vec<u8>,
    sent: usize,
}

impl Transport {
    pub fn new(layers: &Layers) -> Result<Self, RequestError> {
        let tls = layers
            .tls
            .as_ref()
            .map(|config| ClientConnection::new(config.clone(), pinned::name()));
        Ok(Self {
            tls: tls.transpose().map_err(|_| RequestError::Handshake)?,
            http2: layers.http2.then(Http2::new).transpose()?,
            handshake_reported: false,
            leaving: Vec::new(),
            sent: 0,
        })
    }

    /// Ask; what that sends is to be taken from [`Carrier::leaving`].
    pub fn request(
        &mut self,
        prepared: &Request,
        response: &mut Response,
    ) -> Result<(), RequestError> {
        match (prepared, &mut self.http2) {
            (Request::Http2(request), Some(http2)) => http2.request(request, response)?,
            (Request::Http1(bytes), None) => self.seal(bytes)?,
            _ => return Err(RequestError::Other),
        }
        self.gather()
    }

    /// What is to be sent.
    pub fn leaving(&self) -> &[u8] {
        &self.leaving[self.sent..]
    }

    /// Note that so many bytes were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.leaving.len() {
            self.leaving.clear();
            self.sent = 0;
        }
    }

    /// Process received bytes; `clear` is a buffer for decrypted ones.
    pub fn arrived(
        &mut self,
        mut bytes: &[u8],
        clear: &mut [u8],
        response: &mut Response,
    ) -> Result<(), RequestError> {
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

    /// Note that the server has closed its side.
    pub fn ended(&mut self, response: &mut Response) -> Result<(), RequestError> {
        match &mut self.http2 {
            Some(http2) => http2.ended(response),
            None => Ok(()),
        }
    }

    /// How the handshake ended, once: whether it was resumed, and the cipher.
    pub fn handshake(&mut self) -> Option<(bool, String)> {
        let tls = self.tls.as_ref()?;
        if self.handshake_reported || tls.is_handshaking() {
            return None;
        }
        self.handshake_reported = true;
        let suite = tls.negotiated_cipher_suite()?.suite();
        let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        Some((resumed, format!("{suite:?}")))
    }

    fn open(&mut self, bytes: &mut &[u8]) -> Result<(), RequestError> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let wrong = match tls.is_handshaking() {
            true => RequestError::Handshake,
            false => RequestError::Malformed,
        };
        let count = tls.read_tls(bytes).map_err(|_| wrong)?;
        tls.process_new_packets().map_err(|_| wrong)?;
        // After the close notification nothing is read any more.
        if count == 0 {
            *bytes = &[];
        }
        Ok(())
    }

    fn read_clear(&mut self, clear: &mut [u8]) -> Result<Option<usize>, RequestError> {
        let Some(tls) = &mut self.tls else {
            return Ok(None);
        };
        match tls.reader().read(clear) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(RequestError::CutShort),
        }
    }

    fn opened(&mut self, bytes: &[u8], response: &mut Response) -> Result<(), RequestError> {
        match &mut self.http2 {
            Some(http2) => http2.arrived(bytes, response),
            None => response.take(bytes).map_err(|_| RequestError::Malformed),
        }
    }

    fn seal(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        match &mut self.tls {
            Some(tls) => tls
                .writer()
                .write_all(bytes)
                .map_err(|_| RequestError::Other),
            None => {
                self.leaving.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Collect what all layers have to send.
    fn gather(&mut self) -> Result<(), RequestError> {
        if let Some(http2) = &mut self.http2 {
            let bytes = http2.leaving();
            self.seal(&bytes)?;
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.leaving)
                    .map_err(|_| RequestError::Other)?;
            }
        }
        Ok(())
    }
}
