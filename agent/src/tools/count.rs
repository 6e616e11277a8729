//! `tare-agent count`: reads the processor's counters for other threads, such as a virtual machine's
//! vCPUs, until standard input ends.

use super::arguments;
use crate::measure::hardware::Hardware;
use serde_json::{json, Value};
use std::io::{self, Read, Write};

/// Printed once all counters run.
const COUNTING: &str = "counting";

/// Count for each list of threads, and print the counts at the end of `input`.
pub fn command(lists: &[String], input: impl Read, mut output: impl Write) -> Result<(), String> {
    if lists.is_empty() {
        return Err("which threads? give a list for each machine: ID,ID,...".into());
    }
    let threads: Result<Vec<Vec<i32>>, String> =
        lists.iter().map(|list| arguments::threads(list)).collect();
    let counting: Vec<Hardware> = threads?
        .iter()
        .map(|threads| Hardware::of_threads(threads))
        .collect();
    let result = writeln!(output, "{COUNTING}")
        .and_then(|()| output.flush())
        .and_then(|()| until_the_end(input))
        .and_then(|()| {
            let counted: Vec<Value> = counting.into_iter().map(Hardware::end).collect();
            writeln!(output, "{}", json!(counted))
        });
    result.map_err(|error| error.to_string())
}

fn until_the_end(mut input: impl Read) -> io::Result<()> {
    io::copy(&mut input, &mut io::sink()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lists: &[&str]) -> Result<String, String> {
        let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
        let mut output = Vec::new();
        command(&lists, io::empty(), &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn counts_have_the_order_of_the_lists() {
        let own = std::process::id().to_string();
        let output = counted(&[&own, "999999999"]).unwrap();
        let (first, second) = output.split_once('\n').unwrap();
        assert_eq!(first, COUNTING);
        let each: Vec<Value> = serde_json::from_str(second).unwrap();
        assert_eq!(each.len(), 2);
        // On a computer without counters, that is the reason.
        assert!(each[1]["missing"].is_string(), "{output}");
        assert!(each[1].get("cycles").is_none(), "{output}");
    }

    #[test]
    fn an_invalid_list_is_named() {
        assert!(counted(&["1,x"]).unwrap_err().contains("'x'"));
        assert!(counted(&[]).unwrap_err().contains("which threads"));
    }
}
