//! The ring as a whole.

use super::*;
use crate::workloads::testing::{run_with, Collected};

fn switch(threads: usize, samples: u64) -> (Value, Collected) {
    let params = json!({
        "threads": threads, "samples": samples, "allow_untrusted_tsc": true
    });
    run_with(run, &params, &[])
}

#[test]
fn measures_the_switches_asked_for_and_orders_them() {
    for threads in [1, 2, 50] {
        let (result, collected) = switch(threads, 2000);
        let number = |name: &str| result[name].as_f64().unwrap();
        let left_out = number("not_switched") + number("tsc_backwards");
        assert!(number("samples") + left_out >= 2000.0, "{result}");
        let tails = ["median_s", "p99_s", "p999_s", "p9999_s"]
            .map(|name| result["switch"][name].as_f64().unwrap());
        assert!(tails.windows(2).all(|pair| pair[0] <= pair[1]), "{result}");
        assert!(number("switch_min_s") > 0.0 && number("switch_min_s") <= tails[0] * 1.01);
        assert_eq!(collected.barriers(), 1);
        assert_eq!(collected.names(), ["histogram", "scatter"]);
    }
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let params = json!({"threads": 3, "allow_untrusted_tsc": true});
    let (result, _) = run_with(run, &params, &[1000]);
    assert!(
        result["error"].as_str().unwrap().contains("1000"),
        "{result}"
    );
}

#[test]
fn ends_when_stopped() {
    let collected = Collected::stopped();
    let params = json!({"samples": 1_000_000_000, "allow_untrusted_tsc": true});
    let result = collected.carry_out(run, &params, &[]);
    assert!(
        result["error"].as_str().unwrap().contains("no switch"),
        "{result}"
    );
}

#[test]
fn its_course_holds_every_switch_that_counts() {
    let params = json!({
        "samples": 3000, "intervals": 7, "raw": true, "allow_untrusted_tsc": true
    });
    let (result, collected) = run_with(run, &params, &[]);
    let series = collected.series.lock().unwrap();
    let named = |name: &str| series.iter().find(|taken| taken.name == name).unwrap();
    let measured = result["samples"].as_u64().unwrap();
    assert_eq!(
        named("scatter").words("samples").iter().sum::<u64>(),
        measured
    );
    assert!(named("scatter").rows <= 7);
    assert_eq!(named("raw").rows as u64, measured);
    assert!(result["switch_max_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn intervals_have_bounds() {
    let params = json!({"intervals": 0, "allow_untrusted_tsc": true});
    let (result, _) = run_with(run, &params, &[]);
    assert!(result["error"].as_str().unwrap().contains("intervals"));
}
