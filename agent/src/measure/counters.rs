//! The kernel's counters, read raw at a steady pace into touched memory, and parsed afterwards.

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
enum Source {
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

/// Memory is allocated and prefaulted in pieces of this size.
const SEGMENT: usize = 1 << 20;
/// At most this many pieces are allocated: later samples count as dropped.
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

    /// Append one file's content to the recording; `None` when there is no space left.
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
                // A thread that has ended has no more content.
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

    /// The text that was read from a file.
    fn text(&self, piece: &Piece) -> String {
        let bytes = &self.segments[piece.segment][piece.start..piece.start + piece.length];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether the steal time of the last sample was counted, and is not a constant zero.
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
                parse(piece.source, &self.text(piece), |name, value| {
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
        let (started, known) = std::sync::mpsc::channel();
        let builder = std::thread::Builder::new().name("counters".into());
        let handle = builder.spawn(move || {
            id.store(sys::thread_id(), Ordering::SeqCst);
            let _ = started.send(());
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

const CPU_FIELDS: [&str; 10] = [
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
];
const STAT_NUMBERS: [&str; 5] = [
    "ctxt",
    "intr",
    "processes",
    "procs_running",
    "procs_blocked",
];
const DISK_FIELDS: [&str; 11] = [
    "reads",
    "reads_merged",
    "sectors_read",
    "read_ms",
    "writes",
    "writes_merged",
    "sectors_written",
    "write_ms",
    "in_flight",
    "io_ms",
    "weighted_ms",
];
const NET_FIELDS: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo",
    "tx_collisions",
    "tx_carrier",
    "tx_compressed",
];
/// The lines of /proc/vmstat about paging, faults, and huge pages.
const VMSTAT: [&str; 16] = [
    "pgpgin",
    "pgpgout",
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "pgfree",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "compact_stall",
    "thp_fault_alloc",
    "thp_split_page",
    "oom_kill",
    "nr_dirty",
    "nr_writeback",
    "numa_pages_migrated",
];

/// Call `each` with the name and value of every counter in a file. Unknown lines are skipped.
fn parse(source: Source, text: &str, mut each: impl FnMut(String, u64)) {
    match source {
        Source::Interrupts => interrupts(text, each),
        Source::Thread(process, thread) => {
            let values = numbers(text.split_whitespace());
            for (name, value) in ["run_ns", "wait_ns", "slices"].iter().zip(values) {
                each(format!("thread.{process}.{thread}.{name}"), value);
            }
        }
        _ => {
            for line in text.lines() {
                parse_line(source, line, &mut each);
            }
        }
    }
}

fn numbers<'a>(words: impl Iterator<Item = &'a str> + 'a) -> impl Iterator<Item = u64> + 'a {
    words.map_while(|word| word.parse().ok())
}

fn parse_line(source: Source, line: &str, each: &mut impl FnMut(String, u64)) {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return };
    let mut fields = |prefix: &str, names: &[&str], values: &mut dyn Iterator<Item = u64>| {
        for (name, value) in names.iter().zip(values) {
            each(format!("{prefix}.{name}"), value);
        }
    };
    match source {
        Source::Stat if first.starts_with("cpu") => {
            fields(first, &CPU_FIELDS, &mut numbers(words));
        }
        Source::Stat if STAT_NUMBERS.contains(&first) => {
            fields("stat", &[first], &mut numbers(words));
        }
        Source::Schedstat if first.starts_with("cpu") => {
            let values: Vec<u64> = numbers(words).collect();
            // The last three fields: time run, time waited (ns), time slices.
            if let Some(tail) = values.len().checked_sub(3) {
                let names = ["run_ns", "wait_ns", "slices"];
                let prefix = format!("sched.{first}");
                fields(&prefix, &names, &mut values[tail..].iter().copied());
            }
        }
        Source::Meminfo => {
            let value = words.next().and_then(|word| word.parse::<u64>().ok());
            if let Some(value) = value {
                let unit = if words.next() == Some("kB") { 1024 } else { 1 };
                let name = first.trim_end_matches(':');
                fields(
                    "mem",
                    &[name],
                    &mut std::iter::once(value.saturating_mul(unit)),
                );
            }
        }
        Source::Vmstat if VMSTAT.contains(&first) => {
            fields("vm", &[first], &mut numbers(words));
        }
        Source::Diskstats => {
            if let Some(name) = words.nth(1) {
                if !name.starts_with("loop") && !name.starts_with("ram") {
                    fields(&format!("disk.{name}"), &DISK_FIELDS, &mut numbers(words));
                }
            }
        }
        Source::NetDev => {
            if let Some((name, rest)) = line.split_once(':') {
                let prefix = format!("net.{}", name.trim());
                fields(&prefix, &NET_FIELDS, &mut numbers(rest.split_whitespace()));
            }
        }
        _ => {}
    }
}

fn interrupts(text: &str, mut each: impl FnMut(String, u64)) {
    let mut lines = text.lines();
    let cpus: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    for line in lines {
        if let Some((name, rest)) = line.split_once(':') {
            let name = name.trim();
            for (cpu, value) in cpus.iter().zip(numbers(rest.split_whitespace())) {
                each(format!("irq.{name}.{}", cpu.to_lowercase()), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(source: Source, text: &str) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        parse(source, text, |name, value| {
            found.insert(name, value);
        });
        found
    }

    #[test]
    fn every_source_is_understood() {
        let stat = parsed(
            Source::Stat,
            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 99 1 2\nctxt 7\nbtime 1\n",
        );
        assert_eq!(stat["cpu.steal"], 8);
        assert_eq!(stat["cpu0.system"], 3);
        assert_eq!((stat["stat.intr"], stat["stat.ctxt"]), (99, 7));
        let memory = parsed(Source::Meminfo, "MemTotal:  16 kB\nHugePages_Total:  3\n");
        assert_eq!(
            (memory["mem.MemTotal"], memory["mem.HugePages_Total"]),
            (16384, 3)
        );
        let sched = parsed(
            Source::Schedstat,
            "version 15\ncpu0 0 0 0 0 0 0 11 22 33\ndomain0 1 2 3\n",
        );
        assert_eq!(
            (sched["sched.cpu0.run_ns"], sched["sched.cpu0.wait_ns"]),
            (11, 22)
        );
        assert_eq!(sched.len(), 3);
        let disks = parsed(
            Source::Diskstats,
            " 254 0 vda 5 0 40 1 6 0 48 2 0 3 3 0 0 0 0 0 0\n 7 0 loop0 1 1 1\n",
        );
        assert_eq!((disks["disk.vda.reads"], disks["disk.vda.writes"]), (5, 6));
        assert_eq!(disks.len(), DISK_FIELDS.len());
        let net = parsed(
            Source::NetDev,
            "Inter-|   Receive\n face |bytes\n  eth0:123 4 0 0 0 0 0 0 567 8 0 0 0 0 0 0\n",
        );
        assert_eq!(
            (net["net.eth0.rx_bytes"], net["net.eth0.tx_bytes"]),
            (123, 567)
        );
        let irqs = parsed(
            Source::Interrupts,
            "           CPU0       CPU1\n LOC:  12 34   Local timer interrupts\n ERR: 0\n",
        );
        assert_eq!((irqs["irq.LOC.cpu0"], irqs["irq.LOC.cpu1"]), (12, 34));
        let thread = parsed(Source::Thread(4, 5), "100 200 3\n");
        assert_eq!(thread["thread.4.5.wait_ns"], 200);
        let vm = parsed(Source::Vmstat, "pgfault 12\nnr_slab 3\n");
        assert_eq!(vm, BTreeMap::from([("vm.pgfault".to_string(), 12)]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_fail(text in "([a-z0-9:]{0,6}[ \n\t]{0,2}){0,60}|\\PC{0,200}", at in 0usize..8) {
            let source = MACHINE.get(at).map_or(Source::Thread(1, 1), |(source, _)| *source);
            parsed(source, &text);
        }
    }

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
    fn a_missing_thread_is_refused() {
        let error = Sampler::start(Duration::from_secs(1), vec![(-1, -1)])
            .err()
            .unwrap();
        assert!(error.to_string().contains("/proc/-1/task/-1/schedstat"));
    }
}
