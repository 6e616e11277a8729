//! Thin safe faces of the system calls the agent needs.

mod files;
mod net;
mod rooms;
pub mod sockets;

pub use files::{forget_cached, space, sync_file_system, Space};
pub use net::{
    address, device_events, discard, driver, ethtool, raise_interface, set_address, set_mtu,
};
pub use rooms::{own_mounts, unmount, wait_with_usage, Ended, Room, Usage};

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn text(value: &str) -> io::Result<CString> {
    CString::new(value).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "zero byte"))
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> i32 {
    // Not the library's gettid: the standard library refers to that weakly, and a static link then
    // leaves it undefined (a call to address 0).
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// The CPUs a thread may run on (0: the calling one).
pub fn affinity(thread: i32) -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is an empty set; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(
            thread,
            std::mem::size_of_val(&set),
            &mut set,
        ))?;
        Ok((0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect())
    }
}

/// Bind a thread (0: the calling one) to these CPUs.
pub fn set_affinity(thread: i32, cpus: &[usize]) -> io::Result<()> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= libc::CPU_SETSIZE as usize) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CPU {cpu} is beyond what the system can name"),
        ));
    }
    // SAFETY: the indices were checked against the set's size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu, &mut set);
        }
        check(libc::sched_setaffinity(
            thread,
            std::mem::size_of_val(&set),
            &set,
        ))?;
    }
    Ok(())
}

/// Put the calling thread under SCHED_FIFO at a priority (1 to 99), or back under SCHED_OTHER (0).
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let policy = if priority > 0 {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    // SAFETY: sched_param is plain numbers; all-zero is valid.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = priority;
        check(libc::sched_setscheduler(0, policy, &param))?;
    }
    Ok(())
}

/// Whether the calling thread has a real-time policy.
pub fn is_realtime() -> bool {
    // SAFETY: plain numbers.
    let policy = unsafe { libc::sched_getscheduler(0) };
    policy == libc::SCHED_FIFO || policy == libc::SCHED_RR
}

/// Let a program begin in a session of its own, as its leader, so that the kernel groups it by itself
/// (sched(7), "The autogroup feature") and no terminal's signal reaches it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    // SAFETY: setsid is async-signal-safe (signal-safety(7)), takes nothing, and touches no memory.
    unsafe {
        command.pre_exec(|| {
            check(libc::setsid())?;
            Ok(())
        })
    }
}

/// Be killed when the parent thread ends.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    Ok(())
}

pub fn parent_id() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

/// Make `target` mean what `source` means.
pub fn duplicate(source: RawFd, target: RawFd) -> io::Result<()> {
    // SAFETY: a wrong descriptor is an error result, nothing else.
    check(unsafe { libc::dup2(source, target) })?;
    Ok(())
}

fn poll(fd: RawFd, events: i16, timeout_ms: Option<i32>) -> io::Result<i16> {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    loop {
        // SAFETY: one valid entry.
        match check(unsafe { libc::poll(&mut entry, 1, timeout_ms.unwrap_or(-1)) }) {
            Ok(_) => return Ok(entry.revents),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Wait until a descriptor can be read (or is at its end); `None` waits for ever.
/// Returns whether it can.
pub fn wait_readable(fd: RawFd, timeout_ms: Option<i32>) -> io::Result<bool> {
    Ok(poll(fd, libc::POLLIN, timeout_ms)? != 0)
}

/// Wait until a descriptor can be written to. Returns false where nobody is at the other end.
pub fn wait_writable(fd: RawFd) -> io::Result<bool> {
    Ok(poll(fd, libc::POLLOUT, None)? & libc::POLLOUT != 0)
}

/// Wait until one of two descriptors can be read (or is at its end), and return which.
pub fn wait_either(fds: [RawFd; 2]) -> io::Result<[bool; 2]> {
    let mut entries = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: two valid entries.
        match check(unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) }) {
            Ok(_) => return Ok(entries.map(|entry| entry.revents != 0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Let reads and writes return at once instead of waiting, or wait again.
pub fn set_blocking(fd: RawFd, blocking: bool) -> io::Result<()> {
    // SAFETY: plain numbers; a wrong descriptor is an error result.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        let flags = if blocking {
            flags & !libc::O_NONBLOCK
        } else {
            flags | libc::O_NONBLOCK
        };
        check(libc::fcntl(fd, libc::F_SETFL, flags))?;
    }
    Ok(())
}

pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: a wrong descriptor is an error result.
    unsafe { libc::isatty(fd) == 1 }
}

/// Let a terminal carry all 256 byte values unchanged, without echo or signals.
pub fn set_raw(fd: RawFd) -> io::Result<()> {
    // SAFETY: termios is plain numbers, filled by tcgetattr before use.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        check(libc::tcgetattr(fd, &mut modes))?;
        libc::cfmakeraw(&mut modes);
        modes.c_cflag |= libc::CLOCAL | libc::CREAD;
        modes.c_cflag &= !libc::CRTSCTS;
        modes.c_cc[libc::VMIN] = 1;
        modes.c_cc[libc::VTIME] = 0;
        // By hand: the library's call for it is bound to symbol versions that a static C library lacks.
        modes.c_cflag = (modes.c_cflag & !libc::CBAUD) | libc::B115200;
        check(libc::tcsetattr(fd, libc::TCSANOW, &modes))?;
    }
    Ok(())
}

/// Wait until a terminal has sent everything.
pub fn drain(fd: RawFd) {
    // SAFETY: a wrong descriptor is an error result.
    unsafe { libc::tcdrain(fd) };
}

pub fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let (source, target, kind, data) = (text(source)?, text(target)?, text(kind)?, text(data)?);
    // SAFETY: all strings live until the call ends.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    })?;
    Ok(())
}

/// Load a kernel module from an open, uncompressed file. One that is there already is fine.
pub fn load_module(fd: RawFd, parameters: &str) -> io::Result<()> {
    let parameters = text(parameters)?;
    // SAFETY: the string lives until the call ends; the kernel checks the file.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, fd, parameters.as_ptr(), 0) };
    match check(result as libc::c_int) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Off {
    Power,
    Reboot,
}

/// End the machine. Returns only where the kernel refuses.
pub fn end_machine(how: Off) {
    let command = match how {
        Off::Power => libc::RB_POWER_OFF,
        Off::Reboot => libc::RB_AUTOBOOT,
    };
    // SAFETY: plain numbers; only init calls this, and only in a machine of its own.
    unsafe {
        libc::sync();
        libc::reboot(command);
    }
}

/// Which of the two a fork made.
pub enum Side {
    Parent(i32),
    Child,
}

/// Split the process. Only to be called while it has one thread.
pub fn fork() -> io::Result<Side> {
    // SAFETY: init calls this before any thread was started, so no lock can be held by another.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Side::Child),
        child => Ok(Side::Parent(child)),
    }
}

/// Wait for any child; its process id and how it ended, in words.
pub fn wait_child() -> io::Result<(i32, Result<i32, String>)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call's only write.
    let child = check(unsafe { libc::waitpid(-1, &mut status, 0) })?;
    let ended = if libc::WIFEXITED(status) {
        Ok(libc::WEXITSTATUS(status))
    } else {
        Err(match libc::WTERMSIG(status) {
            libc::SIGKILL => "killed: most likely the machine ran out of memory".to_string(),
            libc::SIGSEGV => "ended by a segmentation fault".to_string(),
            libc::SIGABRT => "aborted".to_string(),
            signal => format!("ended by signal {signal}"),
        })
    };
    Ok((child, ended))
}

/// Send a signal to a process, or to a whole process group (negative).
pub fn signal(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::kill(process, signal) })?;
    Ok(())
}

/// Wait until a child has ended, and leave it to be reaped.
pub fn wait_ended(child: i32) -> io::Result<()> {
    loop {
        // SAFETY: siginfo_t is plain bytes, and valid for the call's only write.
        let result = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOWAIT;
            check(libc::waitid(
                libc::P_PID,
                child as libc::id_t,
                &mut about,
                how,
            ))
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

pub struct Uname {
    pub release: String,
    pub version: String,
    pub machine: String,
}

pub fn uname() -> Uname {
    // SAFETY: utsname is byte arrays, which the kernel ends with a zero byte.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        let word = |field: &[libc::c_char]| {
            std::ffi::CStr::from_ptr(field.as_ptr())
                .to_string_lossy()
                .into_owned()
        };
        Uname {
            release: word(&names.release),
            version: word(&names.version),
            machine: word(&names.machine),
        }
    }
}

/// The soft limit of a resource of this process.
pub fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for the call's only write.
    unsafe { libc::getrlimit(resource, &mut limit) };
    limit.rlim_cur
}
