//! The requests of one Tare: processes, files, sockets and terminals.
//!
//! A request `{"op": ..., "id": n, ...}` is answered once by `{"done": n, ...}` or
//! `{"failed": n, "errno": e}`. Its streams have the numbers 2n (both directions) and 2n + 1 (standard
//! error).

use super::files;
use super::link::{Frame, Link, DATA};
use super::streams::{pump, Credit, Sink, Target, Terminal};
use crate::sys;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A file that is written once all of it has arrived.
struct Arriving {
    id: u32,
    path: PathBuf,
    size: usize,
    bytes: Vec<u8>,
}

pub struct Session {
    link: Link,
    directory: PathBuf,
    search: String,
    children: Mutex<HashMap<u32, Child>>,
    sinks: Mutex<HashMap<u32, Arc<Sink>>>,
    credits: Mutex<HashMap<u32, Arc<Credit>>>,
    arriving: Mutex<HashMap<u32, Arriving>>,
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap_or(0) as u32
}

fn path(request: &Value) -> PathBuf {
    PathBuf::from(request["path"].as_str().unwrap_or_default())
}

impl Session {
    pub fn new(directory: PathBuf) -> Session {
        Session {
            link: Link::default(),
            directory,
            search: files::search_path(std::env::var_os("PATH").as_deref()),
            children: Mutex::default(),
            sinks: Mutex::default(),
            credits: Mutex::default(),
            arriving: Mutex::default(),
        }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Kill all that was started, leave nothing, and end.
    pub fn finish(&self) -> ! {
        let children = self.children.lock().unwrap();
        for child in children.values() {
            let _ = sys::signal(-(child.id() as i32), libc::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.directory);
        // With the lock held: nothing else starts. What left its process group dies with this.
        std::process::exit(0);
    }

    /// Execute a frame. It may start processes, so the calling thread must not end.
    pub fn take(self: &Arc<Self>, frame: Frame) {
        if frame.kind == DATA {
            if let Some((stream, bytes)) = frame.payload.split_first_chunk::<4>() {
                self.take_data(u32::from_le_bytes(*stream), bytes);
            }
            return;
        }
        let Ok(request) = serde_json::from_slice::<Value>(&frame.payload) else {
            eprintln!("tare-agent: a message that is not JSON");
            return;
        };
        let id = number(&request["id"]);
        match request["op"].as_str().unwrap_or_default() {
            "credit" => {
                let credits = self.credits.lock().unwrap();
                if let Some(credit) = credits.get(&number(&request["stream"])) {
                    credit.grant(request["bytes"].as_u64().unwrap_or(0) as usize);
                }
            }
            "end" => self.end_sink(number(&request["stream"]), false),
            "drop" => self.end_sink(number(&request["stream"]), true),
            "start" => {
                let started = self.start(id, &request);
                self.answer(id, started);
            }
            "signal" => {
                self.signal(&request);
                self.answer(id, Ok(json!({})));
            }
            "write" => {
                let arriving = Arriving {
                    id,
                    path: path(&request),
                    size: request["size"].as_u64().unwrap_or(0) as usize,
                    bytes: Vec::new(),
                };
                self.arriving.lock().unwrap().insert(2 * id, arriving);
                self.take_data(2 * id, &[]);
            }
            "finish" => self.finish(),
            _ => {
                let session = self.clone();
                thread::spawn(move || session.look(id, &request));
            }
        }
    }

    fn take_data(self: &Arc<Self>, stream: u32, bytes: &[u8]) {
        let mut all = self.arriving.lock().unwrap();
        if let Some(file) = all.get_mut(&stream) {
            file.bytes.extend(bytes);
            self.link
                .message(&json!({"credit": stream, "bytes": bytes.len()}));
            if file.bytes.len() >= file.size {
                if let Some(file) = all.remove(&stream) {
                    let session = self.clone();
                    thread::spawn(move || {
                        let written = files::write(&file.path, &file.bytes);
                        session.answer(file.id, written.map(|()| json!({})));
                    });
                }
            }
        } else if let Some(sink) = self.sinks.lock().unwrap().get(&stream) {
            sink.push(bytes.to_vec());
        }
    }

    fn end_sink(&self, stream: u32, dropped: bool) {
        let mut sinks = self.sinks.lock().unwrap();
        if let Some(sink) = sinks.get(&stream) {
            sink.end(dropped);
        }
        if dropped {
            sinks.remove(&stream);
        }
    }

    fn answer(&self, id: u32, result: io::Result<Value>) {
        let answer = match result {
            Ok(mut value) => {
                value["done"] = json!(id);
                value
            }
            Err(error) => json!({
                "failed": id,
                "errno": error.raw_os_error().unwrap_or(libc::EIO),
                "text": error.to_string(),
            }),
        };
        self.link.message(&answer);
    }

    /// Requests that may wait for something, each on a thread of its own.
    fn look(self: &Arc<Self>, id: u32, request: &Value) {
        let path = path(request);
        let opened = match request["op"].as_str().unwrap_or_default() {
            "exists" => {
                let exists = fs::symlink_metadata(&path).is_ok();
                return self.answer(id, Ok(json!({"exists": exists})));
            }
            "remove" => return self.answer(id, files::remove(&path).map(|()| json!({}))),
            "read" => self.read(id, &path),
            "connect" => self.connect(id, &path),
            "terminal" => self.terminal(id, &path),
            other => Err(io::Error::other(format!("unknown request '{other}'"))),
        };
        if let Err(error) = opened {
            self.answer(id, Err(error));
        }
    }

    fn read(self: &Arc<Self>, id: u32, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        self.answer(id, Ok(json!({})));
        self.pump_from(2 * id, file);
        Ok(())
    }

    fn connect(self: &Arc<Self>, id: u32, path: &Path) -> io::Result<()> {
        let socket = UnixStream::connect(path)?;
        let from = socket.try_clone()?;
        self.drain_to(2 * id, Target::Socket(socket));
        self.answer(id, Ok(json!({})));
        self.pump_from(2 * id, from);
        Ok(())
    }

    fn terminal(self: &Arc<Self>, id: u32, path: &Path) -> io::Result<()> {
        let file = files::open_terminal(path)?;
        let (ends, until) = UnixStream::pair()?;
        self.drain_to(2 * id, Target::Terminal(file.try_clone()?, ends));
        self.answer(id, Ok(json!({})));
        self.pump_from(2 * id, Terminal { file, until });
        Ok(())
    }

    /// Send what `from` gives, on this thread.
    fn pump_from(&self, stream: u32, from: impl io::Read) {
        let credit = Credit::full();
        let mut credits = self.credits.lock().unwrap();
        credits.insert(stream, credit.clone());
        drop(credits);
        pump(stream, from, &self.link, &credit);
        self.credits.lock().unwrap().remove(&stream);
    }

    /// Write what comes for a stream, on a thread of its own.
    fn drain_to(self: &Arc<Self>, stream: u32, target: Target) {
        let sink = Arc::new(Sink::default());
        self.sinks.lock().unwrap().insert(stream, sink.clone());
        let session = self.clone();
        thread::spawn(move || {
            sink.drain(stream, target, &session.link);
            session.sinks.lock().unwrap().remove(&stream);
        });
    }

    fn start(self: &Arc<Self>, id: u32, request: &Value) -> io::Result<Value> {
        let mut child = self.command(request)?.spawn()?;
        let pid = child.id();
        if let Some(stdin) = child.stdin.take() {
            self.drain_to(2 * id, Target::Stdin(stdin));
        }
        if let Some(stdout) = child.stdout.take() {
            let session = self.clone();
            thread::spawn(move || session.pump_from(2 * id, stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            let session = self.clone();
            thread::spawn(move || session.pump_from(2 * id + 1, stderr));
        }
        self.children.lock().unwrap().insert(id, child);
        let session = self.clone();
        thread::spawn(move || session.reap(id, pid));
        Ok(json!({"pid": pid}))
    }

    /// The program, tied to this process by the agent's own `exec`.
    fn command(&self, request: &Value) -> io::Result<Command> {
        let words = |value: &Value| -> Vec<String> {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter()
                .map(|word| match word {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                })
                .collect()
        };
        let argv = words(&request["argv"]);
        let name = argv.first().map(String::as_str).unwrap_or_default();
        let own_path = request["env"]["PATH"].as_str();
        let program = files::find_program(name, own_path.unwrap_or(&self.search))?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["exec", "--die-with-parent", "--parent"]);
        command.arg(std::process::id().to_string());
        let cpus = words(&request["cpus"]);
        if !cpus.is_empty() {
            command.args(["--cpus", &cpus.join(",")]);
        }
        command.arg("--").arg(program).args(&argv[1..]);
        // Variables of a login shell may be secret, and Tare's programs do not need them.
        command.env_clear().envs(
            std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(files::is_passed)),
        );
        command.env("PATH", &self.search);
        for (name, value) in request["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        // A session of its own is a process group of its own, too.
        sys::in_own_session(&mut command).stdout(Stdio::piped());
        command.stdin(match request["input"].as_bool() {
            Some(false) => Stdio::null(),
            _ => Stdio::piped(),
        });
        command.stderr(
            match (request["errors"].as_bool(), request["log"].as_str()) {
                (Some(true), _) => Stdio::piped(),
                (_, Some(log)) => {
                    Stdio::from(OpenOptions::new().create(true).append(true).open(log)?)
                }
                _ => Stdio::null(),
            },
        );
        Ok(command)
    }

    fn reap(&self, id: u32, pid: u32) {
        let _ = sys::wait_ended(pid as i32);
        // Reaped under the lock, so that no signal can meet another process of the same number.
        let mut children = self.children.lock().unwrap();
        let ended = children.remove(&id).map(|mut child| child.wait());
        drop(children);
        let code = match ended {
            Some(Ok(status)) => status
                .code()
                .unwrap_or_else(|| -status.signal().unwrap_or(libc::SIGKILL)),
            _ => -libc::SIGKILL,
        };
        self.end_sink(2 * id, true);
        self.link.message(&json!({"exited": id, "code": code}));
    }

    fn signal(&self, request: &Value) {
        let children = self.children.lock().unwrap();
        if let Some(child) = children.get(&number(&request["process"])) {
            let pid = child.id() as i32;
            let whole = request["group"].as_bool() == Some(true);
            let _ = sys::signal(
                if whole { -pid } else { pid },
                number(&request["signal"]) as i32,
            );
        }
    }
}
