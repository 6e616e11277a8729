"""What lies below a host's kernel, and how an arm is marked that measures there all the same."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tare.errors import InputError
from tare.platforms.contract import ANY_BOOT, NO_HYPERVISOR
from tare.study.releases import release_words

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.platforms.contract import Platform
    from tare.study.releases import Release

XEN = "Xen"
AS_IT_IS = ""
"""The boot of a host that is never booted otherwise."""
IN_DOM0 = "in dom0 under Xen, not on the bare machine"
"""The mark of an arm that should run without a hypervisor below it, and cannot here."""
ASK_S = 30.0
_TYPE, _FEATURES = "/sys/hypervisor/type", "/proc/xen/capabilities"


@dataclass(frozen=True)
class Running:
    """What a host was seen to be booted with: ``none`` or ``xen``, and Xen's scheduler."""

    hypervisor: str
    scheduler: str = ""
    cpus: int = 0

    @property
    def words(self) -> str:
        """The hypervisor below the host's kernel; empty: none."""
        return XEN if self.hypervisor == "xen" else ""

    def is_(self, boot: str) -> bool:
        """Return whether machines that need ``boot`` can run now."""
        if boot == ANY_BOOT:
            return True
        kind, _, scheduler = boot.partition(":")
        if kind != "xen":
            return self.hypervisor == "none"
        return self.hypervisor == "xen" and scheduler in ("", self.scheduler)

    def __str__(self) -> str:
        if self.hypervisor == "none":
            return "no Xen"
        return f"Xen (scheduler {self.scheduler or 'unknown'})"


async def running(host: Host) -> Running:
    """Find out which hypervisor lies below the host's kernel, and how Xen schedules."""
    try:
        kind = (await host.read(_TYPE)).decode()
        features = (await host.read(_FEATURES)).decode() if kind.strip() == "xen" else ""
    except OSError:
        return Running("none")
    if not _is_dom0(kind, features):
        return Running("none")
    try:
        said = (await host.run(["xl", "info"], timeout_s=ASK_S)).stdout.decode(errors="replace")
    except InputError:
        said = ""
    told = dict(re.findall(r"^(\w+)\s*: *(.*)$", said, re.MULTILINE))
    return Running("xen", told.get("xen_scheduler", ""), int(told.get("nr_cpus") or 0))


def booted_here() -> str:
    """Return the hypervisor whose first domain this computer's kernel is; empty: none."""
    with contextlib.suppress(OSError):
        if _is_dom0(Path(_TYPE).read_text(), Path(_FEATURES).read_text()):
            return XEN
    return ""


def _is_dom0(kind: str, features: str) -> bool:
    # A guest of Xen is a host without a hypervisor of its own.
    return kind.strip() == "xen" and "control_d" in features


def marks(*of: str) -> str:
    """Return several marks of an arm as one; empty where there is none."""
    return " and ".join(filter(None, of))


def mark_of(platform: Platform[Any], options: Any, boot: str, hypervisor: str) -> str:
    """Return how an arm is marked on a host; empty where it runs as it should.

    Args:
        platform: The arm's platform.
        options: The arm's options.
        boot: How the host is booted for the arm.
        hypervisor: The hypervisor below the host's kernel, where it is not booted for the arm.
    """
    stated = platform.stated(options)
    _, _, release = boot.partition("@")
    if release and stated.emulated:
        words = release_words(cast("Release", release))
        return f"on the emulator of {words}, whose own speed is part of what is found"
    if stated.host_boot != NO_HYPERVISOR:
        return ""
    in_dom0 = boot.startswith("xen") or (boot in (ANY_BOOT, AS_IT_IS) and hypervisor == XEN)
    return IN_DOM0 if in_dom0 else ""
