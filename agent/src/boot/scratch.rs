//! The machine's own disk, found by the label of its file system and mounted. The host makes the file
//! system, so that it is the same in every arm.

use crate::measure::scratch::PLACE;
use crate::measure::sysfs;
use crate::sys;
use rustix::mount::MountFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the disk's device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);
/// Where ext4 has its superblock, and in that its magic number and label (the kernel's
/// Documentation/filesystems/ext4/super.rst).
const SUPERBLOCK: u64 = 1024;
const MAGIC: (usize, u16) = (0x38, 0xEF53);
const LABEL: std::ops::Range<usize> = 0x78..0x88;

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
    mount_device(&device)
}

/// Mount the file system on a device as the machine's own disk.
pub fn mount_device(device: &Path) -> Result<(), String> {
    fs::create_dir_all(PLACE).map_err(|error| format!("{PLACE}: {error}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let source = device.display().to_string();
    sys::mount(&source, PLACE, "ext4", flags, "")
        .map_err(|error| format!("{source} cannot be mounted at {PLACE}: {error}"))
}

fn labelled(label: &str) -> Option<PathBuf> {
    sysfs::block_devices()
        .into_iter()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_from_the_superblock_alone() {
        let mut block = [0u8; 1024];
        assert_eq!(label_in(&block), None);
        block[0x38..0x3A].copy_from_slice(&0xEF53u16.to_le_bytes());
        block[0x78..0x84].copy_from_slice(b"tare-scratch");
        assert_eq!(label_in(&block).as_deref(), Some("tare-scratch"));
    }

    #[test]
    fn a_missing_disk_is_not_found() {
        assert_eq!(labelled("tare-no-such-disk"), None);
    }
}
