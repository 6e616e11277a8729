//! Small text files of the kernel, as `/proc` and `/sys` hold them.

use std::fs;
use std::path::{Path, PathBuf};

/// A small file's text without the white space around it; `None` where it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_string())
}

/// The number that a small file holds.
pub fn number(path: impl AsRef<Path>) -> Option<i64> {
    read(path)?.parse().ok()
}

/// The chosen word of a kernel setting's file; `None` where it cannot be read.
pub fn chosen_in(path: &str) -> Option<String> {
    read(path).map(|text| chosen(&text).to_string())
}

/// The devices of all disks, partitions and CDs, sorted by name.
pub fn block_devices() -> Vec<PathBuf> {
    let names = names("/sys/class/block").into_iter();
    names.map(|name| Path::new("/dev").join(name)).collect()
}

/// A value of /proc/meminfo, in bytes (proc(5)); `None` if the kernel does not list it.
pub fn meminfo(key: &str) -> Option<u64> {
    memory_field(&read("/proc/meminfo")?, key)
}

fn memory_field(meminfo: &str, key: &str) -> Option<u64> {
    let text = field(meminfo, key)?;
    let number: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(match text.ends_with("kB") {
        true => number * 1024,
        false => number,
    })
}

/// The names in a folder, sorted; none where it cannot be read.
pub fn names(path: impl AsRef<Path>) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

/// The chosen word of a kernel setting such as `always [madvise] never`.
pub fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(word, _)| word)
}

/// The value behind `key` and a colon in a text such as /proc/cpuinfo.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_values_and_fields_are_found() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(
            field("a\t: 1\nmodel name : X: y\n", "model name"),
            Some("X: y")
        );
    }

    #[test]
    fn memory_is_in_bytes_and_counts_are_unchanged() {
        let text = "MemTotal:       16 kB\nHugePages_Total:       3\n";
        assert_eq!(memory_field(text, "MemTotal"), Some(16 << 10));
        assert_eq!(memory_field(text, "HugePages_Total"), Some(3));
        assert_eq!(memory_field(text, "MemFree"), None);
        assert!(meminfo("MemAvailable").unwrap() > 1 << 20);
    }
}
