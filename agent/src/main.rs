//! The command line of the agent. As PID 1 it is the machine's init.

use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Mutex;
use tare_agent::serve::{Origin, Role, Server};
use tare_agent::workload::{Context, Failure, Sink};
use tare_agent::{init, keep, launch, network, proof, scheduling, sys, toolbox, workloads};

const USAGE: &str = "\
tare-agent serve [--device PATH]        serve a host on stdin and stdout, or on a device
tare-agent run WORKLOAD [JSON] [--cpus LIST] [--series DIR]
                                        carry out one workload by hand and print its result
tare-agent proof                        print the environment proof
tare-agent exec [--die-with-parent] [--parent PID] [--cpus LIST] [--cgroup DIR]
                [--policy other|batch|fifo] [--priority N] [--nice N] [--slice-ns N]
                [--log FILE [--log-output]] -- PROGRAM ARGUMENTS...
tare-agent sched --threads LIST [--policy P] [--priority N] [--nice N] [--slice-ns N]
                                        schedule threads so, and print how the kernel then does
tare-agent keep [--resume] [--lease SECONDS] DIR
                                        hold what Tare starts on this host, through breaks of its
                                        connection; ends with it after a lease without a word
tare-agent version";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::process::id() == 1
        && !matches!(
            arguments.first().map(String::as_str),
            Some("serve" | "run" | "exec" | "proof")
        )
    {
        init::run();
    }
    let outcome = match arguments.split_first() {
        Some((command, rest)) => match command.as_str() {
            "serve" => toolbox::enter_named().and_then(|()| serve(rest)),
            "run" => toolbox::enter_named().and_then(|()| run(rest)),
            "exec" => launch::parse(rest).and_then(|it| Err(launch::launch(&it))),
            "sched" => scheduling::command(rest).map(|told| println!("{told}")),
            "keep" => keep::keep(rest),
            "proof" => {
                println!("{:#}", proof::collect(&json!([])));
                Ok(())
            }
            "version" | "--version" => {
                println!("tare-agent {}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
            "help" | "--help" | "-h" => {
                println!("{USAGE}");
                Ok(())
            }
            other => Err(format!("unknown command '{other}'\n{USAGE}")),
        },
        None => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("tare-agent: {reason}");
            ExitCode::from(2)
        }
    }
}

fn serve(arguments: &[String]) -> Result<(), String> {
    let (input, output) = match arguments {
        [] => {
            // SAFETY: nothing else in this program uses stdin and stdout after this.
            unsafe { (File::from_raw_fd(0), File::from_raw_fd(1)) }
        }
        [flag, path] if flag == "--device" => {
            let device = OpenOptions::new().read(true).write(true).open(path);
            let device = device.map_err(|error| format!("{path}: {error}"))?;
            let copy = device
                .try_clone()
                .map_err(|error| format!("{path}: {error}"))?;
            (device, copy)
        }
        _ => return Err(format!("serve takes nothing, or --device PATH\n{USAGE}")),
    };
    if sys::is_terminal(input.as_raw_fd()) {
        sys::set_raw(input.as_raw_fd()).map_err(|error| format!("terminal: {error}"))?;
    }
    let mut origin = Origin::default();
    if let Ok(wanted) = std::env::var(network::VARIABLE) {
        origin.network = network::look(&wanted);
    }
    let server = Server::new(output, Role::Process, origin);
    server.speak_when_failing();
    server.serve(input);
    Ok(())
}

/// Collects what a workload run by hand reports.
struct Collector {
    directory: Option<String>,
    series: Mutex<Vec<Value>>,
}

impl Sink for Collector {
    fn progress(&self, done: f64, fields: Value) {
        eprintln!("{:5.1} % {fields}", 100.0 * done);
    }

    fn barrier(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]) {
        if let Some(directory) = &self.directory {
            let path = format!("{directory}/{name}.bin");
            if let Err(error) = std::fs::write(&path, data) {
                eprintln!("tare-agent: {path}: {error}");
            }
        }
        let entry = json!({"name": name, "rows": rows, "columns": columns});
        self.series.lock().unwrap().push(entry);
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let mut params = json!({});
    let (mut name, mut cpus, mut directory) = (None, Vec::new(), None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--cpus" => cpus = launch::cpu_list(rest.next().ok_or("--cpus needs a list")?)?,
            "--series" => {
                directory = Some(rest.next().ok_or("--series needs a directory")?.clone())
            }
            text if name.is_none() => name = Some(text.to_string()),
            text => {
                params = serde_json::from_str(text)
                    .map_err(|error| format!("the parameters are not JSON: {error}"))?;
            }
        }
    }
    let name = name.ok_or_else(|| format!("which workload?\n{USAGE}"))?;
    let known = || {
        workloads::ALL
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let run = workloads::find(&name)
        .ok_or_else(|| format!("no workload '{name}'; there are: {}", known()))?;
    if !cpus.is_empty() {
        sys::set_affinity(0, &cpus).map_err(|error| format!("CPUs {cpus:?}: {error}"))?;
    }
    let collector = Collector {
        directory,
        series: Mutex::new(Vec::new()),
    };
    let context = Context {
        params: &params,
        cpus: &cpus,
        stop: &AtomicBool::new(false),
        sink: &collector,
    };
    let value = run(&context).map_err(|Failure(reason)| reason)?;
    let series = collector.series.into_inner().unwrap_or_default();
    println!("{}", json!({"value": value, "series": series}));
    Ok(())
}
