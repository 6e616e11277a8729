//! Connections from the host over virtio-vsock, vsock(7).

#![expect(unsafe_code, reason = "rustix has no addresses of vsock")]

use super::library::check;
use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Listen for the host on a port of this machine.
pub fn listen_vsock(port: u32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::VSOCK, SocketType::STREAM);
    let listener = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let address = libc::sockaddr_vm {
        svm_family: libc::AF_VSOCK as libc::sa_family_t,
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: libc::VMADDR_CID_ANY,
        svm_zero: [0; 4],
    };
    let length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: `address` lives until the call ends, which only reads `length` bytes of it.
    check(unsafe { libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length) })?;
    net::listen(&listener, 1)?;
    Ok(listener)
}

/// Accept one connection.
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(net::accept_with(listener, SocketFlags::CLOEXEC)?)
}

/// End a connection in both directions; whoever reads from it returns.
pub fn end_connection(connection: impl AsFd) {
    let _ = net::shutdown(connection, Shutdown::Both);
}
