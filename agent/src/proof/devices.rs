//! Network interfaces with their offloads, disks with their caches, and the machine's own name.

use super::{chosen, names, number, read};
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

pub fn nics() -> Value {
    let root = "/sys/class/net";
    let found = names(root).into_iter().filter(|name| name != "lo");
    found
        .filter(|name| fs::metadata(format!("{root}/{name}/device")).is_ok())
        .map(|name| {
            let offloads: Map<String, Value> = OFFLOADS
                .iter()
                .map(|(what, query)| (what.to_string(), sys::ethtool(&name, *query).ok().into()))
                .collect();
            json!({
                "driver": driver(&format!("{root}/{name}/device")),
                "mtu": number(format!("{root}/{name}/mtu")),
                "speed": number(format!("{root}/{name}/speed")).filter(|speed| *speed > 0),
                "queues": names(format!("{root}/{name}/queues")).len(),
                "offloads": offloads,
                "name": name,
            })
        })
        .collect()
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
