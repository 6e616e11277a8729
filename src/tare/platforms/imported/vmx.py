"""Import VMware's file of a virtual machine, ``.vmx``."""

from __future__ import annotations

import re

from tare.platforms.imported.cpu_tuning import OWN_CPU
from tare.platforms.imported.model import BOOTS, FIRMWARE, Description, Disk
from tare.platforms.imported.notes import Values
from tare.platforms.imported.parsing import bytes_of, parse_whole_number

_LINE = re.compile(r'\s*([A-Za-z0-9_.:|-]+)\s*=\s*"([^"]*)"\s*')
_SLOT = re.compile(r"(scsi|sata|ide|nvme)(\d+):(\d+)\.(.+)", re.IGNORECASE)
_CARD = re.compile(r"ethernet(\d+)\.(.+)", re.IGNORECASE)
_ADAPTER = re.compile(r"(scsi|sata|ide|nvme)(\d+)\.(.+)", re.IGNORECASE)
_TRUE = frozenset({"true", "yes", "1"})
_ASIDE = re.compile(
    r"(?:\.encoding|config\.version|virtualhw\.|displayname|guestos.*|guestinfo\..*|annotation"
    r"|uuid\..*|vc\.uuid|nvram|svga\..*|mks\..*|remotedisplay\..*|usb.*|ehci.*|sound\..*|floppy.*"
    r"|serial\d+.*|parallel\d+.*|tools\..*|toolscripts.*|pcibridge\d.*|vmci\d.*|hpet0\..*|msg\..*"
    r"|extendedconfigfile|checkpoint\..*|policy\..*|cleanshutdown|softpoweroff|powertype\..*"
    r"|gui\..*|isolation\..*|vmotion\..*|migrate\..*|replay\..*|workingdir|scsi\d+\.pcislotnumber"
    r"|.*\.pcislotnumber|.*\.addresstype|.*\.generatedaddress.*|.*\.networkname|.*\.bsname"
    r"|cpuid\.[0-9a-f]+\..*|cpuid\.numsmt|encryption\..*|vmotion.*|sched\.swap\.dername"
    r"|log\..*|viv\..*|debugstub.*|tpm\..*|managedvm\..*|keyboard.*|bios\..*|unity\..*|vc\..*"
    r"|.*\.redo|.*\.startconnected|.*\.devicetype|.*\.uptcompatibility|.*\.wakeonpcktrcv"
    r"|.*\.dvs\..*|.*\.linkstatepropagation.*|.*\.connectiontype|.*\.vnet|.*\.displayname"
    r"|numa\.autosize.*|storage\..*|toolsinstall.*|ctkenabled|snapshot\..*|vmxstats.*|.*\.ctkenabled"
    r"|.*\.address|.*\.allowguestconnectioncontrol|inventory.*|proxyapps\..*|annotation.*|time\..*)",
    re.IGNORECASE,
)
"""Settings that have no effect on measurements; the values of some of them are secrets."""
_ADAPTERS = {"ide": "ide", "sata": "sata", "nvme": "nvme"}
_USUAL = frozenset(
    {("sched.cpu.min", "0"), ("sched.cpu.shares", "normal"), ("sched.mem.min", "0")}
    | {
        ("sched.mem.shares", "normal"),
        ("sched.cpu.max", "unlimited"),
        ("sched.cpu.affinity", "all"),
    }
)


def is_vmx(text: str) -> bool:
    """Return whether a text looks like such a file."""
    keys = {found[1].lower() for line in text.splitlines() if (found := _LINE.fullmatch(line))}
    return bool(keys & {"virtualhw.version", "memsize", "numvcpus", "guestos", "config.version"})


def read_vmx(text: str) -> Description:
    """Convert a machine's file to a description.

    Raises:
        ValueError: A line does not have the file's syntax.
    """
    values = Values("", _values(text))
    found = Description(described=True, name=values.get("displayname", ""))
    found.options["accelerator"] = "kvm"
    found.vcpus = parse_whole_number(values.get("numvcpus", "1")) or 1
    found.memory = bytes_of(values.get("memsize", ""), 1 << 20)
    if found.memory is None:
        found.leave("memsize", "it is not given: Tare's own is taken")
    cores = parse_whole_number(values.get("cpuid.corespersocket", "1"))
    if cores not in (None, 1, found.vcpus):
        found.leave(f"cpuid.coresPerSocket {cores}", "all vCPUs are in one socket")
    if values.get("firmware", "bios").lower() == "efi":
        found.leave(*FIRMWARE)
    found.leave(*BOOTS)
    _scheduling(found, values)
    _disks(found, values)
    _cards(found, values)
    found.close_each(values, _why)
    return found


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f'line {number} is not `name = "value"` of a .vmx file')
        values[found[1].lower()] = found[2]
    return values


def _why(key: str, value: str) -> str | None:
    if _ASIDE.fullmatch(key) or (key, value.lower()) in _USUAL:
        return None
    if key.startswith(("sched.", "numa.")):
        return "VMware's scheduler has other units: write `scheduling`"
    return ""


def _scheduling(found: Description, values: Values) -> None:
    affinity = values.get("sched.cpu.affinity", "all")
    if affinity.lower() != "all":
        found.leave(f"vCPUs on CPUs {affinity}", OWN_CPU)
    latency = values.get("sched.cpu.latencysensitivity", "normal")
    if latency.lower() != "normal":
        found.leave(f"latency sensitivity {latency}", "write a pinned scenario and `cpu-pm: true`")
    if values.get("sched.mem.pin", "false").lower() in _TRUE:
        found.options["mlock"] = True
    if values.get("sched.mem.lpage.enable1gpage", "false").lower() in _TRUE:
        found.huge_pages(1 << 30)


def _disks(found: Description, values: Values) -> None:
    slots: dict[tuple[str, int, int], dict[str, str]] = {}
    for key in values:
        if (slot := _SLOT.fullmatch(key)) is not None:
            place = (
                slot[1].lower(),
                parse_whole_number(slot[2]) or 0,
                parse_whole_number(slot[3]) or 0,
            )
            slots.setdefault(place, {})[slot[4].lower()] = key
    for (kind, number, unit), keys in sorted(slots.items()):
        held = {name: values[key] for name, key in keys.items() if name in _OF_SLOT}
        if held.get("present", "true").lower() not in _TRUE:
            continue
        name = f"{kind}{number}:{unit}"
        type_of = held.get("devicetype", "").lower()
        file = held.get("filename", "")
        if "cdrom" in type_of or file.lower().endswith(".iso") or file == "auto detect":
            found.set_aside(f"{name} (a CD)")
            continue
        disk = Disk(_bus(found, values, kind, number))
        found.add_disk(disk)
        if not file.lower().endswith(".vmdk"):
            disk.leave(f"{name} is not a .vmdk file", "a raw file is taken")


_OF_SLOT = frozenset({"present", "devicetype", "filename"})


def _bus(found: Description, values: Values, kind: str, number: int) -> str:
    if kind in _ADAPTERS:
        return _ADAPTERS[kind]
    model = values.get(f"scsi{number}.virtualdev", "lsilogic")
    if model.lower() == "pvscsi":
        found.leave("disk controller pvscsi", "virtio-scsi is taken")
        return "scsi"
    found.leave(f"disk controller {model}", "Tare has no such emulated controller")
    return "sata"


def _cards(found: Description, values: Values) -> None:
    numbers = sorted(
        {parse_whole_number(card[1]) or 0 for key in values if (card := _CARD.fullmatch(key))}
    )
    for number in numbers:
        if values.get(f"ethernet{number}.present", "true").lower() in _TRUE:
            # The default is VMware's oldest card, which no platform of Tare has.
            found.add_nic(values.get(f"ethernet{number}.virtualdev", "vlance").lower())
    for key in values:
        if (adapter := _ADAPTER.fullmatch(key)) is not None and adapter[3].lower() == "present":
            values.skip(key)
