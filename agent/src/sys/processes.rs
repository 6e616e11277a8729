//! Processes: how they start, in which environment, and how they end.

#![expect(
    unsafe_code,
    reason = "rustix has no fork, no wait4, and only an unsafe unshare"
)]

use super::library::check;
use rustix::io::Errno;
use rustix::mount::{mount_change, MountPropagationFlags};
use rustix::net::{self, SendFlags};
use rustix::process::{
    self as kernel, Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus,
};
use rustix::thread::{CapabilitySet, UnshareFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Be killed when the parent thread ends.
pub fn die_with_parent() -> io::Result<()> {
    Ok(kernel::set_parent_process_death_signal(Some(Signal::KILL))?)
}

pub fn parent_id() -> i32 {
    std::os::unix::process::parent_id() as i32
}

/// The soft limit of a resource of this process; `None` for unlimited.
pub fn limit(resource: Resource) -> Option<u64> {
    kernel::getrlimit(resource).current
}

/// Let this process have `wanted` files and connections open at once, as far as it may: a user
/// without rights no more than the hard limit. A machine's init has 1024 to begin with.
pub fn allow_descriptors(wanted: u64) {
    let now = kernel::getrlimit(Resource::Nofile);
    if now.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    let more = |maximum: Option<u64>| Rlimit {
        current: Some(maximum.map_or(wanted, |hard| hard.min(wanted))),
        maximum,
    };
    let raised = now.maximum.map(|hard| hard.max(wanted));
    let _ = kernel::setrlimit(Resource::Nofile, more(raised))
        .or_else(|_| kernel::setrlimit(Resource::Nofile, more(now.maximum)));
}

/// How many bytes of memory this process may lock; `None` for all of it.
///
/// CAP_IPC_LOCK lifts the limit, but not the one that root of a user name space has.
pub fn lockable() -> Option<u64> {
    let most = limit(Resource::Memlock)?;
    let able = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let outermost = std::fs::read_to_string("/proc/self/uid_map").map_or(true, |map| {
        map.split_whitespace().eq(["0", "0", "4294967295"])
    });
    (!(able && outermost)).then_some(most)
}

fn pid(number: i32) -> io::Result<Pid> {
    Ok(Pid::from_raw(number).ok_or(Errno::INVAL)?)
}

/// Send a signal to a process, or to a whole process group (negative).
pub fn signal(process: i32, signal: i32) -> io::Result<()> {
    let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
    if process > 0 {
        kernel::kill_process(pid(process)?, signal)?;
    } else {
        kernel::kill_process_group(pid(-process)?, signal)?;
    }
    Ok(())
}

/// Whether there is a process of this id.
pub fn exists(process: i32) -> bool {
    pid(process).is_ok_and(|it| kernel::test_kill_process(it).is_ok())
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

/// Give the process a private mount name space. Call this only while it has one thread. Without the
/// privilege, the process becomes root of a new user name space.
pub fn own_mounts() -> io::Result<()> {
    let apart = |what: UnshareFlags| {
        // SAFETY: neither name space changes what descriptors or memory mean.
        unsafe { rustix::thread::unshare_unsafe(what) }
    };
    match apart(UnshareFlags::NEWNS) {
        Err(Errno::PERM) => {
            let (user, group) = (kernel::geteuid().as_raw(), kernel::getegid().as_raw());
            apart(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
        }
        other => other?,
    }
    // Later mounts of the host appear here too; mounts made here do not appear on the host.
    let below = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    Ok(mount_change("/", below)?)
}

/// Send a message on a socket without waiting; errors are ignored.
pub fn notify(socket: BorrowedFd, message: &[u8]) {
    let _ = net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// The environment of a new process; built before the fork, because the child must not allocate.
pub struct ProcessSetup {
    root: Option<CString>,
    folder: CString,
    socket: Option<BorrowedFd<'static>>,
}

impl ProcessSetup {
    /// `root` is the new root (`/`: the present one), `folder` the working directory within it.
    pub fn new(root: &str, folder: &str) -> io::Result<Self> {
        Ok(Self {
            root: (root != "/").then(|| CString::new(root)).transpose()?,
            folder: CString::new(folder)?,
            socket: None,
        })
    }

    /// Let the new process first send the number of its session on this socket, as an `i32`.
    pub fn notifying(self, socket: Option<BorrowedFd<'static>>) -> Self {
        Self { socket, ..self }
    }

    /// Become the leader of a new session that is killed when the parent's thread ends.
    fn apply(&self) -> io::Result<()> {
        let session = kernel::setsid()?;
        if let Some(socket) = self.socket {
            notify(socket, &session.as_raw_pid().to_ne_bytes());
        }
        die_with_parent()?;
        if let Some(root) = &self.root {
            kernel::chroot(root.as_c_str())?;
        }
        Ok(kernel::chdir(self.folder.as_c_str())?)
    }
}

/// Let a command start in this environment.
pub fn with_setup(command: &mut Command, setup: ProcessSetup) -> &mut Command {
    // SAFETY: `apply` only makes system calls, and only reads what `setup` holds already.
    unsafe { command.pre_exec(move || setup.apply()) }
}

/// Let a command start as the leader of a new session, so that the kernel schedules it as a group
/// (sched(7), "The autogroup feature") and no terminal's signal reaches it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    // SAFETY: one system call, which takes nothing and touches no memory.
    unsafe { command.pre_exec(|| Ok(kernel::setsid().map(|_| ())?)) }
}

/// How a child ended: its exit code, or the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
}

impl Ended {
    fn of(status: WaitStatus) -> Self {
        match status.exit_status() {
            Some(code) => Ended::Exit(code),
            None => Ended::Signal(status.terminating_signal().unwrap_or(0)),
        }
    }
}

/// Wait for any child; returns its process id, and its exit code or a description of its end.
pub fn wait_child() -> io::Result<(i32, Result<i32, String>)> {
    let (child, status) = kernel::wait(WaitOptions::empty())?.ok_or(Errno::CHILD)?;
    let ended = match Ended::of(status) {
        Ended::Exit(code) => Ok(code),
        Ended::Signal(number) => Err(match number {
            libc::SIGKILL => "killed: most likely the machine ran out of memory".to_string(),
            libc::SIGSEGV => "ended by a segmentation fault".to_string(),
            libc::SIGABRT => "aborted".to_string(),
            signal => format!("ended by signal {signal}"),
        }),
    };
    Ok((child.as_raw_nonzero().get(), ended))
}

/// Wait until a child has ended, and leave it to be reaped.
pub fn wait_ended(child: i32) -> io::Result<()> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match kernel::waitid(WaitId::Pid(pid(child)?), how) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(|_| ())?),
        }
    }
}

/// What a child and its own children, as far as it waited for them, used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub user_s: f64,
    pub system_s: f64,
    pub max_rss_bytes: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

/// Wait for a child and return how it ended, and what it used.
pub fn wait_with_usage(child: i32) -> io::Result<(Ended, Usage)> {
    // SAFETY: rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    loop {
        // SAFETY: `status` and `usage` are valid for the call's only writes.
        match check(unsafe { libc::wait4(child, &mut status, 0, &mut usage) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    let ended = if libc::WIFEXITED(status) {
        Ended::Exit(libc::WEXITSTATUS(status))
    } else {
        Ended::Signal(libc::WTERMSIG(status))
    };
    let used = Usage {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss as u64 * 1024,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    };
    Ok((ended, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_on_request() {
        let Some(before) = limit(Resource::Nofile) else {
            return;
        };
        allow_descriptors(before.saturating_sub(1));
        assert_eq!(limit(Resource::Nofile), Some(before));
        let hard = kernel::getrlimit(Resource::Nofile).maximum;
        allow_descriptors(before + 1);
        let least = hard.map_or(before + 1, |hard| hard.min(before + 1));
        assert!(limit(Resource::Nofile).is_none_or(|now| now >= least));
        // So many are never allowed; the limit stays unchanged.
        allow_descriptors(u64::MAX);
        assert!(limit(Resource::Nofile).is_none_or(|now| now >= least));
    }
}
