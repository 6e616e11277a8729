//! Flow control between descriptors and a link.

use super::link::Link;
use crate::sys;
use serde_json::json;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;
use std::sync::{Arc, Condvar, Mutex};

/// Bytes of one stream, in one direction, that may be under way.
pub const WINDOW: usize = 1 << 20;
const CHUNK: usize = 64 << 10;

/// How many bytes of a stream the other end still takes.
#[derive(Default)]
pub struct Credit {
    left: Mutex<usize>,
    more: Condvar,
}

impl Credit {
    pub fn full() -> Arc<Credit> {
        let credit = Credit::default();
        credit.grant(WINDOW);
        Arc::new(credit)
    }

    pub fn grant(&self, bytes: usize) {
        *self.left.lock().unwrap() += bytes;
        self.more.notify_all();
    }

    fn wait(&self) -> usize {
        let left = self.left.lock().unwrap();
        *self.more.wait_while(left, |left| *left == 0).unwrap()
    }

    fn spend(&self, bytes: usize) {
        *self.left.lock().unwrap() -= bytes;
    }
}

/// Send what can be read, until its end.
pub fn pump(stream: u32, mut from: impl Read, link: &Link, credit: &Credit) {
    let mut buffer = vec![0; CHUNK];
    let errno = loop {
        let most = credit.wait().min(CHUNK);
        match from.read(&mut buffer[..most]) {
            Ok(0) => break 0,
            Ok(count) => {
                credit.spend(count);
                link.data(stream, &buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error.raw_os_error().unwrap_or(libc::EIO),
        }
    };
    link.message(&json!({"end": stream, "errno": errno}));
}

/// A terminal whose reading ends when the other end of `until` is closed.
pub struct Terminal {
    pub file: File,
    pub until: UnixStream,
}

impl Read for Terminal {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let [_, ended] = sys::wait_either(&self.file, &self.until)?;
        if ended {
            return Ok(0);
        }
        match self.file.read(buffer) {
            // Linux reports EIO if the terminal's other end was closed.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
            other => other,
        }
    }
}

/// What a stream from the other end is written to.
pub enum Target {
    Stdin(ChildStdin),
    Socket(UnixStream),
    /// The terminal, and what ends its reading when it is shut down.
    Terminal(File, UnixStream),
}

impl Target {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::Stdin(pipe) => pipe.write_all(bytes),
            Target::Socket(socket) => socket.write_all(bytes),
            Target::Terminal(file, _) => file.write_all(bytes),
        }
    }
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Vec<u8>>,
    /// Nothing comes after what is queued.
    ended: bool,
    /// Neither direction is wanted any more.
    dropped: bool,
}

/// A stream from the other end, on its way to a descriptor.
#[derive(Default)]
pub struct Sink {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Sink {
    pub fn push(&self, bytes: Vec<u8>) {
        self.queue.lock().unwrap().chunks.push_back(bytes);
        self.changed.notify_all();
    }

    pub fn end(&self, dropped: bool) {
        let mut queue = self.queue.lock().unwrap();
        queue.ended = true;
        queue.dropped |= dropped;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Vec<u8>> {
        let queue = self.queue.lock().unwrap();
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.chunks.is_empty() && !queue.ended)
            .unwrap();
        queue.chunks.pop_front()
    }

    /// Write what arrives until the other end ends the stream. If the target is closed, discard it.
    pub fn drain(&self, stream: u32, mut target: Target, link: &Link) {
        let mut broken = false;
        while let Some(bytes) = self.next() {
            broken = broken || target.write_all(&bytes).is_err();
            link.message(&json!({"credit": stream, "bytes": bytes.len()}));
        }
        let whole = match target {
            Target::Stdin(_) => return,
            Target::Socket(socket) => {
                let _ = socket.shutdown(Shutdown::Write);
                socket
            }
            Target::Terminal(_, reading) => reading,
        };
        let queue = self.queue.lock().unwrap();
        drop(self.changed.wait_while(queue, |queue| !queue.dropped));
        let _ = whole.shutdown(Shutdown::Both);
    }
}
