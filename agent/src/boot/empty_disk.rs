//! The empty disk that a host attached for a live machine. A live image may boot on a computer whose
//! disks hold data. A disk is therefore formatted only if it is the only one of the size that the host
//! stated, has no partition, is not in use, and has zeros at both ends.

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
/// The most characters of the program's error output that a message quotes.
const MOST_ERROR: usize = 300;

/// A disk of the machine.
struct Disk {
    name: String,
    bytes: u64,
    /// Why nothing may be written to it; `None`: it is empty.
    kept: Option<String>,
}

/// The name of the one disk that is empty and has exactly this size; otherwise why there is none.
pub fn find(bytes: u64, configuration: &str) -> Result<String, String> {
    // Only disks of that size are read.
    let disks = disks().into_iter().map(|(name, size)| {
        let kept = (size == bytes).then(|| reason_to_keep(&name, size, configuration));
        Disk {
            name,
            bytes: size,
            kept: kept.flatten(),
        }
    });
    choose(&disks.collect::<Vec<_>>(), bytes)
}

fn choose(disks: &[Disk], bytes: u64) -> Result<String, String> {
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
            "{} are all empty and of {bytes} bytes: which one is the machine's own is unknown, so \
             none is formatted; give the shape another `disk` size",
            several.join(" and ")
        )),
    }
}

/// The whole disks of this machine and their sizes in bytes, without CDs and floppies.
fn disks() -> Vec<(String, u64)> {
    let listed = fs::read_dir(BLOCK).into_iter().flatten().flatten();
    let mut found: Vec<(String, u64)> = listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with("sr") && !name.starts_with("fd"))
        .filter(|name| {
            attribute_path(name, "device").exists() && !attribute_path(name, "partition").exists()
        })
        .filter_map(|name| {
            let sectors: u64 = attribute(&name, "size")?.parse().ok()?;
            Some((name, sectors * SECTOR))
        })
        .collect();
    found.sort();
    found
}

/// The reason not to format a disk, to go after its name; `None` if the disk is empty.
fn reason_to_keep(name: &str, bytes: u64, configuration: &str) -> Option<String> {
    let device = Path::new("/dev").join(name);
    if device == Path::new(configuration) {
        return Some("holds the machine's configuration".into());
    }
    if attribute(name, "ro").as_deref() != Some("0") {
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

fn attribute_path(name: &str, what: &str) -> PathBuf {
    Path::new(BLOCK).join(name).join(what)
}

fn attribute(name: &str, what: &str) -> Option<String> {
    let text = fs::read_to_string(attribute_path(name, what)).ok()?;
    Some(text.trim().to_string())
}

/// Make a file system on an empty disk by the toolbox's own program, and mount it as the machine's own.
pub fn format_and_mount(name: &str, arguments: &[String]) -> Result<(), String> {
    let device = Path::new("/dev").join(name);
    let without = |Failure(reason)| format!("{PROGRAM}, which formats it, is missing: {reason}");
    let toolbox = toolbox::open().map_err(without)?;
    let program = toolbox.program(PROGRAM).map_err(without)?;
    let failed = |reason: String| format!("{name} cannot be formatted: {reason}");
    let root = toolbox.root().to_string_lossy();
    let setup = sys::ProcessSetup::new(&root, "/").map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(&device)
        .env_clear()
        .stdin(Stdio::null());
    let done = sys::with_setup(&mut command, setup)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let text: String = text.trim().chars().take(MOST_ERROR).collect();
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
        assert_eq!(choose(&disks, 200).as_deref(), Ok("sdc"));
    }

    #[test]
    fn no_disk_is_formatted_in_doubt() {
        let reason = choose(&[], 200).unwrap_err();
        assert!(reason.contains("200 bytes") && reason.contains("no disks"));
        let other = [disk("sda", 100, None)];
        assert!(choose(&other, 200).unwrap_err().contains("sda has 100"));
        let full = [disk("vdb", 200, Some("has partitions"))];
        let reason = choose(&full, 200).unwrap_err();
        assert!(reason.contains("vdb has partitions"), "{reason}");
        let two = [disk("vdb", 200, None), disk("vdc", 200, None)];
        let reason = choose(&two, 200).unwrap_err();
        assert!(reason.contains("vdb and vdc are all empty"), "{reason}");
    }

    #[test]
    fn a_disk_with_data_at_either_end_is_not_empty() {
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
        // Smaller than stated.
        assert!(is_empty(&file, bytes + 1).is_err());
        file.set_len(1000).unwrap();
        assert!(is_empty(&file, 1000).unwrap());
    }

    #[test]
    fn the_configurations_disk_and_missing_disks_are_kept() {
        assert!(reason_to_keep("sdx", 1, "/dev/sdx").is_some());
        assert!(reason_to_keep("tare-none", 1, "/dev/sdx").is_some());
    }

    #[test]
    fn no_disk_of_an_impossible_size_is_found() {
        assert!(find(7, "/dev/none").is_err());
    }
}
