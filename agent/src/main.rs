//! The command line of the agent. As PID 1 it is the machine's init.

use lexopt::prelude::*;
use lexopt::{Error, Parser};
use serde_json::json;
use std::fs::OpenOptions;
use std::io;
use std::process::ExitCode;
use tare_agent::boot::{init, network};
use tare_agent::channel::dial;
use tare_agent::channel::serve::{Origin, Role, Server};
use tare_agent::measure::{proof, scratch};
use tare_agent::sys;
use tare_agent::tools::{arguments, cont, count, guard, keep, launch, reach, sched, tap, toolbox};
use tare_agent::workloads::run_command;

/// Why the disk that the host attached was not formatted.
const NOT_LIVE: &str = "its host attached an empty one, which only the live image formats: \
                        boot that (`tare image live`)";

const USAGE: &str = "\
tare-agent serve [--device PATH]        serve a host on stdin and stdout, or on a device
tare-agent dial [PATH]                  dial back to the host that a file, an image or a device names;
                                        by default the disk or CD with the label TARE-CFG
tare-agent run WORKLOAD [JSON] [--cpus LIST] [--series DIR]
                                        run one workload without a host and print its result
tare-agent proof                        print the environment proof
tare-agent exec [--die-with-parent] [--parent PID] [--cpus LIST] [--cgroup DIR]
                [--policy other|batch|fifo] [--priority N] [--nice N] [--slice-ns N]
                [--log FILE [--log-output]] [--aligned] -- PROGRAM ARGUMENTS...
tare-agent sched --threads LIST [--policy P] [--priority N] [--nice N] [--slice-ns N]
                                        set the scheduling of threads, and print what the kernel then reports
tare-agent count ID,ID,... [ID,ID,...]  count processor events of threads, for each list, until
                                        standard input ends, and print it
tare-agent cont SOCKET                  resume a paused QEMU guest through its monitor
tare-agent keep [--resume] [--lease SECONDS] DIR
                                        keep what Tare starts on this host running while its connection
                                        breaks; stop all after a lease without any message
tare-agent tap NAME                     forward a tap's frames to standard output and from standard input
tare-agent reach ADDRESS:PORT BYTES...  print the largest size of packets that is answered
tare-agent version";

fn main() -> ExitCode {
    if std::process::id() == 1 && !serves_as_pid_1() {
        init::run();
    }
    match command(Parser::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("tare-agent: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Whether process 1 of a container was given a command, so that it does not act as init.
fn serves_as_pid_1() -> bool {
    let word = std::env::args().nth(1);
    matches!(
        word.as_deref(),
        Some("serve" | "dial" | "run" | "exec" | "proof")
    )
}

fn command(mut parser: Parser) -> Result<(), Error> {
    let word = match parser.next()? {
        Some(Value(word)) => word.string()?,
        Some(Long("version")) => "version".into(),
        Some(Long("help") | Short('h')) => "help".into(),
        Some(other) => return Err(other.unexpected()),
        None => return Err(USAGE.into()),
    };
    match word.as_str() {
        "serve" => {
            toolbox::enter_named()?;
            serve(parser)?;
        }
        "dial" => dial_back(&arguments::words(parser)?)?,
        "run" => {
            toolbox::enter_named()?;
            run_command::run(parser)?;
        }
        "exec" => return Err(launch::launch(&launch::parse(parser)?).into()),
        "sched" => println!("{}", sched::command(parser)?),
        "count" => count::command(&arguments::words(parser)?, io::stdin(), io::stdout())?,
        "cont" => cont::command(&arguments::words(parser)?)?,
        "keep" => keep::keep(parser)?,
        guard::COMMAND => guard::run(),
        "tap" => tap::forward(&arguments::words(parser)?)?,
        "reach" => println!("{}", reach::command(&arguments::words(parser)?)?),
        "proof" => println!("{:#}", proof::collect(&json!([]))),
        "version" => println!(
            "tare-agent {}, built by {}",
            env!("CARGO_PKG_VERSION"),
            env!("TARE_COMPILER")
        ),
        "help" => println!("{USAGE}"),
        other => return Err(format!("unknown command '{other}'\n{USAGE}").into()),
    }
    Ok(())
}

fn serve(mut parser: Parser) -> Result<(), Error> {
    let (input, output) = match parser.next()? {
        None => sys::standard_streams().map_err(|error| error.to_string())?,
        Some(Long("device")) => {
            let path = parser.value()?.string()?;
            let failed = |error| format!("{path}: {error}");
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            let device = opened.map_err(failed)?;
            let copy = device.try_clone().map_err(failed)?;
            (device, copy)
        }
        Some(other) => return Err(other.unexpected()),
    };
    if sys::is_terminal(&input) {
        sys::set_raw(&input).map_err(|error| format!("terminal: {error}"))?;
    }
    let server = Server::new(output, Role::Process, origin());
    server.report_panics();
    server.serve(input);
    Ok(())
}

fn dial_back(words: &[String]) -> Result<(), Error> {
    let path = match words {
        [] => dial::find().ok_or("no disk or CD of this machine has the label TARE-CFG")?,
        [path] => path.into(),
        _ => return Err(USAGE.into()),
    };
    let configuration = dial::read(&path)?;
    if configuration.scratch.is_some() {
        // A process must not format disks of the machine that it runs in.
        scratch::set_absent(NOT_LIVE);
    }
    let dial::Way::Dial(host) = configuration.way else {
        return Err("it names a serial port: use `tare-agent serve --device` for that".into());
    };
    if std::process::id() == 1 {
        // In a container without a network nothing else brings up the loopback interface.
        let _ = sys::raise_interface("lo");
    }
    let dialled = dial::dial(&host, &configuration.key)?;
    let mut origin = origin();
    if configuration.given {
        origin.network = network::describe_address(dialled.address);
    }
    if let Some(card) = &configuration.isolated {
        // In a container nothing else sets it up.
        origin.network = network::set_up_card(&card.mac, &card.word);
    }
    let streams = dialled
        .stream()
        .and_then(|one| Ok((one, dialled.stream()?)));
    let (input, output) = streams.map_err(|error| error.to_string())?;
    let server = Server::new(output, Role::Process, origin);
    server.report_panics();
    server.serve(input);
    dialled.finish();
    Ok(())
}

fn origin() -> Origin {
    let mut origin = Origin::default();
    if let Ok(wanted) = std::env::var(network::VARIABLE) {
        origin.network = network::check_existing(&wanted);
    }
    origin
}
