//! The microbenchmarks: one kind of I/O on large files, again and again.

use super::limit::{over, End};
use super::worker::{open_with, Worker};
use std::fs::File;
use std::path::PathBuf;

/// Which I/O, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micro {
    pub random: bool,
    pub write: bool,
}

impl Micro {
    pub const ALL: [(&'static str, Self); 4] = [
        ("sequential-read", Self::of(false, false)),
        ("sequential-write", Self::of(false, true)),
        ("random-read", Self::of(true, false)),
        ("random-write", Self::of(true, true)),
    ];

    const fn of(random: bool, write: bool) -> Self {
        Self { random, write }
    }

    /// How many files there are: sequential threads have one each, random ones share one.
    pub fn files(self, threads: usize) -> usize {
        if self.random {
            1
        } else {
            threads
        }
    }
}

/// One thread of a microbenchmark: its file, and how it reads or writes it.
pub struct MicroThread {
    pub micro: Micro,
    pub path: PathBuf,
    /// How many I/Os the file holds.
    pub pieces: u64,
    pub io_bytes: u64,
    pub direct: bool,
    /// What was written is brought to the disk after each pass, and in the end.
    pub flushed: bool,
}

impl MicroThread {
    /// Open the file; done before the measuring begins.
    pub fn open(&self) -> Result<File, End> {
        open_with(&self.path, self.direct).map_err(|error| End::io("open", &self.path, &error))
    }

    /// I/O until the time is over, from the beginning again where the file ends.
    pub fn follow(&self, worker: &mut Worker, file: &File) -> Result<(), End> {
        let end = self.repeat(worker, file);
        if self.flushed {
            // The time it takes counts: without it the page cache alone would have been written to.
            let flushed = file.sync_data();
            flushed.map_err(|error| End::io("sync", &self.path, &error))?;
        }
        end
    }

    fn repeat(&self, worker: &mut Worker, file: &File) -> Result<(), End> {
        let mut next = 0;
        loop {
            over(worker.limit)?;
            let piece = if self.micro.random {
                worker.random.below(self.pieces as usize) as u64
            } else {
                next
            };
            next = (next + 1) % self.pieces;
            if self.micro.write {
                worker.write_at(&self.path, file, piece * self.io_bytes)?;
            } else {
                worker.read_at(&self.path, file, piece * self.io_bytes)?;
            }
            if self.flushed && next == 0 {
                worker.sync(&self.path, file)?;
            }
        }
    }
}
