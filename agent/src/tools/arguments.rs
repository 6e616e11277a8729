//! Command-line parsing for the commands that start or schedule programs.

use crate::measure::scheduling::{policy_number, Scheduling};
use lexopt::{Arg, Error, Parser, ValueExt};
use std::str::FromStr;

/// All arguments of a command that has no options.
pub fn words(mut parser: Parser) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    while let Some(word) = parser.next()? {
        match word {
            Arg::Value(word) => words.push(word.string()?),
            option => return Err(option.unexpected()),
        }
    }
    Ok(words)
}

/// The value of an option.
pub fn text(parser: &mut Parser) -> Result<String, Error> {
    parser.value()?.string()
}

/// The value of an option that takes a number.
pub fn number<T: FromStr>(parser: &mut Parser, option: &str) -> Result<T, Error> {
    let text = text(parser)?;
    let wrong = |_| format!("--{option}: '{text}' is not a number").into();
    text.parse().map_err(wrong)
}

/// Read a scheduling option; false if the option is not one.
pub fn scheduling(
    parser: &mut Parser,
    option: &str,
    asked: &mut Scheduling,
) -> Result<bool, Error> {
    match option {
        "policy" => asked.policy = Some(policy_number(&text(parser)?)?),
        "priority" => asked.priority = Some(number(parser, option)?),
        "nice" => asked.nice = Some(number(parser, option)?),
        "slice-ns" => asked.slice_ns = Some(number(parser, option)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Read the ids of threads: `12,13`.
pub fn threads(text: &str) -> Result<Vec<i32>, String> {
    let id = |word: &str| {
        let wrong = |_| format!("'{word}' is not a thread's id");
        word.trim().parse().map_err(wrong)
    };
    text.split(',').map(id).collect()
}

/// Read a list of CPUs as the kernel writes it: `0,2-3`.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("'{text}' is not a list of CPUs such as 0,2-3");
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= crate::sys::MOST_CPUS {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// A command line for tests, split at spaces.
#[cfg(test)]
pub fn line(text: &str) -> Parser {
    Parser::from_args(text.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-2,5\n"), Ok(vec![0, 1, 2, 5]));
        for wrong in ["", "0-x", "2-1", "0-99999999999"] {
            assert!(cpu_list(wrong).unwrap_err().contains(wrong));
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_fail(text in "[-0-9, ]{0,30}") {
            let _ = cpu_list(&text);
        }
    }
}
