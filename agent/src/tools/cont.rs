//! `tare-agent cont`: resumes a paused QEMU guest at an aligned moment of the host's clock.
//!
//! If the host's time counts instructions, the guest's clock then has the same offset from the host's
//! timers in each boot. No other client may hold the monitor meanwhile: QEMU's events would go out over
//! the network, whose replies arrive at times that depend on the outside.

use crate::measure::clock;
use serde_json::{json, Value};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Keep the process's end quiet for this long as well. Once the guest has booted and is idle, the rest
/// of the time passes at once.
const QUIET: Duration = Duration::from_secs(10);

/// Resume the guest whose monitor listens at the named socket.
pub fn command(arguments: &[String]) -> Result<(), String> {
    let [path] = arguments else {
        return Err("cont takes the socket at which QEMU's monitor listens".into());
    };
    let failed = |error: io::Error| format!("{path}: {error}");
    let stream = UnixStream::connect(path).map_err(failed)?;
    resume_guest(&stream).map_err(failed)?;
    if clock::aligned() {
        thread::sleep(QUIET);
    }
    Ok(())
}

/// Negotiate with the monitor, wait for the aligned moment, and resume the guest.
///
/// Source: QEMU, docs/interop/qmp-spec.rst.
fn resume_guest(stream: &UnixStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    lines.read_line(&mut String::new())?;
    execute(stream, &mut lines, "qmp_capabilities")?;
    clock::align();
    execute(stream, &mut lines, "cont")
}

fn execute(mut to: &UnixStream, lines: &mut impl BufRead, command: &str) -> io::Result<()> {
    writeln!(to, "{}", json!({ "execute": command }))?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("QEMU ended before {command}")));
        }
        let reply: Value = serde_json::from_str(&line)?;
        if let Some(error) = reply.get("error") {
            return Err(io::Error::other(format!(
                "{command}: {}",
                error["desc"].as_str().unwrap_or("refused")
            )));
        }
        // A message without either is an event.
        if reply.get("return").is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands that a monitor with these answers receives, and the outcome.
    fn received_by_monitor(answers: &'static [&str]) -> (Vec<String>, io::Result<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let monitor = thread::spawn(move || {
            let mut received_by_monitor = Vec::new();
            let mut lines = BufReader::new(&theirs).lines();
            writeln!(&theirs, r#"{{"QMP": {{}}}}"#).unwrap();
            for answer in answers {
                received_by_monitor.extend(lines.next().transpose().unwrap());
                writeln!(&theirs, "{answer}").unwrap();
            }
            received_by_monitor
        });
        let outcome = resume_guest(&ours);
        (monitor.join().unwrap(), outcome)
    }

    #[test]
    fn a_guest_goes_on_once_the_monitor_takes_commands() {
        let (reply, outcome) = received_by_monitor(&[
            r#"{"return": {}}"#,
            "{\"event\": \"RESUME\"}\n{\"return\": {}}",
        ]);
        assert_eq!(
            reply,
            [r#"{"execute":"qmp_capabilities"}"#, r#"{"execute":"cont"}"#]
        );
        outcome.unwrap();
    }

    #[test]
    fn a_refusal_is_reported_with_qemus_message() {
        let (_, outcome) = received_by_monitor(&[
            r#"{"return": {}}"#,
            r#"{"error": {"desc": "the disk is full"}}"#,
        ]);
        assert_eq!(outcome.unwrap_err().to_string(), "cont: the disk is full");
    }

    #[test]
    fn a_closed_monitor_and_invalid_replies_are_errors() {
        // The monitor may close before or after the command is sent.
        assert!(received_by_monitor(&[]).1.is_err());
        assert!(received_by_monitor(&["hello"]).1.is_err());
        assert!(command(&[]).is_err());
        assert!(command(&["/nowhere".into()])
            .unwrap_err()
            .starts_with("/nowhere"));
    }
}
