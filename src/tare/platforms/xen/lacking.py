"""What a host lacks for domains of Xen's, before any is started."""

from __future__ import annotations

import contextlib

from tare.errors import InputError, MachineFault, heard
from tare.hosts import Host
from tare.platforms.xen import toolstack as xen

LOOK_S = 20.0
_DOM0 = "control_d"
_SERVICES = "systemctl start xenstored xenconsoled xen-init-dom0"
_NO_XEN = "this host does not run under Xen"


async def not_dom0(host: Host) -> tuple[str, str] | None:
    """Return why a host is no dom0 of Xen's, and what to do; None where it is one."""
    try:
        kind = (await host.read("/sys/hypervisor/type")).decode().strip()
    except OSError:
        kind = ""
    if kind != "xen":
        return _NO_XEN, xen.INSTALL
    with contextlib.suppress(OSError):
        if _DOM0 in (await host.read("/proc/xen/capabilities")).decode():
            return None
        return "this host is itself a guest of Xen, not its control domain (dom0)", ""
    return "/proc/xen is not mounted", "mount -t xenfs xenfs /proc/xen"


async def no_xenstored(host: Host) -> tuple[str, str] | None:
    """Return why Xen's toolstack would not answer, and what to do; None where it would."""
    try:
        said = await host.run(["xenstore-read", "domid"], timeout_s=LOOK_S)
    except InputError:
        return "Xen's tools are not installed here: there is no xenstore-read", xen.INSTALL
    except MachineFault as fault:
        if "did not end" not in fault.message:
            raise
        return "xenstored does not answer: Xen's toolstack is not running", _SERVICES
    if not said.ok and b"omid" not in said.stderr:
        return "xenstored does not answer", heard(_SERVICES, "xenstore-read", said.words())
    return None


async def no_device_model(host: Host) -> tuple[str, str] | None:
    """Return that there is no QEMU for HVM guests, and what to do; None where there is one."""
    for path in ("/usr/libexec/xen-qemu-system-i386", "/usr/lib/xen/bin/qemu-system-i386"):
        if await host.exists(path):
            return None
    shown = await host.run(["sh", "-c", "command -v qemu-system-i386 xen-qemu-system-i386"])
    if shown.stdout.strip():
        return None
    return (
        "there is no QEMU for Xen, which emulates a HVM guest's devices",
        "apt-get install --no-remove qemu-system-xen",
    )
