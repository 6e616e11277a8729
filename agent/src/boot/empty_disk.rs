//! The empty disk that a host gave a live machine for its own. A live image may boot on a computer with
//! disks that somebody needs: so none is formatted but the only one of the size that the host told,
//! with no partition, in nobody's use, and zeros at both ends.

use super::scratch;
use crate::contract::Failure;
use crate::sys;
use crate::tools::toolbox;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BLOCK: &str = "/sys/class/block";
const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
const PROGRAM: &str = "mkfs.ext4";
/// Of what the program says where it fails, as much is told.
const TOLD: usize = 300;

/// A disk of the machine.
struct Disk {
    name: String,
    bytes: u64,
    /// Why nothing may be written to it; `None`: it is empty.
    kept: Option<String>,
}

/// The name of the one disk that is empty and has exactly this size; otherwise why there is none.
pub fn find(bytes: u64, configuration: &str) -> Result<String, String> {
    // Only disks of that size are read: others are none of Tare's business.
    let disks = disks().into_iter().map(|(name, size)| {
        let kept = (size == bytes).then(|| why_kept(&name, size, configuration));
        Disk {
            name,
            bytes: size,
            kept: kept.flatten(),
        }
    });
    chosen(&disks.collect::<Vec<_>>(), bytes)
}

fn chosen(disks: &[Disk], bytes: u64) -> Result<String, String> {
    let fitting: Vec<&Disk> = disks.iter().filter(|disk| disk.bytes == bytes).collect();
    let empty: Vec<&str> = fitting
        .iter()
        .filter(|disk| disk.kept.is_none())
        .map(|disk| disk.name.as_str())
        .collect();
    match (empty.as_slice(), fitting.as_slice()) {
        ([one], _) => Ok((*one).into()),
        ([], []) => {
            let seen: Vec<String> = disks
                .iter()
                .map(|disk| format!("{} has {}", disk.name, disk.bytes))
                .collect();
            let seen = match seen.as_slice() {
                [] => "it has no disks".into(),
                some => some.join(", "),
            };
            Err(format!(
                "no disk has the {bytes} bytes that its host was asked for ({seen})"
            ))
        }
        ([], kept) => {
            let why: Vec<String> = kept
                .iter()
                .filter_map(|disk| Some(format!("{} {}", disk.name, disk.kept.as_ref()?)))
                .collect();
            Err(format!(
                "no disk of {bytes} bytes is empty, and nothing else is formatted: {}",
                why.join(", ")
            ))
        }
        (several, _) => Err(format!(
            "{} are all empty and of {bytes} bytes: nothing tells which is the machine's own, so \
             none is formatted; give the shape another `disk` size",
            several.join(" and ")
        )),
    }
}

/// The whole disks of this machine, with their bytes. Neither CDs nor what is no device of its own.
fn disks() -> Vec<(String, u64)> {
    let listed = fs::read_dir(BLOCK).into_iter().flatten().flatten();
    let mut found: Vec<(String, u64)> = listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with("sr") && !name.starts_with("fd"))
        .filter(|name| about(name, "device").exists() && !about(name, "partition").exists())
        .filter_map(|name| {
            let sectors: u64 = said(&name, "size")?.parse().ok()?;
            Some((name, sectors * SECTOR))
        })
        .collect();
    found.sort();
    found
}

/// Why a disk is not to be formatted, in words that follow its name; `None` where it is empty.
fn why_kept(name: &str, bytes: u64, configuration: &str) -> Option<String> {
    let device = Path::new("/dev").join(name);
    if device == Path::new(configuration) {
        return Some("holds the machine's configuration".into());
    }
    if said(name, "ro").as_deref() != Some("0") {
        return Some("is read-only".into());
    }
    if has_partitions(name) {
        return Some("has partitions".into());
    }
    // The kernel refuses this where the disk is mounted, or part of another device (open(2)).
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&device);
    let read = opened.and_then(|disk| is_empty(&disk, bytes));
    match read {
        Ok(true) => None,
        Ok(false) => Some("has something on it: its first and its last MiB are not zero".into()),
        Err(error) => Some(format!("cannot be read, or is in use: {error}")),
    }
}

fn has_partitions(name: &str) -> bool {
    let parts = fs::read_dir(Path::new(BLOCK).join(name));
    parts
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.path().join("partition").exists())
}

/// Whether the first and the last MiB are zeros: partition tables, file systems, and what makes several
/// disks one all have their mark in either.
fn is_empty(disk: &File, bytes: u64) -> io::Result<bool> {
    let length = bytes.min(MIB);
    let mut piece = vec![0; length as usize];
    for begin in [0, bytes - length] {
        disk.read_exact_at(&mut piece, begin)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn about(name: &str, what: &str) -> PathBuf {
    Path::new(BLOCK).join(name).join(what)
}

fn said(name: &str, what: &str) -> Option<String> {
    let text = fs::read_to_string(about(name, what)).ok()?;
    Some(text.trim().to_string())
}

/// Make a file system on an empty disk by the toolbox's own program, and mount it as the machine's own.
pub fn format_and_mount(name: &str, words: &[String]) -> Result<(), String> {
    let device = Path::new("/dev").join(name);
    let without = |Failure(reason)| format!("{PROGRAM}, which formats it, is missing: {reason}");
    let toolbox = toolbox::open().map_err(without)?;
    let program = toolbox.program(PROGRAM).map_err(without)?;
    let failed = |reason: String| format!("{name} cannot be formatted: {reason}");
    let root = toolbox.root().to_string_lossy();
    let room = sys::Room::new(&root, "/").map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command
        .args(words)
        .arg(&device)
        .env_clear()
        .stdin(Stdio::null());
    let done = sys::in_room(&mut command, room)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let text: String = text.trim().chars().take(TOLD).collect();
        return Err(failed(format!("{PROGRAM}: {} {text}", done.status)));
    }
    scratch::mount_device(&device)?;
    toolbox::show_scratch().map_err(|error| format!("{name} cannot be shown to programs: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, bytes: u64, kept: Option<&str>) -> Disk {
        Disk {
            name: name.into(),
            bytes,
            kept: kept.map(String::from),
        }
    }

    #[test]
    fn the_only_empty_disk_of_the_size_is_taken() {
        let disks = [
            disk("sda", 100, None),
            disk("sdb", 200, Some("has partitions")),
            disk("sdc", 200, None),
        ];
        assert_eq!(chosen(&disks, 200).as_deref(), Ok("sdc"));
    }

    #[test]
    fn where_it_is_not_certain_nothing_is_formatted() {
        let reason = chosen(&[], 200).unwrap_err();
        assert!(reason.contains("200 bytes") && reason.contains("no disks"));
        let other = [disk("sda", 100, None)];
        assert!(chosen(&other, 200).unwrap_err().contains("sda has 100"));
        let full = [disk("vdb", 200, Some("has partitions"))];
        let reason = chosen(&full, 200).unwrap_err();
        assert!(reason.contains("vdb has partitions"), "{reason}");
        let two = [disk("vdb", 200, None), disk("vdc", 200, None)];
        let reason = chosen(&two, 200).unwrap_err();
        assert!(reason.contains("vdb and vdc are all empty"), "{reason}");
    }

    #[test]
    fn anything_at_either_end_makes_a_disk_somebodys() {
        let path = std::env::temp_dir().join(format!("tare-blank-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        fs::remove_file(&path).unwrap();
        let bytes = 3 * MIB;
        file.set_len(bytes).unwrap();
        assert!(is_empty(&file, bytes).unwrap());
        for at in [0, 510, 1080, MIB - 1, bytes - 512, bytes - 1] {
            file.write_all_at(&[1], at).unwrap();
            assert!(!is_empty(&file, bytes).unwrap(), "{at}");
            file.write_all_at(&[0], at).unwrap();
        }
        // Smaller than what it was said to be.
        assert!(is_empty(&file, bytes + 1).is_err());
        file.set_len(1000).unwrap();
        assert!(is_empty(&file, 1000).unwrap());
    }

    #[test]
    fn the_disk_of_the_configuration_and_what_is_missing_are_kept() {
        assert!(why_kept("sdx", 1, "/dev/sdx").is_some());
        assert!(why_kept("tare-none", 1, "/dev/sdx").is_some());
    }

    #[test]
    fn no_disk_of_an_impossible_size_is_found() {
        assert!(find(7, "/dev/none").is_err());
    }
}
