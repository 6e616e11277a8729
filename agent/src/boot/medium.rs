//! The toolbox of a live image, which is a partition of what the machine booted from. On a disk it is
//! used where it is; from a CD it is copied to memory first, so that no cell waits for an emulated CD.

use super::drivers::Drivers;
use crate::measure::sysfs;
use crate::sys;
use crate::tools::toolbox;
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Where a master boot record has its four partitions, and how each is laid out (UEFI 2.10, 5.2.1).
const PARTITIONS: usize = 446;
const PARTITION: usize = 16;
/// The memory that a machine needs in addition to the toolbox.
const SPARE: u64 = 96 * MIB;
const RAM_DISK: &str = "/dev/ram0";

/// Make the toolbox available to workloads. Returns where it is, or the reason why there is none.
pub fn bring_toolbox(drivers: &mut Drivers) -> Value {
    if let Some(disk) = toolbox::disk() {
        return json!({"on": "disk", "device": name_of(&disk)});
    }
    let brought = match on_cd() {
        Some(found) => copy_to_memory(&found, drivers),
        None => Err("neither a disk nor a CD of this machine has it".into()),
    };
    match brought {
        Ok(()) => json!({"on": "memory", "device": "ram0"}),
        Err(reason) => {
            toolbox::set_absent(&reason);
            json!({"on": Value::Null, "reason": reason})
        }
    }
}

/// Whether the toolbox can be had: on a disk, or on a CD from which it can be copied.
pub fn is_there() -> bool {
    toolbox::disk().is_some() || on_cd().is_some()
}

struct OnCd {
    device: PathBuf,
    begin: u64,
    size: u64,
}

fn on_cd() -> Option<OnCd> {
    sysfs::block_devices().into_iter().find_map(|device| {
        let file = File::open(&device).ok()?;
        let mut record = [0; SECTOR as usize];
        file.read_exact_at(&mut record, 0).ok()?;
        let parts = partitions(&record).into_iter();
        let is_it = |begin: &u64| toolbox::is_at(&file, *begin).unwrap_or(false);
        let (begin, size) = parts.into_iter().find(|(begin, _)| is_it(begin))?;
        Some(OnCd {
            device,
            begin,
            size,
        })
    })
}

/// Where the partitions of a boot record begin, and how long they are, in bytes.
fn partitions(record: &[u8; SECTOR as usize]) -> Vec<(u64, u64)> {
    if record[510..] != [0x55, 0xAA] {
        return Vec::new();
    }
    let number = |at: usize| {
        let bytes = std::array::from_fn(|offset| record[at + offset]);
        u64::from(u32::from_le_bytes(bytes)) * SECTOR
    };
    (0..4)
        .map(|index| PARTITIONS + index * PARTITION)
        .map(|at| (number(at + 8), number(at + 12)))
        .filter(|(begin, size)| *begin > 0 && *size > 0)
        .collect()
}

fn copy_to_memory(found: &OnCd, drivers: &mut Drivers) -> Result<(), String> {
    let free = sysfs::meminfo("MemAvailable").unwrap_or(0);
    if free < found.size + SPARE {
        return Err(format!(
            "the toolbox takes {} MiB of memory and {} MiB for the rest, and {} MiB are free: give \
             the machine more, or attach the image to it as a disk and not as a CD",
            found.size / MIB,
            SPARE / MIB,
            free / MIB,
        ));
    }
    let size = found.size.div_ceil(1024);
    drivers.load_named("brd", &format!("rd_nr=1 rd_size={size}"))?;
    let failed = |error: io::Error| {
        let from = found.device.display();
        format!("the toolbox cannot be copied from {from} to memory: {error}")
    };
    copy(found).map_err(failed)
}

fn copy(found: &OnCd) -> io::Result<()> {
    let cd = File::open(&found.device)?;
    let mut disk = OpenOptions::new().write(true).open(RAM_DISK)?;
    let mut piece = vec![0; MIB as usize];
    let mut at = 0;
    while at < found.size {
        let length = (found.size - at).min(MIB) as usize;
        cd.read_exact_at(&mut piece[..length], found.begin + at)?;
        disk.write_all(&piece[..length])?;
        at += length as u64;
    }
    disk.sync_all()?;
    // Otherwise the kernel's cache of both would take up memory in addition to the copy.
    sys::forget_cached(&cd)?;
    sys::forget_cached(&disk)
}

fn name_of(device: &Path) -> String {
    let name = device.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_from_a_boot_record_alone() {
        let mut record = [0; 512];
        record[446 + 32 + 8] = 64;
        record[446 + 32 + 13] = 1;
        assert!(partitions(&record).is_empty());
        record[510..].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(partitions(&record), [(64 * 512, 256 * 512)]);
    }
}
