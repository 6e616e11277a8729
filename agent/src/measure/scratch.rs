//! The machine's own disk: its path, and its properties.
//!
//! A guest has it at `/scratch`; for a process on the host a variable names its folder.

use super::sysfs;
use crate::sys;
use serde_json::{json, Value};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a guest has its disk.
pub const PLACE: &str = "/scratch";
/// The environment variable with the disk's folder, for a process on the host.
pub const VARIABLE: &str = "TARE_SCRATCH";

/// Why this machine has none, although its host attached one.
static ABSENT: OnceLock<String> = OnceLock::new();

/// Record why this machine has no disk, although its host attached one.
pub fn set_absent(reason: &str) {
    let _ = ABSENT.set(reason.into());
}

/// Where the machine's own disk is, or why it has none.
pub fn required() -> Result<PathBuf, String> {
    path().ok_or_else(|| match ABSENT.get() {
        Some(reason) => format!("this machine has no disk of its own: {reason}"),
        None => "this machine has no disk of its own: give its shape one (`disk: 1GiB`)".into(),
    })
}

/// Where the machine's own disk is; `None` where it has none.
pub fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let (place, root) = (fs::metadata(PLACE).ok()?, fs::metadata("/").ok()?);
    (place.dev() != root.dev()).then(|| PLACE.into())
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
        places.iter().find_map(sysfs::read)
    };
    let scheduler = read("queue/scheduler").map(|text| sysfs::chosen(&text).to_string());
    json!({
        "file_system": kind,
        "options": options,
        "bytes": sys::space(&path).map(|space| space.total).ok(),
        "device": folder.as_ref().and_then(|folder| kind_of(folder)),
        "cache": read("queue/write_cache"),
        "scheduler": scheduler,
        "drivers": folder.as_ref().map(|folder| drivers(folder)),
        "queues": folder.as_ref().and_then(|folder| queues(folder)),
        "loop_direct_io": read("loop/dio"),
    })
}

/// The drivers that carry a block device, the nearest to it first: `["sd", "ahci"]`. One name, such
/// as `sda`, is used for disks on many buses.
fn drivers(folder: &Path) -> Vec<String> {
    folder
        .ancestors()
        .filter_map(|place| fs::read_link(place.join("driver")).ok())
        .filter_map(|driver| Some(driver.file_name()?.to_string_lossy().into_owned()))
        .collect()
}

/// How many hardware queues the kernel drives a block device by.
fn queues(folder: &Path) -> Option<usize> {
    // The queues of a partition are its disk's.
    let places = [folder.join("mq"), folder.parent()?.join("mq")];
    let found = places.iter().find_map(|place| fs::read_dir(place).ok())?;
    Some(found.count())
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
        // If several are mounted at one place, the last hides the others.
        .max_by_key(|(length, ..)| *length)
        .map(|(_, kind, options)| (kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_disks_drivers_include_those_of_its_bus() {
        let root = std::env::temp_dir().join(format!("tare-drivers-{}", std::process::id()));
        let disk = root.join("devices/0000:00:1f.2/ata1/0:0:0:0/block/sda");
        fs::create_dir_all(disk.join("mq/0")).unwrap();
        fs::create_dir_all(disk.join("mq/1")).unwrap();
        fs::create_dir_all(disk.join("sda1")).unwrap();
        let link = |to: &str, at: &str| {
            std::os::unix::fs::symlink(to, root.join("devices").join(at).join("driver")).unwrap()
        };
        link("/sys/bus/scsi/drivers/sd", "0000:00:1f.2/ata1/0:0:0:0");
        link("/sys/bus/pci/drivers/ahci", "0000:00:1f.2");
        let found = (drivers(&disk), queues(&disk), queues(&disk.join("sda1")));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, (vec!["sd".into(), "ahci".into()], Some(2), Some(2)));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail(text in "([a-z0-9/:-]{0,6} ?){0,30}\\PC{0,60}") {
            let _ = mounted(&text, Path::new("/a/b"));
        }
    }
}
