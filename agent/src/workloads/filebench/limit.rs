//! When the threads end, and why.

use crate::sys;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// When a thread is to end.
pub struct Limit<'a> {
    pub stop: &'a AtomicBool,
    pub until: Instant,
}

/// Why a thread ended.
#[derive(Debug)]
pub enum End {
    /// The time is over, or the host asked for the end.
    Over,
    Failed(String),
}

impl End {
    /// An operation on a file failed: describe it, starting with the state of the disk.
    pub fn io(operation: &str, path: &Path, error: &std::io::Error) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("{operation} {name}: {error}");
        Self::Failed(match error.raw_os_error() {
            Some(libc::ENOSPC) => format!("the machine's disk is full{}: {text}", free_space(path)),
            Some(libc::EIO) => {
                format!("the machine's disk failed: {text} (see whether the host's disk is full)")
            }
            _ => text,
        })
    }
}

/// The free space of the disk that holds a path, in parentheses; empty where it is not known.
pub fn free_space(path: &Path) -> String {
    let found = path.ancestors().find_map(|folder| sys::space(folder).ok());
    found.map_or(String::new(), |space| {
        format!(" ({} of {} MiB free)", space.free >> 20, space.total >> 20)
    })
}

/// An error once the time is over.
pub fn over(limit: &Limit) -> Result<(), End> {
    if limit.stop.load(Ordering::Relaxed) || Instant::now() >= limit.until {
        Err(End::Over)
    } else {
        Ok(())
    }
}
