//! What a load of requests is to be.

use super::schedule::Arrivals;
use crate::contract::Failure;
use crate::measure::params;
use serde::Deserialize;
use std::net::Ipv4Addr;

const MOST_CONNECTIONS: usize = 20_000;
const MOST_INTERVALS: f64 = 20_000.0;

/// Which version of HTTP requests are of: that of 1.0 has one request a connection by itself.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
pub enum Version {
    #[serde(rename = "1.0")]
    Ten,
    #[default]
    #[serde(rename = "1.1")]
    Eleven,
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
    /// Of the body; any, if left out.
    pub expected_bytes: Option<u64>,
    /// Of HTTP: `1.0`, or `1.1`.
    pub version: Version,
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
            fine(self.host.as_deref().unwrap_or_default()),
            "host: no spaces",
        )
    }

    pub fn request(&self, path: &str) -> Vec<u8> {
        let host = self.host.clone().unwrap_or_else(|| match self.port {
            80 => self.address.to_string(),
            port => format!("{}:{port}", self.address),
        });
        let (version, connection) = match (self.version, self.keep_alive) {
            (Version::Ten, true) => ("1.0", "Connection: keep-alive\r\n"),
            (Version::Ten, false) => ("1.0", ""),
            (Version::Eleven, true) => ("1.1", ""),
            (Version::Eleven, false) => ("1.1", "Connection: close\r\n"),
        };
        format!("GET {path} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: tare\r\n{connection}\r\n")
            .into_bytes()
    }
}
