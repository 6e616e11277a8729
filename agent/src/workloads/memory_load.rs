//! `memory-load`: endless copying of a block larger than all caches together (a neighbour that
//! fills the memory bus; fayyad2013 copied 9 MB on a machine with 8 MB of cache).

use super::load;
use crate::contract::{Context, Failure};
use crate::measure::{machine, params, prefault};
use serde::Deserialize;
use serde_json::{json, Value};

/// The ratio of fayyad2013: 9 MB to 8 MB of cache.
const BEYOND_CACHES: f64 = 9.0 / 8.0;
/// Where the machine does not show its caches.
const UNKNOWN_CACHES: u64 = 32 << 20;
/// All blocks together take at most this share of the memory.
const SHARE: f64 = 0.4;
/// Copied between two looks at the stop flag.
const PIECE: usize = 8 << 20;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Params {
    threads: Option<usize>,
    seconds: Option<f64>,
    /// The size of the copied block. 0 (the default): 9/8 of the total size of all caches.
    block_bytes: u64,
    /// The total size of all caches, from the host. Default: as this machine reports it.
    caches_bytes: Option<u64>,
    /// The machine's memory, from the host. Default: what this machine has available.
    memory_bytes: Option<u64>,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let threads = load::threads(context, params.threads);
    params::require((1..=1024).contains(&threads), "threads: 1 to 1024")?;
    let caches = params
        .caches_bytes
        .or_else(|| machine::caches().map(|caches| caches.together));
    let memory = machine::memory_available().min(params.memory_bytes.unwrap_or(u64::MAX));
    let (block, warnings) = block(&params, caches, memory, threads as u64);
    let length = block as usize;
    let done = load::until_stopped(
        context,
        threads,
        params.seconds,
        |_| {
            (
                prefault::touched(length, 1u8),
                prefault::touched(length, 0u8),
                0,
            )
        },
        copy_piece,
    )?;
    let bytes = done.batches * PIECE.min(length) as u64;
    Ok(json!({
        "threads": done.threads,
        "seconds": done.seconds,
        "block_bytes": block,
        "caches_bytes": caches,
        "bytes": bytes,
        "bytes_per_s": bytes as f64 / done.seconds,
        "warnings": warnings,
    }))
}

/// The block each thread copies, in bytes, and warnings if it differs from the default.
fn block(params: &Params, caches: Option<u64>, memory: u64, threads: u64) -> (u64, Vec<String>) {
    let mut warnings = Vec::new();
    let wanted = if params.block_bytes > 0 {
        params.block_bytes
    } else {
        if caches.is_none() {
            warnings.push("this machine does not show its caches; 32 MiB assumed".into());
        }
        (caches.unwrap_or(UNKNOWN_CACHES) as f64 * BEYOND_CACHES) as u64
    };
    // A source and a target per thread.
    let most = ((memory as f64 * SHARE) as u64 / (2 * threads)).max(4096);
    if wanted > most {
        warnings.push(format!(
            "the block is {} KiB instead of {} KiB, because all blocks together may take {:.0} % \
             of the memory; parts of it may stay in caches",
            most >> 10,
            wanted >> 10,
            SHARE * 100.0
        ));
    }
    (wanted.min(most), warnings)
}

/// Copy the next piece of the block; every other round goes the other way, so that each copy has
/// something to move.
fn copy_piece((one, other, next): &mut (Vec<u8>, Vec<u8>, usize)) {
    let end = (*next + PIECE).min(one.len());
    let start = end - PIECE.min(one.len());
    other[start..end].copy_from_slice(&one[start..end]);
    std::hint::black_box(&mut other[start..end]);
    *next = end;
    if end == one.len() {
        *next = 0;
        std::mem::swap(one, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn derives_the_block_from_the_caches() {
        let (size, warnings) = block(&Params::default(), Some(8 << 20), 1 << 30, 1);
        assert_eq!((size, warnings.len()), (9 << 20, 0));
    }

    #[test]
    fn stays_within_its_share_with_a_warning() {
        let (size, warnings) = block(&Params::default(), Some(480 << 20), 256 << 20, 2);
        assert!(size * 4 <= (256 << 20) * 2 / 5 && size > 20 << 20, "{size}");
        assert!(warnings[0].contains("KiB"));
    }

    #[test]
    fn copies_every_byte_of_the_block() {
        let length = 2 * PIECE + 4096;
        let mut state = (vec![7u8; length], vec![0u8; length], 0);
        for _ in 0..3 {
            copy_piece(&mut state);
        }
        assert_eq!(state.2, 0);
        assert!(state.0 == state.1 && state.1.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn reports_the_work_done() {
        let params = json!({"seconds": 0.03, "block_bytes": 1 << 20});
        let (result, _) = run_with(run, &params, &[]);
        assert_eq!(result["block_bytes"], 1 << 20);
        assert_eq!(result["bytes"].as_u64().unwrap() % (1 << 20), 0);
        assert!(result["bytes_per_s"].as_f64().unwrap() > 0.0);
    }
}
