"""Import a guest's file for Xen's ``xl`` as an arm of ``platform: xen``; xl.cfg(5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tare.platforms.imported.cpu_tuning import MOST_WEIGHT, NO_LIST, OWN_CPU
from tare.platforms.imported.model import BOOTS, FIRMWARE, ONE_DISK, Description, Disk
from tare.platforms.imported.notes import Values, shown
from tare.platforms.imported.parsing import bytes_of, cpu_set, parse_whole_number
from tare.platforms.imported.qemu_disks import pairs
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
"""Settings that have no effect on measurements; the values of some of them are secrets."""
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
    """Return whether a text looks like a guest's file for xl."""
    keys = set(_SETTING.findall(text))
    return len(keys & KEYS) >= 2 or bool(keys & {"vif", "vfb", "builder", "cpu_weight"})


def read_xl(text: str) -> Description:
    """Convert a guest's file to a description.

    Raises:
        ValueError: A line does not have the file's syntax.
    """
    settings = parse_settings(text)
    lists = {name: value for name, value in settings.items() if isinstance(value, list)}
    values = Values(
        "", {name: value if isinstance(value, str) else "" for name, value in settings.items()}
    )
    found = Description(platform="xen", model=XenOptions, attaches=False, described=True)
    found.name = values.get("name", "")
    found.memory = bytes_of(values.get("memory", ""), 1 << 20)
    if found.memory is None:
        found.memory = bytes_of(values.get("maxmem", ""), 1 << 20)
    found.vcpus = parse_whole_number(values.get("vcpus", "1")) or 1
    most = parse_whole_number(values.get("maxvcpus", ""))
    if most and most > found.vcpus:
        found.leave(f"vCPUs that may be added, up to {most}", "Tare uses the available ones")
    _kind(found, values)
    _scheduling(found, values, lists)
    _disks(found, lists.get("disk", []))
    values.skip("disk", "vif")
    _cards(found, lists.get("vif", []), values)
    if any(values.get(name, "") for name in sorted(_BOOT)) or "boot" in values:
        found.leave(*BOOTS)
    found.close_each(
        values,
        lambda key, _: None if key in NO_EFFECT else _WHY.get(key, ""),
        lambda key, value: shown(key, value).rstrip("="),
    )
    return found


def _kind(found: Description, values: Values) -> None:
    """Import the kind of guest from `type`, or from the older `builder`; the default is PV."""
    builder = {"hvm": "hvm"}.get(values.get("builder", ""), "pv")
    kind = values.get("type", builder)
    if kind in _KINDS:
        found.options["type"] = kind
    else:
        found.leave(f"type {kind}", "pvh is taken")
    if values.get("firmware", "") or values.get("bios", ""):
        found.leave(*FIRMWARE)


def _scheduling(found: Description, values: Values, lists: dict[str, list[Value]]) -> None:
    weight = values.get("cpu_weight", "")
    scheduling: dict[str, Any] = {}
    if (number := parse_whole_number(weight)) is not None and 1 <= number <= _MOST_XEN_WEIGHT:
        # The default weight is 256 in Xen, and 100 in Tare.
        scheduling["weight"] = max(1, round(number * MODEL_WEIGHT / DEFAULT_WEIGHT))
    elif weight:
        found.leave(f"cpu_weight {weight}", f"it is not 1 to {_MOST_XEN_WEIGHT}")
    # The unit is percent of one CPU; 0 means no cap.
    cap = parse_whole_number(values.get("cap", "0"))
    if cap:
        scheduling["cap"] = cap / 100
    elif cap is None:
        found.leave("cap", "it is not a number")
    if scheduling:
        found.options["scheduling"] = scheduling
    if pool := values.get("pool", ""):
        found.options["cpupool"] = pool
    if "cpus" in values:
        _pins(found, values["cpus"], lists.get("cpus", []))


def _pins(found: Description, text: str, listed: list[Value]) -> None:
    """Import vCPUs that are each pinned to their own CPU; Tare chooses the CPUs."""
    words = [each for each in listed if isinstance(each, str)]
    sets = [cpu_set(each) for each in words]
    one_each = {cpus[0] for cpus in sets if cpus is not None and len(cpus) == 1}
    found.pinned = bool(words) and len(one_each) == len(sets) == found.vcpus
    for number, each in enumerate(words):
        why = "Tare chooses which it is" if found.pinned else OWN_CPU
        found.leave(f"vCPU {number} on CPUs {each}", why)
    if not words and text not in ("", "all"):
        found.leave(f"vCPUs on CPUs {text}", OWN_CPU if cpu_set(text) else NO_LIST)


def _disks(found: Description, listed: list[Value]) -> None:
    """Import the disks, in either of the two notations of xl-disk-configuration(5)."""
    for each in listed:
        if not isinstance(each, str):
            continue
        values, plain = _disk(each)
        target, kind, device = _placed(values, plain)
        if "devtype" in values or "cdrom" in plain or ":cdrom" in each:
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
        for name, value in values.items():
            if name not in ("format", "vdev", "access", "target"):
                found.leave(f"disk {shown(name, value)}")


def _disk(text: str) -> tuple[dict[str, str], list[str]]:
    """Return a disk's named parameters, and its positional ones."""
    values: dict[str, str] = {}
    plain: list[str] = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if equals and re.fullmatch(r"[a-z-]+", name):
            values[name] = value
        elif part.strip() in ("discard", "no-discard", "direct-io-safe"):
            values[part.strip()] = "on"
        else:
            plain.append(part.strip())
    return values, plain


def _placed(values: dict[str, str], plain: list[str]) -> tuple[str, str, str]:
    """Return target, format and device of a disk, given by name or by position."""
    words = [*plain, "", "", ""]
    older = _PREFIX.match(words[0])
    if older is not None:
        # This is the older notation, such as `phy:/dev/vg/x,xvda,w`.
        return words[0], older[1], words[1]
    return (
        values.get("target", words[0]),
        values.get("format", words[1]),
        values.get("vdev", words[2]),
    )


def _cards(found: Description, listed: list[Value], values: Values) -> None:
    hvm = found.options.get("type") == "hvm"
    if hvm and values.get("xen_platform_pci", "1") == "0":
        found.options["devices"] = "emulated"
    for number, each in enumerate(listed, start=1):
        if number > 1:
            found.leave(f"network interface {number}", "a machine of Tare's has one")
            continue
        card = Values("vif", pairs(each, "") if isinstance(each, str) else {})
        model = card.get("model", "")
        if hvm and model in ("e1000", "rtl8139") and card.get("type", "") == "ioemu":
            # With Xen's own drivers, a Linux guest unplugs the emulated card.
            if found.options.get("devices") == "emulated":
                found.options["nic"] = model
            else:
                found.leave(f"vif model={model}", "the guest's kernel takes Xen's own card")
        elif model:
            found.leave(f"vif model={model}", "Xen's own card is taken")
        card.skip("mac", "bridge", "script", "vifname", "ip", "on", "")
        found.close(card)


Value = str | list["Value"]
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<end>[\n;])
    |(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)
    |(?P<number>[+-]?(?:0[xX][0-9A-Fa-f]+|[0-9]+))
    |(?P<string>'[^'\n]*'|"[^"\n]*"|'''.*?'''|\"\"\".*?\"\"\")
    |(?P<sign>\+=|[=\[\],()])""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST = 20


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def parse_settings(text: str) -> dict[str, Value]:
    """Parse the settings of a guest's file, and return them by name.

    Raises:
        ValueError: The file's syntax is invalid; the message names the line.
    """
    return _Parser(_tokens(text)).settings()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place, line = 0, 1
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"line {line} is not `name = value` of xl.cfg")
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, found[0], line))
        line += found[0].count("\n")
        place = found.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def settings(self) -> dict[str, Value]:
        """Return all settings."""
        settings: dict[str, Value] = {}
        while (token := self._next()) is not None:
            if token.kind == "end":
                continue
            sign = self._next()
            if token.kind != "name" or sign is None or sign.text not in ("=", "+="):
                raise ValueError(f"line {token.line} is not `name = value` of xl.cfg")
            value = self._value(token.line, 0)
            held = settings.get(token.text)
            if sign.text == "+=" and held is not None:
                value = _joined(held, value)
            settings[token.text] = value
            end = self._next()
            if end is not None and end.kind != "end":
                raise ValueError(f"line {end.line}: only one value for `{token.text}`")
        return settings

    def _next(self) -> _Token | None:
        if self._place >= len(self._tokens):
            return None
        self._place += 1
        return self._tokens[self._place - 1]

    def _value(self, line: int, depth: int) -> Value:
        token = self._next()
        if token is None or depth > _DEEPEST:
            raise ValueError(f"line {line} has no value")
        if token.kind == "string":
            quotes = 3 if token.text[:3] in ("'''", '"""') and len(token.text) >= 6 else 1
            return token.text[quotes:-quotes]
        if token.kind in ("number", "name"):
            return token.text
        if token.text not in ("[", "("):
            raise ValueError(f"line {token.line} has no value in xl.cfg's syntax")
        return self._list(token, depth)

    def _list(self, opened: _Token, depth: int) -> Value:
        values: list[Value] = []
        closing = {"[": "]", "(": ")"}[opened.text]
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.kind == "end" or token.text == ",":
                self._place += 1
            elif token.text == closing:
                self._place += 1
                return values
            else:
                values.append(self._value(opened.line, depth + 1))
        raise ValueError(f"line {opened.line}: the list does not end")


def _joined(held: Value, more: Value) -> Value:
    if isinstance(held, list):
        return [*held, *(more if isinstance(more, list) else [more])]
    return held + more if isinstance(more, str) else more
