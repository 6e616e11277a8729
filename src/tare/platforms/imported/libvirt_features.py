"""What a domain's ``features`` and ``clock`` mean for QEMU's ``-cpu``.

Source: libvirt's src/qemu/qemu_command.c, qemuBuildCpuFeature and qemuBuildCpuCommandLine.
"""

from __future__ import annotations

from tare.platforms.imported.ledger import Node
from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import whole

_ON = "on"
_HYPERV = {
    "relaxed": "hv-relaxed",
    "vapic": "hv-vapic",
    "vpindex": "hv-vpindex",
    "runtime": "hv-runtime",
    "synic": "hv-synic",
    "reset": "hv-reset",
    "frequencies": "hv-frequencies",
    "reenlightenment": "hv-reenlightenment",
    "tlbflush": "hv-tlbflush",
    "ipi": "hv-ipi",
    "evmcs": "hv-evmcs",
    "avic": "hv-avic",
    "emsr_bitmap": "hv-emsr-bitmap",
    "xmm_input": "hv-xmm-input",
    "stimer": "hv-stimer",
}
_INNER = {
    ("stimer", "direct"): "hv-stimer-direct",
    ("tlbflush", "direct"): "hv-tlbflush-direct",
    ("tlbflush", "extended"): "hv-tlbflush-ext",
}
_KVM = {
    "hint-dedicated": "kvm-hint-dedicated",
    "poll-control": "kvm-poll-control",
    "pv-ipi": "kvm-pv-ipi",
}
_TIMERS = {"kvmclock": "kvmclock", "hypervclock": "hv-time"}


def processor_flags(found: Found, root: Node) -> list[str]:
    """Return the flags in QEMU's words that other parts of a domain add to the processor's.

    Args:
        found: Takes what is none of them.
        root: The element ``domain``.
    """
    flags: list[str] = []
    features = root.find("features")
    if features is not None:
        for part in features.all("hyperv"):
            flags += _hyperv(part)
        for part in features.all("kvm"):
            flags += _kvm(part)
        for part in features.all("pvspinlock"):
            flags.append(f"kvm-pv-unhalt={part.get('state', _ON)}")
        for part in features.parts:
            if part.tag == "apic" and part.get("eoi"):
                flags.append(f"kvm-pv-eoi={part.get('eoi')}")
    return flags + _clock(root)


def _hyperv(part: Node) -> list[str]:
    if part.get("mode") == "passthrough":
        return ["hv-passthrough=on"]
    flags = []
    for each in part.parts:
        if each.tag == "spinlocks":
            retries = whole(each.get("retries", "4095"))
            if each.get("state", _ON) == _ON and retries is not None:
                flags.append(f"hv-spinlocks={retries:#x}")
        elif each.tag == "vendor_id":
            if each.get("state", _ON) == _ON:
                flags.append(f"hv-vendor-id={each.get('value')}")
        elif each.tag in _HYPERV:
            on = each.get("state", _ON)
            flags.append(f"{_HYPERV[each.tag]}={on}")
            for inner in each.parts:
                if (flag := _INNER.get((each.tag, inner.tag))) is not None:
                    flags.append(f"{flag}={inner.get('state', _ON)}")
    return flags


def _kvm(part: Node) -> list[str]:
    flags = []
    for each in part.parts:
        if each.tag == "hidden":
            flags += ["kvm=off"] if each.get("state") == _ON else []
        elif each.tag in _KVM:
            flags.append(f"{_KVM[each.tag]}={each.get('state', _ON)}")
    return flags


def _clock(root: Node) -> list[str]:
    """Return the flags of the timers that are a part of the processor; the others are listed."""
    flags = []
    for clock in (each for each in root.parts if each.tag == "clock"):
        for timer in clock.parts:
            flag = _TIMERS.get(timer.peek("name")) if timer.peek("present") else None
            if flag is not None:
                clock.touched = True
                timer.get("name")
                flags.append(f"{flag}={'on' if timer.get('present') == 'yes' else 'off'}")
    return flags
