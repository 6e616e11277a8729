"""Guests whose kernel stops its tick where one thread runs alone: ``nohz_full``.

Source: the kernel's Documentation/timers/no_hz.rst and kernel/time/tick-sched.c. The first CPU
keeps its tick, for the kernel's own time; work that is measured goes to the others.
"""

from __future__ import annotations

from pathlib import Path

from tare.errors import InputError
from tare.images.guest_image import GuestImage

_BUILT = b"Full dynticks CPUs"
"""What tick_nohz_init says, which is compiled with CONFIG_NO_HZ_FULL only."""
LEAST_VCPUS = 2


def tickless_cpus(wanted: bool, vcpus: int) -> tuple[int, ...]:
    """Return the guest's CPUs whose tick is to stop, and on which it works; empty if none."""
    return tuple(range(1, vcpus)) if wanted else ()


def tickless_arguments(wanted: bool, vcpus: int) -> tuple[str, ...]:
    """Return the kernel arguments for that."""
    if not wanted:
        return ()
    cpus = "1" if vcpus == LEAST_VCPUS else f"1-{vcpus - 1}"
    # Without the second, callbacks of RCU would wake the tick again.
    return (f"nohz_full={cpus}", f"rcu_nocbs={cpus}")


def require_tickless(wanted: bool, image: GuestImage, vcpus: int) -> None:
    """Refuse what cannot be: a guest of one CPU, or a kernel that was not built for it.

    Raises:
        InputError: The reason, and what to write instead.
    """
    if not wanted:
        return
    if vcpus < LEAST_VCPUS:
        raise InputError(
            "`nohz-full` needs two vCPUs: the first one keeps the tick",
            "give the arm `shape: {vcpus: 2}`, or remove `nohz-full`",
        )
    packed = image.boot_kernel == image.kernel
    if packed or not built_for_it(image.boot_kernel):
        # Why it could not be unpacked is in its notes.
        unread = f" ({' '.join(image.notes)})" if packed else ""
        raise InputError(
            f"the kernel {image.kernel_version} is not known to be built with CONFIG_NO_HZ_FULL"
            f"{unread}",
            "name one that is, by `kernel:`, or remove `nohz-full`",
        )


def built_for_it(kernel: Path) -> bool:
    """Return whether an uncompressed kernel can stop the tick of a CPU that is not idle."""
    return _BUILT in kernel.read_bytes()
