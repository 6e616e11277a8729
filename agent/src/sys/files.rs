//! Files, file systems and their caches.

use rustix::fs::{fadvise, statvfs, syncfs, Advice};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// How large a file system is, and what of it is free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// The space of the file system that holds `path`.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = statvfs(path)?;
    Ok(Space {
        total: found.f_blocks * found.f_frsize,
        free: found.f_bavail * found.f_frsize,
    })
}

/// Bring everything of the file system that holds an open file to its disk.
pub fn sync_file_system(file: &impl AsFd) -> io::Result<()> {
    Ok(syncfs(file)?)
}

/// Let the kernel forget the cached pages of an open file that are on the disk already.
pub fn forget_cached(file: &impl AsFd) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_read_and_a_file_system_can_be_synced() {
        let folder = std::env::temp_dir();
        let space = space(&folder).unwrap();
        assert!(space.total > 0 && space.free <= space.total);
        let opened = std::fs::File::open(&folder).unwrap();
        sync_file_system(&opened).unwrap();
        forget_cached(&std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(super::space(Path::new("/tare-nothing")).is_err());
    }
}
