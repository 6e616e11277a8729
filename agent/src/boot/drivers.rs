//! The drivers of the machine that a live image boots on: like udev, load the modules whose aliases
//! match a device.
//!
//! The list is made with the image. A line of it is a module: its file, the modules that it needs
//! (with commas between, or `-`), and its aliases, with blanks between.

use crate::sys;
use crate::tools::toolbox;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

/// The list; only a live image has it.
pub const LIST: &str = toolbox::OWN_LIVE;
const DEVICES: &str = "/sys/bus";

struct Driver {
    path: String,
    needs: Vec<String>,
    aliases: Vec<String>,
    parameters: String,
    done: bool,
}

/// The modules of an image, and which of them were loaded.
pub struct Drivers {
    all: Vec<Driver>,
    by_name: HashMap<String, usize>,
}

impl Drivers {
    pub fn read() -> Self {
        let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        Self::parse(&fs::read_to_string(LIST).unwrap_or_default(), &cmdline)
    }

    /// Read the list, and each module's parameters from the kernel's command line: the program that
    /// loads a module has to pass them on (Documentation/admin-guide/kernel-parameters.rst).
    fn parse(list: &str, cmdline: &str) -> Self {
        let mut all = Vec::new();
        let mut by_name = HashMap::new();
        for line in list.lines() {
            let mut fields = line.split_whitespace().map(String::from);
            let (Some(path), Some(needs)) = (fields.next(), fields.next()) else {
                continue;
            };
            by_name.insert(name_of(&path), all.len());
            let needs = needs.split(',').filter(|name| *name != "-");
            all.push(Driver {
                needs: needs.map(String::from).collect(),
                parameters: parameters_of(&name_of(&path), cmdline),
                path,
                aliases: fields.collect(),
                done: false,
            });
        }
        Self { all, by_name }
    }

    /// Load what the devices that are there now ask for; returns what went wrong. Drivers find
    /// further devices, so it is called again until nothing is new.
    pub fn load_wanted(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut wanted = self.wanted(&device_aliases());
        while !wanted.is_empty() {
            for driver in wanted {
                self.load(driver, &mut notes);
            }
            wanted = self.wanted(&device_aliases());
        }
        notes
    }

    fn wanted(&self, devices: &[String]) -> Vec<usize> {
        let fits = |driver: &Driver| {
            let mut patterns = driver.aliases.iter();
            patterns.any(|pattern| devices.iter().any(|device| matches(pattern, device)))
        };
        let open = self.all.iter().enumerate().filter(|(_, each)| !each.done);
        open.filter(|(_, each)| fits(each))
            .map(|(at, _)| at)
            .collect()
    }

    fn load(&mut self, at: usize, notes: &mut Vec<String>) {
        // Marked first: two modules that name each other do not lead in a circle.
        if std::mem::replace(&mut self.all[at].done, true) {
            return;
        }
        for name in self.all[at].needs.clone() {
            if let Some(needed) = self.by_name.get(&name).copied() {
                self.load(needed, notes);
            }
        }
        notes.extend(load(&self.all[at].path, &self.all[at].parameters));
    }

    /// Load one module by its name, whether a device asks for it or not.
    pub fn load_named(&mut self, name: &str, parameters: &str) -> Result<(), String> {
        let at = *self
            .by_name
            .get(name)
            .ok_or_else(|| format!("the image has no module {name}"))?;
        self.all[at].done = true;
        let parameters = format!("{} {parameters}", self.all[at].parameters);
        load(&self.all[at].path, parameters.trim()).map_or(Ok(()), Err)
    }
}

fn load(path: &str, parameters: &str) -> Option<String> {
    let loaded = File::open(path).and_then(|file| sys::load_module(&file, parameters));
    let error = loaded.err()?;
    Some(format!("module {path}: {error}"))
}

/// The parameters of a module on the kernel's command line: `NAME.KEY=VALUE` as `KEY=VALUE`.
fn parameters_of(name: &str, cmdline: &str) -> String {
    let found = cmdline.split_whitespace().filter_map(|word| {
        let (module, parameter) = word.split_once('.')?;
        // The text before the dot may be a value, as in `a=b.c`, instead of a module's name.
        (module.replace('-', "_") == name).then_some(parameter)
    });
    found.collect::<Vec<_>>().join(" ")
}

fn name_of(path: &str) -> String {
    let file = Path::new(path).file_stem().unwrap_or_default();
    file.to_string_lossy().replace('-', "_")
}

/// How the devices without a driver name themselves.
fn device_aliases() -> Vec<String> {
    let folders = |path: &Path| -> Vec<_> {
        let listed = fs::read_dir(path).into_iter().flatten().flatten();
        listed.map(|entry| entry.path()).collect()
    };
    let mut found = Vec::new();
    for bus in folders(Path::new(DEVICES)) {
        for device in folders(&bus.join("devices")) {
            if let Ok(alias) = fs::read_to_string(device.join("modalias")) {
                found.push(alias.trim().to_string());
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Whether a text fits a pattern of the kernel's: `*`, `?` and `[a-z]` as in a shell.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut here) = (0, 0);
    // The last star, and what it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, here));
            at += 1;
            continue;
        }
        let stepped = match text.get(here) {
            Some(byte) => one(&pattern[at..], *byte),
            None if at == pattern.len() => return true,
            None => None,
        };
        match (stepped, star) {
            (Some(taken), _) => (at, here) = (at + taken, here + 1),
            (None, Some((after, swallowed))) if swallowed < text.len() => {
                star = Some((after, swallowed + 1));
                (at, here) = (after, swallowed + 1);
            }
            _ => return false,
        }
    }
}

/// How much of the pattern one byte fits; `None` where it does not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let end = pattern.iter().position(|each| *each == b']')?;
            let mut set = &pattern[1..end];
            while let [first, rest @ ..] = set {
                let (last, rest) = match rest {
                    [b'-', last, rest @ ..] => (last, rest),
                    _ => (first, rest),
                };
                if (first..=last).contains(&&byte) {
                    return Some(end + 1);
                }
                set = rest;
            }
            None
        }
        plain => (*plain == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_find_their_driver_as_udev_would() {
        let e1000 = "pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00";
        assert!(matches("pci:v00008086d0000100Esv*sd*bc*sc*i*", e1000));
        assert!(!matches("pci:v00008086d000010D3sv*sd*bc*sc*i*", e1000));
        assert!(matches("pci:v*d*sv*sd*bc02sc*i*", e1000));
        assert!(matches("usb:v0[0-2]*ic08isc06", "usb:v01F4p0dc0ic08isc06"));
        assert!(!matches("usb:v0[0-2]*ic08isc06", "usb:v0FF4p0dc0ic08isc06"));
        assert!(matches("acpi*:VMBUS:*", "acpi:VMBUS:"));
        assert!(matches("mdio:0?1", "mdio:001"));
        assert!(!matches("scsi:t-0x05*", "scsi:t-0x00"));
        assert!(matches("*", "") && matches("", "") && !matches("a", ""));
    }

    #[test]
    fn a_list_is_read_and_a_devices_driver_is_found() {
        let drivers = Drivers::parse(
            "/lib/modules/virtio-ring.ko - \n\
             /lib/modules/virtio_net.ko virtio_ring,failover virtio:d00000001v*\n\
             nonsense\n",
            "quiet virtio-net.napi_tx=0 virtio_net.csum=1 virtio_network.x=1 a=virtio_net.b",
        );
        assert_eq!(drivers.all[0].parameters, "");
        assert_eq!(drivers.all[1].parameters, "napi_tx=0 csum=1");
        assert_eq!(drivers.all.len(), 2);
        assert_eq!(drivers.all[1].needs, ["virtio_ring", "failover"]);
        assert_eq!(drivers.by_name["virtio_ring"], 0);
        assert_eq!(drivers.wanted(&["virtio:d00000001v00001AF4".into()]), [1]);
        assert!(drivers.wanted(&["virtio:d00000002v1".into()]).is_empty());
    }

    #[test]
    fn a_missing_module_is_reported_once() {
        let mut drivers = Drivers::parse("/no/such/a.ko b x:y\n/no/such/b.ko a -\n", "");
        let mut notes = Vec::new();
        drivers.load(0, &mut notes);
        drivers.load(0, &mut notes);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(drivers.load_named("c", "").unwrap_err().contains('c'));
    }

    proptest! {
        #[test]
        fn a_pattern_with_stars_fits_what_it_was_made_from(text in "[a-z0-9:]{0,24}", at in 0usize..24) {
            let at = at.min(text.len());
            let starred = format!("{}*{}", &text[..at], &text[at..]);
            let (starred, prefixed) = (starred, format!("{}*", &text[..at]));
            prop_assert!(matches(&text, &text) && matches(&starred, &text) && matches(&prefixed, &text));
        }

        #[test]
        fn no_pattern_makes_it_fail(pattern in ".{0,12}", text in ".{0,12}") {
            let _ = matches(&pattern, &text);
        }
    }
}
