//! What ends all processes of the programs of an agent that was killed.
//!
//! The kernel kills a program with the agent that started it (PR_SET_PDEATHSIG), but not what that
//! program started itself, such as the workers of a server. So a process in a session of its own
//! is told of each program, and kills what is left of their sessions once the agent is gone. It
//! sleeps until then. A machine's first process needs none: the kernel ends all others with it.

use crate::sys;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The word by which the agent starts it.
pub const WORD: &str = "guard";

static OURS: OnceLock<Option<UnixStream>> = OnceLock::new();

/// Where the guard hears of programs; it is started at the first call. None where there is none.
pub fn ear() -> Option<BorrowedFd<'static>> {
    // The program under test is not the agent, so it cannot be told to be its guard.
    let needed = std::process::id() != 1 && !cfg!(test);
    let ours = OURS.get_or_init(|| needed.then(|| begin().ok()).flatten());
    ours.as_ref().map(AsFd::as_fd)
}

fn begin() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(WORD)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    sys::in_own_session(&mut command).spawn()?;
    Ok(ours)
}

/// Say that nothing is left of a program's session, so that its number may be another's.
pub fn forget(session: i32) {
    if let Some(Some(ours)) = OURS.get().map(Option::as_ref) {
        sys::tell(ours.as_fd(), &(-session).to_ne_bytes());
    }
}

/// Be the guard: hear of programs until the agent is gone, and end theirs.
pub fn stand() {
    for session in left_by(io::stdin().lock()) {
        end_session(session);
    }
}

/// The sessions that were begun (told by their number) and not forgotten (by its negative).
fn left_by(mut said: impl Read) -> BTreeSet<i32> {
    let mut left = BTreeSet::new();
    let mut word = [0; 4];
    while said.read_exact(&mut word).is_ok() {
        match i32::from_ne_bytes(word) {
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
    fn what_was_begun_and_not_forgotten_is_left() {
        let said: Vec<u8> = [7, 8, -7, 9, -5, 1, 0, i32::MIN]
            .iter()
            .flat_map(|number: &i32| number.to_ne_bytes())
            .chain([1, 2])
            .collect();
        assert_eq!(left_by(&said[..]), BTreeSet::from([8, 9]));
    }
}
