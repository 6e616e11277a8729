//! Many datagrams by one call, so that the calls are not what is measured.

#![expect(unsafe_code, reason = "rustix cannot receive many at once")]

use super::library::check;
use super::sockets::uninterrupted;
use rustix::net::sockopt::{set_ip_mtu_discover, Ipv4PathMtuDiscovery};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

/// How many datagrams one call carries at most.
pub const BATCH: usize = 64;

fn header(part: &mut libc::iovec) -> libc::mmsghdr {
    libc::mmsghdr {
        msg_hdr: libc::msghdr {
            msg_name: null_mut(),
            msg_namelen: 0,
            msg_iov: part,
            msg_iovlen: 1,
            msg_control: null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        },
        msg_len: 0,
    }
}

/// Send the same datagram up to `times` times (at most [`BATCH`]) over a connected socket; how
/// often it was sent.
pub fn send_many(socket: &impl AsRawFd, datagram: &[u8], times: usize) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: datagram.as_ptr().cast_mut().cast(),
        iov_len: datagram.len(),
    };
    let mut headers = [header(&mut part); BATCH];
    let times = times.min(BATCH) as libc::c_uint;
    uninterrupted(|| {
        // SAFETY: the headers and what they point to live until the call ends; it only reads the
        // datagram.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), times, 0) };
        Ok(check(sent)? as usize)
    })
}

/// Receive the datagrams that are waiting, at least one and at most [`BATCH`]. Only the beginning
/// of the first one is kept, in `first`; returns how many came and how long the first one was.
pub fn receive_many(
    socket: &impl AsRawFd,
    first: &mut [u8],
    rest: &mut [u8],
) -> io::Result<(usize, usize)> {
    let part = |buffer: &mut [u8]| libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let (mut one, mut other) = (part(first), part(rest));
    let mut headers = [header(&mut other); BATCH];
    headers[0] = header(&mut one);
    let (count, how) = (BATCH as libc::c_uint, libc::MSG_WAITFORONE as _);
    let count = uninterrupted(|| {
        // SAFETY: both buffers are valid for their lengths and live until the call ends. Later
        // datagrams overwrite each other on purpose.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                how,
                null_mut(),
            )
        };
        Ok(check(count)? as usize)
    })?;
    Ok((count, headers[0].msg_len as usize))
}

/// Send a socket's packets unfragmented or drop them, whatever the known MTU of the path.
pub fn never_fragment(socket: &impl AsFd) -> io::Result<()> {
    Ok(set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?)
}
