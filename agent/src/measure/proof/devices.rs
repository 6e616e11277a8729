//! Network interfaces with their offloads, disks with their caches, and the machine's own name.

use crate::measure::sysfs::{chosen, names, number, read};
use crate::sys;
use serde_json::{json, Map, Value};
use std::fs;

/// The old queries of ethtool: one word in, one word out, on every kernel.
const OFFLOADS: [(&str, u32); 6] = [
    ("receive_checksum", 0x14),
    ("send_checksum", 0x16),
    ("scatter_gather", 0x18),
    ("segmentation", 0x1e),
    ("generic_segmentation", 0x23),
    ("generic_receive", 0x2b),
];

fn driver(device: &str) -> Option<String> {
    let link = fs::read_link(format!("{device}/driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// The names of all network interfaces.
pub fn interface_names() -> Vec<String> {
    names("/sys/class/net")
}

/// The names of those that have a device behind them.
pub fn nic_names() -> Vec<String> {
    let has_device = |name: &String| fs::metadata(format!("/sys/class/net/{name}/device")).is_ok();
    interface_names()
        .into_iter()
        .filter(|name| name != "lo" && has_device(name))
        .collect()
}

pub fn nics() -> Value {
    nic_names().iter().map(|name| nic(name)).collect()
}

/// What matters of one network interface.
pub fn nic(name: &str) -> Value {
    let root = format!("/sys/class/net/{name}");
    let offloads: Map<String, Value> = OFFLOADS
        .iter()
        .map(|(what, query)| (what.to_string(), sys::ethtool(name, *query).ok().into()))
        .collect();
    json!({
        "driver": driver(&format!("{root}/device")).or_else(|| sys::driver(name).ok()),
        "mtu": number(format!("{root}/mtu")),
        "speed": number(format!("{root}/speed")).filter(|speed| *speed > 0),
        "queues": names(format!("{root}/queues")).len(),
        "offloads": offloads,
        "name": name,
    })
}

pub fn disks() -> Value {
    let root = "/sys/block";
    let real = |name: &String| {
        !["loop", "ram", "zram"]
            .iter()
            .any(|kind| name.starts_with(kind))
    };
    names(root)
        .into_iter()
        .filter(real)
        .map(|name| {
            let queue = |what: &str| read(format!("{root}/{name}/queue/{what}"));
            json!({
                "driver": driver(&format!("{root}/{name}/device")),
                "model": read(format!("{root}/{name}/device/model")),
                "size": number(format!("{root}/{name}/size")).map(|sectors| sectors * 512),
                "cache": queue("write_cache"),
                "scheduler": queue("scheduler").map(|text| chosen(&text).to_string()),
                "rotational": queue("rotational"),
                "block_size": queue("logical_block_size"),
                "queue_depth": queue("nr_requests"),
                "name": name,
            })
        })
        .collect()
}

pub fn machine() -> Value {
    let dmi = |what: &str| read(format!("/sys/class/dmi/id/{what}"));
    json!({
        "vendor": dmi("sys_vendor"),
        "product": dmi("product_name"),
        "firmware": dmi("bios_vendor"),
        "acpi": fs::metadata("/sys/firmware/acpi").is_ok(),
        "uefi": fs::metadata("/sys/firmware/efi").is_ok(),
        "console": read("/sys/class/tty/console/active"),
    })
}
