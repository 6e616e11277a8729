//! The parameters of an HTTP load.

use super::schedule::Arrivals;
use super::transport::{Layers, Request};
use crate::contract::Failure;
use crate::measure::params;
use crate::tools::pinned;
use rustls::client::Resumption;
use rustls::crypto::ring::{self, cipher_suite};
use rustls::SupportedCipherSuite;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::sync::Arc;

const MOST_CONNECTIONS: usize = 20_000;
/// Servers whose sessions are remembered; there is one.
const SESSIONS: usize = 16;
const MOST_INTERVALS: f64 = 20_000.0;

/// Which version of HTTP requests are of: that of 1.0 has one request a connection by itself.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
pub enum Version {
    #[serde(rename = "1.0")]
    Http10,
    #[default]
    #[serde(rename = "1.1")]
    Http11,
    #[serde(rename = "2")]
    Http2,
}

/// The cipher suites of TLS 1.3.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    #[serde(rename = "aes-128-gcm")]
    Aes128,
    #[serde(rename = "aes-256-gcm")]
    Aes256,
    #[serde(rename = "chacha20-poly1305")]
    Chacha20,
}

/// How connections are secured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// SHA-256 (hex) of the server's certificate.
    certificate: String,
    suite: Suite,
    /// Whether connections take up what an earlier one has agreed on.
    resumption: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    pub address: Ipv4Addr,
    pub port: u16,
    /// The `Host` header; the address if left out.
    pub host: Option<String>,
    /// Requested in turn.
    pub paths: Vec<String>,
    /// Whether requests share connections, or each has its own.
    pub keep_alive: bool,
    /// Under way at the same time, at most.
    pub connections: usize,
    pub threads: Option<usize>,
    /// Requests per second; without, each follows the one before it at once.
    pub rate: Option<f64>,
    pub arrivals: Arrivals,
    pub seconds: f64,
    /// Before what counts.
    pub warmup_s: f64,
    /// A request that takes longer is given up.
    pub timeout_s: f64,
    pub expected_status: u16,
    /// The length of the body; any, if left out.
    pub expected_bytes: Option<u64>,
    /// The version of HTTP: `1.0`, `1.1` or `2`.
    pub version: Version,
    pub tls: Option<Tls>,
    pub interval_s: f64,
    /// How long the server may take to answer at all before the load begins.
    pub patience_s: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            port: 80,
            host: None,
            paths: vec!["/".into()],
            keep_alive: false,
            connections: 16,
            threads: None,
            rate: None,
            arrivals: Arrivals::Constant,
            seconds: 10.0,
            warmup_s: 0.5,
            timeout_s: 10.0,
            expected_status: 200,
            expected_bytes: None,
            version: Version::default(),
            tls: None,
            interval_s: 1.0,
            patience_s: 5.0,
        }
    }
}

impl Params {
    pub fn check(&self) -> Result<(), Failure> {
        let is = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let fine = |text: &str| text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        params::require(
            (1..=MOST_CONNECTIONS).contains(&self.connections),
            "connections: 1 to 20000",
        )?;
        params::require(
            (1..=256).contains(&self.threads.unwrap_or(1)),
            "threads: 1 to 256",
        )?;
        params::require(
            is(self.rate.unwrap_or(1.0), 1e-3, 1e7),
            "rate: 0.001 to 10,000,000 per second",
        )?;
        params::require(is(self.seconds, 1e-3, 1e6), "seconds: 0.001 to 1,000,000")?;
        params::require(is(self.warmup_s, 0.0, 1e5), "warmup_s: 0 to 100,000")?;
        params::require(is(self.timeout_s, 1e-3, 3600.0), "timeout_s: 0.001 to 3600")?;
        params::require(is(self.patience_s, 0.0, 3600.0), "patience_s: 0 to 3600")?;
        params::require(
            self.interval_s > 0.0 && self.seconds / self.interval_s <= MOST_INTERVALS,
            "interval_s: more than 0, and at most 20,000 intervals",
        )?;
        params::require(
            !self.paths.is_empty() && self.paths.iter().all(|p| p.starts_with('/') && fine(p)),
            "paths: each begins with / and has no spaces",
        )?;
        params::require(
            self.version != Version::Http2 || self.keep_alive,
            "keep_alive: HTTP/2 has many requests a connection",
        )?;
        params::require(
            fine(self.host.as_deref().unwrap_or_default()),
            "host: no spaces",
        )
    }

    /// The layers between requests and their sockets.
    pub fn layers(&self) -> Result<Layers, Failure> {
        let http2 = self.version == Version::Http2;
        let tls = self.tls.as_ref().map(|tls| tls.config(http2)).transpose()?;
        let tls = tls.map(Arc::new);
        Ok(Layers { tls, http2 })
    }

    pub fn prepare(&self, path: &str) -> Result<Request, Failure> {
        if self.version != Version::Http2 {
            return Ok(Request::Http1(self.request(path)));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let uri = format!("{scheme}://{}{path}", self.authority());
        let request = http::Request::get(uri)
            .header("user-agent", "tare")
            .body(());
        let request = request.map_err(|error| Failure(format!("host or paths: {error}")))?;
        Ok(Request::Http2(request))
    }

    fn authority(&self) -> String {
        self.host.clone().unwrap_or_else(|| match self.port {
            80 => self.address.to_string(),
            port => format!("{}:{port}", self.address),
        })
    }

    pub fn request(&self, path: &str) -> Vec<u8> {
        let host = self.authority();
        let (version, connection) = match (self.version, self.keep_alive) {
            (Version::Http10, true) => ("1.0", "Connection: keep-alive\r\n"),
            (Version::Http10, false) => ("1.0", ""),
            (Version::Http11 | Version::Http2, true) => ("1.1", ""),
            (Version::Http11 | Version::Http2, false) => ("1.1", "Connection: close\r\n"),
        };
        format!("GET {path} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: tare\r\n{connection}\r\n")
            .into_bytes()
    }
}

impl Tls {
    fn config(&self, http2: bool) -> Result<rustls::ClientConfig, Failure> {
        let digest = pinned::digest(&self.certificate)
            .ok_or_else(|| Failure("tls.certificate: a SHA-256 in hexadecimal".into()))?;
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![self.suite.of_library()];
        let mut config = pinned::config(provider, digest)
            .map_err(|error| Failure(format!("TLS cannot be set up: {error}")))?;
        config.resumption = match self.resumption {
            true => Resumption::in_memory_sessions(SESSIONS),
            false => Resumption::disabled(),
        };
        config.alpn_protocols = vec![match http2 {
            true => b"h2".to_vec(),
            false => b"http/1.1".to_vec(),
        }];
        Ok(config)
    }
}

impl Suite {
    fn of_library(self) -> SupportedCipherSuite {
        match self {
            Self::Aes128 => cipher_suite::TLS13_AES_128_GCM_SHA256,
            Self::Aes256 => cipher_suite::TLS13_AES_256_GCM_SHA384,
            Self::Chacha20 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}
