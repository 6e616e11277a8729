//! `tare-agent exec`: becomes another program, bound to CPUs, a policy, and its parent's life.

use super::arguments::{self, cpu_list, number, text};
use crate::measure::clock;
use crate::measure::scheduling::Scheduling;
use crate::sys;
use lexopt::prelude::*;
use lexopt::{Error, Parser};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What to set before becoming the program.
#[derive(Debug, Default, PartialEq)]
pub struct Launch {
    pub die_with_parent: bool,
    /// The process id the parent must still have, so that its death before this start is seen.
    pub parent: Option<i32>,
    pub cpus: Option<Vec<usize>>,
    /// A control group's directory, which the process joins before it is scheduled.
    pub cgroup: Option<String>,
    pub scheduling: Scheduling,
    /// A file that standard error is appended to.
    pub log: Option<String>,
    /// Let standard output go to the log too.
    pub log_output: bool,
    /// Wait for the aligned moment at which work starts if time counts instructions.
    pub aligned: bool,
    pub argv: Vec<String>,
}

/// Read the arguments of `exec`.
pub fn parse(mut parser: Parser) -> Result<Launch, Error> {
    let mut launch = Launch::default();
    while let Some(argument) = parser.next()? {
        let option = match argument {
            Long(option) => option.to_string(),
            Value(program) => {
                let argv = std::iter::once(program).chain(parser.raw_args()?);
                launch.argv = argv.map(ValueExt::string).collect::<Result<_, _>>()?;
                break;
            }
            Short(_) => return Err(argument.unexpected()),
        };
        match option.as_str() {
            "die-with-parent" => launch.die_with_parent = true,
            "parent" => launch.parent = Some(number(&mut parser, &option)?),
            "cpus" => launch.cpus = Some(cpu_list(&text(&mut parser)?)?),
            "cgroup" => launch.cgroup = Some(text(&mut parser)?),
            "fifo" => {
                launch.scheduling.policy = Some(libc::SCHED_FIFO);
                launch.scheduling.priority = Some(number(&mut parser, &option)?);
            }
            "log" => launch.log = Some(text(&mut parser)?),
            "log-output" => launch.log_output = true,
            "aligned" => launch.aligned = true,
            _ if arguments::scheduling(&mut parser, &option, &mut launch.scheduling)? => {}
            _ => return Err(Long(&option).unexpected()),
        }
    }
    if launch.argv.is_empty() {
        return Err("no program to start: give it after --".into());
    }
    Ok(launch)
}

/// Set everything and become the program. Returns only with the reason why that failed.
pub fn launch(launch: &Launch) -> String {
    match prepare(launch) {
        Ok(()) => {
            let error = Command::new(&launch.argv[0]).args(&launch.argv[1..]).exec();
            format!("cannot start {}: {error}", launch.argv[0])
        }
        Err(reason) => reason,
    }
}

fn prepare(launch: &Launch) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    if launch.die_with_parent {
        sys::die_with_parent().map_err(|error| failed("cannot be bound to the parent", error))?;
    }
    if launch
        .parent
        .is_some_and(|parent| parent != sys::parent_id())
    {
        return Err("the parent has ended".into());
    }
    if let Some(path) = &launch.log {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| failed(path, error))?;
        dup2_stderr(&file).map_err(|error| failed(path, error.into()))?;
        if launch.log_output {
            dup2_stdout(&file).map_err(|error| failed(path, error.into()))?;
        }
    }
    if let Some(cpus) = &launch.cpus {
        sys::set_affinity(0, cpus)
            .map_err(|error| failed(&format!("cannot use CPUs {cpus:?}"), error))?;
    }
    if let Some(folder) = &launch.cgroup {
        let members = format!("{folder}/cgroup.procs");
        // 0 is the process that writes (cgroups(7)).
        std::fs::write(&members, "0").map_err(|error| failed(&members, error))?;
    }
    if !launch.scheduling.is_default() {
        launch.scheduling.apply(0)?;
    }
    if launch.aligned {
        clock::align();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::arguments::line;
    use super::*;

    #[test]
    fn all_flags_are_read() {
        let text = "--die-with-parent --parent 7 --cpus 0,2-3 --fifo 5 --nice -1 --slice-ns 9 \
                    --cgroup /g --log f --log-output --aligned -- a --cpus";
        let expected = Launch {
            die_with_parent: true,
            parent: Some(7),
            cpus: Some(vec![0, 2, 3]),
            cgroup: Some("/g".into()),
            scheduling: Scheduling {
                policy: Some(libc::SCHED_FIFO),
                priority: Some(5),
                nice: Some(-1),
                slice_ns: Some(9),
            },
            log: Some("f".into()),
            log_output: true,
            aligned: true,
            argv: vec!["a".into(), "--cpus".into()],
        };
        assert_eq!(parse(line(text)).unwrap(), expected);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (text, word) in [
            ("--cpus x -- a", "x"),
            ("--fifo", "--fifo"),
            ("--cpu 1 -- a", "--cpu"),
            ("--nice 1", "--"),
            ("--policy fastest -- a", "fastest"),
            ("--cpus 3-1 -- a", "3-1"),
        ] {
            let reason = parse(line(text)).unwrap_err().to_string();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
