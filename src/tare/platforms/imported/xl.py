"""A guest's file of Xen's ``xl``, as an arm of ``platform: xen``; xl.cfg(5)."""

from __future__ import annotations

import re
from typing import Any

from tare.platforms.imported.cpu_tuning import MOST_WEIGHT, NO_LIST, OWN_CPU
from tare.platforms.imported.ledger import Said, shown
from tare.platforms.imported.model import BOOTS, FIRMWARE, ONE_DISK, Disk, Found
from tare.platforms.imported.numbers import bytes_of, cpu_set, whole
from tare.platforms.imported.qemu_disks import pairs
from tare.platforms.imported.xl_words import Value, parse_settings
from tare.platforms.xen.options import DEFAULT_WEIGHT, MODEL_WEIGHT, XenOptions

NO_EFFECT = frozenset(
    {
        *(
            "uuid",
            "on_poweroff",
            "on_reboot",
            "on_watchdog",
            "on_crash",
            "on_soft_reset",
            "seclabel",
        ),
        *(
            "vnc",
            "vnclisten",
            "vncdisplay",
            "vncunused",
            "vncpasswd",
            "vfb",
            "sdl",
            "opengl",
            "vga",
        ),
        *("spice", "spicehost", "spiceport", "spicetls_port", "spicepasswd", "spicevdagent"),
        *("spicedisable_ticketing", "spiceagent_mouse", "spice_clipboard_sharing", "keymap"),
        *("spiceusbredirection", "spice_image_compression", "spice_streaming_video", "nographic"),
        *("usb", "usbdevice", "usbctrl", "usbdev", "serial", "soundhw", "stdvga", "videoram"),
        *("localtime", "rtc_timeoffset", "boot", "init_seclabel", "parallel", "channel", "vkb"),
        *("gfx_passthru", "iomem", "ioports", "irqs", "claim_mode", "device_model_user", "vsnd"),
        *("xend_udev", "pvcalls", "bootloader_user", "dm_restrict", "acpi_firmware", "smbios"),
        *("smbios_firmware", "ms_vm_genid", "driver_domain", "vdispl", "xenstore_features"),
    }
)
"""Settings without effect on what is measured; the values of some are secrets."""
_BOOT = frozenset(
    {"kernel", "ramdisk", "cmdline", "root", "extra", "bootloader", "bootloader_args"}
)
_WHY = {
    "maxmem": "memory is not added while it runs",
    "cpus_soft": "a preference of Xen's scheduler",
    "pci": "Tare's machines have no device of the host's",
    "vnuma": "Tare's machines have one NUMA node",
    "viridian": "no option of `platform: xen` has Hyper-V's enlightenments",
}
_PREFIX = re.compile(r"(phy|file|tap2?|aio|raw|qcow2?|vhd|qdisk|script):")
_KINDS = frozenset({"pv", "pvh", "hvm"})
_MOST_XEN_WEIGHT = MOST_WEIGHT * DEFAULT_WEIGHT // MODEL_WEIGHT
KEYS = frozenset(
    {"vif", "vcpus", "maxvcpus", "memory", "disk", "builder", "bootloader", "on_crash", "on_reboot"}
    | {"on_poweroff", "kernel", "cpu_weight", "cpus", "vfb", "maxmem", "type"}
)
_SETTING = re.compile(r"^\s*([A-Za-z_][A-Za-z0-9_]*)\s*\+?=[^=]", re.MULTILINE)


def is_xl(text: str) -> bool:
    """Return whether a text looks like a guest's file of xl's."""
    keys = set(_SETTING.findall(text))
    return len(keys & KEYS) >= 2 or bool(keys & {"vif", "vfb", "builder", "cpu_weight"})


def read_xl(text: str) -> Found:
    """Return what a guest's file says.

    Raises:
        ValueError: A line is none of such a file.
    """
    settings = parse_settings(text)
    lists = {name: value for name, value in settings.items() if isinstance(value, list)}
    said = Said(
        "", {name: value if isinstance(value, str) else "" for name, value in settings.items()}
    )
    found = Found(platform="xen", model=XenOptions, attaches=False, described=True)
    found.name = said.get("name", "")
    found.memory = bytes_of(said.get("memory", ""), 1 << 20)
    if found.memory is None:
        found.memory = bytes_of(said.get("maxmem", ""), 1 << 20)
    found.vcpus = whole(said.get("vcpus", "1")) or 1
    most = whole(said.get("maxvcpus", ""))
    if most and most > found.vcpus:
        found.leave(f"vCPUs that may be added, up to {most}", "those that are there are taken")
    _kind(found, said)
    _scheduling(found, said, lists)
    _disks(found, lists.get("disk", []))
    said.skip("disk", "vif")
    _cards(found, lists.get("vif", []), said)
    if any(said.get(name, "") for name in sorted(_BOOT)) or "boot" in said:
        found.leave(*BOOTS)
    _finish(found, said)
    return found


def _kind(found: Found, said: Said) -> None:
    """Take the kind of guest: `type`, or the older `builder`; PV by default."""
    builder = {"hvm": "hvm"}.get(said.get("builder", ""), "pv")
    kind = said.get("type", builder)
    if kind in _KINDS:
        found.options["type"] = kind
    else:
        found.leave(f"type {kind}", "pvh is taken")
    if said.get("firmware", "") or said.get("bios", ""):
        found.leave(*FIRMWARE)


def _scheduling(found: Found, said: Said, lists: dict[str, list[Value]]) -> None:
    weight = said.get("cpu_weight", "")
    scheduling: dict[str, Any] = {}
    if (number := whole(weight)) is not None and 1 <= number <= _MOST_XEN_WEIGHT:
        # Others have 256 there, and 100 here.
        scheduling["weight"] = max(1, round(number * MODEL_WEIGHT / DEFAULT_WEIGHT))
    elif weight:
        found.leave(f"cpu_weight {weight}", f"it is not 1 to {_MOST_XEN_WEIGHT}")
    # In percent of one CPU; 0 is no cap.
    cap = whole(said.get("cap", "0"))
    if cap:
        scheduling["cap"] = cap / 100
    elif cap is None:
        found.leave("cap", "it is not a number")
    if scheduling:
        found.options["scheduling"] = scheduling
    if pool := said.get("pool", ""):
        found.options["cpupool"] = pool
    if "cpus" in said:
        _pins(found, said["cpus"], lists.get("cpus", []))


def _pins(found: Found, text: str, listed: list[Value]) -> None:
    """Take vCPUs that have a CPU each; which one it is, Tare chooses."""
    words = [each for each in listed if isinstance(each, str)]
    sets = [cpu_set(each) for each in words]
    one_each = {cpus[0] for cpus in sets if cpus is not None and len(cpus) == 1}
    found.pinned = bool(words) and len(one_each) == len(sets) == found.vcpus
    for number, each in enumerate(words):
        why = "Tare chooses which it is" if found.pinned else OWN_CPU
        found.leave(f"vCPU {number} on CPUs {each}", why)
    if not words and text not in ("", "all"):
        found.leave(f"vCPUs on CPUs {text}", OWN_CPU if cpu_set(text) else NO_LIST)


def _disks(found: Found, listed: list[Value]) -> None:
    """Take the first disk's presence; xl-disk-configuration(5) has two notations."""
    for each in listed:
        if not isinstance(each, str):
            continue
        said, plain = _disk(each)
        target, kind, device = _placed(said, plain)
        if "devtype" in said or "cdrom" in plain or ":cdrom" in each:
            found.set_aside(f"disk {device.partition(':')[0]} (a CD)")
            continue
        found.carry(f"disk {device}")
        found.add_disk(Disk(device[:2] or "xvd"))
        if len(found.disks) > 1:
            found.leave(f"disk {len(found.disks)} ({device})", ONE_DISK)
            continue
        if kind not in ("", "raw", "phy", "file"):
            found.leave(f"disk format {kind}", "a raw file is taken")
        if "/dev/" in target:
            found.leave("a block device of the host", "a file is taken")
        for name, value in said.items():
            if name not in ("format", "vdev", "access", "target"):
                found.leave(f"disk {shown(name, value)}")


def _disk(text: str) -> tuple[dict[str, str], list[str]]:
    """Return a disk's named parameters, and those by their place."""
    said: dict[str, str] = {}
    plain: list[str] = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if equals and re.fullmatch(r"[a-z-]+", name):
            said[name] = value
        elif part.strip() in ("discard", "no-discard", "direct-io-safe"):
            said[part.strip()] = "on"
        else:
            plain.append(part.strip())
    return said, plain


def _placed(said: dict[str, str], plain: list[str]) -> tuple[str, str, str]:
    """Return target, format and device of a disk, by name or by their places."""
    words = [*plain, "", "", ""]
    older = _PREFIX.match(words[0])
    if older is not None:
        # As in `phy:/dev/vg/x,xvda,w`.
        return words[0], older[1], words[1]
    return (
        said.get("target", words[0]),
        said.get("format", words[1]),
        said.get("vdev", words[2]),
    )


def _cards(found: Found, listed: list[Value], said: Said) -> None:
    hvm = found.options.get("type") == "hvm"
    if hvm and said.get("xen_platform_pci", "1") == "0":
        found.options["devices"] = "emulated"
    for number, each in enumerate(listed, start=1):
        if number > 1:
            found.leave(f"network interface {number}", "a machine of Tare's has one")
            continue
        card = Said("vif", pairs(each, "") if isinstance(each, str) else {})
        model = card.get("model", "")
        if hvm and model in ("e1000", "rtl8139") and card.get("type", "") == "ioemu":
            # With Xen's own drivers a Linux guest unplugs the emulated card.
            if found.options.get("devices") == "emulated":
                found.options["nic"] = model
            else:
                found.leave(f"vif model={model}", "the guest's kernel takes Xen's own card")
        elif model:
            found.leave(f"vif model={model}", "Xen's own card is taken")
        card.skip("mac", "bridge", "script", "vifname", "ip", "on", "")
        found.close(card)


def _finish(found: Found, said: Said) -> None:
    for key in said.read:
        found.carry(key)
    for key, value in said.rest():
        if key in NO_EFFECT:
            found.set_aside(key)
        else:
            found.leave(shown(key, value).rstrip("="), _WHY.get(key, ""))
