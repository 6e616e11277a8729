"""Facts that identify a host in a report, without personal data, and its caches."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.units import SIZE_UNITS

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 30.0
MACHINE_ID = "/etc/machine-id"
CACHES = "/sys/devices/system/cpu/cpu0/cache"
MOST_LEVELS = 10
COMPUTER = "computer"
"""The fact that distinguishes an installed computer from its twin; see :func:`computer_of`."""


def computer_of(machine_id: str) -> str:
    """Return a digest that distinguishes a computer without identifying it.

    The id itself is confidential; machine-id(5) asks programs to show a keyed hash instead.

    Args:
        machine_id: The content of ``/etc/machine-id``.

    Returns:
        Twelve hexadecimal digits; empty if there is no id.
    """
    known = machine_id.strip()
    if not re.fullmatch(r"[0-9a-f]{32}", known):
        return ""
    return hmac.new(known.encode(), b"tare", hashlib.sha256).hexdigest()[:12]


def host_facts() -> dict[str, Any]:
    """Return the facts that identify this computer in a report."""
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


async def remote_host_facts(host: Host) -> dict[str, Any]:
    """Return the facts that identify a remote host in a report, with its name."""

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


@dataclass(frozen=True)
class Caches:
    """Bytes of one last-level cache, and of all data caches that one CPU reaches."""

    last_level: int | None
    together: int | None


async def find_caches(host: Host) -> Caches:
    """Read the cache hierarchy of the host's first CPU (Linux, sysfs-devices-system-cpu)."""
    sizes: dict[int, int] = {}
    for index in range(MOST_LEVELS):
        try:
            kind, level, size = [
                (await host.read(f"{CACHES}/index{index}/{name}")).decode().strip()
                for name in ("type", "level", "size")
            ]
        except OSError:
            break
        if kind != "Instruction":
            sizes[int(level)] = int(size.removesuffix("K")) * SIZE_UNITS["KiB"]
    if not sizes:
        return Caches(None, None)
    return Caches(sizes[max(sizes)], sum(sizes.values()))
