//! The machine's own disk: found by the label of its file system, mounted, and told of.
//!
//! The host makes the file system, so that it is the same in every arm. A machine of its own mounts
//! it at `/scratch`; a process of the host is told by a variable where it is.

use crate::sys;
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a machine of its own has its disk.
pub const PLACE: &str = "/scratch";
/// What tells a process of the host where the disk is.
pub const VARIABLE: &str = "TARE_SCRATCH";
/// How long the disk's device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);
/// Where ext4 has its superblock, and in that its magic number and label (the kernel's
/// Documentation/filesystems/ext4/super.rst).
const SUPERBLOCK: u64 = 1024;
const MAGIC: (usize, u16) = (0x38, 0xEF53);
const LABEL: std::ops::Range<usize> = 0x78..0x88;

/// Where the machine's own disk is; `None` where it has none.
pub fn path() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os(VARIABLE).filter(|told| !told.is_empty()) {
        return Some(told.into());
    }
    let (place, root) = (fs::metadata(PLACE).ok()?, fs::metadata("/").ok()?);
    (place.dev() != root.dev()).then(|| PLACE.into())
}

/// Mount the disk whose file system has this label, waiting for its device.
pub fn mount(label: &str) -> Result<(), String> {
    let since = Instant::now();
    let device = loop {
        if let Some(device) = labelled(label) {
            break device;
        }
        if since.elapsed() > DEVICE_WAIT {
            return Err(format!(
                "no disk with the label '{label}' appeared in this machine"
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    fs::create_dir_all(PLACE).map_err(|error| format!("{PLACE}: {error}"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let source = device.display().to_string();
    sys::mount(&source, PLACE, "ext4", flags, "")
        .map_err(|error| format!("{source} cannot be mounted at {PLACE}: {error}"))
}

fn labelled(label: &str) -> Option<PathBuf> {
    let mut names: Vec<_> = fs::read_dir("/sys/class/block").ok()?.flatten().collect();
    names.sort_by_key(|entry| entry.file_name());
    names
        .into_iter()
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .find(|device| label_of(device).is_ok_and(|found| found.as_deref() == Some(label)))
}

fn label_of(device: &Path) -> io::Result<Option<String>> {
    let mut block = [0; 1024];
    File::open(device)?.read_exact_at(&mut block, SUPERBLOCK)?;
    Ok(label_in(&block))
}

fn label_in(superblock: &[u8; 1024]) -> Option<String> {
    let magic = [superblock[MAGIC.0], superblock[MAGIC.0 + 1]];
    if u16::from_le_bytes(magic) != MAGIC.1 {
        return None;
    }
    let label = &superblock[LABEL];
    let end = label
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(label.len());
    Some(String::from_utf8_lossy(&label[..end]).into_owned())
}

/// The kernel's folder about the block device that holds `path`; none for file systems without one.
pub fn device_folder(path: &Path) -> Option<PathBuf> {
    let device = fs::metadata(path).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// What the machine's own disk is, for the environment proof; null where it has none.
pub fn proof() -> Value {
    let Some(path) = path() else {
        return Value::Null;
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (kind, options) = mounted(&mounts, &path).unwrap_or_default();
    let folder = device_folder(&path);
    let read = |name: &str| {
        let folder = folder.as_ref()?;
        // The queue of a partition is its disk's.
        let places = [folder.join(name), folder.parent()?.join(name)];
        let found = places
            .iter()
            .find_map(|place| fs::read_to_string(place).ok())?;
        Some(found.trim().to_string())
    };
    let scheduler = read("queue/scheduler").map(|text| {
        text.split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map_or(text.clone(), |(word, _)| word.to_string())
    });
    json!({
        "file_system": kind,
        "options": options,
        "bytes": sys::space(&path).map(|space| space.total).ok(),
        "device": folder.as_ref().and_then(|folder| kind_of(folder)),
        "cache": read("queue/write_cache"),
        "scheduler": scheduler,
        "loop_direct_io": read("loop/dio"),
    })
}

/// A block device's name without its number, which differs by chance: `loop`, `vda`.
fn kind_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_string_lossy().into_owned();
    Some(if name.starts_with("loop") {
        "loop".into()
    } else {
        name
    })
}

/// The type and options of the file system mounted at `path` or at the nearest folder above it
/// (fields of mountinfo: proc(5)).
fn mounted(mounts: &str, path: &Path) -> Option<(String, String)> {
    let wanted = path.to_string_lossy();
    mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let (place, options) = (*left.get(4)?, *left.get(5)?);
            let below = Path::new(wanted.as_ref()).starts_with(place);
            let kind = right.split(' ').next()?;
            below.then(|| (place.len(), kind.to_string(), options.to_string()))
        })
        // Of several at one place, the last hides the others.
        .max_by_key(|(length, ..)| *length)
        .map(|(_, kind, options)| (kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_label_is_read_from_the_superblock_alone() {
        let mut block = [0u8; 1024];
        assert_eq!(label_in(&block), None);
        block[0x38..0x3A].copy_from_slice(&0xEF53u16.to_le_bytes());
        block[0x78..0x84].copy_from_slice(b"tare-scratch");
        assert_eq!(label_in(&block).as_deref(), Some("tare-scratch"));
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      2 1 7:0 / /tmp/tare-x/tare-scratch rw,nosuid - xfs /dev/loop0 rw\n\
                      3 1 0:9 / /tmp/tare rw - tmpfs tmpfs rw\n";
        let found = mounted(mounts, Path::new("/tmp/tare-x/tare-scratch/a")).unwrap();
        assert_eq!(found, ("xfs".to_string(), "rw,nosuid".to_string()));
        assert_eq!(mounted(mounts, Path::new("/home")).unwrap().0, "ext4");
    }

    #[test]
    fn a_disk_that_is_not_there_is_not_found() {
        assert_eq!(labelled("tare-no-such-disk"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail(text in "([a-z0-9/:-]{0,6} ?){0,30}\\PC{0,60}") {
            let _ = mounted(&text, Path::new("/a/b"));
        }
    }
}
