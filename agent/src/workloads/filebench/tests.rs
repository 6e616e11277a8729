//! The workload with each personality and each micro-benchmark, on a disk that is a folder.

use super::counts::Op;
use super::personality::Personality;
use super::*;
use crate::workloads::testing::{run_with, until_enough, Collected};
use std::path::PathBuf;
use std::sync::MutexGuard;

static ENVIRONMENT: Mutex<()> = Mutex::new(());

/// A folder that takes the place of the machine's own disk.
struct Scratch(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

impl Scratch {
    fn make() -> Self {
        let guard = ENVIRONMENT
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let path = std::env::temp_dir().join(format!("tare-scratch-test-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        std::env::set_var(scratch::VARIABLE, &path);
        Self(path, guard)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::env::remove_var(scratch::VARIABLE);
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn small(work: &str) -> Value {
    json!({
        "work": work, "seconds": 0.2, "files": 60, "mean_bytes": 2000, "width": 4, "threads": 4,
        "io_bytes": 4096, "total_bytes": 1 << 20, "memory_bytes": 1u64 << 40,
    })
}

/// How often each operation is in one turn of the loop.
fn in_a_loop(personality: Personality, op: Op) -> u64 {
    use Op::{Append, Close, Create, Delete, Open, Read, Stat, Sync, Write};
    match (personality, op) {
        (Personality::Fileserver, Create | Write | Append | Read | Delete | Stat) => 1,
        (Personality::Fileserver, Open) => 2,
        (Personality::Fileserver, Close) => 3,
        (Personality::Varmail, Delete | Create) => 1,
        (Personality::Varmail, Append | Sync | Open | Read) => 2,
        (Personality::Varmail, Close) => 3,
        (Personality::Webserver, Open | Read | Close) => 10,
        (Personality::Webserver, Append) => 1,
        _ => 0,
    }
}

#[test]
fn every_personality_does_its_loop_and_counts_it() {
    let scratch = Scratch::make();
    for personality in Personality::ALL {
        let (result, collected) = until_enough(
            |seconds| {
                let mut params = small(personality.name());
                params["seconds"] = seconds.into();
                run_with(run, &params, &[])
            },
            |(result, _)| {
                let turned = |op: &Op| {
                    result["by_operation"][op.name()]["count"].as_u64()
                        >= Some(in_a_loop(personality, *op))
                };
                let mut used = Op::ALL.iter().filter(|op| in_a_loop(personality, **op) > 0);
                used.all(turned)
            },
        );
        assert_eq!(result["error"], Value::Null, "{result}");
        let counted = |op: Op| {
            result["by_operation"][op.name()]["count"]
                .as_u64()
                .unwrap_or(0)
        };
        let whole: u64 = Op::ALL.iter().map(|op| counted(*op)).sum();
        assert_eq!(result["operations"].as_u64().unwrap(), whole);
        let turns = Op::ALL
            .iter()
            .filter(|op| in_a_loop(personality, **op) > 0)
            .map(|op| counted(*op) / in_a_loop(personality, *op));
        let (least, most) = (turns.clone().min().unwrap(), turns.max().unwrap());
        // Each of the four threads ends somewhere in its last turn.
        assert!(
            least > 0 && most - least <= 4,
            "{personality:?}: {least} to {most} turns"
        );
        for op in Op::ALL
            .iter()
            .filter(|op| in_a_loop(personality, **op) == 0)
        {
            assert_eq!(counted(*op), 0, "{personality:?} does no {op:?}");
        }
        assert_eq!(collected.names(), ["operations"]);
        assert_eq!(collected.barriers(), 1);
        let warnings = result["warnings"].to_string();
        assert!(warnings.contains("page cache") && warnings.contains("files 60 instead of"));
    }
    assert_eq!(
        fs::read_dir(&scratch.0).unwrap().count(),
        0,
        "nothing is left"
    );
}

#[test]
fn every_microbenchmark_moves_whole_ios_one_way() {
    let _scratch = Scratch::make();
    for (name, micro) in micro::Micro::ALL {
        let (result, _) = run_with(run, &small(name), &[]);
        assert_eq!(result["error"], Value::Null, "{result}");
        let (one, other) = if micro.write {
            ("write", "read")
        } else {
            ("read", "write")
        };
        assert!(result["by_operation"][other].is_null(), "{result}");
        let count = result["by_operation"][one]["count"].as_f64().unwrap();
        let seconds = result["seconds"].as_f64().unwrap();
        let rate = result["bytes_per_s"].as_f64().unwrap();
        assert!((rate * seconds / (count * 4096.0) - 1.0).abs() < 1e-9);
        assert_eq!(result["files"], if micro.random { 1 } else { 4 });
        assert_eq!(result["file_set_bytes"], 1 << 20);
    }
}

#[test]
fn impossible_work_is_refused_with_the_reason() {
    let _scratch = Scratch::make();
    for (change, reason) in [
        (json!({"work": "mailserver"}), "no such work"),
        (json!({"preallocated": 1.0}), "names that are free"),
        (json!({"files": 4}), "than there are threads"),
        (json!({"direct": true}), "page cache"),
        (
            json!({"work": "random-read", "direct": true, "io_bytes": 1000}),
            "4 KiB",
        ),
        (
            json!({"work": "random-read", "total_bytes": 10}),
            "at least one I/O",
        ),
        (json!({"mean_bytes": 1u64 << 40}), "too small"),
    ] {
        let mut params = small("fileserver");
        for (key, value) in change.as_object().unwrap() {
            params[key] = value.clone();
        }
        let (result, _) = run_with(run, &params, &[]);
        let error = result["error"].as_str().unwrap_or("nothing");
        assert!(error.contains(reason), "{change}: {error}");
    }
}

#[test]
fn a_run_that_is_stopped_leaves_nothing() {
    let scratch = Scratch::make();
    let result = Collected::stopped().run(run, &small("varmail"), &[]);
    assert!(result["error"].as_str().unwrap().contains("stopped"));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn full_and_broken_disks_are_named_in_the_error() {
    let path = std::env::temp_dir().join("f00000001");
    let words = |code| match End::io("write", &path, &std::io::Error::from_raw_os_error(code)) {
        End::Failed(reason) => reason,
        End::Over => String::new(),
    };
    assert!(words(libc::ENOSPC).starts_with("the machine's disk is full ("));
    assert!(words(libc::EIO).starts_with("the machine's disk failed"));
    assert!(words(libc::ENOENT).starts_with("write f00000001"));
}

#[test]
fn cached_writes_are_flushed_unless_the_cache_is_measured() {
    for (params, flushed) in [
        (json!({"work": "sequential-write"}), true),
        (json!({"work": "random-write"}), true),
        (json!({"work": "random-write", "cached": true}), false),
        (json!({"work": "random-write", "direct": true}), false),
        (json!({"work": "sequential-read"}), false),
        (json!({"work": "varmail"}), false),
    ] {
        let plan = super::params::plan(&params).unwrap();
        assert_eq!(plan.flushed, flushed, "{params}");
    }
}
