"""The processor of a Proxmox VM, as Proxmox gives it to QEMU (PVE/QemuServer/CPUConfig.pm)."""

from __future__ import annotations

import re

from tare.platforms.imported.ledger import Said
from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import whole
from tare.platforms.imported.processor import take_model
from tare.platforms.imported.qemu_disks import pairs

_V2 = "+popcnt;+pni;+sse4.1;+sse4.2;+ssse3"
_V3 = f"+aes;{_V2};+avx;+avx2;+bmi1;+bmi2;+f16c;+fma;+abm;+movbe;+xsave"
_LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v2-AES": f"+aes;{_V2}",
    "x86-64-v3": _V3,
    "x86-64-v4": f"{_V3};+avx512f;+avx512bw;+avx512cd;+avx512dq;+avx512vl",
}
"""Proxmox's own models: QEMU's `qemu64` with these features."""
_RENAMED = {
    "Icelake-Client": "Icelake-Server",
    "Icelake-Client-noTSX": "Icelake-Server-noTSX",
}
_GENERIC = frozenset({"kvm32", "kvm64", "qemu32", "qemu64", "max", "host"})
_AMD = re.compile(r"athlon|phenom|Opteron|EPYC")
_WINDOWS = re.compile(r"win(\d{1,3})")
_OLD_WINDOWS = {"w2k8": 6, "wvista": 6, "wxp": 5, "w2k3": 5, "w2k": 5}
_SINCE_6 = ("hv_spinlocks=0x1fff", "hv_vapic", "hv_time", "hv_reset", "hv_vpindex", "hv_runtime")
_SINCE_7 = ("hv_relaxed", "hv_synic", "hv_stimer", "hv_ipi")


def take_processor_of_proxmox(found: Found, said: Said) -> None:
    """Take the processor: its model, and what Proxmox adds to it.

    Args:
        found: What was gathered; its accelerator must be known.
        said: The configuration.
    """
    kvm = found.options["accelerator"] == "kvm"
    default = "kvm64" if kvm else "qemu64"
    if said.get("arch", "x86_64") == "aarch64":
        default = "host" if kvm else "max"
    own = Said("cpu", pairs(said.get("cpu", default), "cputype"))
    model = own.get("cputype", default)
    level = _LEVELS.get(model, "")
    if level:
        model = "qemu64"
    elif model.startswith("custom-"):
        found.leave(f"CPU {model}", "its definition is in cpu-models.conf; kvm64 is taken")
        model = "kvm64"
    model = _RENAMED.get(model, model)
    intel = said.get("arch", "x86_64") == "x86_64"
    flags: dict[str, str] = {}
    if intel:
        for flag in (
            *_added(model, said, kvm=kvm),
            *level.split(";"),
            *own.get("flags", "").split(";"),
        ):
            flags[flag.lstrip("+-").partition("=")[0].replace("_", "-")] = flag
        if own.get("hidden", "0") == "1":
            flags["kvm"] = "kvm=off"
    elif own.get("flags", ""):
        found.leave("CPU flags", "they are those of another kind of processor")
    for name, property_of in (("level", "level"), ("guest-phys-bits",) * 2, ("phys-bits",) * 2):
        if value := own.get(name, ""):
            flags[name] = "host-phys-bits=true" if value == "host" else f"{property_of}={value}"
    if vendor := own.get("hv-vendor-id", ""):
        flags["hv-vendor-id"] = f"hv_vendor_id={vendor}"
    own.skip("reported-model")
    take_model(found, model, [flag for flag in flags.values() if flag])
    found.close(own)
    if intel and windows_version(said.get("ostype", "")) >= 11:
        found.leave(
            "CPU features that Proxmox chooses by its version for Windows 11",
            "QEMU 11 removes cet-ibt and cet-ss, and adds hv-evmcs on Intel's processors",
        )


def windows_version(ostype: str) -> int:
    """Return the version of Windows that a guest is said to have; 0 where it has another system."""
    found = _WINDOWS.fullmatch(ostype)
    return (whole(found[1]) or 0) if found else _OLD_WINDOWS.get(ostype, 0)


def _added(model: str, said: Said, *, kvm: bool) -> list[str]:
    """Return the flags that Proxmox adds by itself (get_pve_cpu_flags, get_cpu_options)."""
    flags = ["+lahf_lm"] if model == "kvm64" else []
    if said.get("ostype", "") == "solaris":
        flags.append("-x2apic")
    if model in ("kvm64", "kvm32"):
        flags.append("+sep")
    if model.startswith("Opteron"):
        flags.append("-rdtscp")
    if kvm:
        flags += ["+kvm_pv_unhalt", "+kvm_pv_eoi"]
        flags += _enlightenments(said)
    if kvm and model != "host":
        flags.append("enforce")
    if model not in _GENERIC:
        flags.append(f"vendor={'AuthenticAMD' if _AMD.match(model) else 'GenuineIntel'}")
    return flags


def _enlightenments(said: Said) -> list[str]:
    """Return what Proxmox offers to Windows (get_hyperv_enlightenments)."""
    version = windows_version(said.get("ostype", ""))
    if version < 6 or (said.get("bios", "") == "ovmf" and version < 8):
        return []
    passed = any("x-vga" in said[name] for name in said if name.startswith("hostpci"))
    vendor = ["hv_vendor_id=proxmox"] if passed else []
    return [*vendor, *_SINCE_6, *(_SINCE_7 if version >= 7 else ())]
