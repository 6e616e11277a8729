//! What the machine looks like from inside: its caches and the memory that may be used.

use super::{memory_group, sysfs};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The sizes of the data and unified caches, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The last level, one instance.
    pub last_level: u64,
    /// All distinct caches of all CPUs together.
    pub together: u64,
}

/// Read the caches from sysfs; nothing where the machine does not show them.
pub fn caches() -> Option<Caches> {
    caches_below(Path::new("/sys/devices/system/cpu"))
}

fn caches_below(root: &Path) -> Option<Caches> {
    let mut distinct: BTreeMap<(u32, String, String), u64> = BTreeMap::new();
    for cpu in fs::read_dir(root).ok()?.flatten() {
        let Ok(indices) = fs::read_dir(cpu.path().join("cache")) else {
            continue;
        };
        for index in indices.flatten() {
            let field = |name: &str| -> Option<String> {
                Some(
                    fs::read_to_string(index.path().join(name))
                        .ok()?
                        .trim()
                        .to_string(),
                )
            };
            let (Some(level), Some(kind), Some(size), Some(shared)) = (
                field("level").and_then(|level| level.parse().ok()),
                field("type"),
                field("size").and_then(|size| bytes(&size)),
                field("shared_cpu_list"),
            ) else {
                continue;
            };
            if kind != "Instruction" {
                distinct.insert((level, kind, shared), size);
            }
        }
    }
    let last_level = *distinct.iter().max_by_key(|((level, ..), _)| *level)?.1;
    Some(Caches {
        last_level,
        together: distinct.values().sum(),
    })
}

fn bytes(size: &str) -> Option<u64> {
    let (number, factor) = match size.strip_suffix(['K', 'M', 'G']) {
        Some(number) if size.ends_with('K') => (number, 1 << 10),
        Some(number) if size.ends_with('M') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (size, 1),
    };
    Some(number.parse::<u64>().ok()? * factor)
}

/// Bytes that can be taken without swapping or being killed: what the kernel calls available,
/// within the limits of this process's control groups where they show.
pub fn memory_available() -> u64 {
    let available = sysfs::meminfo("MemAvailable").unwrap_or(64 << 20);
    available.min(memory_group::limit().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words() {
        assert_eq!(bytes("48K"), Some(48 << 10));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("123"), Some(123));
        assert_eq!(bytes("x"), None);
    }

    #[test]
    fn counts_each_cache_once() {
        let root = std::env::temp_dir().join(format!("tare-caches-{}", std::process::id()));
        let put = |cpu: &str, index: &str, fields: [&str; 4]| {
            let path = root.join(cpu).join("cache").join(index);
            fs::create_dir_all(&path).unwrap();
            for (name, value) in ["level", "type", "size", "shared_cpu_list"]
                .iter()
                .zip(fields)
            {
                fs::write(path.join(name), value).unwrap();
            }
        };
        put("cpu0", "index0", ["1", "Data", "32K", "0"]);
        put("cpu0", "index1", ["1", "Instruction", "32K", "0"]);
        put("cpu0", "index3", ["3", "Unified", "8M", "0-1"]);
        put("cpu1", "index0", ["1", "Data", "32K", "1"]);
        put("cpu1", "index3", ["3", "Unified", "8M", "0-1"]);
        let found = caches_below(&root);
        fs::remove_dir_all(&root).unwrap();
        let last_level = 8 << 20;
        assert_eq!(
            found,
            Some(Caches {
                last_level,
                together: last_level + (64 << 10)
            })
        );
    }

    #[test]
    fn some_memory_is_available() {
        assert!(memory_available() > 1 << 20);
    }
}
