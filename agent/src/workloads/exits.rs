//! `exits`: a known number of operations that leave a virtual machine for its hypervisor.
//!
//! Each kind of operation is executed in one stretch and timed. What user space cannot do on a machine
//! is left out, with the reason.

use crate::contract::{Context, Failure};
use crate::measure::{cpuid, params, realtime, sysfs};
use crate::sys::{self, Registers};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The port of power-on self-test codes: what is written there has no effect.
const PORT: u64 = 0x80;
/// IA32_APIC_BASE: hypervisors handle each access to it.
const MSR: u64 = 0x1B;
/// How long a sleep is: long enough for an idle CPU to halt.
const SLEEP: Duration = Duration::from_millis(2);
/// The class of SATA controllers, and the file of their registers. The first one, their capabilities, is
/// read-only (AHCI 1.3.1, section 3.1.1).
const AHCI: (&str, &str) = ("0x010601", "resource5");
/// Operations between two looks at whether the host asks for an end.
const STRETCH: u64 = 1_000;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Params {
    cpuid: u64,
    port_writes: u64,
    mmio_writes: u64,
    msr_reads: u64,
    ipis: u64,
    sleeps: u64,
}

/// Executes its operation as often as it is asked to.
type Operation = Box<dyn FnMut(u64) -> Result<(), String>>;
/// Makes an operation for the CPUs given, or says why the machine has none.
type Prepare = fn(&[usize]) -> Result<Operation, String>;

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let kinds: [(&str, u64, Prepare); 6] = [
        ("cpuid", params.cpuid, |_| cpuids()),
        ("port_writes", params.port_writes, |_| port_writes()),
        ("mmio_writes", params.mmio_writes, |_| mmio_writes()),
        ("msr_reads", params.msr_reads, msr_reads),
        ("ipis", params.ipis, ipis),
        ("sleeps", params.sleeps, |_| Ok(sleeps())),
    ];
    params::require(
        kinds.iter().any(|&(_, count, _)| count > 0),
        "no operation is asked for",
    )?;
    let mut warnings = Vec::new();
    let allowed = match context.cpus {
        [] => sys::affinity(0)?,
        given => given.to_vec(),
    };
    let own = allowed.first().map(std::slice::from_ref);
    realtime::settle(own.unwrap_or_default(), 0, &mut warnings)?;
    let mut ready = Vec::new();
    let mut missing = Map::new();
    for (kind, count, prepare) in kinds {
        if count == 0 {
            continue;
        }
        match prepare(&allowed) {
            Ok(operation) => ready.push((kind, count, operation)),
            Err(reason) => {
                missing.insert(kind.into(), json!(reason));
            }
        }
    }
    if ready.is_empty() {
        let reasons: Vec<String> = missing.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        return Err(Failure(reasons.join("; ")));
    }
    context.sink.barrier()?;
    let (mut done, mut seconds) = (Map::new(), Map::new());
    for (kind, count, mut operation) in ready {
        let began = Instant::now();
        let mut left = count;
        while left > 0 && !context.stop.load(Ordering::Relaxed) {
            let now = left.min(STRETCH);
            operation(now).map_err(|error| Failure(format!("{kind}: {error}")))?;
            left -= now;
        }
        seconds.insert(kind.into(), json!(began.elapsed().as_secs_f64()));
        done.insert(kind.into(), json!(count - left));
    }
    Ok(json!({"done": done, "seconds": seconds, "missing": missing, "warnings": warnings}))
}

fn cpuids() -> Result<Operation, String> {
    // Not tried, because it would count.
    if !cfg!(target_arch = "x86_64") {
        return Err("the processor has no CPUID".into());
    }
    Ok(Box::new(|count| {
        for _ in 0..count {
            std::hint::black_box(cpuid::leaf(0, 0));
        }
        Ok(())
    }))
}

fn opened(path: &Path, writing: bool) -> Result<File, String> {
    OpenOptions::new()
        .read(true)
        .write(writing)
        .open(path)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Write to a port through the kernel's device of all ports, a byte at a time.
fn port_writes() -> Result<Operation, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the processor has no ports".into());
    }
    let ports = opened(Path::new("/dev/port"), true)?;
    Ok(Box::new(move |count| {
        for _ in 0..count {
            ports
                .write_all_at(&[0], PORT)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }))
}

/// Write to a read-only register of a SATA controller that no driver uses.
fn mmio_writes() -> Result<Operation, String> {
    let device = free_registers(Path::new("/sys/bus/pci/devices"))
        .ok_or("the machine has no SATA controller (AHCI) without a driver")?;
    let file = opened(&device, true)?;
    let mut registers =
        Registers::map(&file).map_err(|error| format!("{}: {error}", device.display()))?;
    let value = registers.first();
    Ok(Box::new(move |count| {
        for _ in 0..count {
            registers.write_first(value);
        }
        Ok(())
    }))
}

/// The file of the registers of the first such device: kernels refuse those that a driver uses.
fn free_registers(devices: &Path) -> Option<PathBuf> {
    let (class, registers) = AHCI;
    sysfs::names(devices)
        .into_iter()
        .map(|name| devices.join(name))
        .filter(|device| sysfs::read(device.join("class")).as_deref() == Some(class))
        .filter(|device| !device.join("driver").exists())
        .map(|device| device.join(registers))
        .find(|registers| fs::metadata(registers).is_ok())
}

/// Read a model-specific register through the kernel's device of the CPU that this thread is on.
fn msr_reads(allowed: &[usize]) -> Result<Operation, String> {
    let cpu = allowed.first().copied().unwrap_or_default();
    let registers = opened(Path::new(&format!("/dev/cpu/{cpu}/msr")), false)?;
    let mut value = [0; 8];
    let mut once = move |registers: &File| {
        registers
            .read_exact_at(&mut value, MSR)
            .map_err(|error| error.to_string())
    };
    once(&registers)?;
    Ok(Box::new(move |count| {
        (0..count).try_for_each(|_| once(&registers))
    }))
}

/// Interrupt another CPU, on which a thread of this process spins, by a memory barrier.
fn ipis(allowed: &[usize]) -> Result<Operation, String> {
    let &[_, other, ..] = allowed else {
        return Err("the machine has one CPU".into());
    };
    sys::allow_barriers().map_err(|error| format!("membarrier: {error}"))?;
    Ok(Box::new(move |count| {
        let (spinning, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let spinner = std::thread::Builder::new()
                .name("tare-exits-spin".into())
                .spawn_scoped(scope, || {
                    let pinned = sys::set_affinity(0, &[other]);
                    spinning.store(true, Ordering::Release);
                    while pinned.is_ok() && !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    pinned
                })
                .map_err(|error| error.to_string())?;
            while !spinning.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let sent = (0..count).try_for_each(|_| sys::barrier_everywhere());
            over.store(true, Ordering::Relaxed);
            let pinned = spinner.join().map_err(|_| "the other thread panicked")?;
            pinned.and(sent).map_err(|error| error.to_string())
        })
    }))
}

/// Sleep, so that an idle CPU halts: at least once for each sleep.
fn sleeps() -> Operation {
    Box::new(|count| {
        (0..count).for_each(|_| std::thread::sleep(SLEEP));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{run_with, Collected};

    #[test]
    fn executes_what_it_is_asked_to_and_times_it() {
        let params = json!({"cpuid": 2500, "sleeps": 3});
        let (result, collected) = run_with(run, &params, &[]);
        assert_eq!(result["done"], params, "{result}");
        assert!(result["seconds"]["sleeps"].as_f64().unwrap() >= 3.0 * SLEEP.as_secs_f64());
        assert!(result["seconds"]["cpuid"].as_f64().unwrap() > 0.0);
        assert_eq!(result["missing"], json!({}));
        assert_eq!(collected.barriers(), 1);
    }

    #[test]
    fn what_a_machine_lacks_is_left_out_with_the_reason() {
        let params = json!({"sleeps": 1, "ipis": 5});
        let cpu = sys::affinity(0).unwrap()[0];
        let (result, _) = run_with(run, &params, &[cpu]);
        assert_eq!(result["done"], json!({"sleeps": 1}), "{result}");
        assert_eq!(result["missing"]["ipis"], "the machine has one CPU");
        let (result, _) = run_with(run, &json!({"ipis": 5}), &[cpu]);
        assert!(result["error"].as_str().unwrap().contains("one CPU"));
    }

    #[test]
    fn interrupts_another_cpu() {
        let cpus = sys::affinity(0).unwrap();
        if cpus.len() < 2 {
            return;
        }
        let (result, _) = run_with(run, &json!({"ipis": 1500}), &cpus);
        assert_eq!(result["done"]["ipis"], 1500, "{result}");
    }

    #[test]
    fn nothing_to_do_is_refused() {
        let (result, _) = run_with(run, &json!({}), &[]);
        assert!(result["error"].as_str().unwrap().contains("no operation"));
    }

    #[test]
    fn ends_when_stopped() {
        let collected = Collected::stopped();
        let result = collected.run(run, &json!({"sleeps": 1_000_000}), &[]);
        assert_eq!(result["done"]["sleeps"], 0, "{result}");
    }

    #[test]
    fn the_registers_are_those_of_a_controller_without_a_driver() {
        let folder = std::env::temp_dir().join(format!("tare-exits-{}", std::process::id()));
        let device = |name: &str, class: &str, driver: bool| {
            let device = folder.join(name);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
            fs::write(device.join(AHCI.1), [1, 2, 3, 4, 5]).unwrap();
            if driver {
                fs::create_dir(device.join("driver")).unwrap();
            }
        };
        device("0000:00:01.0", "0x020000", false);
        device("0000:00:02.0", AHCI.0, true);
        assert_eq!(free_registers(&folder), None);
        device("0000:00:03.0", AHCI.0, false);
        let found = free_registers(&folder).unwrap();
        assert!(found.ends_with("0000:00:03.0/resource5"));
        let mut registers = Registers::map(&opened(&found, true).unwrap()).unwrap();
        assert_eq!(registers.first().to_ne_bytes(), [1, 2, 3, 4]);
        registers.write_first(7);
        drop(registers);
        assert_eq!(fs::read(&found).unwrap()[..4], 7u32.to_ne_bytes());
        fs::remove_dir_all(folder).unwrap();
    }
}
