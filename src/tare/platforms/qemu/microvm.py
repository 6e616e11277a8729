"""Timekeeping of a guest on `microvm` if QEMU emulates its processor.

That machine type has no timer with which a kernel can measure the frequency of the processor's
counter (TSC): its ACPI reports that the old hardware is missing. KVM passes the frequency to
guests, but TCG does not. TCG's counter is the host's own, so the guest gets the frequency that the
host's kernel knows.

There is also no steadier clock to check the counter against. The kernel would compare it with its
ticks, and then use those (``refined-jiffies``). An emulator that waits for a CPU loses some of the
ticks. So the kernel is set to trust the counter. If that is wrong, Tare's comparison with the
host's clock shows it.
"""

from __future__ import annotations

import re

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.qemu.disk_options import MICROVM
from tare.platforms.qemu.options import QemuOptions

_SCALED = "/sys/devices/system/cpu/cpu0/cpufreq"
_MHZ = re.compile(rb"^cpu MHz\s*:\s*(\d+)\.(\d{3})$", re.MULTILINE)


def needs_frequency(options: QemuOptions) -> bool:
    """Check whether Tare must give the guest the frequency of its counter."""
    return options.machine == MICROVM and options.accelerator == "tcg"


async def counter_khz(host: Host) -> int | None:
    """Return the frequency of the host's counter, in kHz; None if its kernel does not show it.

    ``/proc/cpuinfo`` shows the counter's frequency if the processor's frequency is not scaled, and
    otherwise the processor's present frequency (arch/x86/kernel/cpu/proc.c).
    """
    if await host.exists(_SCALED):
        return None
    found = _MHZ.search(await host.read("/proc/cpuinfo"))
    return int(found[1] + found[2]) if found else None


async def lacking_frequency(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return the problem and its fix if a guest needs the frequency and the host hides it."""
    if not needs_frequency(options) or await counter_khz(host) is not None:
        return None
    return (
        "`machine: microvm` under tcg: the host does not report its TSC's frequency, because its "
        "processor's frequency is scaled",
        "use `accelerator: kvm`, or `machine: q35`",
    )


async def frequency_words(host: Host, options: QemuOptions) -> tuple[str, ...]:
    """Return the guest kernel's arguments for its counter; empty if it needs none.

    Raises:
        MachineFault: The host does not report the frequency.
    """
    if not needs_frequency(options):
        return ()
    khz = await counter_khz(host)
    if khz is None:
        raise MachineFault("the host does not report its TSC's frequency", "use another `machine`")
    return (f"tsc_early_khz={khz}", "tsc=reliable")
