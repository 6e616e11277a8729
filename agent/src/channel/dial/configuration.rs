//! The configuration that names the host to dial, or the serial port to serve on: JSON in a file or on
//! an ISO 9660 image with the label TARE-CFG, on a CD or a disk.

use crate::measure::sysfs;
use crate::tools::pinned::digest;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LABEL: &[u8] = b"TARE-CFG";
const FILE: &[u8] = b"TARE.JSN";
const SECTOR: u64 = 2048;
/// The sector of the volume's descriptor, ECMA-119 section 6.7.1.
const DESCRIPTOR: u64 = 16;
const MOST: u64 = 1 << 16;

/// How to reach the host, and the key that authenticates the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    pub way: Way,
    pub key: String,
    /// The network interface's address; `None`: use DHCP.
    pub network: Option<StaticAddress>,
    /// Whether the machine reboots when the host ends the session, instead of powering off.
    pub again: bool,
    /// The empty disk that the host has attached, which is to be formatted.
    pub scratch: Option<EmptyDisk>,
    /// Whether workloads use the network of the connection to the host; the proof describes it then.
    pub given: bool,
    /// The network interface on an isolated network, which workloads use.
    pub isolated: Option<IsolatedCard>,
}

/// A network interface on a network that a host made for the machines of one batch.
#[derive(Clone, Debug, PartialEq)]
pub struct IsolatedCard {
    /// The hardware address that identifies it, in lower case.
    pub mac: String,
    /// How it is set up: `10.1.2.3/24,mtu=1500`.
    pub word: String,
}

/// A disk that a host made for this machine alone, with nothing on it.
#[derive(Clone, Debug, PartialEq)]
pub struct EmptyDisk {
    /// Its size, which identifies it.
    pub bytes: u64,
    /// The arguments of `mkfs.ext4`, without the device.
    pub format: Vec<String>,
}

/// How the host is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Over TLS, at an address.
    Dial(Host),
    /// On a serial port, such as `ttyS1`.
    Serial(PathBuf),
}

/// Where the host listens, and how it is authenticated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    pub callback: SocketAddr,
    /// SHA-256 of the host's certificate.
    pub certificate: [u8; 32],
}

/// An interface's address as the configuration states it, in place of DHCP.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticAddress {
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Option<Ipv4Addr>,
}

impl Configuration {
    /// Read it from JSON. No error quotes the text, because it contains the key.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|_| "it is not JSON")?;
        let string = |name: &str| value[name].as_str().ok_or(format!("'{name}' is missing"));
        if value["version"] != 1 {
            return Err("it has another version".into());
        }
        let key = string("key")?.to_string();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("'key' is not a hexadecimal number".into());
        }
        let way = match value["serial"].as_str() {
            Some(port) => Way::Serial(serial(port)?),
            None => Way::Dial(Host {
                callback: string("callback")?
                    .parse()
                    .map_err(|_| "'callback' is not ADDRESS:PORT")?,
                certificate: digest(string("certificate")?)
                    .ok_or("'certificate' is not a SHA-256")?,
            }),
        };
        let network = match &value["network"] {
            Value::Null => None,
            stated => Some(StaticAddress::parse(stated).ok_or("'network' has no ADDRESS/PREFIX")?),
        };
        let scratch = match &value["scratch"] {
            Value::Null => None,
            disk => {
                Some(EmptyDisk::parse(disk).ok_or("'scratch' has no size and format of a disk")?)
            }
        };
        let isolated = match &value["isolated"] {
            Value::Null => None,
            card => Some(
                IsolatedCard::parse(card).ok_or("'isolated' has no MAC, ADDRESS/PREFIX and MTU")?,
            ),
        };
        Ok(Self {
            way,
            key,
            network,
            again: value["again"] == true,
            scratch,
            given: value["given"] == true,
            isolated,
        })
    }
}

impl EmptyDisk {
    fn parse(value: &Value) -> Option<Self> {
        let format = value["format"].as_array()?.iter();
        Some(Self {
            bytes: value["bytes"].as_u64().filter(|bytes| *bytes > 0)?,
            format: format
                .map(|string| string.as_str().map(String::from))
                .collect::<Option<_>>()?,
        })
    }
}

impl IsolatedCard {
    fn parse(value: &Value) -> Option<Self> {
        let mac = value["mac"].as_str()?.to_ascii_lowercase();
        let address = value["address"].as_str()?;
        let mtu = value["mtu"].as_u64()?;
        Some(Self {
            mac,
            word: format!("{address},mtu={mtu}"),
        })
    }
}

impl StaticAddress {
    fn parse(value: &Value) -> Option<Self> {
        let (address, prefix) = value["address"].as_str()?.split_once('/')?;
        let prefix = prefix
            .parse()
            .ok()
            .filter(|length| (1..=32).contains(length));
        let gateway = match &value["gateway"] {
            Value::Null => None,
            named => Some(named.as_str()?.parse().ok()?),
        };
        Some(Self {
            address: address.parse().ok()?,
            prefix: prefix?,
            gateway,
        })
    }
}

/// The device of a serial port, by its name. Any other name is refused.
fn serial(name: &str) -> Result<PathBuf, String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !plain || !(name.starts_with("tty") || name.starts_with("hvc")) {
        return Err("'serial' is not the name of a serial port, such as ttyS1".into());
    }
    Ok(Path::new("/dev").join(name))
}

/// Read the configuration from a file, an image or a device.
pub fn read(path: &Path) -> Result<Configuration, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let text = match on_image(&file) {
        Some(text) => text,
        None => {
            let mut text = Vec::new();
            file.take(MOST)
                .read_to_end(&mut text)
                .map_err(|error| failed(&error))?;
            text
        }
    };
    Configuration::parse(&text).map_err(|reason| failed(&reason))
}

/// The first disk or CD of this machine with the label; `None` if there is none.
pub fn find() -> Option<PathBuf> {
    sysfs::block_devices()
        .into_iter()
        .find(|path| File::open(path).is_ok_and(|file| on_image(&file).is_some()))
}

/// The configuration's text, where `file` is an image that is labelled as one and holds it.
fn on_image(file: &File) -> Option<Vec<u8>> {
    let sector = |number: u64| {
        let mut bytes = vec![0; SECTOR as usize];
        file.read_exact_at(&mut bytes, number * SECTOR).ok()?;
        Some(bytes)
    };
    let volume = sector(DESCRIPTOR)?;
    if &volume[1..6] != b"CD001" || !volume[40..72].starts_with(LABEL) {
        return None;
    }
    let listing = sector(u64::from(little(&volume, 158)?))?;
    let (at, size) = entry_of(&listing)?;
    let mut text = vec![0; size.min(MOST) as usize];
    file.read_exact_at(&mut text, at * SECTOR).ok()?;
    Some(text)
}

/// Where the file begins and how long it is, in a directory's sector (ECMA-119 section 9.1).
fn entry_of(listing: &[u8]) -> Option<(u64, u64)> {
    let mut rest = listing;
    loop {
        let length = usize::from(*rest.first()?);
        if length < 34 || length > rest.len() {
            return None;
        }
        let (entry, others) = rest.split_at(length);
        let name = entry.get(33..33 + usize::from(entry[32]))?;
        if name.split(|byte| *byte == b';').next() == Some(FILE) {
            return Some((u64::from(little(entry, 2)?), u64::from(little(entry, 10)?)));
        }
        rest = others;
    }
}

fn little(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(key: &str) -> String {
        format!(
            r#"{{"version":1,"callback":"192.0.2.7:4460","certificate":"{}","key":"{key}"}}"#,
            "0a".repeat(32)
        )
    }

    #[test]
    fn a_configuration_is_read() {
        let found = Configuration::parse(text("00ff").as_bytes()).unwrap();
        let host = Host {
            callback: "192.0.2.7:4460".parse().unwrap(),
            certificate: [10; 32],
        };
        assert_eq!(found.way, Way::Dial(host));
        assert_eq!(found.key, "00ff");
        assert_eq!((found.network, found.again), (None, false));
        assert_eq!(found.scratch, None);
    }

    #[test]
    fn a_disk_is_formatted_only_if_its_size_and_format_are_given() {
        let of = |scratch: &str| {
            let whole = text("00ff").replace('}', &format!(r#","scratch":{scratch}}}"#));
            Configuration::parse(whole.as_bytes())
        };
        let blank = of(r#"{"bytes":50331648,"format":["-q","-t","ext4"]}"#)
            .unwrap()
            .scratch
            .unwrap();
        assert_eq!(blank.bytes, 48 << 20);
        assert_eq!(blank.format, ["-q", "-t", "ext4"]);
        for wrong in [
            "{}",
            "true",
            r#"{"bytes":0,"format":[]}"#,
            r#"{"bytes":-1,"format":[]}"#,
            r#"{"bytes":50331648}"#,
            r#"{"bytes":50331648,"format":[1]}"#,
            r#"{"format":["-q"]}"#,
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_and_an_address_can_be_stated() {
        let found = Configuration::parse(
            br#"{"version":1,"serial":"ttyS1","key":"0f","again":true,
                 "network":{"address":"192.0.2.9/24","gateway":"192.0.2.1"}}"#,
        )
        .unwrap();
        assert_eq!(found.way, Way::Serial("/dev/ttyS1".into()));
        let stated = found.network.unwrap();
        assert_eq!((stated.address, stated.prefix), ([192, 0, 2, 9].into(), 24));
        assert_eq!(stated.gateway, Some([192, 0, 2, 1].into()));
        assert!(found.again);
        for wrong in [
            r#"{"version":1,"serial":"../sda","key":"0f"}"#,
            r#"{"version":1,"serial":"sda","key":"0f"}"#,
            r#"{"version":1,"serial":"ttyS0","key":"0f","network":{"address":"1.2.3.4"}}"#,
            r#"{"version":1,"serial":"ttyS0","key":"0f","network":{"address":"1.2.3.4/33"}}"#,
        ] {
            assert!(Configuration::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_network_is_described_only_on_request() {
        let of = |string: &str| {
            let whole = text("00ff").replace('}', &format!(r#","given":{string}}}"#));
            Configuration::parse(whole.as_bytes()).unwrap().given
        };
        assert!(of("true"));
        assert!(!of("false") && !of("1"));
        assert!(!Configuration::parse(text("00ff").as_bytes()).unwrap().given);
    }

    #[test]
    fn an_isolated_card_has_a_mac_an_address_and_an_mtu() {
        let of = |card: &str| {
            let whole = text("00ff").replace('}', &format!(r#","isolated":{card}}}"#));
            Configuration::parse(whole.as_bytes())
        };
        let found = of(r#"{"mac":"52:54:00:0A:02:03","address":"10.10.2.3/24","mtu":1500}"#);
        let card = found.unwrap().isolated.unwrap();
        assert_eq!(card.mac, "52:54:00:0a:02:03");
        assert_eq!(card.word, "10.10.2.3/24,mtu=1500");
        assert!(of(r#"{"mac":"52:54:00:0a:02:03","address":"10.10.2.3/24"}"#).is_err());
        assert!(of(r#"{"address":"10.10.2.3/24","mtu":1500}"#).is_err());
        let without = Configuration::parse(text("00ff").as_bytes()).unwrap();
        assert_eq!(without.isolated, None);
    }

    #[test]
    fn a_refusal_does_not_quote_the_key() {
        let planted = "feedfacefeedface";
        for wrong in [
            text(planted).replace("192.0.2.7:4460", "nowhere"),
            text(planted).replace("0a0a", "zz"),
            text(planted).replace(":1,", ":2,"),
            text(planted).replace('}', ""),
            text(&format!("{planted}\nmore")),
        ] {
            let reason = Configuration::parse(wrong.as_bytes()).unwrap_err();
            assert!(!reason.contains(planted), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn a_listing_of_any_bytes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = entry_of(&bytes);
            let _ = Configuration::parse(&bytes);
        }
    }
}
