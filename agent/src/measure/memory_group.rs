//! The control group that limits this process's memory: its limit, and how many processes were killed
//! because memory ran out.

use std::fs;
use std::path::{Component, Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";
/// Without a limit, version 1 reports a little less than 2^63.
const NO_LIMIT: u64 = 1 << 62;

/// The least limit, in bytes, of this process's group and of those above it.
pub fn limit() -> Option<u64> {
    own_folders()
        .iter()
        .filter_map(|folder| limit_of(folder))
        .min()
}

/// How many processes the kernel has ended because memory ran out: of this process's group, or of
/// the whole machine where it is in none.
pub fn oom_kills() -> Option<u64> {
    let text = own_folders().into_iter().next().and_then(|folder| {
        ["memory.events", "memory.oom_control"]
            .iter()
            .find_map(|file| counted(&fs::read_to_string(folder.join(file)).ok()?))
    });
    text.or_else(|| counted(&fs::read_to_string("/proc/vmstat").ok()?))
}

fn limit_of(folder: &Path) -> Option<u64> {
    ["memory.max", "memory.limit_in_bytes"]
        .iter()
        .find_map(|file| fs::read_to_string(folder.join(file)).ok())
        .and_then(|text| text.trim().parse().ok())
        .filter(|limit| *limit < NO_LIMIT)
}

fn counted(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(name, _)| *name == "oom_kill")?
        .1
        .trim()
        .parse()
        .ok()
}

fn own_folders() -> Vec<PathBuf> {
    folders(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// The directories of a process's group for memory and of those above it, itself first, from its
/// `/proc/PID/cgroup` (cgroups(7)). Version 1 goes before version 2, which has what is left over.
fn folders(listed: &str) -> Vec<PathBuf> {
    let mut found = (None, None);
    for line in listed.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next(), fields.next()) {
            (Some(""), Some(path)) => found.1 = Some((PathBuf::from(MOUNT), path)),
            (Some(names), Some(path)) if names.split(',').any(|name| name == "memory") => {
                found.0 = Some((Path::new(MOUNT).join("memory"), path));
            }
            _ => {}
        }
    }
    let Some((base, path)) = found.0.or(found.1) else {
        return Vec::new();
    };
    let inside = Path::new(path.trim_start_matches('/'));
    // Groups above a namespace's root are not visible from within.
    if inside.components().any(|part| part == Component::ParentDir) {
        return Vec::new();
    }
    let folder = base.join(inside);
    let above = folder
        .ancestors()
        .take_while(|each| each.starts_with(&base));
    above.map(|each| each.components().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_both_versions_from_the_inmost_out() {
        let paths = |listed: &str| -> Vec<String> {
            let found = folders(listed);
            found
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        assert_eq!(
            paths("0::/system.slice/tare-1\n"),
            [
                "/sys/fs/cgroup/system.slice/tare-1",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup"
            ]
        );
        assert_eq!(
            paths("5:cpu,cpuacct:/\n4:memory:/tare-1\n0::/tare-2\n"),
            ["/sys/fs/cgroup/memory/tare-1", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(paths("0::/\n"), ["/sys/fs/cgroup"]);
        assert!(paths("0::/../../elsewhere\n").is_empty());
        assert!(paths("5:cpu:/x\n").is_empty());
        assert!(paths("").is_empty());
    }

    #[test]
    fn limit_and_kills_of_a_group_are_read() {
        let folder = std::env::temp_dir().join(format!("tare-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let limit_in = |file: &str, text: &str| {
            fs::write(folder.join(file), text).unwrap();
            let limit = limit_of(&folder);
            fs::remove_file(folder.join(file)).unwrap();
            limit
        };
        let found = [
            limit_in("memory.max", "67108864\n"),
            limit_in("memory.max", "max\n"),
            limit_in("memory.limit_in_bytes", "67108864\n"),
            limit_in("memory.limit_in_bytes", "9223372036854771712\n"),
            limit_of(&folder),
        ];
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [Some(64 << 20), None, Some(64 << 20), None, None]);
        assert_eq!(
            counted("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
            Some(2)
        );
        assert_eq!(
            counted("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            Some(7)
        );
        assert_eq!(counted("nr_free_pages 7\n"), None);
    }
}
