"""What identifies a host in a report; nothing personal."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 30.0


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
    }


def _cpu_model(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*: *(.*)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else ""


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
