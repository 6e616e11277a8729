"""What identifies a host in a report; nothing personal."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 30.0
MACHINE_ID = "/etc/machine-id"
COMPUTER = "computer"
"""The fact that tells one installed computer from its twin; see :func:`computer_of`."""


def computer_of(machine_id: str) -> str:
    """Return what tells a computer from others of its kind, without saying which one it is.

    The id itself is confidential; machine-id(5) has programs show a keyed hash of it instead.

    Args:
        machine_id: What is in ``/etc/machine-id``.

    Returns:
        Twelve hexadecimal digits; empty where there is no id.
    """
    known = machine_id.strip()
    if not re.fullmatch(r"[0-9a-f]{32}", known):
        return ""
    return hmac.new(known.encode(), b"tare", hashlib.sha256).hexdigest()[:12]


def host_facts() -> dict[str, Any]:
    """Return what identifies this computer in a report; nothing personal."""
    system = platform.uname()
    return {
        "kernel": system.release,
        "machine": system.machine,
        "cpu_model": _cpu_model(Path("/proc/cpuinfo").read_text()) or platform.processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": _os_name(),
        **_named(_own_machine_id()),
    }


async def facts_afar(host: Host) -> dict[str, Any]:
    """Return the same of a host that is reached over SSH, and its name."""

    async def text(path: str) -> str:
        try:
            return (await host.read(path)).decode(errors="replace")
        except OSError:
            return ""

    cpuinfo = await text("/proc/cpuinfo")
    memory = re.search(r"^MemTotal:\s+(\d+) kB", await text("/proc/meminfo"), re.MULTILINE)
    system = re.search(
        r"^PRETTY_NAME=[\"']?([^\"'\n]*)", await text("/etc/os-release"), re.MULTILINE
    )
    machine = await host.run(["uname", "-m"], timeout_s=ASK_S)
    return {
        "name": host.name,
        "kernel": (await text("/proc/sys/kernel/osrelease")).strip(),
        "machine": machine.stdout.decode().strip(),
        "cpu_model": _cpu_model(cpuinfo),
        "cpus": len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "os": system[1] if system else "",
        **_named(await text(MACHINE_ID)),
    }


def _named(machine_id: str) -> dict[str, str]:
    found = computer_of(machine_id)
    return {COMPUTER: found} if found else {}


def _own_machine_id() -> str:
    try:
        return Path(MACHINE_ID).read_text()
    except OSError:
        return ""


def _cpu_model(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*: *(.*)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else ""


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
