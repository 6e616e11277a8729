//! A minimal DHCP client (RFC 2131, options of RFC 2132): a machine is booted for one batch, so the
//! client requests one address with a long lease and never renews it.

use crate::channel::dial::StaticAddress;
use crate::sys;
use crate::sys::sockets::uninterrupted;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

const CLIENT: u16 = 68;
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 67);
const WAIT: Duration = Duration::from_secs(3);
/// How long the address is asked for, in seconds: longer than a run keeps a machine up.
const LEASE: u32 = 7 * 86_400;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const FIXED: usize = 236;
const LEAST: usize = 300;
/// Broadcast the answer: there is no address yet to send it to.
const BROADCAST: u16 = 0x8000;

const MASK: u8 = 1;
const ROUTER: u8 = 3;
const REQUESTED: u8 = 50;
const LEASE_TIME: u8 = 51;
const KIND: u8 = 53;
const SERVER_ID: u8 = 54;
const PARAMETERS: u8 = 55;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

/// A server's reply.
#[derive(Debug, PartialEq)]
struct Reply {
    kind: u8,
    address: Ipv4Addr,
    prefix: u8,
    gateway: Option<Ipv4Addr>,
    server: Ipv4Addr,
}

/// Ask the network of an interface for an address; the interface is up, and nothing is set yet.
pub fn request_address(
    interface: &str,
    hardware: [u8; 6],
    number: u32,
) -> Result<StaticAddress, String> {
    let failed = |error: io::Error| format!("{interface}: DHCP: {error}");
    let socket = sys::broadcasting(interface, CLIENT).map_err(failed)?;
    let exchange = |message: Vec<u8>, kind: u8| -> io::Result<Option<Reply>> {
        socket.send_to(&message, SERVER)?;
        let until = Instant::now() + WAIT;
        let mut buffer = [0; 2048];
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match uninterrupted(|| socket.recv(&mut buffer)) {
                Ok(count) => match parse(&buffer[..count], number, hardware) {
                    Some(reply) if reply.kind == kind => return Ok(Some(reply)),
                    _ => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    };
    let no_server = || format!("{interface}: no server of DHCP answers");
    let discover = message(DISCOVER, number, hardware, None);
    let offer = exchange(discover, OFFER)
        .map_err(failed)?
        .ok_or_else(no_server)?;
    let request = message(REQUEST, number, hardware, Some(&offer));
    let lease = exchange(request, ACK)
        .map_err(failed)?
        .ok_or_else(no_server)?;
    Ok(StaticAddress {
        address: lease.address,
        prefix: lease.prefix,
        gateway: lease.gateway,
    })
}

fn message(kind: u8, number: u32, hardware: [u8; 6], offer: Option<&Reply>) -> Vec<u8> {
    let mut bytes = vec![0; FIXED];
    // A request, over Ethernet, whose addresses have 6 bytes.
    bytes[..3].copy_from_slice(&[1, 1, 6]);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[10..12].copy_from_slice(&BROADCAST.to_be_bytes());
    bytes[28..34].copy_from_slice(&hardware);
    bytes.extend(COOKIE);
    bytes.extend([KIND, 1, kind]);
    bytes.extend([LEASE_TIME, 4]);
    bytes.extend(LEASE.to_be_bytes());
    bytes.extend([PARAMETERS, 2, MASK, ROUTER]);
    if let Some(offer) = offer {
        bytes.extend([REQUESTED, 4]);
        bytes.extend(offer.address.octets());
        bytes.extend([SERVER_ID, 4]);
        bytes.extend(offer.server.octets());
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(LEAST), 0);
    bytes
}

/// Read a server's message; `None` if it is not DHCP, or addressed to another machine.
fn parse(bytes: &[u8], number: u32, hardware: [u8; 6]) -> Option<Reply> {
    let answers = bytes.first() == Some(&2) && bytes.get(4..8)? == number.to_be_bytes();
    if !answers || bytes.get(28..34)? != hardware || bytes.get(FIXED..FIXED + 4)? != COOKIE {
        return None;
    }
    let address = four(bytes.get(16..20)?)?;
    let (mut kind, mut mask, mut gateway, mut server) = (None, None, None, None);
    let mut rest = &bytes[FIXED + 4..];
    while let [code, after @ ..] = rest {
        match code {
            0 => rest = after,
            255 => break,
            code => {
                let (length, after) = after.split_first()?;
                let value = after.get(..usize::from(*length))?;
                match *code {
                    KIND => kind = value.first().copied(),
                    MASK => mask = four(value),
                    ROUTER => gateway = value.get(..4).and_then(four),
                    SERVER_ID => server = four(value),
                    _ => {}
                }
                rest = &after[usize::from(*length)..];
            }
        }
    }
    let prefix = mask.map_or(24, |mask| u32::from(mask).leading_ones() as u8);
    let usable = !address.is_unspecified() && !address.is_broadcast() && (1..=32).contains(&prefix);
    Some(Reply {
        kind: kind?,
        address,
        prefix,
        gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        server: server?,
    })
    .filter(|_| usable)
}

fn four(bytes: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HARDWARE: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    fn offer(options: &[u8]) -> Vec<u8> {
        let mut bytes = message(OFFER, 7, HARDWARE, None);
        bytes[0] = 2;
        bytes[16..20].copy_from_slice(&[192, 0, 2, 15]);
        bytes.truncate(FIXED + 4);
        bytes.extend(options);
        bytes
    }

    #[test]
    fn an_offer_is_read_and_requested() {
        let options = [
            &[53, 1, 2, 0, 1, 4, 255, 255, 252, 0][..],
            &[3, 4, 192, 0, 2, 2, 54, 4, 192, 0, 2, 1, 255],
        ];
        let reply = parse(&offer(&options.concat()), 7, HARDWARE).unwrap();
        let wanted = Reply {
            kind: OFFER,
            address: [192, 0, 2, 15].into(),
            prefix: 22,
            gateway: Some([192, 0, 2, 2].into()),
            server: [192, 0, 2, 1].into(),
        };
        assert_eq!(reply, wanted);
        let request = message(REQUEST, 7, HARDWARE, Some(&reply));
        let has = |part: &[u8]| request.windows(part.len()).any(|each| each == part);
        assert!(has(&[53, 1, 3]) && has(&[50, 4, 192, 0, 2, 15]) && has(&[54, 4, 192, 0, 2, 1]));
        assert_eq!(request.len(), LEAST);
        assert_eq!(&request[236..240], &COOKIE);
    }

    #[test]
    fn messages_for_other_machines_are_ignored() {
        let whole = offer(&[53, 1, 2, 54, 4, 192, 0, 2, 1, 255]);
        assert!(parse(&whole, 7, HARDWARE).is_some());
        assert!(parse(&whole, 8, HARDWARE).is_none());
        assert!(parse(&whole, 7, [0; 6]).is_none());
        assert!(parse(&message(DISCOVER, 7, HARDWARE, None), 7, HARDWARE).is_none());
    }

    proptest! {
        #[test]
        fn options_of_any_bytes_are_read_or_refused(options in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&offer(&options), 7, HARDWARE);
            let _ = parse(&options, 7, HARDWARE);
        }
    }
}
