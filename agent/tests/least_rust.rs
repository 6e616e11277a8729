//! The least Rust that can build the agent is stated once, in Cargo.toml, and no dependency asks
//! for a newer one. `scripts/least-rust` builds with it for real.

use serde_json::Value;
use std::process::Command;

const OURS: &str = env!("CARGO_PKG_RUST_VERSION");

/// A version's parts as numbers; what is left out counts as zero.
fn version(text: &str) -> [u64; 3] {
    let mut parts = text.split('.').map(|part| part.parse().unwrap());
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

fn metadata() -> Value {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn no_dependency_asks_for_a_newer_rust() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10);
    let newer: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let asked = package["rust_version"].as_str()?;
            let name = package["name"].as_str()?;
            (version(asked) > version(OURS)).then(|| format!("{name} asks for {asked}"))
        })
        .collect();
    assert!(newer.is_empty(), "beyond Rust {OURS}: {newer:#?}");
}

#[test]
fn the_readme_states_the_least_rust() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains(&format!("Rust {OURS} or newer")), "{OURS}");
}
