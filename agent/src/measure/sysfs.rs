//! Small text files of the kernel, as `/proc` and `/sys` hold them.

use std::fs;
use std::path::Path;

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
}
