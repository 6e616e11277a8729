"""Distinguish QEMU arguments that affect only QEMU from those that reach its host.

QEMU has some 150 options, and new ones with every version. This module therefore lists the options
known to be harmless. Any other option counts as reaching the host: it may run programs, listen, or
open files.
The syntax is that of qemu(1): ``-option`` or ``--option``, mostly with one argument of the form
``first,key=value,key=value``, where ``,,`` stands for a comma.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tare.platforms.statement import HostAccess

_ALONE = frozenset(
    {"S", "enable-kvm", "mem-prealloc", "no-acpi", "no-fd-bootchk", "no-hpet", "usb"}
)
"""Options without an argument."""
_WORDS = frozenset(
    {
        *("accel", "action", "boot", "cpu", "icount", "m", "machine", "M", "numa", "overcommit"),
        *("rtc", "seed", "smbios", "smp", "uuid", "vga", "watchdog-action"),
    }
)
"""Options whose argument is harmless unless one of its keys is among :data:`_KEYS`."""
_NAMED = {
    "object": re.compile(
        r"iothread|main-loop|memory-backend-(ram|memfd)|rng-builtin|thread-context|throttle-group"
    ),
    "device": re.compile(
        r"virtio-(balloon|blk|crypto|iommu|keyboard|mem|mouse|net|rng|scsi|serial|tablet)"
        r"(-(ccw|device|pci|pci-transitional|pci-non-transitional))?"
        r"|e1000e?|rtl8139|tulip|vmxnet3|igb|ne2k_pci|pcnet|i8255\d[a-c]?"
        r"|pcie-(root-port|pci-bridge)|pci-bridge|ioh3420|pxb(-pcie)?|x3130-upstream"
        r"|xio3130-downstream|(intel|amd)-iommu|ahci|nvme|ide-hd|scsi-hd|lsi53c895a|mptsas1068"
        r"|megasas|pvscsi|(qemu|nec-usb)-xhci|(ich9-)?usb-[eu]hci\d?|piix3-usb-uhci"
        r"|usb-(kbd|mouse|tablet|hub)|pvpanic(-pci)?|i6300esb|ib700|vmcoreinfo|vmgenid"
        r"|hyperv-testdev|pc-dimm|pc-testdev|edu"
    ),
    "global": re.compile(r"[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+"),
    "serial": re.compile(r"none|null"),
    "parallel": re.compile(r"none|null"),
    "monitor": re.compile(r"none|null"),
    "display": re.compile(r"none"),
    "fw_cfg": re.compile(r"(name=)?opt/[A-Za-z0-9/._-]+"),
}
"""Options that are harmless if their argument begins with a match of the pattern."""
_KEYS = re.compile(
    r"(.*[._-])?(bios|chardev|device|dtb|dumpdtb|exec|fd|fds|fdset|file|filename|firmware|helper"
    r"|host|hostaddr|hostbus|hostport|initrd|kernel|listen|log|logfile|password|path|pflash\d?"
    r"|plugin|rom|romfile|rootdir|rr|rrfile|rrsnapshot|script|server|shm|socket|splash|sysfsdev"
    r"|tls-creds|url|vhostfd|vhostfds|vhostforce)"
)
"""Keys that name something on the host, in whatever option they occur."""


def passed_on(words: Sequence[str]) -> tuple[HostAccess, ...]:
    """Return the arguments of a study's ``extra-args`` that reach the host."""
    effect = "may run programs, listen, or open files on the host"
    return tuple(HostAccess("extra-args", each, effect) for each in host_arguments(words))


def host_arguments(words: Sequence[str]) -> tuple[str, ...]:
    """Return those of QEMU's arguments that are not known to be harmless to its host.

    Args:
        words: Arguments, word by word, as in a study's ``extra-args``.

    Returns:
        Each such option with its argument, in the study's spelling.
    """
    return tuple(_reaching(list(words)))


def _reaching(left: list[str]) -> Iterator[str]:
    while left:
        word = left.pop(0)
        # The word after an unknown option belongs to it, unless it is itself an option.
        name = word.removeprefix("-").removeprefix("-") if word.startswith("-") else ""
        if name in _ALONE:
            continue
        takes = name in _WORDS or name in _NAMED
        if takes and not left:
            # QEMU would take the next argument for this one's value, and that argument is Tare's.
            yield f"{word} (without its argument)"
            continue
        value = left.pop(0) if left and (takes or not left[0].startswith("-")) else ""
        if not takes or not _harmless(name, value):
            yield f"{word} {value}".rstrip()


def _harmless(name: str, value: str) -> bool:
    # An argument in JSON could hide a key from this parser, and none is needed.
    if value.startswith(("{", "-")) or not value.isprintable():
        return False
    first, *rest = _parts(value)
    known = _NAMED.get(name)
    if known is not None and name != "global":
        # QEMU accepts `driver=` and `qom-type=` anywhere; this parser only in the first place.
        if not known.fullmatch(first.removeprefix("driver=").removeprefix("qom-type=")):
            return False
    elif name == "global":
        key, _, what = first.partition("=")
        return not rest and bool(known and known.fullmatch(key)) and _stays(key, what)
    else:
        rest = [first, *rest]
    if any(key in ("driver", "qom-type") for key, _, _ in (part.partition("=") for part in rest)):
        return False
    return all(_stays(*_pair(part)) for part in rest)


def _pair(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    return (key, value) if equals else ("", key)


def _stays(key: str, value: str) -> bool:
    """Check that a property names nothing on the host; an empty value switches a property off."""
    if not value:
        return True
    return _KEYS.fullmatch(key) is None and "/" not in value


def _parts(value: str) -> list[str]:
    """Split at single commas; a double comma stands for one comma in the text."""
    return [part.replace("\0", ",") for part in value.replace(",,", "\0").split(",")]
