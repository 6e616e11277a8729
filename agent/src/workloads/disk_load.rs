//! `disk-load`: endless writing and reading of a file on the machine's own disk (a neighbour that
//! keeps the host's disk busy).

use super::load;
use crate::contract::{Context, Failure};
use crate::measure::params;
use crate::measure::scratch;
use serde::Deserialize;
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

/// One batch: short enough that a stop is answered soon on a slow disk too.
const PIECE: usize = 1 << 20;
/// The share of the disk that the load's files take at most.
const SHARE: u64 = 4;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Each has its own file. Default: 1.
    threads: Option<usize>,
    /// Stop after this time; default: only when stopped.
    seconds: Option<f64>,
    /// The size of each file; 0 or nothing: 64 MiB.
    file_bytes: u64,
}

struct State {
    file: File,
    pieces: u64,
    next: u64,
    data: Vec<u8>,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let threads = params.threads.unwrap_or(1);
    params::require((1..=64).contains(&threads), "threads: 1 to 64")?;
    let disk = scratch::required()?;
    let size = match params.file_bytes {
        0 => 64 << 20,
        given => given,
    };
    let free = crate::sys::space(&disk)?.free;
    params::require(
        size.saturating_mul(threads as u64) <= free / SHARE * 3,
        "file_bytes: all files together take more than the machine's disk has room for",
    )?;
    let folder = disk.join(format!("tare-disk-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (broken, failed) = (Mutex::new(None), AtomicBool::new(false));
    let open = |number: usize| -> std::io::Result<State> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.join(number.to_string()))?;
        Ok(State {
            file,
            pieces: (size / PIECE as u64).max(1),
            next: 0,
            data: vec![0xA5; PIECE],
        })
    };
    let states: Vec<Mutex<State>> = (0..threads)
        .map(|number| open(number).map(Mutex::new))
        .collect::<Result<_, _>>()?;
    let done = load::until_stopped(
        context,
        threads,
        params.seconds,
        |number| number,
        |number| {
            if failed.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(5));
                return;
            }
            let mut state = states[*number].lock().unwrap_or_else(|e| e.into_inner());
            if let Err(error) = step(&mut state) {
                *broken.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                failed.store(true, Ordering::Relaxed);
            }
        },
    );
    drop(states);
    let _ = std::fs::remove_dir_all(&folder);
    let done = done?;
    if let Some(error) = broken.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(Failure(format!("the disk could not be loaded: {error}")));
    }
    Ok(json!({
        "threads": done.threads,
        "seconds": done.seconds,
        "bytes": done.batches * PIECE as u64,
        "bytes_per_s": done.rate() * PIECE as f64,
        "warnings": [],
    }))
}

/// Write a piece through to the disk, or, every other time, read one that is in no cache any more.
fn step(state: &mut State) -> std::io::Result<()> {
    let at = (state.next / 2 % state.pieces) * PIECE as u64;
    if state.next % 2 == 0 {
        state.file.write_all_at(&state.data, at)?;
        state.file.sync_data()?;
        crate::sys::forget_cached(&state.file)?;
    } else {
        state.file.read_exact_at(&mut state.data, at)?;
    }
    state.next += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn without_a_disk_the_error_names_what_is_missing() {
        if scratch::path().is_none() {
            let (result, _) = run_with(run, &json!({"seconds": 0.05}), &[]);
            let reason = result["error"].as_str().unwrap_or_default();
            assert!(reason.contains("give its shape one"), "{result}");
        }
    }

    #[test]
    fn written_pieces_can_be_read() {
        let folder =
            std::env::temp_dir().join(format!("tare-disk-load-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.join("file"))
            .unwrap();
        let mut state = State {
            file,
            pieces: 2,
            next: 0,
            data: vec![0xA5; PIECE],
        };
        for _ in 0..5 {
            step(&mut state).unwrap();
        }
        assert_eq!(state.file.metadata().unwrap().len(), 2 * PIECE as u64);
        assert!(state.data.iter().all(|byte| *byte == 0xA5));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
