//! Sockets to the kernel: device announcements, and network interfaces.

use super::check;
use std::io;
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
