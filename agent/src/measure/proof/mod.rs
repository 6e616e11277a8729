//! The environment proof: what the machine looks like from inside, with every hello.
//!
//! The analysis compares the proofs of two arms and names each difference that could explain a
//! result, so this holds facts only, under stable names, and leaves out what differs by chance.

mod cpu;
mod devices;
mod kernel;

pub use cpu::hypervisor;
pub use devices::{interface_names, nic, nic_names};

use serde_json::{json, Value};
use std::fs;
use std::path::Path;

/// Collect the proof. `settings` lists what init changed, with the values before and after.
pub fn collect(settings: &Value) -> Value {
    json!({
        "kernel": kernel::kernel(),
        "scheduler": kernel::scheduler(),
        "memory": kernel::memory(),
        "mitigations": kernel::mitigations(),
        "confinement": kernel::confinement(),
        "clocksource": kernel::clocksource(),
        "cpu": cpu::cpu(),
        "hypervisor": told_of_hypervisor(),
        "tsc": cpu::tsc(),
        "topology": cpu::topology(),
        "power": cpu::power(),
        "machine": devices::machine(),
        "nics": devices::nics(),
        "disks": devices::disks(),
        "scratch": super::scratch::proof(),
        "settings": settings,
    })
}

/// What the hypervisors say that announce themselves, and whether this kernel hears of steal.
fn told_of_hypervisor() -> Value {
    let mut told = hypervisor();
    told["tells_steal"] = json!(super::steal::tells());
    told
}

/// A small file's text without the white space around it; `None` where it cannot be read.
fn read(path: impl AsRef<Path>) -> Option<String> {
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
fn names(path: impl AsRef<Path>) -> Vec<String> {
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
fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(word, _)| word)
}

/// The value behind `key` and a colon in a text such as /proc/cpuinfo.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_of_this_machine_is_whole() {
        let proof = collect(&json!([]));
        assert!(!proof["kernel"]["release"].as_str().unwrap().is_empty());
        assert!(proof["memory"]["total"].as_u64().unwrap() > 0);
        assert!(!proof["topology"]["online"].as_str().unwrap().is_empty());
        assert!((24..=10_000).contains(&proof["kernel"]["tick_hz"].as_u64().unwrap()));
        assert!(proof.to_string().len() < 200_000);
    }

    #[test]
    fn chosen_words_and_fields_are_found() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(
            field("a\t: 1\nmodel name : X: y\n", "model name"),
            Some("X: y")
        );
    }
}
