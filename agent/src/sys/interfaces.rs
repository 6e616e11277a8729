//! Network interfaces: set up, and asked what they are (netdevice(7)).

#![expect(unsafe_code, reason = "rustix has no call for interfaces")]

use super::library::check;
use rustix::net::{socket_with, AddressFamily, SocketFlags, SocketType};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// The bytes of an interface's name, with the zero byte that ends it.
const NAME: usize = 16;
/// The bytes of a socket's address: its family, a port, and of IPv4 four bytes more (ip(7)).
const ADDRESS: std::ops::Range<usize> = 4..8;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `struct ifreq` of linux/if.h: the name of an interface, and a value to read or set.
#[repr(C, align(8))]
struct Request {
    name: [u8; NAME],
    value: [u8; 24],
}

impl Request {
    fn of(name: &str) -> Self {
        let mut request = Self {
            name: [0; NAME],
            value: [0; 24],
        };
        let length = name.len().min(NAME - 1);
        request.name[..length].copy_from_slice(&name.as_bytes()[..length]);
        request
    }

    fn with(name: &str, value: &[u8]) -> Self {
        let mut request = Self::of(name);
        request.value[..value.len()].copy_from_slice(value);
        request
    }

    fn with_address(name: &str, address: Ipv4Addr) -> Self {
        let mut request = Self::with(name, &(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
        request.value[ADDRESS].copy_from_slice(&address.octets());
        request
    }

    fn call(&mut self, what: libc::Ioctl) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        // SAFETY: what is asked here reads and writes one `struct ifreq`; where that points on, as
        // ethtool's does, `ask_ethtool` keeps alive what it points to.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), what, self) }).map(|_| ())
    }
}

/// Bring a network interface up.
pub fn raise_interface(name: &str) -> io::Result<()> {
    let up = libc::IFF_UP as libc::c_short;
    Request::with(name, &up.to_ne_bytes()).call(libc::SIOCSIFFLAGS)
}

/// Give an interface an IPv4 address and the length of its network's prefix.
pub fn set_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Request::with_address(name, address).call(libc::SIOCSIFADDR)?;
    Request::with_address(name, Ipv4Addr::from(mask)).call(libc::SIOCSIFNETMASK)
}

/// Set the default route to a gateway (route(8), `SIOCADDRT`).
pub fn set_gateway(gateway: Ipv4Addr) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let to = |address: Ipv4Addr| {
        let mut data = [0; 14];
        for (place, byte) in data[2..].iter_mut().zip(address.octets()) {
            *place = byte as libc::c_char;
        }
        libc::sockaddr {
            sa_family: libc::AF_INET as libc::sa_family_t,
            sa_data: data,
        }
    };
    let anywhere = to(Ipv4Addr::UNSPECIFIED);
    // SAFETY: a route is numbers, and a pointer to a device's name that may be null.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    (route.rt_dst, route.rt_genmask, route.rt_gateway) = (anywhere, anywhere, to(gateway));
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the kernel reads one `struct rtentry`, whose only pointer is null.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &route) }).map(|_| ())
}

/// A socket for broadcasts on an interface's network, also before that has an address
/// (socket(7), `SO_BINDTODEVICE`).
pub fn broadcasting(interface: &str, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    socket.set_broadcast(true)?;
    let length = libc::socklen_t::try_from(interface.len()).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of the name.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            interface.as_ptr().cast(),
            length,
        )
    })?;
    Ok(socket)
}

/// The first IPv4 address of an interface.
pub fn address(name: &str) -> io::Result<Ipv4Addr> {
    let mut request = Request::of(name);
    request.call(libc::SIOCGIFADDR)?;
    let [a, b, c, d] = std::array::from_fn(|at| request.value[ADDRESS.start + at]);
    Ok(Ipv4Addr::new(a, b, c, d))
}

/// Set the longest packet of an interface, in bytes.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mtu = libc::c_int::try_from(mtu)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "beyond any MTU"))?;
    Request::with(name, &mtu.to_ne_bytes()).call(libc::SIOCSIFMTU)
}

/// Open an existing tap: each read returns one frame, and each write sends one
/// (Documentation/networking/tuntap.rst).
pub fn open_tap(name: &str) -> io::Result<File> {
    // _IOW('T', 202, int) of linux/if_tun.h.
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    let kind = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let mut request = Request::with(name, &kind.to_ne_bytes());
    // SAFETY: the kernel reads and writes one `struct ifreq`.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, &mut request) })?;
    Ok(device)
}

/// The driver of an interface, also of one without a device behind it.
pub fn driver(name: &str) -> io::Result<String> {
    const GET_DRIVER: u32 = 3;
    // struct ethtool_drvinfo of linux/ethtool.h: the query, then the driver in 32 bytes, then more.
    let mut info = [0u32; 49];
    info[0] = GET_DRIVER;
    ask_ethtool(name, &mut info)?;
    let bytes: Vec<u8> = info[1..9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    Ok(String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned())
}

/// Ask ethtool for one on/off value of an interface.
pub fn ethtool(name: &str, query: u32) -> io::Result<bool> {
    // struct ethtool_value of linux/ethtool.h: the query, then space for the answer.
    let mut value = [query, 0];
    ask_ethtool(name, &mut value)?;
    Ok(value[1] != 0)
}

/// Send the query that `words` begins with; `words` has space for the whole answer.
fn ask_ethtool(name: &str, words: &mut [u32]) -> io::Result<()> {
    let place = words.as_mut_ptr().expose_provenance();
    Request::with(name, &place.to_ne_bytes()).call(SIOCETHTOOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_known() {
        assert_eq!(
            std::mem::size_of::<Request>(),
            std::mem::size_of::<libc::ifreq>()
        );
        assert_eq!(address("lo").unwrap(), Ipv4Addr::LOCALHOST);
        assert!(address("tare-none-such-name").is_err());
        assert!(driver("tare-none").is_err());
    }
}
