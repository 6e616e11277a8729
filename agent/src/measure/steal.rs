//! Steal time: CPU time that the hypervisor gave to others while this machine was ready to run.
//!
//! Not every hypervisor reports it: Hyper-V and QEMU's emulation do not, and the kernel then shows a
//! constant zero. Unless steal time is known to be reported, it is left out, and never given as zero.

use super::cpuid;
use crate::sys;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;

const KVM: &str = "KVMKVMKVM";
/// "KVM_FEATURE_STEAL_TIME", Linux's Documentation/virt/kvm/x86/cpuid.rst.
const KVM_STEAL: u32 = 1 << 5;
const VMWARE: &str = "VMwareVMware";
/// What Linux logs for each CPU whose stealclock it has (arch/x86/kernel/cpu/vmware.c).
const STEALCLOCK: &[u8] = b"vmware-stealtime: cpu";
/// A log holds fewer records than that: one that grows as it is read has an end all the same.
const MOST_RECORDS: usize = 100_000;

/// Nanoseconds stolen from these CPUs since the machine's start; from all of them where none is
/// named (proc(5), `/proc/stat`). `None` unless it is known to be reported.
pub fn stolen_ns(cpus: &[usize]) -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    known(&text).then(|| stolen_ticks(&text, cpus) * (1_000_000_000 / sys::clock_ticks_per_s()))
}

/// Whether the steal time in this text of `/proc/stat` is counted, and not a constant zero.
pub fn known(stat: &str) -> bool {
    match stolen_ticks(stat, &[]) {
        // Without a hypervisor there is no steal time. But a kernel that does not count any time, such
        // as a sandbox's, does not count steal time either.
        0 => is_reported().unwrap_or(true) && counts(stat),
        _ => true,
    }
}

/// Whether the hypervisor reports steal time to this kernel; `None` if no hypervisor announces itself.
pub fn is_reported() -> Option<bool> {
    static REPORTED: OnceLock<Option<bool>> = OnceLock::new();
    *REPORTED.get_or_init(|| reports_steal(&cpuid::hypervisor(), stealclock))
}

fn reports_steal(hypervisor: &Value, stealclock: impl Fn() -> bool) -> Option<bool> {
    if hypervisor["type"] == "xen" {
        return Some(true);
    }
    if hypervisor["announced"] == false {
        // Without CPUID it is unknown whether there is a hypervisor.
        return cfg!(not(target_arch = "x86_64")).then_some(false);
    }
    let names: Vec<&str> = hypervisor["signatures"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if let Some(at) = names.iter().position(|name| *name == KVM) {
        let leaf = format!("{:x}.0", 0x4000_0001 + 0x100 * at);
        let features = hypervisor["leaves"][leaf]
            .as_str()
            .and_then(|text| u32::from_str_radix(text.split_whitespace().next()?, 16).ok());
        return Some(features.is_some_and(|bits| bits & KVM_STEAL != 0));
    }
    Some(names.contains(&VMWARE) && stealclock())
}

/// Whether the kernel logged that it uses VMware's stealclock; false if the log cannot be read.
fn stealclock() -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    let Ok(mut log) = opened else { return false };
    let mut record = [0; 8192];
    for _ in 0..MOST_RECORDS {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(length) if holds(&record[..length], STEALCLOCK) => return true,
            Ok(_) => {}
            // Records that were overwritten meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => return false,
        }
    }
    false
}

fn holds(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted)
}

fn counts(stat: &str) -> bool {
    let line = stat.lines().find(|line| line.starts_with("cpu "));
    line.is_some_and(|line| line.split_whitespace().skip(1).any(|field| field != "0"))
}

fn stolen_ticks(stat: &str, cpus: &[usize]) -> u64 {
    let wanted = |name: &str| match cpus {
        [] => name == "cpu",
        _ => cpus.iter().any(|cpu| name == format!("cpu{cpu}")),
    };
    stat.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let name = fields.next()?;
            let field = fields.nth(7)?.parse::<u64>().ok()?;
            wanted(name).then_some(field)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const STAT: &str = "cpu  1 2 3 4 5 6 7 30 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\n\
                        cpu1 1 2 3 4 5 6 7 20 0 0\nintr 5 1\nctxt 9\n";

    #[test]
    fn steal_is_that_of_the_cpus_named() {
        assert_eq!(stolen_ticks(STAT, &[]), 30);
        assert_eq!(stolen_ticks(STAT, &[1]), 20);
        assert_eq!(stolen_ticks(STAT, &[0, 1]), 30);
        assert_eq!(stolen_ticks(STAT, &[7]), 0);
        assert_eq!(stolen_ticks("", &[]), 0);
    }

    /// The proof of a machine under hypervisors of these names and features.
    fn under(seen: &[(&str, u32)]) -> Value {
        let leaves: serde_json::Map<String, Value> = seen
            .iter()
            .enumerate()
            .map(|(at, (_, bits))| {
                let leaf = format!("{:x}.0", 0x4000_0001 + 0x100 * at);
                (
                    leaf,
                    format!("{bits:08x} 00000000 00000000 00000000").into(),
                )
            })
            .collect();
        let names: Vec<&str> = seen.iter().map(|(name, _)| *name).collect();
        json!({"announced": !seen.is_empty(), "signatures": names, "leaves": leaves, "type": null})
    }

    #[test]
    fn kvm_reports_steal_by_a_feature_at_any_leaf() {
        let no = || false;
        assert_eq!(reports_steal(&under(&[(KVM, 0x21)]), no), Some(true));
        assert_eq!(reports_steal(&under(&[(KVM, 0x1)]), no), Some(false));
        let behind = under(&[("Microsoft Hv", 0xffff), (KVM, 0x20)]);
        assert_eq!(reports_steal(&behind, no), Some(true));
        let behind = under(&[("Microsoft Hv", 0xffff), (KVM, 0x1)]);
        assert_eq!(reports_steal(&behind, no), Some(false));
    }

    #[test]
    fn hyper_v_and_emulation_do_not_report_steal() {
        for name in [
            "Microsoft Hv",
            "TCGTCGTCGTCG",
            "bhyve bhyve ",
            " lrpepyh  vr",
        ] {
            let all = under(&[(name, 0xffff_ffff)]);
            assert_eq!(reports_steal(&all, || true), Some(false), "{name}");
        }
        let nameless = json!({"announced": true, "signatures": [], "leaves": {}, "type": null});
        assert_eq!(reports_steal(&nameless, || true), Some(false));
    }

    #[test]
    fn xen_reports_steal_and_vmware_with_its_stealclock() {
        let xen = json!({"announced": false, "signatures": [], "leaves": {}, "type": "xen"});
        assert_eq!(reports_steal(&xen, || false), Some(true));
        assert_eq!(reports_steal(&under(&[(VMWARE, 0)]), || true), Some(true));
        assert_eq!(reports_steal(&under(&[(VMWARE, 0)]), || false), Some(false));
        // The kernel does not run as Xen's guest here, so nothing reports steal time.
        assert_eq!(
            reports_steal(&under(&[("XenVMMXenVMM", 0)]), || true),
            Some(false)
        );
        let record = b"6,1,2,-;vmware: vmware-stealtime: cpu 0, pa 7ff00000\n";
        assert!(holds(record, STEALCLOCK));
        assert!(!holds(
            b"6,1,2,-;vmware: using clock offset of 1 ns\n",
            STEALCLOCK
        ));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn on_a_bare_machine_reporting_is_unknown() {
        assert_eq!(reports_steal(&under(&[]), || true), None);
    }

    #[test]
    fn nonzero_steal_is_known_and_a_kernel_without_counts_does_not_know_it() {
        assert!(known(STAT));
        assert!(!known("cpu  0 0 0 0 0 0 0 0 0 0\n"));
        assert!(!known(""));
        let zero = known("cpu  1 2 3 4 5 6 7 0 0 0\n");
        assert_eq!(zero, is_reported().unwrap_or(true));
    }

    #[test]
    fn the_log_of_other_kernels_has_no_stealclock() {
        // The log is not waited for, whether it can be read or not.
        let names = cpuid::hypervisor()["signatures"].clone();
        if !names.as_array().unwrap().contains(&json!(VMWARE)) {
            assert!(!stealclock());
        }
    }
}
