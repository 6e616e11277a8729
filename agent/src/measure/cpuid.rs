//! CPUID: what the processor states of itself, and which hypervisors announce themselves.

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "an instruction, which older compilers take for unsafe"
    )
)]

use super::sysfs::read;
use serde_json::{json, Map, Value};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid_count;

pub type Leaf = [u32; 4];

/// Read a leaf; `None` on processors without CPUID.
#[cfg(target_arch = "x86_64")]
pub fn leaf(leaf: u32, sub: u32) -> Option<Leaf> {
    // Every x86-64 processor has the instruction; leaves it does not know read as others do.
    #[allow(unused_unsafe)]
    // SAFETY: CPUID changes only the registers it returns.
    let found = unsafe { __cpuid_count(leaf, sub) };
    Some([found.eax, found.ebx, found.ecx, found.edx])
}

/// Read a leaf; `None` on processors without CPUID.
#[cfg(not(target_arch = "x86_64"))]
pub fn leaf(_leaf: u32, _sub: u32) -> Option<Leaf> {
    None
}

/// The highest leaf of the range that begins at `base`.
pub fn highest(base: u32) -> u32 {
    leaf(base, 0).map_or(base, |found| found[0])
}

fn hexadecimal(leaf: Leaf) -> String {
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
pub fn leaves() -> Map<String, Value> {
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
    let (basic, extended) = (highest(0), highest(0x8000_0000));
    let mut found = Map::new();
    // Leaf 1 without EBX, which holds the id of the CPU that happens to execute.
    if let Some([a, _, c, d]) = leaf(1, 0) {
        found.insert("1.0".into(), hexadecimal([a, 0, c, d]).into());
    }
    for (number, sub) in STABLE {
        let known = if number < 0x8000_0000 {
            number <= basic
        } else {
            number <= extended
        };
        if let (true, Some(value)) = (known, leaf(number, sub)) {
            found.insert(format!("{number:x}.{sub:x}"), hexadecimal(value).into());
        }
    }
    found
}

/// The hypervisors that announce themselves: several may, one behind the other's interface.
pub fn hypervisor() -> Value {
    let present = leaf(1, 0).is_some_and(|found| found[2] >> 31 == 1);
    let mut signatures = Vec::new();
    let mut found = Map::new();
    if present {
        for base in (0x4000_0000u32..0x4000_0400).step_by(0x100) {
            let Some([highest, b, c, d]) = leaf(base, 0) else {
                break;
            };
            let name = spelled(&[b, c, d]);
            // Beyond the last hypervisor leaf, processors return other leaves' content.
            let plausible = highest == 0 || (base..base + 0x100).contains(&highest);
            if !plausible || name.len() < 4 {
                break;
            }
            signatures.push(name);
            let features = leaf(base + 1, 0).unwrap_or_default();
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
