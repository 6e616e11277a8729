//! `stacks`: kernel stacks of what runs in this machine, from one run of this to the next.
//!
//! The first run, `begin`, sets the kernel's tracer up and ends, so that no thread of the agent's is left
//! to disturb the measurement. The second, `end`, stops it and sends the kernel's text. An instance of the
//! tracer keeps the events in between. See the kernel's Documentation/trace/ftrace.rst.

use crate::contract::{Context, Failure};
use crate::measure::params;
use crate::sys;
use rustix::mount::MountFlags;
use serde::Deserialize;
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const TRACING: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "instances/tare-stacks";
/// The text of more than that is cut: the host has to store it.
const MOST_BYTES: usize = 16 << 20;
const MOST_BUFFER_KIB: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
enum Params {
    Begin {
        /// Events, such as `sched/sched_switch`, with their filters.
        events: Vec<(String, String)>,
        /// Per CPU.
        buffer_kib: u64,
    },
    End,
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    // Elsewhere, what an agent that dies leaves behind would stay.
    if !is_own_machine() {
        return Err("the machine is not one of Tare's own".into());
    }
    mounted()?;
    let root = Path::new(TRACING);
    match params {
        Params::Begin { events, buffer_kib } => begin(root, &events, buffer_kib),
        Params::End => {
            let (lost, text) = end(root)?;
            context
                .sink
                .series("text", text.len(), &[("byte", "u8")], &text);
            Ok(json!({"lost": lost}))
        }
    }
}

/// Whether the machine's init is the agent itself, which serves in a child.
fn is_own_machine() -> bool {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    let init = program("1");
    init.is_some() && init == program("self")
}

fn mounted() -> Result<(), Failure> {
    if Path::new(TRACING).join("instances").is_dir() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    sys::mount("tracefs", TRACING, "tracefs", flags, "")
        .map_err(|error| Failure(format!("{TRACING} cannot be mounted: {error}")))
}

fn begin(root: &Path, events: &[(String, String)], buffer_kib: u64) -> Result<Value, Failure> {
    let instance = root.join(INSTANCE);
    // A cell that failed may have left one.
    remove(&instance)?;
    fs::create_dir(&instance).map_err(|error| failure(&instance, &error))?;
    let set_up = || -> Result<Vec<&str>, Failure> {
        let buffer = buffer_kib.clamp(16, MOST_BUFFER_KIB).to_string();
        let settings = [
            ("tracing_on", "0"),
            ("trace_clock", "mono_raw"),
            ("options/overwrite", "0"),
            ("options/stacktrace", "1"),
            ("buffer_size_kb", buffer.as_str()),
        ];
        for (file, value) in settings {
            write(&instance.join(file), value)?;
        }
        let mut known = Vec::new();
        for (event, filter) in events {
            let folder = instance.join("events").join(event);
            if !plain(event) || !folder.is_dir() {
                continue;
            }
            write(&folder.join("filter"), filter)?;
            write(&folder.join("enable"), "1")?;
            known.push(event.as_str());
        }
        write(&instance.join("tracing_on"), "1")?;
        Ok(known)
    };
    match set_up() {
        Ok(known) => Ok(json!({"events": known})),
        Err(failure) => {
            let _ = remove(&instance);
            Err(failure)
        }
    }
}

/// Whether an event is named by two plain words: the name becomes part of a path.
fn plain(event: &str) -> bool {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    event
        .split_once('/')
        .is_some_and(|(group, name)| word(group) && word(name))
}

/// Stop, and return how many events found no room, and the text of the others, CPU by CPU.
fn end(root: &Path) -> Result<(u64, Vec<u8>), Failure> {
    let instance = root.join(INSTANCE);
    write(&instance.join("tracing_on"), "0")?;
    let folder = instance.join("per_cpu");
    let listed = fs::read_dir(&folder).map_err(|error| failure(&folder, &error))?;
    let mut cpus: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    cpus.sort();
    let (mut lost, mut text) = (0, Vec::new());
    for cpu in cpus {
        lost += dropped(&fs::read_to_string(cpu.join("stats")).unwrap_or_default());
        drain(&cpu.join("trace_pipe"), &mut text)?;
    }
    remove(&instance)?;
    text.truncate(MOST_BYTES);
    Ok((lost, text))
}

fn drain(pipe: &Path, text: &mut Vec<u8>) -> Result<(), Failure> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file: File = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(pipe)
        .map_err(|error| failure(pipe, &error))?;
    let mut page = [0; 1 << 16];
    while text.len() < MOST_BYTES {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&page[..count]),
            // That was all.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failure(pipe, &error)),
        }
    }
    Ok(())
}

fn dropped(stats: &str) -> u64 {
    stats
        .lines()
        .find_map(|line| line.strip_prefix("dropped events: "))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

fn remove(instance: &Path) -> Result<(), Failure> {
    if !instance.exists() {
        return Ok(());
    }
    write(&instance.join("events/enable"), "0")?;
    fs::remove_dir(instance).map_err(|error| failure(instance, &error))
}

fn write(path: &Path, value: &str) -> Result<(), Failure> {
    fs::write(path, value).map_err(|error| failure(path, &error))
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run_with;

    #[test]
    fn only_tares_own_machines_are_traced() {
        let (result, collected) = run_with(run, &json!({"action": "end"}), &[]);
        assert!(
            result["error"].as_str().unwrap().contains("own"),
            "{result}"
        );
        assert!(collected.series.lock().unwrap().is_empty());
        let (result, _) = run_with(run, &json!({"action": "peek"}), &[]);
        assert!(result["error"].as_str().unwrap().contains("parameters"));
    }

    #[test]
    fn a_name_that_leaves_the_folder_of_events_is_no_event() {
        assert!(plain("sched/sched_switch") && plain("irq_vectors/local_timer_entry"));
        for name in ["", "sched", "../x", "sched/", "a/b/c", "sched/..", "a/b c"] {
            assert!(!plain(name), "{name}");
        }
    }

    #[test]
    fn events_without_room_are_counted() {
        let stats = "entries: 4\noverrun: 9\ndropped events: 17\nread events: 1\n";
        assert_eq!(dropped(stats), 17);
        assert_eq!(dropped(""), 0);
        assert_eq!(dropped("dropped events: many"), 0);
    }

    #[test]
    fn a_folder_of_files_is_set_up_and_read() {
        let name = format!("tare-stacks-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let instance = root.join(INSTANCE);
        let cpu = instance.join("per_cpu/cpu0");
        fs::create_dir_all(&cpu).unwrap();
        fs::write(cpu.join("trace_pipe"), " => schedule\n").unwrap();
        fs::write(cpu.join("stats"), "dropped events: 2\n").unwrap();
        let mut text = Vec::new();
        drain(&cpu.join("trace_pipe"), &mut text).unwrap();
        assert_eq!(text, b" => schedule\n");
        let missing = begin(&root, &[], 64).unwrap_err();
        assert!(missing.0.contains("events/enable"), "{}", missing.0);
        fs::remove_dir_all(root).unwrap();
    }
}
