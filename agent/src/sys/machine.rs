//! The machine as a whole: its mounts, kernel modules, devices that appear, its name and its end.

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::netlink::{SocketAddrNetlink, KOBJECT_UEVENT};
use rustix::net::{bind, socket_with, AddressFamily, SocketFlags, SocketType};
use rustix::system::{finit_module, reboot, RebootCommand};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The multicast group on which the kernel announces devices (udev uses another group).
const KERNEL_GROUP: u32 = 1;

fn text(value: &str) -> io::Result<CString> {
    CString::new(value).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "zero byte"))
}

pub fn mount(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> io::Result<()> {
    let options = text(options)?;
    let (source, target) = (source.as_ref(), target.as_ref());
    Ok(rustix::mount::mount(
        source,
        target,
        kind,
        flags,
        options.as_c_str(),
    )?)
}

/// Unmount a file system as soon as it is no longer in use.
pub fn unmount(target: &str) -> io::Result<()> {
    Ok(rustix::mount::unmount(target, UnmountFlags::DETACH)?)
}

/// Load a kernel module from an open, uncompressed file. One that is there already is fine.
pub fn load_module(file: &impl AsFd, parameters: &str) -> io::Result<()> {
    match finit_module(file, &text(parameters)?, 0) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// A socket on which the kernel announces devices.
pub fn device_events() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(KOBJECT_UEVENT),
    )?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Off {
    Power,
    Reboot,
}

/// End the machine. Returns only where the kernel refuses.
pub fn end_machine(how: Off) {
    rustix::fs::sync();
    let _ = reboot(match how {
        Off::Power => RebootCommand::PowerOff,
        Off::Reboot => RebootCommand::Restart,
    });
}

pub struct Uname {
    pub release: String,
    pub version: String,
    pub machine: String,
}

pub fn uname() -> Uname {
    let names = rustix::system::uname();
    let word = |name: &CStr| name.to_string_lossy().into_owned();
    Uname {
        release: word(names.release()),
        version: word(names.version()),
        machine: word(names.machine()),
    }
}
