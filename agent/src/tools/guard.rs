//! The guard kills the processes that are left when an agent is killed.
//!
//! The kernel kills a program with the agent that started it (PR_SET_PDEATHSIG), but not what that
//! program started, such as the workers of a server. The agent therefore reports each program's session
//! to the guard, a process in its own session. The guard sleeps until the agent is gone, and then kills
//! what is left of these sessions. Process 1 needs no guard: the kernel ends all others with it.

use crate::sys;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The command with which the agent starts it.
pub const COMMAND: &str = "guard";

static OURS: OnceLock<Option<UnixStream>> = OnceLock::new();

/// The socket on which the guard reads sessions; the first call starts it. `None` without a guard.
pub fn socket() -> Option<BorrowedFd<'static>> {
    // In tests this program is not the agent, so it cannot run as the guard.
    let needed = std::process::id() != 1 && !cfg!(test);
    let ours = OURS.get_or_init(|| needed.then(|| begin().ok()).flatten());
    ours.as_ref().map(AsFd::as_fd)
}

fn begin() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(COMMAND)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    sys::in_own_session(&mut command).spawn()?;
    Ok(ours)
}

/// Report that a program's session has ended, because its number may be reused.
pub fn forget(session: i32) {
    if let Some(Some(ours)) = OURS.get().map(Option::as_ref) {
        sys::notify(ours.as_fd(), &(-session).to_ne_bytes());
    }
}

/// Run the guard: read sessions until the agent is gone, and kill the ones that are left.
pub fn run() {
    for session in remaining_sessions(io::stdin().lock()) {
        end_session(session);
    }
}

/// The sessions that were reported (by their number) and not forgotten (by its negative).
fn remaining_sessions(mut input: impl Read) -> BTreeSet<i32> {
    let mut left = BTreeSet::new();
    let mut message = [0; 4];
    while input.read_exact(&mut message).is_ok() {
        match i32::from_ne_bytes(message) {
            begun @ 2.. => left.insert(begun),
            over => left.remove(&over.saturating_neg()),
        };
    }
    left
}

/// Kill all processes of a session.
pub fn end_session(session: i32) {
    for member in session_members(session) {
        let _ = sys::signal(member, libc::SIGKILL);
    }
}

/// The processes of a session (field 6 of `/proc/PID/stat`, proc(5)).
fn session_members(session: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = entries.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = stat.rsplit_once(')')?.1;
        let found: i32 = rest.split_whitespace().nth(3)?.parse().ok()?;
        (found == session).then_some(pid)
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_were_not_forgotten_remain() {
        let input: Vec<u8> = [7, 8, -7, 9, -5, 1, 0, i32::MIN]
            .iter()
            .flat_map(|number: &i32| number.to_ne_bytes())
            .chain([1, 2])
            .collect();
        assert_eq!(remaining_sessions(&input[..]), BTreeSet::from([8, 9]));
    }
}
