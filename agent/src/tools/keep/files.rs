//! The keeper's operations on files, and its search for programs.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// Directories of the system's own programs, which a session over SSH often lacks.
const SYSTEM_PROGRAMS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/bin"];

/// Write a file in one piece: settings of the kernel take their value in one write.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(bytes)
}

/// Remove a file or a whole directory; a link is removed itself.
pub fn remove(path: &Path) -> io::Result<()> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let result = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Open a terminal or other character device for reading and writing, so that it carries all bytes.
pub fn open_terminal(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)?;
    if sys::is_terminal(&file) {
        sys::set_raw(&file)?;
    }
    Ok(file)
}

/// Variables that programs inherit; the same as in `tare.hosts.environment`.
const PASSED: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "TERM",
    "TZ",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "XDG_RUNTIME_DIR",
    // The folder of locks must be the same for all programs.
    "TARE_LOCKS",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];

/// Whether a variable of the session is passed on to the programs that it starts.
pub fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || name.starts_with("LC_")
}

/// The search path for programs: what the session has, and the system's own programs.
pub fn search_path(own: Option<&OsStr>) -> String {
    let mut folders: Vec<String> = own
        .unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))
        .to_string_lossy()
        .split(':')
        .map(String::from)
        .collect();
    for folder in SYSTEM_PROGRAMS {
        if !folders.iter().any(|known| known == folder) {
            folders.push(folder.into());
        }
    }
    folders.join(":")
}

/// Find a program that may be run.
pub fn find_program(name: &str, search: &str) -> io::Result<PathBuf> {
    let usable = |path: &Path| {
        let about = fs::metadata(path)?;
        if about.is_file() && about.permissions().mode() & 0o111 != 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        }
    };
    if name.contains('/') {
        return usable(Path::new(name)).map(|()| name.into());
    }
    search
        .split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| !name.is_empty() && usable(path).is_ok())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let search = search_path(Some(OsStr::new("/nowhere:/bin:/usr/bin")));
        assert!(search.ends_with(":/usr/sbin:/sbin"), "{search}");
        assert!(find_program("sh", &search).unwrap().ends_with("sh"));
        assert!(find_program("/bin/sh", "").is_ok());
        let error = |name: &str| find_program(name, &search).unwrap_err().raw_os_error();
        assert_eq!(error("tare-no-such-command"), Some(libc::ENOENT));
        assert_eq!(error(""), Some(libc::ENOENT));
        assert_eq!(error("/no/such"), Some(libc::ENOENT));
        assert_eq!(error("/etc/passwd"), Some(libc::EACCES));
        assert_eq!(error("/tmp"), Some(libc::EACCES));
    }
}
