//! Each module of the agent uses only the ones below it, as `lib.rs` states.

use std::fs;
use std::path::{Path, PathBuf};

/// From top to bottom.
const LAYERS: [&str; 7] = [
    "boot",
    "channel",
    "workloads",
    "tools",
    "measure",
    "contract",
    "sys",
];

fn sources(path: PathBuf) -> Vec<PathBuf> {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        entries
            .flat_map(|entry| sources(entry.unwrap().path()))
            .collect()
    } else {
        vec![path]
    }
}

/// The layers that a file names, as `crate::LAYER` or as `crate::{LAYER, LAYER}`.
fn named(text: &str) -> Vec<&str> {
    let behind = text.split("crate::").skip(1);
    behind
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap().split(',').collect(),
            None => vec![rest],
        })
        .map(|words| {
            let word = words.trim_start();
            let end = word.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            &word[..end.unwrap_or(word.len())]
        })
        .collect()
}

#[test]
fn no_layer_uses_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let height = |layer: &str| LAYERS.iter().position(|known| *known == layer);
    let mut uses = 0;
    for (own, layer) in LAYERS.iter().enumerate() {
        let folder = src.join(layer);
        let files = if folder.is_dir() {
            sources(folder)
        } else {
            vec![src.join(format!("{layer}.rs"))]
        };
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for other in named(&text) {
                let other = height(other).unwrap_or_else(|| panic!("{file:?} names {other}"));
                assert!(other >= own, "{file:?} uses {}", LAYERS[other]);
                uses += usize::from(other > own);
            }
        }
    }
    assert!(uses > 100, "only {uses} uses were found");
}
