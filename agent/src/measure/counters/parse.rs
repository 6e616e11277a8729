//! What the text of the kernel's counter files says.

use super::Source;

const CPU_FIELDS: [&str; 10] = [
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
];
const STAT_NUMBERS: [&str; 5] = [
    "ctxt",
    "intr",
    "processes",
    "procs_running",
    "procs_blocked",
];
const DISK_FIELDS: [&str; 11] = [
    "reads",
    "reads_merged",
    "sectors_read",
    "read_ms",
    "writes",
    "writes_merged",
    "sectors_written",
    "write_ms",
    "in_flight",
    "io_ms",
    "weighted_ms",
];
const NET_FIELDS: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo",
    "tx_collisions",
    "tx_carrier",
    "tx_compressed",
];
/// Of the many lines of /proc/vmstat, those that tell of paging, faults, and huge pages.
const VMSTAT: [&str; 16] = [
    "pgpgin",
    "pgpgout",
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "pgfree",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "compact_stall",
    "thp_fault_alloc",
    "thp_split_page",
    "oom_kill",
    "nr_dirty",
    "nr_writeback",
    "numa_pages_migrated",
];

/// Give every counter in a file's text, by name, to `each`. Lines of unknown form are passed over.
pub fn parse(source: Source, text: &str, mut each: impl FnMut(String, u64)) {
    match source {
        Source::Interrupts => interrupts(text, each),
        Source::Thread(process, thread) => {
            let values = numbers(text.split_whitespace());
            for (name, value) in ["run_ns", "wait_ns", "slices"].iter().zip(values) {
                each(format!("thread.{process}.{thread}.{name}"), value);
            }
        }
        _ => {
            for line in text.lines() {
                parse_line(source, line, &mut each);
            }
        }
    }
}

fn numbers<'a>(words: impl Iterator<Item = &'a str> + 'a) -> impl Iterator<Item = u64> + 'a {
    words.map_while(|word| word.parse().ok())
}

fn parse_line(source: Source, line: &str, each: &mut impl FnMut(String, u64)) {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return };
    let mut fields = |prefix: &str, names: &[&str], values: &mut dyn Iterator<Item = u64>| {
        for (name, value) in names.iter().zip(values) {
            each(format!("{prefix}.{name}"), value);
        }
    };
    match source {
        Source::Stat if first.starts_with("cpu") => {
            fields(first, &CPU_FIELDS, &mut numbers(words));
        }
        Source::Stat if STAT_NUMBERS.contains(&first) => {
            fields("stat", &[first], &mut numbers(words));
        }
        Source::Schedstat if first.starts_with("cpu") => {
            let values: Vec<u64> = numbers(words).collect();
            // The last three fields: time run, time waited (ns), time slices.
            if let Some(tail) = values.len().checked_sub(3) {
                let names = ["run_ns", "wait_ns", "slices"];
                let prefix = format!("sched.{first}");
                fields(&prefix, &names, &mut values[tail..].iter().copied());
            }
        }
        Source::Meminfo => {
            let value = words.next().and_then(|word| word.parse::<u64>().ok());
            if let Some(value) = value {
                let unit = if words.next() == Some("kB") { 1024 } else { 1 };
                let name = first.trim_end_matches(':');
                fields(
                    "mem",
                    &[name],
                    &mut std::iter::once(value.saturating_mul(unit)),
                );
            }
        }
        Source::Vmstat if VMSTAT.contains(&first) => {
            fields("vm", &[first], &mut numbers(words));
        }
        Source::Diskstats => {
            if let Some(name) = words.nth(1) {
                if !name.starts_with("loop") && !name.starts_with("ram") {
                    fields(&format!("disk.{name}"), &DISK_FIELDS, &mut numbers(words));
                }
            }
        }
        Source::NetDev => {
            if let Some((name, rest)) = line.split_once(':') {
                let prefix = format!("net.{}", name.trim());
                fields(&prefix, &NET_FIELDS, &mut numbers(rest.split_whitespace()));
            }
        }
        _ => {}
    }
}

fn interrupts(text: &str, mut each: impl FnMut(String, u64)) {
    let mut lines = text.lines();
    let cpus: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    for line in lines {
        if let Some((name, rest)) = line.split_once(':') {
            let name = name.trim();
            for (cpu, value) in cpus.iter().zip(numbers(rest.split_whitespace())) {
                each(format!("irq.{name}.{}", cpu.to_lowercase()), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MACHINE;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn parsed(source: Source, text: &str) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        parse(source, text, |name, value| {
            found.insert(name, value);
        });
        found
    }

    #[test]
    fn every_source_is_understood() {
        let stat = parsed(
            Source::Stat,
            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 99 1 2\nctxt 7\nbtime 1\n",
        );
        assert_eq!(stat["cpu.steal"], 8);
        assert_eq!(stat["cpu0.system"], 3);
        assert_eq!((stat["stat.intr"], stat["stat.ctxt"]), (99, 7));
        let memory = parsed(Source::Meminfo, "MemTotal:  16 kB\nHugePages_Total:  3\n");
        assert_eq!(
            (memory["mem.MemTotal"], memory["mem.HugePages_Total"]),
            (16384, 3)
        );
        let sched = parsed(
            Source::Schedstat,
            "version 15\ncpu0 0 0 0 0 0 0 11 22 33\ndomain0 1 2 3\n",
        );
        assert_eq!(
            (sched["sched.cpu0.run_ns"], sched["sched.cpu0.wait_ns"]),
            (11, 22)
        );
        assert_eq!(sched.len(), 3);
        let disks = parsed(
            Source::Diskstats,
            " 254 0 vda 5 0 40 1 6 0 48 2 0 3 3 0 0 0 0 0 0\n 7 0 loop0 1 1 1\n",
        );
        assert_eq!((disks["disk.vda.reads"], disks["disk.vda.writes"]), (5, 6));
        assert_eq!(disks.len(), DISK_FIELDS.len());
        let net = parsed(
            Source::NetDev,
            "Inter-|   Receive\n face |bytes\n  eth0:123 4 0 0 0 0 0 0 567 8 0 0 0 0 0 0\n",
        );
        assert_eq!(
            (net["net.eth0.rx_bytes"], net["net.eth0.tx_bytes"]),
            (123, 567)
        );
        let irqs = parsed(
            Source::Interrupts,
            "           CPU0       CPU1\n LOC:  12 34   Local timer interrupts\n ERR: 0\n",
        );
        assert_eq!((irqs["irq.LOC.cpu0"], irqs["irq.LOC.cpu1"]), (12, 34));
        let thread = parsed(Source::Thread(4, 5), "100 200 3\n");
        assert_eq!(thread["thread.4.5.wait_ns"], 200);
        let vm = parsed(Source::Vmstat, "pgfault 12\nnr_slab 3\n");
        assert_eq!(vm, BTreeMap::from([("vm.pgfault".to_string(), 12)]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_fail(text in "([a-z0-9:]{0,6}[ \n\t]{0,2}){0,60}|\\PC{0,200}", at in 0usize..8) {
            let source = MACHINE.get(at).map_or(Source::Thread(1, 1), |(source, _)| *source);
            parsed(source, &text);
        }
    }
}
