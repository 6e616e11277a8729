"""Convert QEMU's ``-cpu`` argument into the options ``cpu`` and ``enlightenments``.

Source of the names: QEMU's target/i386/cpu.c and docs/system/i386/hyperv.rst.
"""

from __future__ import annotations

from collections.abc import Iterable

from tare.platforms.imported.model import Description
from tare.platforms.imported.parsing import parse_whole_number
from tare.platforms.qemu.enlightenments import HYPERV_FLAGS, KVM_FLAGS, USUAL_HYPERV

CPU_OF_QEMU = "qemu64"
"""QEMU's default processor of x86 machines, also with KVM."""
SPINLOCK_RETRIES = 0x1FFF
"""The number of spinlock retries in Tare's own Hyper-V enlightenments."""
NEWER_QEMU = frozenset({"cet-ibt", "cet-ss", "vmx-mbec"})
"""Features that only QEMU 11 and later know; Proxmox removes them with such a QEMU."""
OTHER_NAMES = {
    "hv-apicv": "hv-avic",
    "hv-tsc": "hv-time",
    "kvm-steal-tm": "kvm-steal-time",
}
PROPERTIES = frozenset({"migratable", "host-phys-bits", "pmu", "host-cache-info", "l3-cache"})
"""Switches of a processor that are not processor features."""
ON, OFF = frozenset({"on", "yes", "true", ""}), frozenset({"off", "no", "false"})


def take_processor(found: Description, words: str) -> None:
    """Import the value of ``-cpu``.

    Args:
        found: The description read so far; its accelerator must be known.
        words: The value, such as ``host,-pcid,hv_relaxed``; empty: QEMU's default processor.
    """
    model, *flags = (words or CPU_OF_QEMU).split(",")
    take_model(found, model, flags)


def take_model(found: Description, model: str, flags: Iterable[str]) -> None:
    """Import a processor's model, and its flags in QEMU's syntax.

    Args:
        found: The description read so far; its accelerator must be known.
        model: The model by QEMU's name.
        flags: The flags, such as ``+aes``, ``pcid=off``, ``hv_relaxed``.
    """
    plain: dict[str, str] = {}
    hypervisor: dict[str, bool] = {}
    kvm = found.options.get("accelerator", "kvm") == "kvm"
    for flag in flags:
        name, value = _parted(flag)
        if name == "kvm" and value in ON | OFF:
            if value in OFF and kvm:
                found.options.setdefault("enlightenments", {})["kvm"] = False
            found.carry(f"CPU {name}")
        elif name.startswith(("hv-", "kvm")):
            _enlightenment(found, name, value, hypervisor)
        elif name in NEWER_QEMU and value in OFF:
            found.leave(f"CPU {flag}", "QEMU before version 11 does not know this feature")
        elif name in ("enforce", "check"):
            found.leave(f"CPU {name}", "QEMU leaves out the features that this host's CPU lacks")
        elif flag:
            plain[name] = _spelled(name, value)
            found.carry(f"CPU {flag}")
    _take_hypervisor(found, hypervisor, kvm=kvm)
    # The order is canonical, so that one processor has one spelling.
    words = [model, *sorted(plain.values(), key=lambda word: word.lstrip("+-"))]
    found.carry(f"CPU {model}")
    if words == ["host", "migratable=on"]:
        # This is QEMU's default.
        words = ["host"]
    if words in (["max"], ["host", "migratable=off"]) or not model:
        # This is Tare's default.
        found.options.pop("cpu", None)
    else:
        found.options["cpu"] = ",".join(words)


def _parted(flag: str) -> tuple[str, str]:
    name, _, value = flag.lstrip("+-").partition("=")
    if flag.startswith("-"):
        value = "off"
    name = name.replace("_", "-") if name.startswith(("hv_", "kvm_", "kvmclock")) else name
    return OTHER_NAMES.get(name, name), value.lower() if value.lower() in ON | OFF else value


def _spelled(name: str, value: str) -> str:
    """Return a property in Tare's spelling: features with a sign, other properties with a value."""
    if value not in ON | OFF:
        return f"{name}={value}"
    if name in PROPERTIES:
        return f"{name}={'on' if value in ON else 'off'}"
    return f"{'+' if value in ON else '-'}{name}"


def _enlightenment(found: Description, name: str, value: str, into: dict[str, bool]) -> None:
    if name == "hv-passthrough" and value in ON:
        into.update(dict.fromkeys(USUAL_HYPERV, True))
        found.leave("CPU hv-passthrough", "the enlightenments that QEMU recommends are used")
    elif name == "hv-spinlocks":
        retries = _number(value)
        into.setdefault("hv-spinlocks", True)
        if retries != SPINLOCK_RETRIES:
            found.leave(f"CPU hv-spinlocks={value}", f"{SPINLOCK_RETRIES:#x} retries are used")
        else:
            found.carry("CPU hv-spinlocks")
    elif name in HYPERV_FLAGS + KVM_FLAGS and value in ON | OFF:
        into[name] = value in ON
        found.carry(f"CPU {name}")
    else:
        found.leave(f"CPU {name}={value}" if value else f"CPU {name}", "Tare has no option for it")


def _number(text: str) -> int | None:
    if text.startswith("0x") and len(text) <= 12:
        try:
            return int(text, 16)
        except ValueError:
            return None
    return parse_whole_number(text)


def _take_hypervisor(found: Description, flags: dict[str, bool], *, kvm: bool) -> None:
    """Import the enlightenments that the hypervisor announces to the guest."""
    if not flags:
        return
    if not kvm:
        found.leave(f"CPU {', '.join(flags)}", "enlightenments need KVM")
        return
    enlightenments = found.options.setdefault("enlightenments", {})
    hyperv = [name for name, on in flags.items() if on and name.startswith("hv-")]
    add: set[str] = set()
    remove: set[str] = set()
    if hyperv:
        enlightenments["hyperv"] = True
        add |= set(hyperv) - set(USUAL_HYPERV) - {"hv-spinlocks"}
        remove |= set(USUAL_HYPERV) - set(hyperv)
        if "hv-spinlocks" not in flags:
            found.leave("no hv-spinlocks", "Tare's Hyper-V enlightenments include it")
    own = {name: on for name, on in flags.items() if name.startswith("kvm")}
    if enlightenments.get("kvm", True):
        add |= {name for name, on in own.items() if on}
        remove |= {name for name, on in own.items() if not on}
    elif own:
        found.leave(f"CPU {', '.join(own)}", "no effect on a guest that does not see KVM")
    for key, names in (("add", add), ("remove", remove)):
        if names:
            enlightenments[key] = sorted(names)
    if not enlightenments:
        found.options.pop("enlightenments")
