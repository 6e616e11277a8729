//! Thin safe faces of the system calls about files, file systems and their caches.

use super::check;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How large a file system is, and what of it is free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// The space of the file system that holds `path`.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "zero byte"))?;
    // SAFETY: statvfs is plain numbers, and valid for the call's only write; the string lives until
    // the call ends.
    let found = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &mut found))?;
        found
    };
    let block = found.f_frsize as u64;
    Ok(Space {
        total: found.f_blocks as u64 * block,
        free: found.f_bavail as u64 * block,
    })
}

/// Bring everything of the file system that holds an open file to its disk.
pub fn sync_file_system(fd: RawFd) -> io::Result<()> {
    // SAFETY: a wrong descriptor is an error result, nothing else.
    check(unsafe { libc::syncfs(fd) })?;
    Ok(())
}

/// Let the kernel forget the cached pages of an open file that are on the disk already.
pub fn forget_cached(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; a wrong descriptor is an error result.
    match unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn space_is_told_and_a_file_system_can_be_synced() {
        let folder = std::env::temp_dir();
        let space = space(&folder).unwrap();
        assert!(space.total > 0 && space.free <= space.total);
        let opened = std::fs::File::open(&folder).unwrap();
        sync_file_system(opened.as_raw_fd()).unwrap();
        forget_cached(std::fs::File::open("/proc/self/exe").unwrap().as_raw_fd()).unwrap();
        assert!(super::space(Path::new("/tare-nothing")).is_err());
    }
}
