//! The environment proof: what the machine looks like from inside, with every hello.
//!
//! The analysis compares the proofs of two arms and names each difference that could explain a
//! result, so this holds facts only, under stable names, and leaves out what differs by chance.

mod cpu;
mod devices;
mod kernel;

pub use devices::{interface_names, nic, nic_names};

use super::cpuid;
use serde_json::{json, Value};

/// Collect the proof. `settings` lists what init changed, with the values before and after.
pub fn collect(settings: &Value) -> Value {
    json!({
        "kernel": kernel::kernel(),
        "scheduler": kernel::scheduler(),
        "memory": kernel::memory(),
        "mitigations": kernel::mitigations(),
        "confinement": kernel::confinement(),
        "clocksource": kernel::clocksource(),
        "cpu": cpu::cpu(),
        "hypervisor": hypervisor(),
        "tsc": cpu::tsc(),
        "topology": cpu::topology(),
        "power": cpu::power(),
        "machine": devices::machine(),
        "nics": devices::nics(),
        "disks": devices::disks(),
        "scratch": super::scratch::proof(),
        "settings": settings,
    })
}

/// The hypervisors that announce themselves, and whether steal time is reported to this kernel.
fn hypervisor() -> Value {
    let mut facts = cpuid::hypervisor();
    facts["tells_steal"] = json!(super::steal::is_reported());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_of_this_machine_is_whole() {
        let proof = collect(&json!([]));
        assert!(!proof["kernel"]["release"].as_str().unwrap().is_empty());
        assert!(proof["memory"]["total"].as_u64().unwrap() > 0);
        assert!(!proof["topology"]["online"].as_str().unwrap().is_empty());
        assert!((24..=10_000).contains(&proof["kernel"]["tick_hz"].as_u64().unwrap()));
        assert!(proof.to_string().len() < 200_000);
    }
}
