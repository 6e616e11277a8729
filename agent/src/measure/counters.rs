//! The kernel's counters, read raw at a steady pace into touched memory, and parsed afterwards.

mod parse;

use super::{clock, steal};
use crate::sys;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Stat,
    Meminfo,
    Schedstat,
    Vmstat,
    Diskstats,
    NetDev,
    Interrupts,
    /// The run delay of one thread.
    Thread(i32, i32),
}

const MACHINE: [(Source, &str); 7] = [
    (Source::Stat, "/proc/stat"),
    (Source::Meminfo, "/proc/meminfo"),
    (Source::Schedstat, "/proc/schedstat"),
    (Source::Vmstat, "/proc/vmstat"),
    (Source::Diskstats, "/proc/diskstats"),
    (Source::NetDev, "/proc/net/dev"),
    (Source::Interrupts, "/proc/interrupts"),
];

/// Memory is taken and touched in pieces of this size.
const SEGMENT: usize = 1 << 20;
/// More pieces than this are not taken: later samples are counted as dropped.
const SEGMENTS: usize = 32;

/// Samples as columns of u64, one column after the other, little-endian.
pub struct Table {
    pub columns: Vec<String>,
    pub rows: usize,
    pub dropped: usize,
    pub data: Vec<u8>,
}

struct Piece {
    source: Source,
    segment: usize,
    start: usize,
    length: usize,
}

struct Snapshot {
    time_ns: u64,
    pieces: Vec<Piece>,
}

struct Recording {
    files: Vec<(Source, File)>,
    segments: Vec<Vec<u8>>,
    used: usize,
    snapshots: Vec<Snapshot>,
    dropped: usize,
}

impl Recording {
    fn new(threads: &[(i32, i32)]) -> io::Result<Self> {
        let mut files = Vec::new();
        for (source, path) in MACHINE {
            // A kernel without some file has fewer columns.
            if let Ok(file) = File::open(path) {
                files.push((source, file));
            }
        }
        for (process, thread) in threads {
            let path = format!("/proc/{process}/task/{thread}/schedstat");
            let file = File::open(&path)
                .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
            files.push((Source::Thread(*process, *thread), file));
        }
        Ok(Self {
            files,
            segments: vec![touched()],
            used: 0,
            snapshots: Vec::with_capacity(4096),
            dropped: 0,
        })
    }

    fn sample(&mut self) {
        let mut pieces = Vec::with_capacity(self.files.len());
        let time_ns = clock::monotonic_raw_ns();
        for at in 0..self.files.len() {
            match self.read(at) {
                Some(piece) => pieces.push(piece),
                None => {
                    self.dropped += 1;
                    return;
                }
            }
        }
        self.snapshots.push(Snapshot { time_ns, pieces });
    }

    /// Read one file behind what is recorded; `None` when there is no room left.
    fn read(&mut self, at: usize) -> Option<Piece> {
        let (source, file) = (self.files[at].0, &self.files[at].1);
        let mut length = 0;
        loop {
            let segment = self.segments.last_mut()?;
            let room = &mut segment[self.used + length..];
            if room.is_empty() {
                if self.segments.len() == SEGMENTS || length >= SEGMENT {
                    return None;
                }
                // Start this file over in a new piece, so that its text stays whole.
                self.segments.push(touched());
                self.used = 0;
                length = 0;
                continue;
            }
            match file.read_at(room, length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A thread or file that is gone has no more to tell.
                Err(_) => break,
            }
        }
        let start = self.used;
        self.used += length;
        Some(Piece {
            source,
            segment: self.segments.len() - 1,
            start,
            length,
        })
    }

    /// The text of a file as it was read.
    fn text(&self, piece: &Piece) -> String {
        let bytes = &self.segments[piece.segment][piece.start..piece.start + piece.length];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether the steal of the last sample was counted by anybody.
    fn knows_of_steal(&self) -> bool {
        let pieces = self.snapshots.last().map(|last| &last.pieces);
        let stat = pieces.and_then(|all| all.iter().find(|each| each.source == Source::Stat));
        stat.is_some_and(|piece| steal::known(&self.text(piece)))
    }

    fn table(&self) -> Table {
        let rows = self.snapshots.len();
        let stolen = self.knows_of_steal();
        let mut columns: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (row, snapshot) in self.snapshots.iter().enumerate() {
            for piece in &snapshot.pieces {
                parse::parse(piece.source, &self.text(piece), |name, value| {
                    if stolen || !(name.starts_with("cpu") && name.ends_with(".steal")) {
                        columns.entry(name).or_insert_with(|| vec![0; rows])[row] = value;
                    }
                });
            }
        }
        let mut names = vec!["time_ns".to_string()];
        let mut data: Vec<u8> = Vec::with_capacity(8 * rows * (columns.len() + 1));
        for snapshot in &self.snapshots {
            data.extend_from_slice(&snapshot.time_ns.to_le_bytes());
        }
        for (name, values) in columns {
            names.push(name);
            for value in values {
                data.extend_from_slice(&value.to_le_bytes());
            }
        }
        Table {
            columns: names,
            rows,
            dropped: self.dropped,
            data,
        }
    }
}

fn touched() -> Vec<u8> {
    // Not zero: zeroed memory would be mapped only when it is first used.
    vec![1; SEGMENT]
}

/// A thread that samples until it is stopped.
pub struct Sampler {
    thread: Arc<AtomicI32>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    handle: JoinHandle<Recording>,
}

impl Sampler {
    /// Start sampling, the first sample at once.
    pub fn start(interval: Duration, threads: Vec<(i32, i32)>) -> io::Result<Self> {
        let mut recording = Recording::new(&threads)?;
        recording.sample();
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = Arc::new(AtomicI32::new(0));
        let (shared, id) = (stop.clone(), thread.clone());
        let (told, known) = std::sync::mpsc::channel();
        let builder = std::thread::Builder::new().name("counters".into());
        let handle = builder.spawn(move || {
            id.store(sys::thread_id(), Ordering::SeqCst);
            let _ = told.send(());
            let (flag, wake) = &*shared;
            let mut next = Instant::now() + interval;
            let mut stopped = flag.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stopped {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    recording.sample();
                    next = (next + interval).max(Instant::now());
                    continue;
                }
                let (guard, _) = wake
                    .wait_timeout(stopped, left)
                    .unwrap_or_else(PoisonError::into_inner);
                stopped = guard;
            }
            recording.sample();
            recording
        })?;
        let _ = known.recv();
        Ok(Self {
            thread,
            stop,
            handle,
        })
    }

    /// The kernel's id of the sampling thread, for placing it.
    pub fn thread(&self) -> i32 {
        self.thread.load(Ordering::SeqCst)
    }

    /// Take a last sample, end, and parse.
    pub fn stop(self) -> Table {
        let (flag, wake) = &*self.stop;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wake.notify_all();
        match self.handle.join() {
            Ok(recording) => recording.table(),
            Err(_) => Table {
                columns: vec!["time_ns".into()],
                rows: 0,
                dropped: 0,
                data: vec![],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_machine_is_sampled() {
        let me = (std::process::id() as i32, sys::thread_id());
        let sampler = Sampler::start(Duration::from_secs(3600), vec![me]).unwrap();
        assert!(sampler.thread() > 0);
        let table = sampler.stop();
        assert_eq!((table.rows, table.dropped), (2, 0));
        assert_eq!(table.data.len(), 8 * table.rows * table.columns.len());
        assert_eq!(table.columns[0], "time_ns");
        assert!(table.columns.contains(&"cpu.user".to_string()));
        // On this machine, whatever it is: a count where it is one, and otherwise nothing.
        let known = steal::known(&std::fs::read_to_string("/proc/stat").unwrap());
        assert_eq!(table.columns.contains(&"cpu.steal".to_string()), known);
        let own = format!("thread.{}.{}.run_ns", me.0, me.1);
        assert!(table.columns.contains(&own));
    }

    #[test]
    fn a_thread_that_is_not_there_is_refused() {
        let error = Sampler::start(Duration::from_secs(1), vec![(-1, -1)])
            .err()
            .unwrap();
        assert!(error.to_string().contains("/proc/-1/task/-1/schedstat"));
    }
}
