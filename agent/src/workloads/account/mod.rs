//! `account`: which threads ran on the CPUs during an interval, and what the kernel counted.
//!
//! It runs next to a load without disturbing it: it reads the kernel's files at the start and at the
//! end, and the host compares them.

mod cycles;
mod tasks;

use crate::contract::{Context, Failure};
use crate::measure::clock::monotonic_ns;
use crate::measure::params;
use crate::sys;
use crate::tools::toolbox;
use serde::{Deserialize, Serialize};
use serde_json::{json, Map, Value};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tasks::Tasks;

const LOOK: Duration = Duration::from_millis(5);
/// The most bytes of a file; the kernel's tables of counters are shorter.
const MOST_TEXT: usize = 64 << 10;
const ANSWER_S: Duration = Duration::from_secs(5);
/// A line with a count for every possible interrupt, mostly zero: kilobytes that are not used.
const LEFT_OUT: &str = "intr ";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The delay before the first look, so that the load is running.
    #[serde(default)]
    after_s: f64,
    /// The time between the two looks; less if stopped.
    seconds: f64,
    /// Whether to list all threads.
    #[serde(default = "yes")]
    tasks: bool,
    /// Whether the CPUs' cycles are counted.
    #[serde(default)]
    cycles: bool,
    /// Kernel files whose content is kept at both looks.
    #[serde(default)]
    files: Vec<String>,
    /// A server's own account.
    ask: Option<Query>,
    /// A command whose output is kept at both looks; empty: no command.
    #[serde(default)]
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    /// A Unix socket, by the path that the toolbox's programs know it by.
    socket: String,
    /// What is asked, each on a connection of its own.
    words: Vec<String>,
}

fn yes() -> bool {
    true
}

pub fn run(context: &Context) -> Result<Value, Failure> {
    let params: Params = params::parse(context.params)?;
    let is = |value: f64, most: f64| (0.0..=most).contains(&value);
    params::require(is(params.after_s, 3600.0), "after_s: 0 to 3600")?;
    params::require(is(params.seconds, 1e6), "seconds: 0 to 1,000,000")?;
    params::require(
        params.files.iter().all(|path| is_kernels(path)),
        "files: of /proc or /sys",
    )?;
    context.sink.barrier()?;
    let began = monotonic_ns();
    let first_ns = began + (params.after_s * 1e9) as u64;
    sleep_until(first_ns, context.stop);
    let cycles = params.cycles.then(cycles::Count::begin);
    let first = Look::now(&params)?;
    let last_ns = first.at_ns + (params.seconds * 1e9) as u64;
    // As early as a look takes, so that the last ends within the stretch as well.
    sleep_until(last_ns.saturating_sub(first.took_ns), context.stop);
    let counted = cycles.map(cycles::Count::end);
    let last = Look::now(&params)?;
    let output = params.ask.map(query_server).transpose()?;
    let hertz = sys::clock_ticks_per_s();
    let seconds = (last.at_ns - first.at_ns) as f64 * 1e-9;
    Ok(json!({
        "seconds": seconds,
        "look_s": first.tasks_s,
        "hertz": hertz,
        "before": first.texts,
        "after": last.texts,
        "tasks": last.tasks.since(&first.tasks, hertz, seconds),
        "cycles": counted,
        "parents": last.tasks.parents(),
        "said": output.unwrap_or_default(),
        "printed": first.printed.into_iter().chain(last.printed).collect::<Vec<_>>(),
        "warnings": [],
    }))
}

/// The state at one end of the interval.
struct Look {
    at_ns: u64,
    texts: Value,
    tasks: Tasks,
    /// How long it took to read all threads.
    tasks_s: f64,
    printed: Option<Printed>,
    /// How long it all took.
    took_ns: u64,
}

impl Look {
    fn now(params: &Params) -> Result<Self, Failure> {
        let at_ns = monotonic_ns();
        let texts = texts(&params.files);
        let tasks = params.tasks.then(Tasks::now).unwrap_or_default();
        let tasks_s = (monotonic_ns() - at_ns) as f64 * 1e-9;
        // After the threads: busy ones are new, and so are read last. The command's output and their
        // usage then belong to about the same interval.
        let wanted = !params.command.is_empty();
        let printed = wanted.then(|| Printed::by(&params.command)).transpose()?;
        Ok(Self {
            at_ns,
            texts,
            tasks,
            tasks_s,
            printed,
            took_ns: monotonic_ns() - at_ns,
        })
    }
}

fn is_kernels(path: &str) -> bool {
    (path.starts_with("/proc/") || path.starts_with("/sys/")) && !path.contains("/..")
}

fn sleep_until(until_ns: u64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The content of the files; a file that the kernel lacks is left out.
fn texts(paths: &[String]) -> Value {
    let result = paths.iter().filter_map(|path| {
        let mut text = String::new();
        let file = fs::File::open(Path::new(path)).ok()?;
        file.take(MOST_TEXT as u64).read_to_string(&mut text).ok()?;
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with(LEFT_OUT))
            .collect();
        Some((path.clone(), Value::from(lines.join("\n"))))
    });
    Value::Object(result.collect::<Map<_, _>>())
}

fn query_server(ask: Query) -> Result<Map<String, Value>, Failure> {
    let path = toolbox::open()?.outside(&ask.socket);
    let mut output = Map::new();
    for words in ask.words {
        let answer = answer(&path, &words)
            .map_err(|error| Failure(format!("{}: {words}: {error}", ask.socket)))?;
        output.insert(words, answer.into());
    }
    Ok(output)
}

fn answer(socket: &Path, words: &str) -> std::io::Result<String> {
    // A socket's path may have 107 bytes (unix(7)), and a toolbox's tree alone has nearly as many.
    let folder = fs::File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let near = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let mut stream = UnixStream::connect(near.join(socket.file_name().unwrap_or_default()))?;
    stream.set_read_timeout(Some(ANSWER_S))?;
    stream.write_all(format!("{words}\n").as_bytes())?;
    let mut output = Vec::new();
    stream.take(MOST_TEXT as u64).read_to_end(&mut output)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Longer than a command that answers takes, also in an emulated host.
const LONGEST: Duration = Duration::from_secs(60);

/// What a command of the host printed at one end of the interval.
#[derive(Debug, PartialEq, Serialize)]
struct Printed {
    /// When it ran, on average, in seconds of the monotonic clock.
    at_s: f64,
    text: String,
}

impl Printed {
    /// Run a command to its end, and return what it printed.
    fn by(argv: &[String]) -> Result<Self, Failure> {
        let (name, arguments) = argv.split_first().ok_or("no command is named")?;
        let began_ns = monotonic_ns();
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let output = collect(child.stdout.take());
        let errors = collect(child.stderr.take());
        let ended = end(&mut child).map_err(|error| format!("{name}: {error}"))?;
        let (output, errors) = (taken(output), taken(errors));
        if !ended {
            return Err(Failure(format!("{}: {}", argv.join(" "), errors.trim())));
        }
        let middle_ns = began_ns + (monotonic_ns() - began_ns) / 2;
        Ok(Self {
            at_s: middle_ns as f64 * 1e-9,
            text: output,
        })
    }
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
            let result = format!("did not end within {LONGEST:?}");
            return Err(std::io::Error::other(result));
        }
        thread::sleep(LOOK);
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is kept: the host checks whether it is complete.
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
    use crate::workloads::testing::{run_with, with_longest_delay, Collected};

    #[test]
    fn a_busy_thread_is_listed_with_its_usage() {
        let stop = AtomicBool::new(false);
        let (result, _) = std::thread::scope(|scope| {
            let busy = std::thread::Builder::new().name("busy-bee".into());
            let working = busy.spawn_scoped(scope, || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let params = json!({"seconds": 0.3, "files": ["/proc/stat", "/proc/nothing-such"]});
            let result = run_with(run, &params, &[]);
            stop.store(true, Ordering::Relaxed);
            working.unwrap().join().unwrap();
            result
        });
        let tasks = result["tasks"].as_array().unwrap();
        let found = tasks.iter().find(|task| task[3] == "busy-bee").unwrap();
        assert_eq!(found[0], std::process::id());
        let parents = result["parents"].as_array().unwrap();
        let own = json!([std::process::id(), std::os::unix::process::parent_id()]);
        assert!(parents.contains(&own), "{parents:?}");
        let run_s = found[7].as_u64().unwrap() as f64 * 1e-9;
        let look_s = result["look_s"].as_f64().unwrap();
        assert!(look_s > 0.0 && look_s < result["seconds"].as_f64().unwrap());
        assert!(run_s > 0.0 && run_s < 1.1 * result["seconds"].as_f64().unwrap());
        let stat = result["after"]["/proc/stat"].as_str().unwrap();
        assert!(stat.starts_with("cpu ") && !stat.contains("\nintr "));
        assert!(result["before"].get("/proc/nothing-such").is_none());
    }

    #[test]
    fn threads_may_be_left_out_and_only_the_kernel_is_read() {
        let (result, _) = run_with(run, &json!({"seconds": 0.0, "tasks": false}), &[]);
        assert_eq!(result["tasks"], json!([]));
        for path in ["/etc/passwd", "/proc/../etc/passwd"] {
            let (result, _) = run_with(run, &json!({"seconds": 0.0, "files": [path]}), &[]);
            assert!(result["error"].as_str().unwrap().contains("/proc or /sys"));
        }
    }

    #[test]
    fn a_server_is_queried_over_its_socket() {
        let folder = std::env::temp_dir()
            .join(format!("tare-account-{}", std::process::id()))
            .join("x".repeat(120));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("stats");
        let opened = fs::File::open(&folder).unwrap();
        let near = format!("/proc/self/fd/{}/stats", opened.as_raw_fd());
        let listener = std::os::unix::net::UnixListener::bind(near).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut words = [0; 64];
            let count = stream.read(&mut words).unwrap();
            assert_eq!(&words[..count], b"show info\n");
            stream.write_all(b"Name: HAProxy\n").unwrap();
        });
        assert_eq!(answer(&path, "show info").unwrap(), "Name: HAProxy\n");
        serving.join().unwrap();
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        assert!(answer(&path, "show info").is_err());
    }

    #[test]
    fn a_command_runs_at_both_ends_of_the_interval_and_within_it() {
        let uptime = ["cut", "-d", " ", "-f", "1", "/proc/uptime"];
        let params = json!({"seconds": 1.0, "tasks": false, "command": uptime});
        let ((result, _), delay) = with_longest_delay(|| run_with(run, &params, &[]));
        let printed = result["printed"].as_array().unwrap();
        assert_eq!(printed.len(), 2);
        let apart = printed[1]["at_s"].as_f64().unwrap() - printed[0]["at_s"].as_f64().unwrap();
        let at = |index: usize| -> f64 {
            let text = printed[index]["text"].as_str().unwrap();
            text.trim().parse().unwrap()
        };
        // A busy computer may start each command late, which moves it within its time.
        let most = 0.4 + 4.0 * delay.as_secs_f64();
        assert!(
            apart > 0.5 && (at(1) - at(0) - apart).abs() < most,
            "{printed:?}"
        );
        let nothing = json!({"seconds": 0.0, "tasks": false});
        assert_eq!(run_with(run, &nothing, &[]).0["printed"], json!([]));
        let wrong = json!({"seconds": 0.0, "tasks": false, "command": ["sh", "-c", "exit 3"]});
        let (result, _) = run_with(run, &wrong, &[]);
        assert!(result["error"].as_str().unwrap().contains("exit 3"));
    }

    #[test]
    fn stopping_ends_it_early() {
        let since = Instant::now();
        let result = Collected::stopped().run(run, &json!({"seconds": 3600.0}), &[]);
        assert!(result["seconds"].as_f64().unwrap() < 60.0);
        assert!(since.elapsed() < Duration::from_secs(60));
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(String::from).to_vec()
    }

    #[test]
    fn the_time_of_a_command_is_the_middle_of_its_run() {
        let before_s = monotonic_ns() as f64 * 1e-9;
        let printed = Printed::by(&shell("echo first; sleep 0.2; echo last")).unwrap();
        let after_s = monotonic_ns() as f64 * 1e-9;
        assert_eq!(printed.text, "first\nlast\n");
        assert!(before_s + 0.1 <= printed.at_s && printed.at_s <= after_s - 0.1);
    }

    #[test]
    fn a_failed_command_is_reported_with_its_error_output() {
        let fault = Printed::by(&shell("echo no privileges >&2; exit 1")).unwrap_err();
        assert!(fault.0.ends_with("exit 1: no privileges"), "{}", fault.0);
        let fault = Printed::by(&["tare-has-no-such".to_string()]).unwrap_err();
        assert!(fault.0.starts_with("tare-has-no-such: "), "{}", fault.0);
        assert_eq!(Printed::by(&[]).unwrap_err().0, "no command is named");
    }

    #[test]
    fn as_much_as_is_kept_is_read_whole() {
        let much = Printed::by(&shell("yes | head -c 65536")).unwrap();
        assert_eq!(much.text.len(), MOST_TEXT);
    }
}
