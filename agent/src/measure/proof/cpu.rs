//! The processor as the machine sees it: CPUID, counter, topology and power.

use crate::measure::cpuid;
use crate::measure::sysfs::{field, names, number, read};
use crate::sys;
use serde_json::{json, Map, Value};

pub fn cpu() -> Value {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let words = |key: &str| {
        let mut words: Vec<&str> = field(&info, key).unwrap_or("").split_whitespace().collect();
        words.sort_unstable();
        words.join(" ")
    };
    let flags = if field(&info, "flags").is_some() {
        words("flags")
    } else {
        words("Features")
    };
    json!({
        "vendor": field(&info, "vendor_id").or(field(&info, "CPU implementer")),
        "model": field(&info, "model name").or(field(&info, "CPU part")),
        "family": field(&info, "cpu family"),
        "model_number": field(&info, "model"),
        "stepping": field(&info, "stepping"),
        "microcode": field(&info, "microcode"),
        "flags": flags,
        "bugs": words("bugs"),
        "cpuid": cpuid::leaves(),
    })
}

pub fn tsc() -> Value {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = field(&info, "flags")
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let has = |flag: &str| flags.contains(&flag);
    let power = (cpuid::highest(0x8000_0000) >= 0x8000_0007)
        .then(|| cpuid::leaf(0x8000_0007, 0))
        .flatten();
    json!({
        "constant": has("constant_tsc"),
        "nonstop": has("nonstop_tsc"),
        "reliable": has("tsc_reliable"),
        "known_frequency": has("tsc_known_freq"),
        "rdtscp": has("rdtscp"),
        "deadline_timer": has("tsc_deadline_timer"),
        "adjustable": has("tsc_adjust"),
        "invariant": power.map(|found| found[3] >> 8 & 1 == 1),
    })
}

pub fn topology() -> Value {
    let root = "/sys/devices/system/cpu";
    let cpus: Vec<String> = names(root)
        .into_iter()
        .filter(|name| {
            name.strip_prefix("cpu")
                .is_some_and(|rest| rest.parse::<u32>().is_ok())
        })
        .collect();
    let siblings: Map<String, Value> = cpus
        .iter()
        .map(|cpu| {
            let threads = read(format!("{root}/{cpu}/topology/thread_siblings_list"));
            (cpu.clone(), threads.into())
        })
        .collect();
    let caches: Vec<Value> = names(format!("{root}/cpu0/cache"))
        .into_iter()
        .filter(|name| name.starts_with("index"))
        .map(|index| {
            let of = |what: &str| read(format!("{root}/cpu0/cache/{index}/{what}"));
            json!({
                "level": of("level"), "type": of("type"), "size": of("size"),
                "line": of("coherency_line_size"), "shared": of("shared_cpu_list"),
            })
        })
        .collect();
    json!({
        "online": read(format!("{root}/online")),
        "possible": read(format!("{root}/possible")),
        "isolated": read(format!("{root}/isolated")),
        "tickless": read(format!("{root}/nohz_full")),
        "usable": sys::affinity(0).unwrap_or_default(),
        "siblings": siblings,
        "caches": caches,
    })
}

pub fn power() -> Value {
    let root = "/sys/devices/system/cpu";
    json!({
        "governor": read(format!("{root}/cpu0/cpufreq/scaling_governor")),
        "frequency_driver": read(format!("{root}/cpu0/cpufreq/scaling_driver")),
        "no_turbo": number(format!("{root}/intel_pstate/no_turbo")),
        "boost": number(format!("{root}/cpufreq/boost")),
        "smt": read(format!("{root}/smt/control")),
        "idle_driver": read(format!("{root}/cpuidle/current_driver")),
        "idle_governor": read(format!("{root}/cpuidle/current_governor")),
    })
}
