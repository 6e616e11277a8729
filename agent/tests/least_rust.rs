//! The oldest Rust that can build the agent is stated in Cargo.toml. No dependency needs a newer one.
//! `scripts/least-rust` builds the agent with it.

use serde_json::Value;
use std::process::Command;

const OURS: &str = env!("CARGO_PKG_RUST_VERSION");

/// A version's parts as numbers; a missing part counts as zero.
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
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
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
fn the_setup_page_states_the_least_rust() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/setup.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("Rust {OURS} or newer")), "{OURS}");
}
