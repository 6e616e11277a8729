//! The toolbox: find it, mount it, and read its description.
//!
//! A guest has it as a disk, which is mounted at the first use; a container has it as its root; for a
//! process on the host a variable names the tree, and the process gets private mounts.

use super::guard;
use crate::contract::Failure;
use crate::measure::{scratch, sysfs};
use crate::sys;
use rustix::mount::{mount_bind, mount_bind_recursive, mount_remount, MountFlags};
use serde_json::Value;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where a guest has the toolbox.
pub const PLACE: &str = "/toolbox";
/// The environment variable with the toolbox's tree, for a process on the host.
pub const VARIABLE: &str = "TARE_TOOLBOX";
/// The toolbox's description of itself.
const ABOUT: &str = "etc/tare/toolbox.json";
/// The list that only a guest's image holds.
const OWN_MACHINE: &str = "/etc/tare/modules";
/// The list that only a live image holds, whose toolbox is what it was made with.
pub const OWN_LIVE: &str = "/etc/tare/drivers";
/// How long the disk's device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);
/// Where erofs has its superblock, its magic number and UUID in that (the kernel's
/// fs/erofs/erofs_fs.h), and the UUID that all toolboxes have.
const SUPERBLOCK: u64 = 1024;
const MAGIC: u32 = 0xE0F5_E1E2;
const UUID_AT: usize = 48;
const UUID: [u8; 16] = [
    0x74, 0x61, 0x72, 0x65, 0x20, 0x74, 0x4f, 0x6f, 0x8c, 0x62, 0x6f, 0x78, 0, 0, 0, 1,
];
/// Where programs are looked for that the toolbox does not name.
const FOLDERS: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games"];

/// What Debian's packages make known by a link of *alternatives* alone, which is not made where
/// nothing is installed: the name, the program behind it, and a package that has it.
const ALTERNATIVES: [(&str, &str, &str); 6] = [
    ("awk", "mawk", "mawk"),
    ("cc", "gcc", "gcc"),
    ("c++", "g++", "g++"),
    ("nc", "nc.openbsd", "netcat-openbsd"),
    ("vi", "vim.tiny", "vim-tiny"),
    ("yacc", "bison", "bison"),
];

/// The toolbox of this machine.
pub struct Toolbox {
    root: PathBuf,
    about: Value,
}

static FOUND: OnceLock<Result<Toolbox, String>> = OnceLock::new();
/// Why this machine has none, where that is known.
static ABSENT: OnceLock<String> = OnceLock::new();

/// Record why this machine has no toolbox, so that it does not wait for one.
pub fn set_absent(reason: &str) {
    let _ = ABSENT.set(reason.into());
}

/// The toolbox, found and mounted at the first call.
pub fn open() -> Result<&'static Toolbox, Failure> {
    let found = FOUND.get_or_init(|| {
        let toolbox = Toolbox::new(find()?)?;
        // Start the guard now: starting it with the first program would add to the measured time.
        guard::socket();
        Ok(toolbox)
    });
    found.as_ref().map_err(|reason| Failure(reason.clone()))
}

/// Enter the toolbox that the host named, if it did. Only to be called while there is one thread.
pub fn enter_named() -> Result<(), String> {
    let Some(tree) = std::env::var_os(VARIABLE).filter(|tree| !tree.is_empty()) else {
        return Ok(());
    };
    let tree = PathBuf::from(tree);
    if !tree.join(ABOUT).is_file() {
        return Err(format!("there is no toolbox at {}", tree.display()));
    }
    let place = tree.display();
    let failed = |error: io::Error| format!("the toolbox at {place} cannot be entered: {error}");
    enter(&tree).map_err(failed)
}

fn enter(tree: &Path) -> io::Result<()> {
    sys::own_mounts()?;
    mount_bind(tree, tree)?;
    let read_only = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    mount_remount(tree, read_only, "")?;
    // Not the host's folders: programs would find and leave other users' files there.
    let temporary = |name| {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        sys::mount("tmpfs", tree.join(name), "tmpfs", flags, "mode=1777")
    };
    temporary("tmp")?;
    temporary("run")?;
    bind_host_folders(tree, &["proc", "sys", "dev"])?;
    temporary("dev/shm")?;
    if let Some(disk) = scratch::path() {
        mount_bind(disk, tree.join("scratch"))?;
    }
    Ok(())
}

/// Let the programs in `root` see what the machine has at these places.
fn bind_host_folders(root: &Path, names: &[&str]) -> io::Result<()> {
    for name in names {
        mount_bind_recursive(format!("/{name}"), root.join(name))?;
    }
    Ok(())
}

/// Let the programs see the machine's own disk, where that was mounted after the toolbox.
pub fn show_scratch() -> io::Result<()> {
    bind_host_folders(Path::new(PLACE), &["scratch"])
}

fn find() -> Result<PathBuf, String> {
    if let Some(tree) = std::env::var_os(VARIABLE).filter(|tree| !tree.is_empty()) {
        return Ok(tree.into());
    }
    if Path::new("/").join(ABOUT).is_file() {
        return Ok("/".into());
    }
    if !Path::new(OWN_MACHINE).exists() {
        return Err("this machine was given no toolbox".into());
    }
    let root = PathBuf::from(PLACE);
    if !root.join(ABOUT).is_file() {
        mount()?;
    }
    Ok(root)
}

fn mount() -> Result<(), String> {
    if let Some(reason) = ABSENT.get() {
        return Err(format!("this machine has no toolbox: {reason}"));
    }
    let since = Instant::now();
    let device = loop {
        if let Some(device) = disk() {
            break device;
        }
        if since.elapsed() > DEVICE_WAIT {
            return Err("no disk with the toolbox appeared in this machine".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let source = device.display().to_string();
    let failed = |error: io::Error| format!("the toolbox on {source} cannot be mounted: {error}");
    fs::create_dir_all(PLACE).map_err(failed)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    sys::mount(&source, PLACE, "erofs", flags, "").map_err(failed)?;
    let mut names = vec!["proc", "sys", "dev", "tmp", "run"];
    if scratch::path().is_some() {
        names.push("scratch");
    }
    bind_host_folders(Path::new(PLACE), &names).map_err(failed)
}

/// The first disk, or partition of one, that holds the toolbox.
pub fn disk() -> Option<PathBuf> {
    sysfs::block_devices()
        .into_iter()
        .find(|device| holds_toolbox(device).unwrap_or(false))
}

fn holds_toolbox(device: &Path) -> io::Result<bool> {
    is_at(&File::open(device)?, 0)
}

/// Whether the toolbox begins at this byte of a file or device.
pub fn is_at(file: &File, begin: u64) -> io::Result<bool> {
    let mut block = [0; 128];
    file.read_exact_at(&mut block, begin + SUPERBLOCK)?;
    Ok(is_toolbox(&block))
}

fn is_toolbox(superblock: &[u8; 128]) -> bool {
    superblock[..4] == MAGIC.to_le_bytes() && superblock[UUID_AT..UUID_AT + 16] == UUID
}

impl Toolbox {
    fn new(root: PathBuf) -> Result<Self, String> {
        let about = root.join(ABOUT);
        let damaged = |reason: String| format!("the toolbox is damaged: {ABOUT}: {reason}");
        let text = fs::read(&about).map_err(|error| damaged(error.to_string()))?;
        let about = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { root, about })
    }

    /// The directory that programs take for `/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the agent finds what programs know as `path`.
    pub fn outside(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Which toolbox it is: its kind, and the digest of what it was made from.
    pub fn identity(&self) -> Value {
        serde_json::json!({"kind": self.about["kind"], "key": self.about["key"]})
    }

    /// The checksum (SHA-256, hex) of what an application writes, as found when it was built.
    pub fn expected(&self, name: &str) -> Option<&str> {
        self.about["expected"][name].as_str()
    }

    /// The path of a program by its name, or a path that is given; within the toolbox.
    pub fn program(&self, name: &str) -> Result<String, Failure> {
        let known = &self.about["programs"][name];
        if let Some(path) = known["path"].as_str() {
            let package = known["package"].as_str().unwrap_or("?");
            return self.require(path, name, &format!(" of the package {package}"));
        }
        if name.starts_with('/') {
            return self.require(name, name, "");
        }
        for folder in FOLDERS {
            let path = format!("{folder}/{name}");
            if self.exists(&path)? {
                return Ok(path);
            }
        }
        Err(self.lacking(name, ""))
    }

    fn require(&self, path: &str, name: &str, of: &str) -> Result<String, Failure> {
        if self.exists(path)? {
            Ok(path.into())
        } else {
            Err(self.lacking(name, of))
        }
    }

    fn lacking(&self, name: &str, of: &str) -> Failure {
        let kind = self.about["kind"].as_str().unwrap_or("?");
        let instead = if Path::new(OWN_LIVE).exists() {
            "it is the live image's own, and what a study adds is not in it; \
             `tare image live --toolbox` makes one with another toolbox"
                .into()
        } else if of.is_empty() {
            hint_for(name)
        } else {
            "`tare image verify` checks it".into()
        };
        Failure(format!(
            "the toolbox ({kind}) has no program {name}{of}: {instead}"
        ))
    }

    /// Whether there is anything at a path; where a link leads is only seen from inside.
    fn exists(&self, path: &str) -> Result<bool, Failure> {
        match fs::symlink_metadata(self.outside(path)) {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Ok(false),
                // Part of the image cannot be read: that does not mean that a program is missing.
                _ => Err(Failure(format!("the toolbox is damaged: {path}: {error}"))),
            },
        }
    }
}

/// What to write in a study so that a program is there.
fn hint_for(name: &str) -> String {
    if let Some((_, program, package)) = ALTERNATIVES.iter().find(|known| known.0 == name) {
        return format!(
            "write `{program}` for it in `argv`, and add it by `toolbox: {{packages: [{package}]}}`"
        );
    }
    if name.starts_with("/opt/") || name.starts_with("/srv/") || name.starts_with("/usr/local/") {
        return format!("add it by `toolbox: {{files: {{{name}: FILE}}}}`");
    }
    let ends = name.rsplit('/').next().unwrap_or(name);
    format!(
        "add the package that has it by `toolbox: {{packages: [PACKAGE]}}` of `workload: command`; \
         `dpkg -S bin/{ends}` prints its name on a system that has it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_toolbox_is_known_by_magic_and_uuid() {
        let mut block = [0; 128];
        block[..4].copy_from_slice(&[0xE2, 0xE1, 0xF5, 0xE0]);
        assert!(!is_toolbox(&block));
        block[48..64].copy_from_slice(&UUID);
        assert!(is_toolbox(&block));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let about = json!({"kind": "base", "programs": {
            "fio": {"path": "/no/such/fio", "package": "fio-package"},
        }});
        let toolbox = Toolbox {
            root: "/proc/self".into(),
            about,
        };
        let Failure(reason) = toolbox.program("fio").unwrap_err();
        assert!(
            reason.contains("fio of the package fio-package: `tare image verify`"),
            "{reason}"
        );
        for (name, hint) in [
            ("nothing-such", "`dpkg -S bin/nothing-such` prints its name"),
            ("/usr/bin/nothing", "`dpkg -S bin/nothing` prints its name"),
            (
                "awk",
                "write `mawk` for it in `argv`, and add it by `toolbox: {packages: [mawk]}`",
            ),
            ("/opt/mine/run", "`toolbox: {files: {/opt/mine/run: FILE}}`"),
        ] {
            let Failure(reason) = toolbox.program(name).unwrap_err();
            assert!(reason.contains(hint), "{reason}");
        }
        assert_eq!(toolbox.program("/status").unwrap(), "/status");
    }
}
