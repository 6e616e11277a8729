//! The agent as PID 1 of a machine of its own.
//!
//! PID 1 itself only prepares the machine, reaps children, and ends the machine when the agent
//! (its first child) ends, whatever the reason: a machine never waits in silence.

use super::{live, network, scratch};
use crate::channel::frame::{encode, Kind, OUT_OF_BAND};
use crate::channel::protocol;
use crate::channel::serve::{Ending, Origin, Role, Server};
use crate::sys::{self, Off, Side};
use rustix::mount::MountFlags;
use serde_json::{json, Value};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The modules to load, in order: one path a line, parameters behind it.
const MODULES: &str = "/etc/tare/modules";
/// How long the channel's device may take to appear.
const CHANNEL_WAIT: Duration = Duration::from_secs(5);
/// How long the host may take to connect over vsock: it connects as soon as it has started the machine.
const HOST_WAIT: Duration = Duration::from_secs(60);
/// The kernel command line names a port of vsock as `vsock:PORT`.
const VSOCK: &str = "vsock:";
/// The kernel parameter of a machine whose state is to be saved: its connection ends with that.
const AGAIN: &str = "tare.again";
/// How long an announcement is waited for: short, for devices that appear without one.
const EVENT_WAIT: Duration = Duration::from_millis(50);
/// The port that is looked for when the kernel command line names none.
const DEFAULT_CHANNEL: &str = "tare.agent";

/// Prepare the machine, serve, and end the machine.
pub fn run() -> ! {
    let mut origin = Origin::default();
    origin.mark("init");
    let mut notes = mount_all();
    origin.mark("mounted");
    let cmdline = CommandLine::read();
    let off = cmdline.off();
    origin.settings = settle();
    origin.mark("settled");
    let events = sys::device_events().ok();
    notes.extend(load_modules());
    origin.mark("modules");
    if let Some(label) = cmdline.get("tare.scratch") {
        match scratch::mount(label) {
            Ok(()) => origin.mark("scratch"),
            Err(reason) => notes.push(reason),
        }
    }
    raise_loopback();
    if let Some(wanted) = cmdline.get(network::WORD) {
        origin.network = network::set_up(wanted);
        if let Some(error) = origin.network["error"].as_str() {
            notes.push(format!("network: {error}"));
        }
        origin.mark("network");
    }
    for note in &notes {
        log(note);
    }
    if let Some(image) = cmdline.get(live::WORD) {
        end_with(live_machine(image, origin, events, off));
    }
    let wanted = cmdline.get("tare.channel").unwrap_or(DEFAULT_CHANNEL);
    let again = cmdline.get(AGAIN).is_some();
    match open_channel(wanted, events) {
        Ok(Channel { file, listener }) => {
            origin.mark("channel");
            let reason = supervise(file, origin, listener.filter(|_| again));
            if let Some(reason) = reason {
                log(&reason);
            }
        }
        Err(reason) => log(&reason),
    }
    end_with(off)
}

fn end_with(off: Off) -> ! {
    sys::end_machine(off);
    // If the kernel cannot power off, it may restart; hypervisors are set to stop a guest that does.
    sys::end_machine(Off::Reboot);
    panic!("the kernel refuses to end the machine");
}

/// Serve as configured until the host ends the session. Returns how the machine is to end.
fn live_machine(image: &str, mut origin: Origin, events: Option<OwnedFd>, off: Off) -> Off {
    let ready = live::prepare(image == live::WITH_TOOLBOX, events.as_ref());
    origin.live = ready.about;
    origin.mark("live");
    let configuration = ready.configuration;
    let off = if configuration.again {
        Off::Reboot
    } else {
        off
    };
    let served = run_in_child(move || {
        let reached = live::reach(&configuration);
        origin.mark("channel");
        if let (true, Some(address)) = (configuration.given, reached.address()) {
            origin.network = network::describe_address(address);
        }
        if let Some(card) = &configuration.isolated {
            origin.network = network::set_up_card(&card.mac, &card.word);
        }
        let copies = reached.input.try_clone().and_then(|input| {
            let output = reached.output.try_clone()?;
            Ok((input, output))
        });
        if let Ok((input, output)) = copies {
            serve(input, output, origin);
        }
        reached.finish();
    });
    if let Err(reason) = served {
        live::log(&reason);
    }
    off
}

/// Write a line to the console, where there is one.
fn log(text: &str) {
    let _ = writeln!(std::io::stderr(), "tare: {text}");
}

/// The way to the host, and where the host may connect again; only vsock has the latter.
struct Channel {
    file: File,
    listener: Option<OwnedFd>,
}

/// Serve in a child, and reap until it ends. Returns the reason if it failed.
fn supervise(channel: File, origin: Origin, listener: Option<OwnedFd>) -> Option<String> {
    let copies = channel
        .try_clone()
        .and_then(|input| Ok((input, channel.try_clone()?)));
    let (input, output) = match copies {
        Ok(copies) => copies,
        Err(error) => return Some(format!("the channel cannot be used: {error}")),
    };
    let served = run_in_child(move || match listener {
        Some(listener) => serve_again(&listener, input, output, &origin),
        None => {
            serve(input, output, origin);
        }
    });
    let reason = served.err()?;
    send_fatal(&channel, &reason);
    Some(reason)
}

fn serve(input: File, output: File, origin: Origin) -> Ending {
    let server = Server::new(output, Role::Init, origin);
    server.report_panics();
    server.serve(input)
}

/// Serve the host, and after its connection has ended the next one, until it asks for the end.
///
/// A machine that was restored still has the connection of the one that was saved, whose other end
/// is gone, and nobody may report that. So the next connection ends the one before.
fn serve_again(listener: &OwnedFd, input: File, output: File, origin: &Origin) {
    let (mut input, mut output) = (input, output);
    loop {
        if let (Ok(listener), Ok(connection)) = (listener.try_clone(), input.try_clone()) {
            // It sleeps until then. One whose connection has ended by itself does no harm.
            std::thread::spawn(move || {
                if sys::wait_readable(&listener, None).is_ok() {
                    sys::end_connection(&connection);
                }
            });
        }
        let ending = serve(input, output, origin.clone());
        if ending == Ending::Shutdown {
            return;
        }
        // A hypervisor may set a restored clock forward by hours, which no deadline survives.
        let next = match accept_next(listener, None) {
            Ok(next) => next,
            Err(reason) => return log(&reason),
        };
        match next.try_clone() {
            Ok(copy) => (input, output) = (copy, next),
            Err(error) => return log(&format!("the channel cannot be used: {error}")),
        }
    }
}

/// Run `work` in a child, and reap until it ends. Fails with the reason if the child failed.
fn run_in_child(work: impl FnOnce()) -> Result<(), String> {
    match sys::fork() {
        Err(error) => Err(format!("the agent cannot be started: {error}")),
        Ok(Side::Child) => {
            // When memory runs out, the kernel shall kill applications rather than the agent.
            let _ = fs::write("/proc/self/oom_score_adj", "-900");
            work();
            std::process::exit(0)
        }
        Ok(Side::Parent(agent)) => loop {
            match sys::wait_child() {
                Ok((child, ended)) if child == agent => {
                    return match ended {
                        Ok(0) => Ok(()),
                        Ok(code) => Err(format!("the agent ended with code {code}")),
                        Err(how) => Err(format!("the agent was {how}")),
                    };
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("the agent cannot be waited for: {error}")),
            }
        },
    }
}

fn send_fatal(mut channel: &File, reason: &str) {
    // Nobody at the other end: a waiting write would wait for ever.
    if !sys::wait_writable(&channel).unwrap_or(false) || sys::set_blocking(&channel, true).is_err()
    {
        return;
    }
    let payload = protocol::fatal(reason).to_string();
    let _ = channel.write_all(&encode(Kind::Message, OUT_OF_BAND, payload.as_bytes()));
    sys::drain(&channel);
}

fn mount_all() -> Vec<String> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    let device = MountFlags::NOSUID;
    let temporary = MountFlags::NOSUID | MountFlags::NODEV;
    let mounts = [
        ("/dev", "devtmpfs", device, "mode=0755"),
        ("/proc", "proc", quiet, ""),
        ("/sys", "sysfs", quiet, ""),
        ("/dev/pts", "devpts", quiet, "mode=0620,ptmxmode=0666"),
        ("/dev/shm", "tmpfs", temporary, "mode=1777"),
        ("/tmp", "tmpfs", temporary, "mode=1777"),
        ("/run", "tmpfs", temporary, "mode=0755"),
    ];
    let mut notes = Vec::new();
    for (target, kind, flags, data) in mounts {
        let _ = fs::create_dir_all(target);
        if let Err(error) = sys::mount(kind, target, kind, flags, data) {
            // A kernel may have mounted some of these itself.
            if error.raw_os_error() != Some(libc::EBUSY) {
                notes.push(format!("{target} cannot be mounted: {error}"));
            }
        }
    }
    // Only newer kernels have settings there; without them, nothing fails.
    let _ = sys::mount("debugfs", "/sys/kernel/debug", "debugfs", quiet, "");
    notes
}

/// The parameters on the kernel's command line.
struct CommandLine(Vec<String>);

impl CommandLine {
    fn read() -> Self {
        let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        Self(line.split_whitespace().map(String::from).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().rev().find_map(|word| {
            word.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix('='))
        });
        found.filter(|value| !value.is_empty())
    }

    /// Without ACPI (and outside Xen) a machine cannot switch itself off, and would hang.
    fn off(&self) -> Off {
        match self.get("tare.off") {
            Some("reboot") => Off::Reboot,
            Some(_) => Off::Power,
            None if Path::new("/sys/firmware/acpi").exists() => Off::Power,
            None if Path::new("/sys/hypervisor/type").exists() => Off::Power,
            None => Off::Reboot,
        }
    }
}

/// Settings without which the kernel itself would disturb the measurements, or wait in silence.
fn settle() -> Value {
    let mut wanted: Vec<(PathBuf, &str)> = [
        ("/proc/sys/kernel/panic", "-1"),
        ("/proc/sys/kernel/panic_on_oops", "1"),
        ("/proc/sys/kernel/sched_rt_runtime_us", "-1"),
        ("/proc/sys/kernel/watchdog", "0"),
        (
            "/sys/module/rcupdate/parameters/rcu_cpu_stall_suppress",
            "1",
        ),
    ]
    .into_iter()
    .map(|(path, value)| (PathBuf::from(path), value))
    .collect();
    if let Ok(cpus) = fs::read_dir("/sys/kernel/debug/sched/fair_server") {
        wanted.extend(cpus.flatten().map(|cpu| (cpu.path().join("runtime"), "0")));
    }
    let read = |path: &Path| {
        fs::read_to_string(path)
            .map(|text| text.trim().to_string())
            .ok()
    };
    let mut settings = Vec::new();
    for (path, value) in wanted {
        let before = read(&path);
        if before.is_none() {
            continue;
        }
        let _ = fs::write(&path, value);
        settings.push(json!({
            "name": path.display().to_string(), "before": before, "after": read(&path),
        }));
    }
    Value::Array(settings)
}

fn load_modules() -> Vec<String> {
    let list = fs::read_to_string(MODULES).unwrap_or_default();
    let mut notes = Vec::new();
    for line in list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (path, parameters) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let loaded = File::open(path).and_then(|file| sys::load_module(&file, parameters.trim()));
        if let Err(error) = loaded {
            let error = match error.raw_os_error() {
                // The kernel's answer to an unknown symbol.
                Some(libc::ENOENT) if Path::new(path).exists() => {
                    "something it needs is not loaded yet".to_string()
                }
                _ => error.to_string(),
            };
            notes.push(format!("module {path}: {error}"));
        }
    }
    notes
}

fn raise_loopback() {
    let _ = sys::raise_interface("lo");
}

/// Open the device that leads to the host, waiting for the kernel to announce it.
fn open_channel(wanted: &str, events: Option<OwnedFd>) -> Result<Channel, String> {
    if let Some(port) = wanted.strip_prefix(VSOCK) {
        return accept_host(port);
    }
    let since = Instant::now();
    loop {
        if let Some(path) = find_channel(wanted) {
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            match opened {
                Ok(file) => {
                    // A port's waiting write would never return when the host is gone.
                    let prepared = if sys::is_terminal(&file) {
                        sys::set_raw(&file)
                    } else {
                        sys::set_blocking(&file, false)
                    };
                    prepared.map_err(|error| format!("{}: {error}", path.display()))?;
                    let listener = None;
                    return Ok(Channel { file, listener });
                }
                Err(error) if since.elapsed() > CHANNEL_WAIT => {
                    return Err(format!(
                        "the channel {} cannot be opened: {error}",
                        path.display()
                    ));
                }
                Err(_) => {}
            }
        }
        if since.elapsed() > CHANNEL_WAIT {
            return Err(format!("there is no channel '{wanted}' in this machine"));
        }
        match &events {
            Some(events) => {
                if sys::wait_readable(events, Some(EVENT_WAIT)).unwrap_or(false) {
                    sys::discard(events);
                }
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Wait for the host's connection over vsock.
fn accept_host(port: &str) -> Result<Channel, String> {
    let number = port
        .parse()
        .map_err(|_| format!("'{port}' is not a port of vsock"))?;
    let listener = sys::listen_vsock(number)
        .map_err(|error| format!("the host cannot connect to port {port} of vsock: {error}"))?;
    let file = accept_next(&listener, Some(HOST_WAIT))?;
    let listener = Some(listener);
    Ok(Channel { file, listener })
}

fn accept_next(listener: &OwnedFd, within: Option<Duration>) -> Result<File, String> {
    let failed = |error| format!("the host cannot connect over vsock: {error}");
    if !sys::wait_readable(listener, within).map_err(failed)? {
        let seconds = HOST_WAIT.as_secs();
        return Err(format!(
            "the host did not connect over vsock within {seconds} s"
        ));
    }
    let connection = sys::accept(listener).map_err(failed)?;
    sys::set_blocking(&connection, false).map_err(failed)?;
    Ok(connection.into())
}

fn find_channel(wanted: &str) -> Option<PathBuf> {
    if wanted.starts_with('/') {
        let path = PathBuf::from(wanted);
        return path.exists().then_some(path);
    }
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        let device = Path::new("/dev").join(port.file_name());
        (name.trim() == wanted && device.exists()).then_some(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_last_value_of_a_parameter_counts() {
        let cmdline = CommandLine(
            "quiet tare.channel=/dev/ttyS1 tare.channelx=1 tare.off=reboot tare.channel=tare.agent"
                .split(' ')
                .map(String::from)
                .collect(),
        );
        assert_eq!(cmdline.get("tare.channel"), Some("tare.agent"));
        assert_eq!(cmdline.get("tare"), None);
        assert_eq!(cmdline.off(), Off::Reboot);
    }

    #[test]
    fn a_vsock_channel_needs_a_port() {
        let refused = open_channel("vsock:first", None).err().unwrap();
        assert_eq!(refused, "'first' is not a port of vsock");
    }

    #[test]
    fn a_new_connection_replaces_the_one_before() {
        let path = std::env::temp_dir().join(format!("tare-again-{}", std::process::id()));
        let listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connect = || {
            let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
            let limit = Some(Duration::from_secs(20));
            stream.set_read_timeout(limit).unwrap();
            stream
        };
        let mut first = connect();
        let listener = OwnedFd::from(listening);
        let file = accept_next(&listener, None).unwrap();
        let (input, output) = (file.try_clone().unwrap(), file);
        let served = std::thread::spawn(move || {
            serve_again(&listener, input, output, &Origin::default());
        });
        let mut byte = [0; 1];
        first.read_exact(&mut byte).unwrap();
        let mut second = connect();
        second.read_exact(&mut byte).unwrap();
        let mut rest = Vec::new();
        first.read_to_end(&mut rest).unwrap();
        let shutdown = br#"{"op":"shutdown","id":1}"#;
        second
            .write_all(&encode(Kind::Message, 1, shutdown))
            .unwrap();
        served.join().unwrap();
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_device_is_not_found() {
        assert_eq!(find_channel("/dev/tare-nothing"), None);
        assert_eq!(find_channel("/dev/null"), Some(PathBuf::from("/dev/null")));
    }
}
