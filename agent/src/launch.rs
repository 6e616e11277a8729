//! `tare-agent exec`: becomes another program, bound to CPUs, a policy, and its parent's life.

use crate::scheduling::Scheduling;
use crate::sys;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What to set before becoming the program.
#[derive(Debug, Default, PartialEq)]
pub struct Launch {
    pub die_with_parent: bool,
    /// The process id the parent must still have, so that its death before this start is seen.
    pub parent: Option<i32>,
    pub cpus: Option<Vec<usize>>,
    /// A control group's directory; the program is in it before any of this is asked for.
    pub cgroup: Option<String>,
    pub scheduling: Scheduling,
    /// A file that standard error is appended to.
    pub log: Option<String>,
    /// Let standard output go to the log too.
    pub log_output: bool,
    pub argv: Vec<String>,
}

/// Read a list of CPUs as the kernel writes it: `0,2-3`.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of CPUs such as 0,2-3");
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= libc::CPU_SETSIZE as usize {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Read the arguments behind `exec`.
pub fn parse(arguments: &[String]) -> Result<Launch, String> {
    let mut launch = Launch::default();
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{flag} needs a value"));
        let number = |text: &String| {
            text.parse::<i32>()
                .map_err(|_| format!("{flag}: '{text}' is not a number"))
        };
        match flag.as_str() {
            "--die-with-parent" => launch.die_with_parent = true,
            "--parent" => launch.parent = Some(number(value()?)?),
            "--cpus" => launch.cpus = Some(cpu_list(value()?)?),
            "--cgroup" => launch.cgroup = Some(value()?.clone()),
            "--fifo" => {
                launch.scheduling.policy = Some(libc::SCHED_FIFO);
                launch.scheduling.priority = Some(number(value()?)?);
            }
            "--policy" | "--priority" | "--nice" | "--slice-ns" => {
                let value = value()?;
                launch.scheduling.take(flag, value)?;
            }
            "--log" => launch.log = Some(value()?.clone()),
            "--log-output" => launch.log_output = true,
            "--" => {
                launch.argv = rest.cloned().collect();
                break;
            }
            other => {
                return Err(format!(
                    "unknown argument '{other}' (the program comes after --)"
                ))
            }
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
    let say = |what: &str, error: std::io::Error| format!("{what}: {error}");
    if launch.die_with_parent {
        sys::die_with_parent().map_err(|error| say("cannot be bound to the parent", error))?;
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
            .map_err(|error| say(path, error))?;
        sys::duplicate(file.as_raw_fd(), 2).map_err(|error| say(path, error))?;
        if launch.log_output {
            sys::duplicate(file.as_raw_fd(), 1).map_err(|error| say(path, error))?;
        }
    }
    if let Some(cpus) = &launch.cpus {
        sys::set_affinity(0, cpus)
            .map_err(|error| say(&format!("cannot use CPUs {cpus:?}"), error))?;
    }
    if let Some(folder) = &launch.cgroup {
        let members = format!("{folder}/cgroup.procs");
        // 0 is the process that writes (cgroups(7)).
        std::fs::write(&members, "0").map_err(|error| say(&members, error))?;
    }
    if !launch.scheduling.asks_nothing() {
        launch.scheduling.apply(0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn all_flags_are_read() {
        let line = "--die-with-parent --parent 7 --cpus 0,2-3 --fifo 5 --nice -1 --slice-ns 9 \
                    --cgroup /g --log f --log-output -- a --cpus";
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
            argv: words("a --cpus"),
        };
        assert_eq!(parse(&words(line)), Ok(expected));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("--cpus x -- a", "x"),
            ("--fifo", "--fifo"),
            ("--cpu 1 -- a", "--cpu"),
            ("--nice 1", "--"),
            ("--policy fastest -- a", "fastest"),
            ("--cpus 3-1 -- a", "3-1"),
        ] {
            let reason = parse(&words(line)).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_fail(text in "[-0-9, ]{0,30}") {
            let _ = cpu_list(&text);
        }
    }
}
