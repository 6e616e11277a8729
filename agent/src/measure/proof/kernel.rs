//! The kernel, its scheduler, memory, mitigations, clocks, and what confines this process.

use crate::measure::sysfs::{chosen, field, meminfo, names, number, read};
use crate::measure::{memory_group, scheduling};
use crate::sys;
use rustix::process::Resource;
use serde_json::{json, Map, Value};

pub fn kernel() -> Value {
    let names = sys::uname();
    json!({
        "release": names.release,
        "version": names.version,
        "architecture": names.machine,
        "cmdline": read("/proc/cmdline").map(|line| kernel_words(&line).to_string()),
        "preempt": preempt(&names.version),
        "tick_hz": tick_hz(),
        "tainted": number("/proc/sys/kernel/tainted"),
    })
}

/// The command line without init's arguments: they do not affect the kernel, and may contain the
/// machine owner's secrets.
fn kernel_words(line: &str) -> &str {
    line.split_once(" -- ").map_or(line, |(kernel, _)| kernel)
}

/// The kernel's `HZ`: its coarse clock advances with every tick, and reports its step.
///
/// Source: kernel/time/posix-timers.c, `posix_get_coarse_res`, which returns `KTIME_LOW_RES`.
fn tick_hz() -> Option<u64> {
    let step = sys::clock_step_ns(libc::CLOCK_MONOTONIC_COARSE)?;
    // A tick of 300 Hz is not a whole number of nanoseconds.
    (step > 0).then(|| (1e9 / step as f64).round() as u64)
}

/// How the kernel may be preempted: `rt`, `full`, `voluntary`, `none`, or what it is built for.
fn preempt(version: &str) -> String {
    if number("/sys/kernel/realtime") == Some(1) || version.contains("PREEMPT_RT") {
        return "rt".into();
    }
    if let Some(text) = read("/sys/kernel/debug/sched/preempt") {
        let word = text
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        return word.map_or(text.clone(), |(word, _)| word.to_string());
    }
    let word = version
        .split_whitespace()
        .find(|word| word.starts_with("PREEMPT"));
    match word {
        Some("PREEMPT") => "full".into(),
        Some("PREEMPT_DYNAMIC") => "dynamic".into(),
        Some(other) => other.to_lowercase(),
        None => "none or voluntary".into(),
    }
}

pub fn scheduler() -> Value {
    let fair: Map<String, Value> = names("/sys/kernel/debug/sched/fair_server")
        .into_iter()
        .map(|cpu| {
            let path = format!("/sys/kernel/debug/sched/fair_server/{cpu}/runtime");
            (cpu, number(path).into())
        })
        .collect();
    json!({
        "rt_runtime_us": number("/proc/sys/kernel/sched_rt_runtime_us"),
        "rt_period_us": number("/proc/sys/kernel/sched_rt_period_us"),
        "fair_server_runtime_ns": fair,
        "autogroup": number("/proc/sys/kernel/sched_autogroup_enabled"),
        "numa_balancing": number("/proc/sys/kernel/numa_balancing"),
        "watchdog": number("/proc/sys/kernel/watchdog"),
        "may_be_realtime": may_be_realtime(),
    })
}

/// Whether SCHED_FIFO is allowed here: tried in a thread of its own, so that this one keeps the
/// policy, nice and slice it was given.
fn may_be_realtime() -> bool {
    scheduling::is_realtime()
        || std::thread::spawn(|| sys::set_fifo(1).is_ok())
            .join()
            .unwrap_or(false)
}

pub fn memory() -> Value {
    let huge = "/sys/kernel/mm/transparent_hugepage";
    let word = |path: String| read(path).map(|text| chosen(&text).to_string());
    json!({
        "total": meminfo("MemTotal"),
        "swap": meminfo("SwapTotal"),
        "page_size": sys::page_size(),
        "huge_page_size": meminfo("Hugepagesize"),
        "huge_pages": meminfo("HugePages_Total"),
        "transparent_huge_pages": word(format!("{huge}/enabled")),
        "transparent_huge_pages_defrag": word(format!("{huge}/defrag")),
        "same_page_merging": number("/sys/kernel/mm/ksm/run"),
        "overcommit": number("/proc/sys/vm/overcommit_memory"),
        "nodes": names("/sys/devices/system/node").iter().filter(|name| name.strip_prefix("node")
            .is_some_and(|rest| rest.parse::<u32>().is_ok())).count(),
    })
}

pub fn mitigations() -> Value {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let found: Map<String, Value> = names(folder)
        .into_iter()
        .map(|name| {
            let text = read(format!("{folder}/{name}"));
            (name, text.into())
        })
        .collect();
    Value::Object(found)
}

pub fn clocksource() -> Value {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    json!({
        "current": read(format!("{folder}/current_clocksource")),
        "available": read(format!("{folder}/available_clocksource")),
    })
}

/// Limits that a container, a service manager or an administrator put on this process.
pub fn confinement() -> Value {
    let status = read("/proc/self/status").unwrap_or_default();
    json!({
        "cpus_allowed": field(&status, "Cpus_allowed_list"),
        "capabilities": field(&status, "CapEff"),
        "seccomp": field(&status, "Seccomp"),
        "realtime_priority_limit": sys::limit(Resource::Rtprio),
        "locked_memory_limit": sys::limit(Resource::Memlock),
        "cpu_max": read("/sys/fs/cgroup/cpu.max"),
        "memory_max": memory_group::limit().map(|limit| limit.to_string()),
    })
}
