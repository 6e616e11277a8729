//! `cpu-load`: endless arithmetic that fits in the first cache (a neighbour of scenario 3).

use super::load;
use crate::contract::{Context, Failure};
use crate::measure::params;
use serde::Deserialize;
use serde_json::{json, Value};

/// One batch is short enough that a stop is answered at once, even under emulation.
const OPERATIONS: u64 = 1 << 20;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Default: one per CPU given.
    threads: Option<usize>,
    /// Stop after this time; default: only when stopped.
    seconds: Option<f64>,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let threads = load::threads(context, params.threads);
    params::require((1..=1024).contains(&threads), "threads: 1 to 1024")?;
    let done = load::until_stopped(
        context,
        threads,
        params.seconds,
        |number| (number as u64 + 1, 1.0f64 + number as f64),
        |state| arithmetic(state, OPERATIONS),
    )?;
    Ok(json!({
        "threads": done.threads,
        "seconds": done.seconds,
        "operations": done.batches * OPERATIONS,
        "operations_per_s": done.rate() * OPERATIONS as f64,
        "warnings": [],
    }))
}

/// Integer and floating-point steps; each needs the result of the one before.
fn arithmetic(state: &mut (u64, f64), steps: u64) {
    let (mut whole, mut real) = std::hint::black_box(*state);
    for _ in 0..steps {
        whole = whole
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        real = real * 0.999_999 + 0.5;
    }
    *state = std::hint::black_box((whole, real));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, Collected};

    #[test]
    fn works_for_the_time_given() {
        let (result, collected) = run_with(run, &json!({"seconds": 0.05, "threads": 2}), &[]);
        assert!(
            result["operations"].as_u64().unwrap() >= 2 * OPERATIONS,
            "{result}"
        );
        assert!(result["seconds"].as_f64().unwrap() >= 0.05);
        assert_eq!(collected.barriers(), 1);
    }

    #[test]
    fn runs_until_stopped() {
        let collected = Collected::default();
        let result = std::thread::scope(|scope| {
            let load = scope.spawn(|| collected.run(run, &json!({}), &[]));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!load.is_finished());
            collected.stop();
            load.join().unwrap()
        });
        assert_eq!(result["threads"], 1);
        assert!(result["error"].is_null(), "{result}");
    }

    #[test]
    fn an_impossible_cpu_is_refused() {
        let (result, _) = run_with(run, &json!({}), &[1000]);
        assert!(result["error"].as_str().unwrap().contains("1000"));
    }
}
