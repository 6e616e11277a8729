//! `http-load`: requests to a web server, as many as it answers or at a stated rate.
//!
//! At a rate, each request has a moment at which it is due, whatever became of those before it,
//! and its time counts from that moment. A server that stops for a second then shows as a second,
//! not as one slow request and a pause of the generator (Tene, "How NOT to measure latency", 2013,
//! calls that coordinated omission).

mod engine;
mod http2;
mod params;
mod response;
mod schedule;
mod tally;
mod transport;

use crate::contract::{Context, Failure};
use crate::measure::clock::monotonic_ns;
use crate::measure::columns::Table;
use crate::measure::params as given;
use crate::measure::scheduling;
use crate::sys;
use engine::{Engine, Plan, Span};
use params::Params;
use schedule::{Arrivals, Schedule};
use serde_json::{json, Value};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tally::{RequestError, Tally};

pub(crate) use tally::{count, durations, summary};

/// Descriptors other than its connections: channel, logs, pollers.
const OTHER_DESCRIPTORS: u64 = 256;
const PATIENCE_NS: u64 = 20_000_000;
/// The time between the threads' preparation and their common start.
const RUN_UP_NS: u64 = 5_000_000;
/// If more than one request in a hundred starts this late, the generator is too slow.
const LATE_S: f64 = 1e-3;

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = given::parse(context.params)?;
    params.check()?;
    let plan = Plan {
        target: SocketAddrV4::new(params.address, params.port),
        requests: params
            .paths
            .iter()
            .map(|path| params.prepare(path))
            .collect::<Result<_, _>>()?,
        layers: params.layers()?,
        keep_alive: params.keep_alive,
        expected_status: params.expected_status,
        expected_bytes: params.expected_bytes,
        timeout_ns: ns(params.timeout_s),
    };
    let usable = if context.cpus.is_empty() {
        sys::affinity(0).map_or(1, |cpus| cpus.len())
    } else {
        context.cpus.len()
    };
    let threads = params
        .threads
        .unwrap_or(usable)
        .clamp(1, params.connections);
    sys::allow_descriptors(params.connections as u64 + OTHER_DESCRIPTORS);
    wait_for_server(&plan, params.patience_s, context.stop)?;
    context.sink.barrier()?;
    let start = monotonic_ns() + RUN_UP_NS;
    let tally = drive(context, &params, &plan, threads, start)?;
    report(context, &params, &plan, threads, &tally)
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Ask the server once for each path, until it answers as expected or patience ends.
fn wait_for_server(plan: &Plan, patience_s: f64, stop: &AtomicBool) -> Result<(), Failure> {
    let began = monotonic_ns();
    loop {
        let tally = ask_once(plan, stop)?;
        if tally.failures() == 0 {
            return Ok(());
        }
        let spent = monotonic_ns() - began >= ns(patience_s);
        // A wrong answer stays wrong: do not retry.
        let is_final = tally.errors_by_kind[RequestError::WrongStatus as usize] > 0
            || tally.errors_by_kind[RequestError::WrongLength as usize] > 0
            || tally.errors_by_kind[RequestError::Malformed as usize] > 0
            || tally.errors_by_kind[RequestError::Handshake as usize] > 0;
        if spent || is_final || stop.load(Ordering::Relaxed) {
            return Err(Failure(format!(
                "the server at {} does not answer as expected (status {}) to the first requests: {}",
                plan.target,
                plan.expected_status,
                tally.errors_in_words()
            )));
        }
        std::thread::sleep(Duration::from_nanos(PATIENCE_NS));
    }
}

/// One request for each path, one after the other.
fn ask_once(plan: &Plan, stop: &AtomicBool) -> Result<Tally, Failure> {
    // A schedule that is all due at once, and ends after the last path.
    let gap_ns = 1000;
    let now = monotonic_ns();
    let span = Span {
        start_ns: now,
        end_ns: now + gap_ns * plan.requests.len() as u64 - gap_ns / 2,
        connections: 1,
        schedule: Some(Schedule::new(
            now,
            1e9 / gap_ns as f64,
            Arrivals::Constant,
            0,
            1,
        )),
    };
    let tally = Tally::new(now, span.end_ns, gap_ns);
    Ok(Engine::new(plan, span, tally, stop)?.run()?)
}

/// Run all threads, report progress, and add up their counts.
fn drive(
    context: &Context,
    params: &Params,
    plan: &Plan,
    threads: usize,
    start: u64,
) -> Result<Tally, Failure> {
    let counted = start + ns(params.warmup_s);
    let end = counted + ns(params.seconds);
    let work = |number: usize| -> std::io::Result<Tally> {
        if let [_, ..] = context.cpus {
            scheduling::pin(&[context.cpus[number % context.cpus.len()]])?;
        }
        let share =
            params.connections / threads + usize::from(number < params.connections % threads);
        let span = Span {
            start_ns: start,
            end_ns: end,
            connections: share,
            schedule: params
                .rate
                .map(|rate| Schedule::new(start, rate, params.arrivals, number, threads)),
        };
        let tally = Tally::new(counted, end, ns(params.interval_s).max(1));
        Engine::new(plan, span, tally, context.stop)?.run()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        while !running.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(if params.seconds > 5.0 {
                200
            } else {
                20
            }));
            let now = monotonic_ns();
            if params.seconds > 5.0 && now < end {
                let done = now.saturating_sub(start) as f64 / (end - start) as f64;
                context.sink.progress(done, json!({}));
            }
        }
        let mut sum: Option<Tally> = None;
        for thread in running {
            let tally = thread
                .join()
                .map_err(|_| Failure("a thread of the generator panicked".into()))?
                .map_err(|error| Failure(format!("the generator failed: {error}")))?;
            match &mut sum {
                None => sum = Some(tally),
                Some(sum) => sum.add(tally),
            }
        }
        sum.ok_or_else(|| Failure("no thread ran".into()))
    })
}

fn report(
    context: &Context,
    params: &Params,
    plan: &Plan,
    threads: usize,
    tally: &Tally,
) -> Result<Value, Failure> {
    if tally.completed == 0 {
        let stopped = context.stop.load(Ordering::Relaxed) && tally.due == 0;
        return Err(Failure(if stopped {
            "stopped before any request was counted".into()
        } else {
            format!(
                "no request to {} succeeded: {}",
                plan.target,
                tally.errors_in_words()
            )
        }));
    }
    // An early stop ends the span early.
    let seconds = match context.stop.load(Ordering::Relaxed) {
        true => tally.intervals.len() as f64 * params.interval_s,
        false => params.seconds,
    };
    let failures = tally.failures();
    let late = summary(&tally.late);
    let mut warnings = Vec::new();
    if failures > 0 {
        warnings.push(format!(
            "{failures} of {} requests failed: {}",
            tally.due,
            tally.errors_in_words()
        ));
    }
    if let (Some(_), Some(p99)) = (params.rate, late["p99_s"].as_f64()) {
        if p99 > LATE_S {
            warnings.push(format!(
                "one request in a hundred was begun {:.1} ms or more after it was due, for want of \
                 a free connection (there were {}) or of time; the latencies include that",
                p99 * 1e3,
                params.connections
            ));
        }
    }
    series(context, params, tally);
    let per_s = |count: u64| count as f64 / seconds;
    Ok(json!({
        "seconds": seconds,
        "threads": threads,
        "connections_used": params.connections,
        "rate_asked": params.rate,
        "due": tally.due,
        "completed": tally.completed,
        "failed": failures,
        "failed_share": failures as f64 / tally.due.max(1) as f64,
        "errors": tally.errors(),
        "requests_per_s": per_s(tally.completed),
        "connections_per_s": per_s(tally.connections),
        "body_bytes": tally.body_bytes,
        "bytes_per_s": per_s(tally.body_bytes),
        "connect": summary(&tally.connect),
        "tls": secured(params, tally),
        "first_byte": summary(&tally.first_byte),
        "total": summary(&tally.total),
        "late": late,
        "warnings": warnings,
    }))
}

/// What connections agreed on, where they are secured.
fn secured(params: &Params, tally: &Tally) -> Value {
    if params.tls.is_none() {
        return Value::Null;
    }
    json!({
        "library": "rustls",
        "version": "1.3",
        "suite": tally.suite,
        "handshake": summary(&tally.handshake),
        "resumed": tally.resumed,
    })
}

/// Interval by interval (by when requests were due), and the distribution of the times.
fn series(context: &Context, params: &Params, tally: &Tally) {
    let rows = || tally.intervals.iter();
    let at = |share: f64| {
        rows().map(move |row| match row.total.is_empty() {
            true => 0,
            false => row.total.value_at_quantile(share),
        })
    };
    // Relative to the common start, like all other series of the cell.
    let (first_ns, interval_ns) = (RUN_UP_NS + ns(params.warmup_s), ns(params.interval_s));
    Table::new()
        .u64s(
            "time_ns",
            (0u64..)
                .take(rows().len())
                .map(|n| first_ns + n * interval_ns),
        )
        .u64s("due", rows().map(|row| row.due))
        .u64s("completed", rows().map(|row| row.due - row.failed))
        .u64s("failed", rows().map(|row| row.failed))
        .u64s("connections", rows().map(|row| row.connections))
        .u64s("body_bytes", rows().map(|row| row.body_bytes))
        .f64s("mean_ns", rows().map(|row| row.total.mean()))
        .u64s("median_ns", at(0.5))
        .u64s("p99_ns", at(0.99))
        .u64s("max_ns", at(1.0))
        .send(context.sink, "responses");
    let bins = || tally.total.iter_recorded();
    let low = |top: u64| tally.total.lowest_equivalent(top);
    Table::new()
        .f64s(
            "low_ns",
            bins().map(|bin| low(bin.value_iterated_to()) as f64),
        )
        .f64s(
            "width_ns",
            bins().map(|bin| {
                (tally.total.next_non_equivalent(bin.value_iterated_to())
                    - low(bin.value_iterated_to())) as f64
            }),
        )
        .u64s("count", bins().map(|bin| bin.count_since_last_iteration()))
        .send(context.sink, "histogram");
}

#[cfg(test)]
mod tests;
