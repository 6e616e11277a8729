//! `tare-agent keep`: keeps what Tare started on a host running while the connection to Tare breaks.
//!
//! It consists of two processes. The *front* lives as long as one SSH session and only relays bytes.
//! The *keeper* owns all processes, files and sockets; it survives a broken session and accepts the next
//! front. If it receives nothing for the length of the lease, it kills all that it started, removes its
//! directory, and ends.

mod files;
mod link;
mod session;
mod streams;

use crate::sys;
use lexopt::prelude::*;
use lexopt::{Error, Parser};
use link::{read_frame, Link, CONTROL};
use serde_json::{json, Value as Json};
use session::Session;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(5);

/// What `keep` is to do.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    directory: PathBuf,
    lease_s: u64,
    /// Only connect to an existing keeper.
    resume: bool,
    /// Be the keeper, not its front.
    serve: bool,
}

fn parse(mut parser: Parser) -> Result<Arguments, Error> {
    let mut arguments = Arguments {
        lease_s: 30,
        ..Arguments::default()
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("resume") => arguments.resume = true,
            Long("serve") => arguments.serve = true,
            Long("lease") => {
                let text = parser.value()?.string()?;
                arguments.lease_s = text
                    .parse()
                    .ok()
                    .filter(|seconds| *seconds > 0)
                    .ok_or_else(|| format!("--lease: '{text}' is not a number of seconds"))?;
            }
            Value(path) if Path::new(&path).is_absolute() => arguments.directory = path.into(),
            _ => return Err(argument.unexpected()),
        }
    }
    if arguments.directory.as_os_str().is_empty() {
        return Err("keep needs the absolute path of its directory".into());
    }
    Ok(arguments)
}

/// Run `keep`.
pub fn keep(parser: Parser) -> Result<(), Error> {
    let arguments = parse(parser)?;
    let named = |error: io::Error| format!("{}: {error}", arguments.directory.display());
    if arguments.serve {
        return Ok(serve(&arguments).map_err(named)?);
    }
    if !arguments.resume {
        begin(&arguments).map_err(named)?;
    }
    let keeper = connect(&arguments).map_err(|error| format!("there is no keeper: {error}"))?;
    Ok(front(keeper).map_err(named)?)
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn begin(arguments: &Arguments) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(&arguments.directory)?;
    let log = File::create(arguments.directory.join("log"))?;
    Command::new("/proc/self/exe")
        .args(["keep", "--serve", "--lease", &arguments.lease_s.to_string()])
        .arg(&arguments.directory)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()?;
    Ok(())
}

fn connect(arguments: &Arguments) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket(&arguments.directory)) {
            Err(_) if !arguments.resume && began.elapsed() < START_LIMIT => {
                thread::sleep(START_PAUSE)
            }
            other => return other,
        }
    }
}

fn front(keeper: UnixStream) -> io::Result<()> {
    let (mut input, mut output) = sys::standard_streams()?;
    let (mut from, mut to) = (keeper.try_clone()?, keeper);
    thread::spawn(move || {
        let _ = io::copy(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => output.write_all(&buffer[..count])?,
        }
    }
}

/// The connection in use, to be cut when the next one comes.
type Current = Arc<Mutex<Option<UnixStream>>>;

fn serve(arguments: &Arguments) -> io::Result<()> {
    let listener = UnixListener::bind(socket(&arguments.directory))?;
    let session = Arc::new(Session::new(arguments.directory.clone()));
    let last_frame = Arc::new(Mutex::new(Instant::now()));
    let (sender, connections) = channel();
    let current = Current::default();
    thread::spawn(move || accept(&listener, &current, &sender));
    let lease = Duration::from_secs(arguments.lease_s);
    {
        let (session, last_frame) = (session.clone(), last_frame.clone());
        thread::spawn(move || loop {
            let silent = last_frame.lock().unwrap().elapsed();
            if silent >= lease {
                session.finish();
            }
            thread::sleep(lease - silent);
        });
    }
    // All processes start on this thread, which lives as long as the keeper: the kernel ties them
    // to the thread that started them.
    for connection in connections {
        if let Err(error) = converse(&connection, &session, &last_frame) {
            eprintln!("tare-agent: {error}");
        }
        // Others hold it too, and the front waits for its end before it tries another.
        let _ = connection.shutdown(Shutdown::Both);
    }
    Ok(())
}

fn accept(listener: &UnixListener, current: &Current, connections: &Sender<UnixStream>) {
    for connection in listener.incoming().flatten() {
        let mut current = current.lock().unwrap();
        if let Some(old) = current.take() {
            let _ = old.shutdown(Shutdown::Both);
        }
        *current = connection.try_clone().ok();
        if connections.send(connection).is_err() {
            return;
        }
    }
}

fn converse(
    connection: &UnixStream,
    session: &Arc<Session>,
    last_frame: &Mutex<Instant>,
) -> io::Result<()> {
    let mut from = io::BufReader::new(connection.try_clone()?);
    let link: &Link = session.link();
    while let Some(frame) = read_frame(&mut from)? {
        *last_frame.lock().unwrap() = Instant::now();
        if frame.kind != CONTROL {
            if link.is_new(&frame)? {
                session.take(frame);
            }
            continue;
        }
        let message: Json = serde_json::from_slice(&frame.payload)?;
        let theirs = message["received"].as_u64().unwrap_or(0);
        if message["hello"].as_bool() == Some(true) {
            link.resume(connection.try_clone()?, theirs, &hello());
        } else {
            link.arrived(theirs, message["asks"].as_bool() == Some(true));
        }
    }
    Ok(())
}

fn hello() -> Json {
    json!({
        "hello": true,
        "agent": env!("CARGO_PKG_VERSION"),
        "boot": fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim(),
        "pid": std::process::id(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::arguments::line;

    #[test]
    fn arguments_are_read() {
        let expected = Arguments {
            directory: "/tmp/tare-x".into(),
            lease_s: 5,
            resume: true,
            serve: false,
        };
        assert_eq!(
            parse(line("--resume --lease 5 /tmp/tare-x")).unwrap(),
            expected
        );
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (text, word) in [
            ("", "directory"),
            ("--lease 0 /x", "'0'"),
            ("--lease", "--lease"),
            ("x", "\"x\""),
        ] {
            let reason = parse(line(text)).unwrap_err().to_string();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
