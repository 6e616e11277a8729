//! A live image: the machine loads its drivers, then waits for a CD or disk labelled TARE-CFG that
//! names the host to connect to, and the key.

use super::drivers::Drivers;
use super::network::hardware_address;
use super::{dhcp, empty_disk, medium};
use crate::channel::dial::{
    self, Configuration, Dialled, EmptyDisk, Host, IsolatedCard, StaticAddress, Way,
};
use crate::measure::{proof, scratch, sysfs};
use crate::sys;
use crate::tools::toolbox;
use rustix::mount::MountFlags;
use serde_json::{json, Value};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel parameter whose value states whether the image has a toolbox.
pub const WORD: &str = "tare.live";
pub const WITH_TOOLBOX: &str = "toolbox";

/// The time between two scans for devices if the kernel announces none.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two console lines that repeat what the machine waits for.
const REMIND: Duration = Duration::from_secs(60);
/// How long the disk or CD with the toolbox may take to appear.
const MEDIUM_WAIT: Duration = Duration::from_secs(20);
/// How long the machine's own disk may take to appear.
const DISK_WAIT: Duration = Duration::from_secs(20);
/// Why an image has no toolbox that was made without one.
const WITHOUT: &str =
    "the live image was made without one: boot one of `tare image live`, which has \
                       the toolbox `base` by default (`--toolbox`)";
/// How long a link may take to come up before the next interface is tried.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// What a live machine knows once it is ready to reach its host.
pub struct Ready {
    pub configuration: Configuration,
    /// For the proof.
    pub about: Value,
}

/// Write a line to every console.
pub fn log(text: &str) {
    let active = fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    for name in active.split_whitespace() {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(Path::new("/dev").join(name));
        if let Ok(mut console) = opened {
            let _ = write!(console, "tare: {text}\r\n");
        }
    }
}

/// Logs a repeated line once a minute only, and a new line at once.
#[derive(Default)]
struct ThrottledLog {
    last: Option<(String, Instant)>,
}

impl ThrottledLog {
    fn log(&mut self, text: String) {
        let again = match &self.last {
            Some((before, when)) => *before != text || when.elapsed() >= REMIND,
            None => true,
        };
        if again {
            log(&text);
            self.last = Some((text, Instant::now()));
        }
    }
}

/// Load drivers, and wait for the configuration, the toolbox and the network, however long it takes.
pub fn prepare(with_toolbox: bool, events: Option<&OwnedFd>) -> Ready {
    let mut machine = Machine {
        drivers: Drivers::read(),
        events,
        console: ThrottledLog::default(),
    };
    let (configuration, device) = machine.configuration();
    let toolbox = if with_toolbox {
        machine.toolbox()
    } else {
        toolbox::set_absent(WITHOUT);
        json!({"on": Value::Null, "reason": WITHOUT})
    };
    // The toolbox has what formats it.
    let scratch = match &configuration.scratch {
        Some(wanted) => machine.own_disk(wanted, &device),
        None => Value::Null,
    };
    let network = match &configuration.way {
        Way::Dial(_) => {
            let isolated = configuration.isolated.as_ref();
            machine.network(configuration.network.as_ref(), isolated)
        }
        Way::Serial(_) => Value::Null,
    };
    let about = json!({
        "configuration": device,
        "toolbox": toolbox,
        "scratch": scratch,
        "network": network,
        "lockdown": lockdown(),
    });
    Ready {
        configuration,
        about,
    }
}

/// The kernel's lockdown mode: with Secure Boot, Debian's kernel has `integrity`.
fn lockdown() -> Value {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    // It may be mounted already, or the kernel may lack it.
    let _ = sys::mount(
        "securityfs",
        "/sys/kernel/security",
        "securityfs",
        quiet,
        "",
    );
    sysfs::chosen_in("/sys/kernel/security/lockdown").into()
}

struct Machine<'a> {
    drivers: Drivers,
    events: Option<&'a OwnedFd>,
    console: ThrottledLog,
}

impl Machine<'_> {
    fn look_for_devices(&mut self) {
        for note in self.drivers.load_wanted() {
            log(&note);
        }
    }

    /// Wait until the kernel announces something, or for a moment.
    fn pause(&self) {
        match self.events {
            Some(events) => {
                if sys::wait_readable(events, Some(LOOK)).unwrap_or(false) {
                    sys::discard(events);
                }
            }
            None => std::thread::sleep(LOOK),
        }
    }

    fn configuration(&mut self) -> (Configuration, String) {
        let since = Instant::now();
        loop {
            self.look_for_devices();
            let waiting = match dial::find() {
                Some(path) => match dial::read(&path) {
                    Ok(configuration) => return (configuration, path.display().to_string()),
                    Err(reason) => format!("the configuration cannot be used: {reason}"),
                },
                None => "no CD or disk of this machine has the label TARE-CFG".into(),
            };
            // A disk may take some seconds to be found.
            if since.elapsed() > LINK_WAIT {
                let text = format!("waiting for a configuration: {waiting}");
                self.console.log(text);
            }
            self.pause();
        }
    }

    fn toolbox(&mut self) -> Value {
        let since = Instant::now();
        while !medium::is_there() && since.elapsed() < MEDIUM_WAIT {
            self.pause();
            self.look_for_devices();
        }
        let brought = medium::bring_toolbox(&mut self.drivers);
        if let Some(reason) = brought["reason"].as_str() {
            log(&format!("no toolbox: {reason}"));
        }
        brought
    }

    /// Format and mount the empty disk that the host attached. Returns its name, or the reason why there
    /// is none.
    fn own_disk(&mut self, wanted: &EmptyDisk, configuration: &str) -> Value {
        let mounted = self
            .empty_disk(wanted.bytes, configuration)
            .and_then(|name| empty_disk::format_and_mount(&name, &wanted.format).map(|()| name));
        match mounted {
            Ok(name) => json!({"device": name}),
            Err(reason) => {
                log(&format!("no disk of its own: {reason}"));
                scratch::set_absent(&reason);
                json!({"device": Value::Null, "reason": reason})
            }
        }
    }

    fn empty_disk(&mut self, bytes: u64, configuration: &str) -> Result<String, String> {
        let since = Instant::now();
        loop {
            let found = empty_disk::find(bytes, configuration);
            if found.is_ok() {
                break;
            }
            if since.elapsed() > DISK_WAIT {
                return found;
            }
            self.pause();
            self.look_for_devices();
        }
        // A second disk of that size may appear a moment later; then neither may be formatted.
        self.pause();
        self.look_for_devices();
        empty_disk::find(bytes, configuration)
    }

    fn network(
        &mut self,
        stated: Option<&StaticAddress>,
        isolated: Option<&IsolatedCard>,
    ) -> Value {
        // No host and no DHCP server is on an isolated network.
        let is_isolated = |name: &String| {
            isolated.is_some_and(|card| hardware_address(name).as_ref() == Some(&card.mac))
        };
        let mut round: u32 = 0;
        loop {
            self.look_for_devices();
            let mut names = proof::nic_names();
            names.retain(|name| !is_isolated(name));
            let mut waiting = String::from("this machine has no network interface");
            for name in &names {
                round = round.wrapping_add(1);
                match set_up(name, stated, round) {
                    Ok(()) => {
                        let by = if stated.is_some() { "stated" } else { "DHCP" };
                        let driver = proof::nic(name)["driver"].clone();
                        return json!({"interface": name, "by": by, "driver": driver});
                    }
                    Err(reason) => waiting = reason,
                }
            }
            self.console
                .log(format!("waiting for a network: {waiting}"));
            self.pause();
        }
    }
}

fn set_up(name: &str, stated: Option<&StaticAddress>, number: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{name}: {error}");
    sys::raise_interface(name).map_err(failed)?;
    let since = Instant::now();
    while sysfs::number(format!("/sys/class/net/{name}/carrier")) != Some(1) {
        if since.elapsed() > LINK_WAIT {
            return Err(format!("{name} has no link"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let lease;
    let address = match stated {
        Some(stated) => stated,
        None => {
            let hardware = hardware(name).ok_or(format!("{name} has no Ethernet address"))?;
            // Different for two machines that were copied from one, and at each try.
            let salt = u32::from_be_bytes([hardware[2], hardware[3], hardware[4], hardware[5]]);
            lease = dhcp::request_address(name, hardware, salt.wrapping_add(number))?;
            &lease
        }
    };
    sys::set_address(name, address.address, address.prefix).map_err(failed)?;
    if let Some(gateway) = address.gateway {
        let failed = |error| format!("{name}: the gateway {gateway} cannot be used: {error}");
        sys::set_gateway(gateway).map_err(failed)?;
    }
    Ok(())
}

fn hardware(name: &str) -> Option<[u8; 6]> {
    parse_hardware(&fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?)
}

fn parse_hardware(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// A channel to the host, and what closes it in the end.
pub struct Reached {
    pub input: File,
    pub output: File,
    dialled: Option<Dialled>,
}

impl Reached {
    /// The machine's own address on the way to its host; `None` on a serial port.
    pub fn address(&self) -> Option<IpAddr> {
        self.dialled.as_ref().map(|dialled| dialled.address)
    }

    /// Send what is buffered, and close the channel.
    pub fn finish(self) {
        match self.dialled {
            Some(dialled) => dialled.finish(),
            None => sys::drain(&self.output),
        }
    }
}

/// Reach the host, however long it takes.
pub fn reach(configuration: &Configuration) -> Reached {
    let mut console = ThrottledLog::default();
    loop {
        let reached = match &configuration.way {
            Way::Dial(host) => reach_by_network(host, &configuration.key),
            Way::Serial(port) => reach_by_serial(port, &configuration.key),
        };
        match reached {
            Ok(reached) => return reached,
            Err(reason) => console.log(format!("waiting for the host: {reason}")),
        }
        std::thread::sleep(LOOK);
    }
}

fn reach_by_network(host: &Host, key: &str) -> Result<Reached, String> {
    let dialled = dial::dial(host, key)?;
    let failed = |error: std::io::Error| error.to_string();
    Ok(Reached {
        input: dialled.stream().map_err(failed)?,
        output: dialled.stream().map_err(failed)?,
        dialled: Some(dialled),
    })
}

fn reach_by_serial(port: &Path, key: &str) -> Result<Reached, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", port.display());
    // Without a carrier, which not every hypervisor shows, a plain open would wait for ever.
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(port);
    let mut input = opened.map_err(failed)?;
    if sys::is_terminal(&input) {
        sys::set_raw(&input).map_err(failed)?;
    }
    sys::set_blocking(&input, true).map_err(failed)?;
    // A line of its own, whatever the firmware has written before.
    let line = format!("\n{}", dial::greeting(key));
    input.write_all(line.as_bytes()).map_err(failed)?;
    Ok(Reached {
        output: input.try_clone().map_err(failed)?,
        input,
        dialled: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_read() {
        assert_eq!(
            parse_hardware("52:54:00:a0:0b:ff\n"),
            Some([0x52, 0x54, 0, 0xa0, 0x0b, 0xff])
        );
        for other in ["", "00:00", "52:54:00:a0:0b:ff:01", "no:ad:dr:es:s0:00"] {
            assert_eq!(parse_hardware(other), None);
        }
    }
}
