"""Xen below the kernel of a host, which is then that of its first domain, dom0."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.platforms.host_hypervisor import Details, HostHypervisor

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 30.0


async def _asked(host: Host) -> Details:
    try:
        said = (await host.run(["xl", "info"], timeout_s=ASK_S)).stdout.decode(errors="replace")
    except InputError:
        said = ""
    told = dict(re.findall(r"^(\w+)\s*: *(.*)$", said, re.MULTILINE))
    return Details(told.get("xen_scheduler", ""), int(told.get("nr_cpus") or 0))


XEN = HostHypervisor(
    word="xen",
    name="Xen",
    # A guest of Xen has the first file too, and is a host without a hypervisor of its own.
    signs=MappingProxyType({"/sys/hypervisor/type": "xen", "/proc/xen/capabilities": "control_d"}),
    mark="in dom0 under Xen, not on the bare machine",
    details=_asked,
)
