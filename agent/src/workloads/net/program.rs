//! `serve-program`: a program of the toolbox that serves a port until stopped; the load against it
//! begins once it listens.

use crate::contract::{Context, Failure};
use crate::measure::params;
use crate::tools::program::{last_lines, Program};
use crate::tools::toolbox;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);
/// A block of what fills files: no compressor and no cache of zeros makes it smaller.
const BLOCK: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    argv: Vec<String>,
    /// The TCP port that it listens on when it is ready.
    port: u16,
    /// Files to write before: path, as the program sees it, to content.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Files to fill before: path to size in bytes.
    #[serde(default)]
    filled: BTreeMap<String, u64>,
    #[serde(default = "patience")]
    patience_s: f64,
}

fn patience() -> f64 {
    20.0
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    params::require(
        (0.0..=3600.0).contains(&params.patience_s),
        "patience_s: 0 to 3600",
    )?;
    let toolbox = toolbox::open()?;
    for (path, content) in &params.files {
        write(&toolbox.outside(path), |file| {
            std::io::Write::write_all(file, content.as_bytes())
        })?;
    }
    for (path, size) in &params.filled {
        write(&toolbox.outside(path), |file| fill(file, *size))?;
    }
    let name = params.argv.first().cloned().unwrap_or_default();
    if listens(params.port) {
        return Err(Failure(format!(
            "something listens on port {} already, so {name} cannot",
            params.port
        )));
    }
    let mut running = Program::new(params.argv.iter().cloned()).start(toolbox)?;
    let since = Instant::now();
    let last_output = |ended: (Vec<u8>, Vec<u8>)| match last_lines(&ended.1) {
        last_output if last_output.is_empty() => last_lines(&ended.0),
        last_output => last_output,
    };
    while !listens(params.port) {
        if !running.is_running() {
            let output = last_output(running.end());
            return Err(Failure(format!("{name} ended before it listened{output}")));
        }
        if since.elapsed().as_secs_f64() > params.patience_s {
            let output = last_output(running.end());
            return Err(Failure(format!(
                "{name} does not listen on port {} after {} s{output}",
                params.port, params.patience_s
            )));
        }
        std::thread::sleep(LOOK);
    }
    let ready_s = since.elapsed().as_secs_f64();
    context.sink.barrier()?;
    let began = Instant::now();
    while !context.stop.load(Ordering::Relaxed) {
        if !running.is_running() {
            let output = last_output(running.end());
            return Err(Failure(format!("{name} ended while it was needed{output}")));
        }
        std::thread::sleep(LOOK);
    }
    running.end();
    Ok(json!({
        "ready_s": ready_s,
        "seconds": began.elapsed().as_secs_f64(),
        "toolbox": toolbox.identity(),
        "warnings": [],
    }))
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut fs::File) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)
        .and_then(|()| content(&mut fs::File::create(path)?))
        .map_err(|error| Failure(format!("{} cannot be written: {error}", path.display())))
}

fn fill(file: &mut fs::File, size: u64) -> std::io::Result<()> {
    let mut random = crate::measure::random::Random::new(size);
    let block: Vec<u8> = (0..BLOCK / 4)
        .flat_map(|_| random.word().to_le_bytes())
        .collect();
    let mut left = size;
    while left > 0 {
        let piece = left.min(BLOCK as u64);
        std::io::Write::write_all(file, &block[..piece as usize])?;
        left -= piece;
    }
    Ok(())
}

/// Whether a TCP port is listened on here, at any address.
fn listens(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().skip(1).any(|line| is_listening(line, port))
    })
}

/// A line of `/proc/net/tcp`: number, local address, remote address, state (0A: listening).
fn is_listening(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1).and_then(|address| address.rsplit_once(':'));
    let state = fields.nth(1);
    state == Some("0A")
        && local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16).is_ok_and(|it| it == port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_ports_are_seen() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        assert!(is_listening(line, 8080));
        assert!(!is_listening(line, 80));
        assert!(!is_listening(&line.replace(" 0A ", " 01 "), 8080));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }
}
