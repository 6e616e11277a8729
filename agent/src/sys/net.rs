//! Sockets to the kernel: device announcements, and network interfaces.

use super::check;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// A socket on which the kernel announces devices.
pub fn device_events() -> io::Result<RawFd> {
    // SAFETY: sockaddr_nl is plain numbers; its size is passed.
    unsafe {
        let fd = check(libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            libc::NETLINK_KOBJECT_UEVENT,
        ))?;
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = 1;
        check(libc::bind(
            fd,
            std::ptr::addr_of!(address).cast(),
            std::mem::size_of_val(&address) as libc::socklen_t,
        ))?;
        Ok(fd)
    }
}

/// An interface request that names an interface, and a socket to ask it on.
fn with_interface<T>(
    name: &str,
    ask: impl FnOnce(libc::c_int, &mut libc::ifreq) -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: ifreq is plain bytes; the name is cut to leave its ending zero byte; the socket
    // is closed exactly once.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let socket = check(libc::socket(libc::AF_INET, kind, 0))?;
        let mut request: libc::ifreq = std::mem::zeroed();
        let room = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
        for (to, from) in room.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let result = ask(socket, &mut request);
        libc::close(socket);
        result
    }
}

/// Bring a network interface up.
pub fn raise_interface(name: &str) -> io::Result<()> {
    with_interface(name, |socket, request| {
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        // SAFETY: the request is valid and names an interface.
        check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, request) }).map(|_| ())
    })
}

/// Give an interface an IPv4 address and the length of its network's prefix.
pub fn set_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    with_interface(name, |socket, request| {
        request.ifr_ifru.ifru_addr = socket_address(address);
        // SAFETY: the request is valid, names an interface and holds an address.
        check(unsafe { libc::ioctl(socket, libc::SIOCSIFADDR as _, &mut *request) })?;
        request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
        // SAFETY: as above.
        check(unsafe { libc::ioctl(socket, libc::SIOCSIFNETMASK as _, request) }).map(|_| ())
    })
}

/// The first IPv4 address of an interface.
pub fn address(name: &str) -> io::Result<Ipv4Addr> {
    with_interface(name, |socket, request| {
        // SAFETY: the request is valid and names an interface; the answer is an IPv4 address,
        // whose four bytes lie behind family and port (ip(7)).
        unsafe {
            check(libc::ioctl(socket, libc::SIOCGIFADDR as _, &mut *request))?;
            let bytes = &request.ifr_ifru.ifru_addr.sa_data[2..6];
            let byte = |at: usize| bytes[at] as u8;
            Ok(Ipv4Addr::new(byte(0), byte(1), byte(2), byte(3)))
        }
    })
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: sockaddr is plain numbers.
    let mut whole: libc::sockaddr = unsafe { std::mem::zeroed() };
    whole.sa_family = libc::AF_INET as libc::sa_family_t;
    for (to, from) in whole.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    whole
}

/// Set the longest packet of an interface, in bytes.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mtu = libc::c_int::try_from(mtu)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "beyond any MTU"))?;
    with_interface(name, |socket, request| {
        request.ifr_ifru.ifru_mtu = mtu;
        // SAFETY: the request is valid and names an interface.
        check(unsafe { libc::ioctl(socket, libc::SIOCSIFMTU as _, request) }).map(|_| ())
    })
}

/// The driver of an interface, also of one without a device behind it.
pub fn driver(name: &str) -> io::Result<String> {
    const SIOCETHTOOL: u64 = 0x8946;
    const GET_DRIVER: u32 = 3;
    // struct ethtool_drvinfo of linux/ethtool.h: the query, then the driver in 32 bytes, then more.
    let mut info = [0u32; 49];
    info[0] = GET_DRIVER;
    with_interface(name, |socket, request| {
        request.ifr_ifru.ifru_data = info.as_mut_ptr().cast();
        // SAFETY: `ifru_data` points to the 196 bytes that this query writes.
        check(unsafe { libc::ioctl(socket, SIOCETHTOOL as _, request) })
    })?;
    let bytes: Vec<u8> = info[1..9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    Ok(String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned())
}

/// Ask ethtool for one on/off value of an interface.
pub fn ethtool(name: &str, query: u32) -> io::Result<bool> {
    const SIOCETHTOOL: u64 = 0x8946;
    // struct ethtool_value of linux/ethtool.h: the query, then room for the answer.
    let mut value = [query, 0];
    with_interface(name, |socket, request| {
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        // SAFETY: `ifru_data` points to the two words that these queries read and write.
        check(unsafe { libc::ioctl(socket, SIOCETHTOOL as _, request) })
    })?;
    Ok(value[1] != 0)
}

/// Read and forget what is waiting on a descriptor that does not block.
pub fn discard(fd: RawFd) {
    let mut buffer = [0u8; 4096];
    // SAFETY: the buffer is valid for its length.
    while unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) } > 0 {}
}
