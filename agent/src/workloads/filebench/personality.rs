//! The loop of each personality, with filebench's published tables.

use super::fileset::FileSet;
use super::gamma::Gamma;
use super::limit::End;
use super::worker::Worker;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The numbers of a personality, as published for filebench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    pub files: usize,
    pub mean_bytes: u64,
    pub width: usize,
    pub threads: usize,
    pub preallocated: f64,
}

/// One that works on a set of many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    Fileserver,
    Varmail,
    Webserver,
}

impl Personality {
    pub const ALL: [Self; 3] = [Self::Fileserver, Self::Varmail, Self::Webserver];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fileserver => "fileserver",
            Self::Varmail => "varmail",
            Self::Webserver => "webserver",
        }
    }

    pub fn table(self) -> Table {
        match self {
            Self::Fileserver => Table {
                files: 10_000,
                mean_bytes: 128 << 10,
                width: 20,
                threads: 50,
                preallocated: 0.8,
            },
            Self::Varmail => Table {
                files: 1000,
                mean_bytes: 16 << 10,
                width: 1_000_000,
                threads: 16,
                preallocated: 0.8,
            },
            Self::Webserver => Table {
                files: 1000,
                mean_bytes: 16 << 10,
                width: 20,
                threads: 100,
                preallocated: 1.0,
            },
        }
    }

    /// Whether it creates files, and so needs names that are free.
    pub fn creates(self) -> bool {
        self != Self::Webserver
    }

    /// One turn of the loop.
    pub fn turn(self, worker: &mut Worker, shared: &Shared) -> Result<(), End> {
        match self {
            Self::Fileserver => {
                create_whole(worker, shared)?;
                with_file(worker, shared, |worker, path, file| {
                    let size = shared.append_size(worker);
                    worker.append(path, file, size)
                })?;
                with_file(worker, shared, |worker, path, file| {
                    worker.read_whole(path, file)
                })?;
                delete(worker, shared)?;
                stat(worker, shared)
            }
            Self::Varmail => {
                delete(worker, shared)?;
                create_appended(worker, shared)?;
                with_file(worker, shared, |worker, path, file| {
                    worker.read_whole(path, file)?;
                    let size = shared.append_size(worker);
                    worker.append(path, file, size)?;
                    worker.sync(path, file)
                })?;
                with_file(worker, shared, |worker, path, file| {
                    worker.read_whole(path, file)
                })
            }
            Self::Webserver => {
                for _ in 0..10 {
                    with_file(worker, shared, |worker, path, file| {
                        worker.read_whole(path, file)
                    })?;
                }
                shared.log(worker)
            }
        }
    }
}

/// What the threads of a personality share.
pub struct Shared {
    pub set: FileSet,
    pub sizes: Gamma,
    pub append_bytes: u64,
    pub log: Option<Log>,
}

impl Shared {
    /// From one byte to the largest that may be appended.
    fn append_size(&self, worker: &mut Worker) -> u64 {
        1 + worker.random.below(self.append_bytes as usize) as u64
    }

    fn log(&self, worker: &mut Worker) -> Result<(), End> {
        match &self.log {
            Some(log) => {
                let size = self.append_size(worker);
                log.append(worker, size)
            }
            None => Ok(()),
        }
    }
}

/// A log that all threads append to through one open file; truncated before it fills the disk.
pub struct Log {
    pub path: PathBuf,
    most: u64,
    state: Mutex<LogState>,
}

struct LogState {
    file: File,
    size: u64,
    turns: u64,
}

impl Log {
    pub fn new(path: PathBuf, most: u64) -> std::io::Result<Self> {
        Ok(Self {
            state: Mutex::new(LogState {
                // O_APPEND: concurrent writes each go to the end.
                file: OpenOptions::new().create(true).append(true).open(&path)?,
                size: 0,
                turns: 0,
            }),
            path,
            most,
        })
    }

    /// How often it was truncated.
    pub fn turns(&self) -> u64 {
        self.state.lock().map_or(0, |state| state.turns)
    }

    fn append(&self, worker: &mut Worker, size: u64) -> Result<(), End> {
        // A descriptor of its own, so that no lock is held while it writes.
        let mut file = {
            let mut state = self
                .state
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            if state.size + size > self.most {
                let emptied = state.file.set_len(0);
                emptied.map_err(|error| End::io("truncate", &self.path, &error))?;
                state.size = 0;
                state.turns += 1;
            }
            state.size += size;
            let copy = state.file.try_clone();
            copy.map_err(|error| End::io("open", &self.path, &error))?
        };
        worker.append(&self.path, &mut file, size)
    }
}

fn create_whole(worker: &mut Worker, shared: &Shared) -> Result<(), End> {
    let size = shared.sizes.size(&mut worker.random);
    create(worker, shared, |worker, path, file| {
        worker.write_whole(path, file, size)
    })
}

fn create_appended(worker: &mut Worker, shared: &Shared) -> Result<(), End> {
    create(worker, shared, |worker, path, file| {
        let size = shared.append_size(worker);
        worker.append(path, file, size)?;
        worker.sync(path, file)
    })
}

fn create(
    worker: &mut Worker,
    shared: &Shared,
    fill: impl FnOnce(&mut Worker, &Path, &mut File) -> Result<(), End>,
) -> Result<(), End> {
    let number = shared
        .set
        .pick_to_create(&mut worker.random, worker.limit)?;
    let path = shared.set.layout.path(number);
    let mut file = worker.create(&path)?;
    shared.set.created(number);
    let done = fill(worker, &path, &mut file).and_then(|()| worker.close(&path, file));
    shared.set.release(number);
    done
}

/// Open a file that exists, work on it, and close it.
fn with_file(
    worker: &mut Worker,
    shared: &Shared,
    work: impl FnOnce(&mut Worker, &Path, &mut File) -> Result<(), End>,
) -> Result<(), End> {
    let number = shared.set.pick(&mut worker.random, worker.limit)?;
    let path = shared.set.layout.path(number);
    let done = worker.open(&path).and_then(|mut file| {
        work(worker, &path, &mut file)?;
        worker.close(&path, file)
    });
    shared.set.release(number);
    done
}

fn delete(worker: &mut Worker, shared: &Shared) -> Result<(), End> {
    let number = shared
        .set
        .pick_to_delete(&mut worker.random, worker.limit)?;
    worker.delete(&shared.set.layout.path(number))?;
    shared.set.deleted(number);
    Ok(())
}

fn stat(worker: &mut Worker, shared: &Shared) -> Result<(), End> {
    let number = shared.set.pick(&mut worker.random, worker.limit)?;
    let done = worker.stat(&shared.set.layout.path(number));
    shared.set.release(number);
    done
}
