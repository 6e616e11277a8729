//! `tare-agent sched`: sets the scheduling of threads, and prints what the kernel then reports.

use super::arguments::{self, text};
use crate::measure::scheduling::{policy_name, read, Scheduling};
use crate::sys;
use lexopt::prelude::*;
use lexopt::{Error, Parser};
use serde_json::{json, Value as Json};

/// Apply the scheduling to the named threads, and return how each is then scheduled, as JSON.
pub fn command(mut parser: Parser) -> Result<Json, Error> {
    let mut scheduling = Scheduling::default();
    let mut threads = Vec::new();
    while let Some(argument) = parser.next()? {
        let Long(option) = argument else {
            return Err(argument.unexpected());
        };
        let option = option.to_string();
        if option == "threads" {
            threads = arguments::threads(&text(&mut parser)?)
                .map_err(|wrong| format!("--threads: {wrong}"))?;
        } else if !arguments::scheduling(&mut parser, &option, &mut scheduling)? {
            return Err(Long(&option).unexpected());
        }
    }
    if threads.is_empty() {
        return Err("which threads? give --threads ID,ID,...".into());
    }
    let found: Result<Vec<Json>, String> = threads
        .into_iter()
        .map(|thread| schedule(thread, &scheduling))
        .collect();
    Ok(json!(found?))
}

fn schedule(thread: i32, scheduling: &Scheduling) -> Result<Json, String> {
    let found = if scheduling.is_default() {
        read(thread).map_err(|error| format!("cannot be read: {error}"))
    } else {
        scheduling.apply(thread)
    };
    let found = found.map_err(|reason| format!("thread {thread}: {reason}"))?;
    Ok(json!({
        "thread": thread,
        "policy": policy_name(found.policy),
        "priority": found.priority,
        "nice": found.nice,
        "slice_ns": found.slice_ns,
        "cpus": sys::affinity(thread).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::arguments::line;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_errors_are_reported() {
        for (text, word) in [
            (
                "--threads 0 --policy fifo --priority 1000",
                "Invalid argument",
            ),
            ("--threads 99999999", "No such process"),
            ("--threads 0 --policy quick", "quick"),
            ("--policy fifo", "--threads"),
            ("--threads 0 --nice much", "much"),
            ("--threads a", "'a'"),
            ("--thread 1", "--thread"),
            ("--threads", "--threads"),
            ("0", "0"),
        ] {
            let reason = command(line(text)).unwrap_err().to_string();
            assert!(reason.contains(word), "{text}: {reason}");
        }
    }

    #[test]
    fn threads_are_only_read_without_options() {
        let found = command(line("--threads 0,0")).unwrap();
        assert_eq!(found.as_array().unwrap().len(), 2);
        assert!(found[0]["policy"].as_str().unwrap().starts_with("SCHED_"));
        assert!(!found[0]["cpus"].as_array().unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn no_arguments_make_it_fail(text in "(--(policy|nice|priority|slice-ns|x) ?[-a-z0-9]{0,12} ?){0,5}") {
            // Without --threads nothing is applied.
            prop_assert!(command(line(&text)).is_err());
        }
    }
}
