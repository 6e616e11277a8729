//! Run a program of the toolbox in its own root and session, and collect its usage and output.

use super::guard;
use super::toolbox::Toolbox;
use crate::contract::Failure;
use crate::measure::memory_group;
use crate::sys::{self, Ended, Usage};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting run checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// What is kept of standard error.
const ERRORS_KEPT: usize = 16 << 10;
/// Lines of a failed program's output that a message shows.
const LINES_SHOWN: usize = 8;

/// A program to run. Paths are as the program sees them.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    /// A file to read; nothing otherwise.
    pub stdin: Option<String>,
    /// A file to write standard output to; otherwise its last `keep` bytes are kept.
    pub stdout: Option<String>,
    pub keep: usize,
}

/// How a program ended.
#[derive(Debug)]
pub struct Outcome {
    pub ended: Ended,
    pub wall_s: f64,
    pub usage: Usage,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    /// Whether the kernel killed a process because memory ran out; `None`: it does not count that.
    pub out_of_memory: Option<bool>,
}

/// A program under way. It dies with the thread that started it.
pub struct Running {
    pub pid: i32,
    name: String,
    ended: Receiver<std::io::Result<(Ended, Usage, f64)>>,
    output: Option<JoinHandle<Vec<u8>>>,
    errors: Option<JoinHandle<Vec<u8>>>,
    over: bool,
    killed_before: Option<u64>,
    _stdin: Option<ChildStdin>,
}

impl Program {
    /// A program by its name in the toolbox, with its arguments.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(argv: I) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            keep: 64 << 10,
            ..Self::default()
        }
    }

    /// Start it.
    pub fn start(&self, toolbox: &Toolbox) -> Result<Running, Failure> {
        let name = self.argv.first().ok_or("no program is named")?;
        let path = toolbox.program(name)?;
        let failed = |what: &str, error: std::io::Error| Failure(format!("{what}: {error}"));
        let mut command = Command::new(&path);
        command.args(&self.argv[1..]).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/games");
        command
            .env("HOME", "/tmp")
            .env("TMPDIR", "/tmp")
            .env("LC_ALL", "C");
        command.envs(&self.env);
        command.stdin(match &self.stdin {
            Some(file) => {
                let open = File::open(toolbox.outside(file));
                Stdio::from(open.map_err(|error| failed(file, error))?)
            }
            None => Stdio::null(),
        });
        command.stdout(match &self.stdout {
            Some(file) => {
                let made = File::create(toolbox.outside(file));
                Stdio::from(made.map_err(|error| failed(file, error))?)
            }
            None => Stdio::piped(),
        });
        command.stderr(Stdio::piped());
        let root = toolbox.root().display().to_string();
        let setup = sys::ProcessSetup::new(&root, self.cwd.as_deref().unwrap_or("/tmp"));
        let setup = setup.map_err(|error| failed(name, error))?;
        sys::with_setup(&mut command, setup.notifying(guard::socket()));
        let begun = Instant::now();
        let child = command.spawn();
        let child = child.map_err(|error| failed(&format!("{name} cannot be started"), error))?;
        Ok(Running::watch(child, name, begun, self.keep.max(1)))
    }

    /// Run it to its end, `deadline` at the latest.
    pub fn run(
        &self,
        toolbox: &Toolbox,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) -> Result<Outcome, Failure> {
        self.start(toolbox)?.wait(deadline, stop)
    }
}

impl Running {
    fn watch(mut child: Child, name: &str, begun: Instant, keep: usize) -> Self {
        let pid = child.id() as i32;
        let killed_before = memory_group::oom_kills();
        let output = child.stdout.take().map(|pipe| collect(pipe, keep));
        let errors = child.stderr.take().map(|pipe| collect(pipe, ERRORS_KEPT));
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let result = sys::wait_with_usage(pid);
            let wall_s = begun.elapsed().as_secs_f64();
            let _ = sender.send(result.map(|(ended, usage)| (ended, usage, wall_s)));
        });
        Self {
            pid,
            name: name.into(),
            ended,
            output,
            errors,
            over: false,
            killed_before,
            _stdin: child.stdin.take(),
        }
    }

    /// Wait for its end. At the deadline, or when asked to stop, it and its children are killed.
    pub fn wait(
        mut self,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) -> Result<Outcome, Failure> {
        let since = Instant::now();
        loop {
            match self.ended.recv_timeout(LOOK) {
                Ok(result) => {
                    let (ended, usage, wall_s) =
                        result.map_err(|error| format!("{} was lost: {error}", self.name))?;
                    let out_of_memory = self
                        .killed_before
                        .zip(memory_group::oom_kills())
                        .map(|(before, now)| now > before);
                    let (output, errors) = self.finish();
                    return Ok(Outcome {
                        ended,
                        wall_s,
                        usage,
                        output,
                        errors,
                        out_of_memory,
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure(format!("{} was lost", self.name)))
                }
            }
            if stop.load(Ordering::Relaxed) {
                self.end();
                return Err(Failure(format!("{} was stopped", self.name)));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let waited = since.elapsed().as_secs_f64();
                let name = self.name.clone();
                let (_, errors) = self.end();
                let output_text = last_lines(&errors);
                return Err(Failure(format!(
                    "{name} did not end within {waited:.1} s and was killed{output_text}"
                )));
            }
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        // Its process is reaped by the thread that waits for it, so its id may be gone.
        sys::exists(self.pid)
    }

    /// Kill it and its children; returns what was kept of its output and errors.
    pub fn end(&mut self) -> (Vec<u8>, Vec<u8>) {
        let _ = sys::signal(-self.pid, libc::SIGKILL);
        let _ = sys::signal(self.pid, libc::SIGKILL);
        let _ = self.ended.recv_timeout(Duration::from_secs(10));
        self.finish()
    }

    fn finish(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.over = true;
        // Children that it left hold its pipes, and would disturb what is measured next.
        let _ = sys::signal(-self.pid, libc::SIGKILL);
        guard::end_session(self.pid);
        guard::forget(self.pid);
        let taken = |thread: Option<JoinHandle<Vec<u8>>>| {
            thread.and_then(|it| it.join().ok()).unwrap_or_default()
        };
        (taken(self.output.take()), taken(self.errors.take()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.end();
        }
    }
}

/// Read to the end, keeping the last bytes.
fn collect(mut pipe: impl Read + Send + 'static, keep: usize) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => kept.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if kept.len() > 2 * keep {
                kept.drain(..kept.len() - keep);
            }
        }
        if kept.len() > keep {
            kept.drain(..kept.len() - keep);
        }
        kept
    })
}

/// The last lines of a program's output, to go after a sentence; empty without output.
pub fn last_lines(output_text: &[u8]) -> String {
    let text = String::from_utf8_lossy(output_text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    format!("; its last output: {}", last.join(" / "))
}

/// Describe why a program was killed by something else than the agent.
fn killed(out_of_memory: Option<bool>, limit: Option<u64>) -> String {
    let kept = limit.map(|limit| format!(", which is kept to {} MiB", limit >> 20));
    match out_of_memory {
        Some(true) => format!(
            "was killed: the machine{} ran out of memory",
            kept.map(|words| words + ",").unwrap_or_default()
        ),
        Some(false) => "was killed, though the machine had not run out of memory".to_string(),
        None => "was killed: most likely the machine ran out of memory".to_string(),
    }
}

impl Outcome {
    /// Fail unless it ended with one of these exit codes.
    pub fn require(&self, name: &str, codes: &[i32]) -> Result<(), Failure> {
        let how = match self.ended {
            Ended::Exit(code) if codes.contains(&code) => return Ok(()),
            Ended::Exit(code) => format!("failed with exit code {code}"),
            Ended::Signal(libc::SIGKILL) => killed(self.out_of_memory, memory_group::limit()),
            Ended::Signal(signal) => format!("was ended by signal {signal}"),
        };
        let output_text = match last_lines(&self.errors) {
            output_text if output_text.is_empty() => last_lines(&self.output),
            output_text => output_text,
        };
        Err(Failure(format!("{name} {how}{output_text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_for_a_killed_program_states_what_is_known_of_memory() {
        assert_eq!(
            killed(Some(true), Some(64 << 20)),
            "was killed: the machine, which is kept to 64 MiB, ran out of memory"
        );
        assert_eq!(
            killed(Some(true), None),
            "was killed: the machine ran out of memory"
        );
        assert!(killed(Some(false), None).contains("had not run out of memory"));
        assert!(killed(None, Some(1)).contains("most likely"));
    }
}
