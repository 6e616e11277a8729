//! Bytemark's CPU kernels, rewritten from their description: how often per second 1 to N threads
//! complete a fixed, verified piece of work.

mod assignment;
mod bitfield;
mod fourier;
mod fp_emulation;
mod harness;
mod huffman;
mod idea;
mod lu;
mod neural_net;
mod numeric_sort;
mod soft_float;
mod string_sort;

use crate::contract::{Context, Failure, Run};
use crate::measure::columns::Table;
use harness::{alone, batches, Batch, Team};
use serde_json::{json, Map, Value};

/// Heap-sort 8111 32-bit integers.
pub const NUMERIC_SORT: Run = alone::<numeric_sort::NumericSort>;
/// Heap-sort strings of 8111 bytes together.
pub const STRING_SORT: Run = alone::<string_sort::StringSort>;
/// Set, clear and complement runs of bits in 32768 words.
pub const BITFIELD: Run = alone::<bitfield::Bitfield>;
/// 3000 floating-point operations by integer arithmetic.
pub const FP_EMULATION: Run = alone::<fp_emulation::FpEmulation>;
/// The first 100 pairs of Fourier coefficients of (x+1)^x on [0, 2].
pub const FOURIER: Run = alone::<fourier::Fourier>;
/// The cheapest assignment of 101 tasks.
pub const ASSIGNMENT: Run = alone::<assignment::Assignment>;
/// Encrypt and decrypt 4000 bytes with IDEA.
pub const IDEA: Run = alone::<idea::Idea>;
/// Compress and expand 5000 bytes.
pub const HUFFMAN: Run = alone::<huffman::Huffman>;
/// Teach a 35-8-8 network the letters.
pub const NEURAL_NET: Run = alone::<neural_net::NeuralNet>;
/// Solve 101 linear equations.
pub const LU: Run = alone::<lu::Lu>;

type Batches = fn(&Team, bool) -> Result<Vec<Vec<Batch>>, Failure>;

/// The ten, in the order in which `bytemark` runs them.
const TEN: [(&str, Batches); 10] = [
    ("numeric-sort", batches::<numeric_sort::NumericSort>),
    ("string-sort", batches::<string_sort::StringSort>),
    ("bitfield", batches::<bitfield::Bitfield>),
    ("fp-emulation", batches::<fp_emulation::FpEmulation>),
    ("fourier", batches::<fourier::Fourier>),
    ("assignment", batches::<assignment::Assignment>),
    ("idea", batches::<idea::Idea>),
    ("huffman", batches::<huffman::Huffman>),
    ("neural-net", batches::<neural_net::NeuralNet>),
    ("lu", batches::<lu::Lu>),
];

/// All ten kernels, one after the other, each for the least time.
pub fn run(context: &Context) -> Result<Value, Failure> {
    let team = Team::new(context)?;
    let (mut kernels, mut rows) = (Map::new(), Vec::new());
    let mut origin = None;
    for (number, (name, batches)) in TEN.iter().enumerate() {
        let per_thread = batches(&team, number == 0)?;
        kernels.insert((*name).into(), harness::summary(&per_thread));
        let begin = *origin.get_or_insert(harness::begin(&per_thread));
        for (thread, batch) in harness::numbered(&per_thread) {
            let (time, iteration) = (batch.start_ns - begin, batch.iteration_ns());
            rows.push((number as u64, thread, time, iteration));
        }
        let done = (number + 1) as f64 / TEN.len() as f64;
        context.sink.progress(done, json!({"kernel": name}));
    }
    Table::new()
        .u64s("kernel", rows.iter().map(|row| row.0))
        .u64s("thread", rows.iter().map(|row| row.1))
        .u64s("time_ns", rows.iter().map(|row| row.2))
        .f64s("iteration_ns", rows.iter().map(|row| row.3))
        .send(context.sink, "iterations");
    Ok(json!({
        "threads": team.threads,
        "seconds": team.seconds,
        "kernels": kernels,
        "order": TEN.map(|(name, _)| name),
        "verified": true,
        "warnings": [],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn each_kernel_runs_verifies_and_reports() {
        let kernels = [
            NUMERIC_SORT,
            STRING_SORT,
            BITFIELD,
            FP_EMULATION,
            FOURIER,
            ASSIGNMENT,
            IDEA,
            HUFFMAN,
            NEURAL_NET,
            LU,
        ];
        for (kernel, (name, _)) in kernels.into_iter().zip(TEN) {
            for threads in [1, 2] {
                let params = json!({"seconds": 0.005, "threads": threads});
                let (result, collected) = run_with(kernel, &params, &[]);
                assert_eq!(result["verified"], true, "{name}: {result}");
                assert!(result["iterations_per_s"].as_f64().unwrap() > 0.0);
                let series = collected.series.lock().unwrap();
                assert_eq!(series[0].data.len(), series[0].expected_bytes());
                let mut seen = series[0].words("thread");
                seen.dedup();
                assert_eq!(seen.len(), threads, "{name}");
                assert_eq!(collected.barriers(), 1);
            }
        }
    }

    #[test]
    fn bytemark_runs_all_ten_after_one_common_start() {
        let params = json!({"seconds": 0.002, "threads": 2});
        let (result, collected) = run_with(run, &params, &[]);
        let kernels = result["kernels"].as_object().expect("an object");
        assert_eq!(kernels.len(), 10, "{result}");
        for (name, kernel) in kernels {
            assert!(kernel["iterations_per_s"].as_f64().unwrap() > 0.0, "{name}");
        }
        assert_eq!(collected.barriers(), 1);
        let series = collected.series.lock().unwrap();
        let mut seen = series[0].words("kernel");
        seen.dedup();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }
}
