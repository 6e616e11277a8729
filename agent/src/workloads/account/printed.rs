//! What a command of the host's prints at each look: what its kernel alone cannot tell.

use super::{LOOK, MOST_TEXT};
use crate::contract::Failure;
use crate::measure::clock::monotonic_ns;
use serde::Serialize;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than a command that answers takes, also in an emulated host.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Serialize)]
pub struct Printed {
    /// When it ran, on average, in seconds of the monotonic clock.
    at_s: f64,
    text: String,
}

/// Run a command to its end, and return what it printed.
pub fn by(argv: &[String]) -> Result<Printed, Failure> {
    let (name, arguments) = argv.split_first().ok_or("no command is named")?;
    let began_ns = monotonic_ns();
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let said = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    let ended = end(&mut child).map_err(|error| format!("{name}: {error}"))?;
    let (said, errors) = (taken(said), taken(errors));
    if !ended {
        return Err(Failure(format!("{}: {}", argv.join(" "), errors.trim())));
    }
    let middle_ns = began_ns + (monotonic_ns() - began_ns) / 2;
    Ok(Printed {
        at_s: middle_ns as f64 * 1e-9,
        text: said,
    })
}

/// Wait for its end, and return whether it was a good one.
fn end(child: &mut Child) -> std::io::Result<bool> {
    let deadline = Instant::now() + LONGEST;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            let told = format!("did not end within {LONGEST:?}");
            return Err(std::io::Error::other(told));
        }
        thread::sleep(LOOK);
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before a fault is kept: whoever reads it sees whether it is whole.
            let _ = pipe.take(MOST_TEXT as u64).read_to_end(&mut kept);
        }
        kept
    })
}

fn taken(reading: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reading.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(String::from).to_vec()
    }

    #[test]
    fn it_is_told_as_of_the_middle_of_the_commands_time() {
        let before_s = monotonic_ns() as f64 * 1e-9;
        let printed = by(&shell("echo first; sleep 0.2; echo last")).unwrap();
        let after_s = monotonic_ns() as f64 * 1e-9;
        assert_eq!(printed.text, "first\nlast\n");
        assert!(before_s + 0.1 <= printed.at_s && printed.at_s <= after_s - 0.1);
    }

    #[test]
    fn a_command_that_fails_is_told_in_its_words() {
        let fault = by(&shell("echo no privileges >&2; exit 1")).unwrap_err();
        assert!(fault.0.ends_with("exit 1: no privileges"), "{}", fault.0);
        let fault = by(&["tare-has-no-such".to_string()]).unwrap_err();
        assert!(fault.0.starts_with("tare-has-no-such: "), "{}", fault.0);
        assert_eq!(by(&[]).unwrap_err().0, "no command is named");
    }

    #[test]
    fn as_much_as_is_kept_is_read_whole() {
        let much = by(&shell("yes | head -c 65536")).unwrap();
        assert_eq!(much.text.len(), MOST_TEXT);
    }
}
