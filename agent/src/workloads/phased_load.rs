//! `phased-load`: several loads one after another, with quiet gaps between, so that one time series
//! shows a subject's response to each (figure 9 of hwang2013).

use crate::contract::{Context, Failure, Run, Sink};
use crate::measure::params;
use crate::workloads::net::{Partner, Rendezvous};
use crate::workloads::{cpu_load, disk_load, memory_load};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The loads that may take turns; each works until it is stopped.
const LOADS: [(&str, Load); 4] = [
    ("cpu-load", Load::Alone(cpu_load::run)),
    ("memory-load", Load::Alone(memory_load::run)),
    ("disk-load", Load::Alone(disk_load::run)),
    (NETWORK, Load::WithPartner),
];
const NETWORK: &str = "net-load";
/// How soon a stop from outside is noticed.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// In this order.
    phases: Vec<String>,
    /// How long each works.
    phase_s: f64,
    /// Quiet before each.
    gap_s: f64,
    /// What the host knows of the machine, for the loads that want it.
    #[serde(default)]
    memory_bytes: Option<u64>,
    #[serde(default)]
    caches_bytes: Option<u64>,
    /// Where a network load meets its partner.
    #[serde(default)]
    at: Option<Rendezvous>,
}

/// What one phase does.
#[derive(Clone, Copy)]
enum Load {
    Alone(Run),
    /// With the partner that connected before the start.
    WithPartner,
}

/// A sink for the inner loads: they neither wait nor report, but it notes when they are prepared.
#[derive(Default)]
struct Within {
    prepared: OnceLock<Instant>,
}

impl Within {
    /// How long the load has worked.
    fn worked(&self) -> Duration {
        self.prepared.get().map_or(Duration::ZERO, Instant::elapsed)
    }
}

impl Sink for Within {
    fn progress(&self, _: f64, _: Value) {}
    fn barrier(&self) -> Result<(), Failure> {
        self.prepared.get_or_init(Instant::now);
        Ok(())
    }
    fn series(&self, _: &str, _: usize, _: &[(&str, &str)], _: &[u8]) {}
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require(!params.phases.is_empty(), "phases: at least one")?;
    for (value, name) in [(params.phase_s, "phase_s"), (params.gap_s, "gap_s")] {
        params::require(
            value.is_finite() && (0.0..=1e6).contains(&value),
            &format!("{name}: 0 to 1000000"),
        )?;
    }
    let mut chosen: Vec<(&str, Load)> = Vec::new();
    for name in &params.phases {
        let found = LOADS.iter().find(|(known, _)| known == name);
        chosen.push(*found.ok_or_else(|| {
            let known = LOADS.map(|(known, _)| known).join(", ");
            format!("phases: '{name}' is none of {known}")
        })?);
    }
    let partner = partner(&params, context.stop)?;
    context.sink.barrier()?;
    let start = Instant::now();
    let mut phases = Vec::new();
    for (number, (name, load)) in chosen.iter().enumerate() {
        let begin = params.gap_s + number as f64 * (params.phase_s + params.gap_s);
        if !sleep_until(start, begin, context.stop) {
            break;
        }
        let began = start.elapsed().as_secs_f64();
        let result = match (load, &partner) {
            (Load::Alone(run), _) => {
                phase(context, *run, &params_of(name, &params), params.phase_s)
            }
            (Load::WithPartner, Some(partner)) => partner.load(context.stop, Some(params.phase_s)),
            (Load::WithPartner, None) => Err(Failure("there is no partner".into())),
        }
        .map_err(|failure| Failure(format!("{name}: {}", failure.0)))?;
        phases.push(json!({
            "name": name,
            "begin_s": began,
            "end_s": start.elapsed().as_secs_f64(),
            "result": result,
        }));
    }
    // The gap after the last phase lasts until the subject's measurement has ended.
    while !context.stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let mut warnings = Vec::new();
    if phases.len() < chosen.len() {
        warnings.push(format!(
            "only {} of {} phases had begun when it was stopped",
            phases.len(),
            chosen.len()
        ));
    }
    Ok(json!({
        "seconds": start.elapsed().as_secs_f64(),
        "phases": phases,
        "asked": chosen.len(),
        "warnings": warnings,
    }))
}

/// Wait for the partner before the start, if any phase needs one.
fn partner(params: &Params, stop: &AtomicBool) -> Result<Option<Partner>, Failure> {
    if !params.phases.iter().any(|name| name == NETWORK) {
        return Ok(None);
    }
    let at = params
        .at
        .as_ref()
        .ok_or("net-load: at: where is its partner to be met?")?;
    at.accept_partner(&at.listen()?, stop).map(Some)
}

fn params_of(name: &str, params: &Params) -> Value {
    if name != "memory-load" {
        return json!({});
    }
    json!({"memory_bytes": params.memory_bytes, "caches_bytes": params.caches_bytes})
}

/// Let one load work for `seconds` once it is prepared, or until all is to end.
///
/// Touching much memory in an emulated machine may take as long as the phase itself.
fn phase(context: &Context, run: Run, params: &Value, seconds: f64) -> Result<Value, Failure> {
    let (stop, within) = (AtomicBool::new(false), Within::default());
    std::thread::scope(|scope| {
        let inner = Context {
            params,
            cpus: context.cpus,
            stop: &stop,
            sink: &within,
        };
        let load = scope.spawn(move || run(&inner));
        while !load.is_finished()
            && !context.stop.load(Ordering::Relaxed)
            && within.worked().as_secs_f64() < seconds
        {
            std::thread::sleep(LOOK);
        }
        stop.store(true, Ordering::Relaxed);
        load.join()
            .map_err(|_| Failure("the load panicked".into()))?
    })
}

/// Sleep until `seconds` after `start`. Returns false where the end came before.
fn sleep_until(start: Instant, seconds: f64, stop: &AtomicBool) -> bool {
    while start.elapsed().as_secs_f64() < seconds {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    !stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, until_enough, Collected};

    /// Run for some seconds after the start.
    fn run_for(params: &Value, seconds: f64) -> Value {
        let collected = Collected::default();
        std::thread::scope(|scope| {
            let load = scope.spawn(|| collected.run(run, params, &[]));
            while collected.barriers() == 0 && !load.is_finished() {
                std::thread::sleep(LOOK);
            }
            std::thread::sleep(Duration::from_secs_f64(seconds));
            collected.stop();
            load.join().unwrap()
        })
    }

    fn has_phases(count: usize) -> impl Fn(&Value) -> bool {
        move |result| result["phases"].as_array().map(Vec::len) == Some(count)
    }

    #[test]
    fn loads_take_turns_with_quiet_between() {
        let params = json!({"phases": ["cpu-load", "cpu-load"], "phase_s": 0.2, "gap_s": 0.05});
        let result = until_enough(|seconds| run_for(&params, 3.0 * seconds), has_phases(2));
        let phases = result["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 2, "{result}");
        assert_eq!(phases[0]["name"], "cpu-load");
        assert!(phases[0]["result"]["operations"].as_u64().unwrap() > 0);
        assert!(phases[1]["result"]["operations"].as_u64().unwrap() > 0);
        let quiet = phases[1]["begin_s"].as_f64().unwrap() - phases[0]["end_s"].as_f64().unwrap();
        assert!(quiet >= 0.0, "{result}");
        assert!(phases[0]["begin_s"].as_f64().unwrap() >= 0.05);
    }

    #[test]
    fn an_early_end_reports_only_the_phases_that_ran() {
        let result = run_for(
            &json!({"phases": ["cpu-load", "cpu-load"], "phase_s": 30, "gap_s": 0}),
            0.2,
        );
        assert_eq!(result["phases"].as_array().unwrap().len(), 1, "{result}");
        assert_eq!(result["asked"], 2);
        let warning = result["warnings"][0].as_str().unwrap();
        assert!(warning.contains("1 of 2"), "{result}");
    }

    #[test]
    fn the_network_takes_its_turn_with_a_partner() {
        let run_with_partner = |seconds: f64| {
            let port = std::net::TcpListener::bind("127.0.0.1:0")
                .and_then(|listener| listener.local_addr())
                .unwrap()
                .port();
            let at = json!({"port": port});
            let echo = json!({"at": at});
            let params = json!({
                "phases": ["net-load", "cpu-load", "net-load"], "phase_s": 0.1, "gap_s": 0.02, "at": at,
            });
            let partner = Collected::default();
            std::thread::scope(|scope| {
                scope.spawn(|| partner.run(crate::workloads::net::run_echo, &echo, &[]));
                run_for(&params, 3.0 * seconds)
            })
        };
        let result = until_enough(run_with_partner, has_phases(3));
        let phases = result["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 3, "{result}");
        for phase in [&phases[0], &phases[2]] {
            assert!(phase["result"]["bytes"].as_u64().unwrap() > 0, "{result}");
        }
    }

    #[test]
    fn only_loads_may_take_turns() {
        for (params, word) in [
            (
                json!({"phases": ["tick"], "phase_s": 1, "gap_s": 0}),
                "tick",
            ),
            (json!({"phases": [], "phase_s": 1, "gap_s": 0}), "phases"),
            (
                json!({"phases": ["net-load"], "phase_s": 1, "gap_s": 0}),
                "partner",
            ),
            (
                json!({"phases": ["cpu-load"], "phase_s": -1, "gap_s": 0}),
                "phase_s",
            ),
        ] {
            let (result, _) = run_with(run, &params, &[]);
            let reason = result["error"].as_str().unwrap_or_default();
            assert!(reason.contains(word), "{result}");
        }
    }
}
