//! One thread's operations on files: each is timed and counted once it has succeeded.

use super::counts::{Counts, Op};
use super::limit::{over, End, Limit};
use crate::measure::random::Random;
use crate::sys;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// What direct I/O needs of memory, offsets and lengths on every disk there is.
pub const ALIGN: usize = 4096;

/// Memory that begins at a multiple of `ALIGN`.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Zeros, which take no memory until they are written to.
    pub fn zeroed(length: usize) -> Self {
        let memory = vec![0; length + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Self {
            memory,
            start,
            length,
        }
    }

    /// Bytes that do not repeat, so that nothing on the way can compress or merge them.
    pub fn random(length: usize, seed: u64) -> Self {
        let (mut made, mut random) = (Self::zeroed(length), Random::new(seed));
        for word in made.bytes_mut().chunks_mut(4) {
            let bytes = random.word().to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
        made
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// One thread that works on files.
pub struct Worker<'a> {
    pub random: Random,
    pub counts: Counts,
    pub limit: &'a Limit<'a>,
    /// What is written, of the length of one I/O.
    data: &'a [u8],
    /// Where it is read to, of the same length.
    buffer: Aligned,
}

impl<'a> Worker<'a> {
    pub fn new(seed: u64, limit: &'a Limit<'a>, data: &'a [u8]) -> Self {
        Self {
            random: Random::new(seed),
            counts: Counts::default(),
            limit,
            data,
            buffer: Aligned::zeroed(data.len()),
        }
    }

    /// Do one operation unless the time is over; it counts once it has succeeded.
    fn timed<T>(
        &mut self,
        op: Op,
        path: &Path,
        work: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> Result<T, End> {
        over(self.limit)?;
        let began = Instant::now();
        let done = work(self);
        let took = began.elapsed();
        let value = done.map_err(|error| End::io(op.name(), path, &error))?;
        self.counts.count(op, took.as_nanos() as u64);
        Ok(value)
    }

    pub fn create(&mut self, path: &Path) -> Result<File, End> {
        self.timed(Op::Create, path, |_| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).open(path)
        })
    }

    pub fn open(&mut self, path: &Path) -> Result<File, End> {
        self.timed(Op::Open, path, |_| {
            OpenOptions::new().read(true).write(true).open(path)
        })
    }

    pub fn close(&mut self, path: &Path, file: File) -> Result<(), End> {
        self.timed(Op::Close, path, |_| {
            drop(file);
            Ok(())
        })
    }

    /// Write `size` bytes from the beginning of a new file.
    pub fn write_whole(&mut self, path: &Path, file: &mut File, size: u64) -> Result<(), End> {
        self.timed(Op::Write, path, |worker| {
            write_out(file, worker.data, size)?;
            worker.counts.written_bytes += size;
            Ok(())
        })
    }

    /// Write `size` bytes at the end of a file.
    pub fn append(&mut self, path: &Path, file: &mut File, size: u64) -> Result<(), End> {
        self.timed(Op::Append, path, |worker| {
            file.seek(SeekFrom::End(0))?;
            write_out(file, worker.data, size)?;
            worker.counts.written_bytes += size;
            Ok(())
        })
    }

    /// Read a file from its beginning to its end.
    pub fn read_whole(&mut self, path: &Path, file: &mut File) -> Result<(), End> {
        self.timed(Op::Read, path, |worker| loop {
            let count = file.read(worker.buffer.bytes_mut())?;
            if count == 0 {
                return Ok(());
            }
            worker.counts.read_bytes += count as u64;
        })
    }

    /// Read one I/O at an offset.
    pub fn read_at(&mut self, path: &Path, file: &File, offset: u64) -> Result<(), End> {
        self.timed(Op::Read, path, |worker| {
            file.read_exact_at(worker.buffer.bytes_mut(), offset)?;
            worker.counts.read_bytes += worker.data.len() as u64;
            Ok(())
        })
    }

    /// Write one I/O at an offset.
    pub fn write_at(&mut self, path: &Path, file: &File, offset: u64) -> Result<(), End> {
        self.timed(Op::Write, path, |worker| {
            file.write_all_at(worker.data, offset)?;
            worker.counts.written_bytes += worker.data.len() as u64;
            Ok(())
        })
    }

    /// Bring a file to the disk.
    pub fn sync(&mut self, path: &Path, file: &File) -> Result<(), End> {
        self.timed(Op::Sync, path, |_| file.sync_all())
    }

    pub fn delete(&mut self, path: &Path) -> Result<(), End> {
        self.timed(Op::Delete, path, |_| fs::remove_file(path))
    }

    pub fn stat(&mut self, path: &Path) -> Result<(), End> {
        self.timed(Op::Stat, path, |_| fs::metadata(path).map(|_| ()))
    }
}

/// Write `size` bytes in pieces as long as `data`.
pub fn write_out(file: &mut File, data: &[u8], size: u64) -> io::Result<()> {
    let mut left = size;
    while left > 0 {
        let piece = left.min(data.len() as u64) as usize;
        file.write_all(&data[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

/// Open a file, past the page cache where `direct`.
pub fn open_with(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

/// Make the kernel forget what it caches of files: all that it caches, where that is allowed, else
/// of each of `files`. Returns which, in a word.
pub fn forget_caches(
    folder: &Path,
    files: impl Iterator<Item = std::path::PathBuf>,
) -> io::Result<&'static str> {
    sys::sync_file_system(&File::open(folder)?)?;
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok("all");
    }
    for path in files {
        sys::forget_cached(&File::open(path)?)?;
    }
    Ok("files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_direct_io_is_aligned_and_not_all_alike() {
        let made = Aligned::random(3 * ALIGN, 1);
        assert_eq!(made.bytes().as_ptr() as usize % ALIGN, 0);
        assert_eq!(made.bytes().len(), 3 * ALIGN);
        assert_ne!(made.bytes()[..ALIGN], made.bytes()[ALIGN..2 * ALIGN]);
    }
}
