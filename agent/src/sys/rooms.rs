//! Name spaces, roots and sessions: what a program of the toolbox is started in.

use super::{check, text};
use std::ffi::CString;
use std::io;

/// Give the process mounts of its own, that only it and its children see. Only to be called while
/// it has one thread. Without the right to do so, the process becomes root of a user name space of
/// its own.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: plain numbers.
    match check(unsafe { libc::unshare(libc::CLONE_NEWNS) }) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            // SAFETY: takes nothing and cannot fail.
            let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
            // SAFETY: plain numbers.
            check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
        }
        Err(error) => return Err(error),
    }
    // What the host mounts from now on shows here too, and nothing of here shows there.
    super::mount("none", "/", "none", libc::MS_REC | libc::MS_SLAVE, "")
}

/// Remove what is mounted at a place, as soon as nobody uses it.
pub fn unmount(target: &str) -> io::Result<()> {
    let target = text(target)?;
    // SAFETY: the string lives until the call ends.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })?;
    Ok(())
}

/// Where a new process is to begin; made before it is forked, since nothing may be allocated then.
pub struct Room {
    root: Option<CString>,
    folder: CString,
}

impl Room {
    /// `root` is the new root (`/`: the present one), `folder` the working directory within it.
    pub fn new(root: &str, folder: &str) -> io::Result<Self> {
        Ok(Self {
            root: (root != "/").then(|| text(root)).transpose()?,
            folder: text(folder)?,
        })
    }

    /// Enter, as the leader of a new session, to be killed when the parent's thread ends.
    ///
    /// Only system calls: it may be called between fork and exec.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: both strings live as long as `self`; all else is plain numbers.
        unsafe {
            check(libc::setsid())?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if let Some(root) = &self.root {
                check(libc::chroot(root.as_ptr()))?;
            }
            check(libc::chdir(self.folder.as_ptr()))?;
        }
        Ok(())
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

/// How a child ended: its exit code, or the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
}

/// Wait for a child and return how it ended, and what it used.
pub fn wait_with_usage(child: i32) -> io::Result<(Ended, Usage)> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain numbers; both are valid for the call's only write.
        let (result, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let result = check(libc::wait4(child, &mut status, 0, &mut usage));
            (result, usage)
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
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
        return Ok((ended, used));
    }
}
