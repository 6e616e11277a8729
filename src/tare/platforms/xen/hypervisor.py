"""Xen as the hypervisor below a host's kernel: its signs, and the facts that it reports.

This is a separate module, because every run looks for Xen, but few use its platform.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.platforms.host_hypervisor import Details, HostHypervisor

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 30.0


async def _read_details(host: Host) -> Details:
    try:
        answer = (await host.run(["xl", "info"], timeout_s=ASK_S)).stdout.decode(errors="replace")
    except InputError:
        answer = ""
    facts = dict(re.findall(r"^(\w+)\s*: *(.*)$", answer, re.MULTILINE))
    return Details(facts.get("xen_scheduler", ""), int(facts.get("nr_cpus") or 0))


XEN = HostHypervisor(
    word="xen",
    name="Xen",
    # A guest of Xen has the first file too, but counts as a host without its own hypervisor.
    signs=MappingProxyType({"/sys/hypervisor/type": "xen", "/proc/xen/capabilities": "control_d"}),
    mark="in dom0 under Xen, not on the bare machine",
    details=_read_details,
)
