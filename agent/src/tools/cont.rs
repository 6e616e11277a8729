//! `tare-agent cont`: lets a guest go whose QEMU waits, at a moment that the host's own clock names.
//!
//! Where the host's time counts instructions, a guest's clock then lies the same against the host's
//! timers in each boot. Nobody else may hold the monitor meanwhile: what QEMU tells it would leave by
//! the network, whose answers come when the outside likes.

use crate::measure::clock;
use serde_json::{json, Value};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// So long its end is not told either. Once the guest has booted and is idle, the rest of it passes
/// at once.
const QUIET: Duration = Duration::from_secs(10);

/// Let the guest go whose monitor listens at the socket that is named.
pub fn command(arguments: &[String]) -> Result<(), String> {
    let [path] = arguments else {
        return Err("cont takes the socket at which QEMU's monitor listens".into());
    };
    let told = |error: io::Error| format!("{path}: {error}");
    let stream = UnixStream::connect(path).map_err(told)?;
    go(&stream).map_err(told)?;
    if clock::aligned() {
        thread::sleep(QUIET);
    }
    Ok(())
}

/// Greet the monitor, wait for the moment, and tell it to go on.
///
/// Source: QEMU, docs/interop/qmp-spec.rst.
fn go(stream: &UnixStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    lines.read_line(&mut String::new())?;
    ask(stream, &mut lines, "qmp_capabilities")?;
    clock::align();
    ask(stream, &mut lines, "cont")
}

fn ask(mut to: &UnixStream, lines: &mut impl BufRead, command: &str) -> io::Result<()> {
    writeln!(to, "{}", json!({ "execute": command }))?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("QEMU ended before {command}")));
        }
        let said: Value = serde_json::from_str(&line)?;
        if let Some(error) = said.get("error") {
            return Err(io::Error::other(format!(
                "{command}: {}",
                error["desc"].as_str().unwrap_or("refused")
            )));
        }
        // What comes without either is an event.
        if said.get("return").is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a monitor that answers so hears, and how it went.
    fn heard(answers: &'static [&str]) -> (Vec<String>, io::Result<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let monitor = thread::spawn(move || {
            let mut heard = Vec::new();
            let mut lines = BufReader::new(&theirs).lines();
            writeln!(&theirs, r#"{{"QMP": {{}}}}"#).unwrap();
            for answer in answers {
                heard.extend(lines.next().transpose().unwrap());
                writeln!(&theirs, "{answer}").unwrap();
            }
            heard
        });
        let went = go(&ours);
        (monitor.join().unwrap(), went)
    }

    #[test]
    fn a_guest_goes_on_once_the_monitor_takes_commands() {
        let (said, went) = heard(&[
            r#"{"return": {}}"#,
            "{\"event\": \"RESUME\"}\n{\"return\": {}}",
        ]);
        assert_eq!(
            said,
            [r#"{"execute":"qmp_capabilities"}"#, r#"{"execute":"cont"}"#]
        );
        went.unwrap();
    }

    #[test]
    fn a_refusal_is_told_in_qemus_words() {
        let (_, went) = heard(&[
            r#"{"return": {}}"#,
            r#"{"error": {"desc": "the disk is full"}}"#,
        ]);
        assert_eq!(went.unwrap_err().to_string(), "cont: the disk is full");
    }

    #[test]
    fn an_end_and_other_words_are_no_answer() {
        // As it ends before the question or after it, so it is told.
        assert!(heard(&[]).1.is_err());
        assert!(heard(&["hello"]).1.is_err());
        assert!(command(&[]).is_err());
        assert!(command(&["/nowhere".into()])
            .unwrap_err()
            .starts_with("/nowhere"));
    }
}
