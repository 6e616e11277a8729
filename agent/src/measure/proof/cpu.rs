//! The processor as the machine sees it: CPUID, counter, topology, power, and the hypervisor.

use super::{field, names, number, read};
use crate::sys;
use serde_json::{json, Map, Value};

/// What CPUID says; empty on processors that have none.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "an instruction, which older compilers take for unsafe"
)]
mod id {
    use std::arch::x86_64::__cpuid_count;

    pub type Leaf = [u32; 4];

    pub fn leaf(leaf: u32, sub: u32) -> Option<Leaf> {
        // Every x86-64 processor has the instruction; leaves it does not know read as others do.
        #[allow(unused_unsafe)]
        // SAFETY: CPUID changes only the registers it returns.
        let found = unsafe { __cpuid_count(leaf, sub) };
        Some([found.eax, found.ebx, found.ecx, found.edx])
    }

    /// The highest leaf of the range that begins at `base`.
    pub fn highest(base: u32) -> u32 {
        leaf(base, 0).map_or(base, |found| found[0])
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod id {
    pub type Leaf = [u32; 4];

    pub fn leaf(_leaf: u32, _sub: u32) -> Option<Leaf> {
        None
    }

    pub fn highest(base: u32) -> u32 {
        base
    }
}

fn hexadecimal(leaf: id::Leaf) -> String {
    let [a, b, c, d] = leaf;
    format!("{a:08x} {b:08x} {c:08x} {d:08x}")
}

/// A name that CPUID spells in registers.
fn spelled(registers: &[u32]) -> String {
    let bytes: Vec<u8> = registers
        .iter()
        .flat_map(|register| register.to_le_bytes())
        .collect();
    let text: Vec<u8> = bytes
        .into_iter()
        .filter(|byte| (0x20..0x7F).contains(byte))
        .collect();
    String::from_utf8_lossy(&text).into_owned()
}

/// Leaves whose content is the machine's and not the moment's or the executing CPU's.
fn leaves() -> Map<String, Value> {
    const STABLE: [(u32, u32); 12] = [
        (0x0, 0),
        (0x5, 0),
        (0x6, 0),
        (0x7, 0),
        (0x7, 1),
        (0xA, 0),
        (0x15, 0),
        (0x16, 0),
        (0x8000_0001, 0),
        (0x8000_0007, 0),
        (0x8000_0008, 0),
        (0x8000_000A, 0),
    ];
    let (basic, extended) = (id::highest(0), id::highest(0x8000_0000));
    let mut found = Map::new();
    // Leaf 1 without EBX, which holds the id of the CPU that happens to execute.
    if let Some([a, _, c, d]) = id::leaf(1, 0) {
        found.insert("1.0".into(), hexadecimal([a, 0, c, d]).into());
    }
    for (leaf, sub) in STABLE {
        let known = if leaf < 0x8000_0000 {
            leaf <= basic
        } else {
            leaf <= extended
        };
        if let (true, Some(value)) = (known, id::leaf(leaf, sub)) {
            found.insert(format!("{leaf:x}.{sub:x}"), hexadecimal(value).into());
        }
    }
    found
}

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
        "cpuid": leaves(),
    })
}

/// The hypervisors that announce themselves: several may, one behind the other's interface.
pub fn hypervisor() -> Value {
    let present = id::leaf(1, 0).is_some_and(|found| found[2] >> 31 == 1);
    let mut signatures = Vec::new();
    let mut found = Map::new();
    if present {
        for base in (0x4000_0000u32..0x4000_0400).step_by(0x100) {
            let Some([highest, b, c, d]) = id::leaf(base, 0) else {
                break;
            };
            let name = spelled(&[b, c, d]);
            // Beyond the last hypervisor leaf, processors return other leaves' content.
            let plausible = highest == 0 || (base..base + 0x100).contains(&highest);
            if !plausible || name.len() < 4 {
                break;
            }
            signatures.push(name);
            let features = id::leaf(base + 1, 0).unwrap_or_default();
            found.insert(format!("{:x}.0", base + 1), hexadecimal(features).into());
        }
    }
    json!({
        "announced": present,
        "signatures": signatures,
        "leaves": found,
        "type": read("/sys/hypervisor/type"),
        "xen_guest_type": read("/sys/hypervisor/guest_type"),
    })
}

pub fn tsc() -> Value {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = field(&info, "flags")
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let has = |flag: &str| flags.contains(&flag);
    let power = (id::highest(0x8000_0000) >= 0x8000_0007)
        .then(|| id::leaf(0x8000_0007, 0))
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

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_spelled_from_registers() {
        assert_eq!(
            super::spelled(&[0x4b4d564b, 0x564b4d56, 0x0000004d]),
            "KVMKVMKVM"
        );
    }
}
