"""Guests whose kernel stops its tick while a single thread runs on a CPU: ``nohz_full``.

Source: the kernel's Documentation/timers/no_hz.rst and kernel/time/tick-sched.c. The first CPU
keeps its tick, because the kernel needs it for timekeeping; measured work runs on the others.
"""

from __future__ import annotations

from pathlib import Path

from tare.errors import InputError
from tare.images.guest_image import GuestImage

_BUILT = b"Full dynticks CPUs"
"""A message of tick_nohz_init, which is compiled only with CONFIG_NO_HZ_FULL."""
LEAST_VCPUS = 2


def tickless_cpus(wanted: bool, vcpus: int) -> tuple[int, ...]:
    """Return the guest's CPUs without a tick, which do the measured work; empty if not wanted."""
    return tuple(range(1, vcpus)) if wanted else ()


def tickless_arguments(wanted: bool, vcpus: int) -> tuple[str, ...]:
    """Return the kernel arguments that stop the tick on all CPUs but the first."""
    if not wanted:
        return ()
    cpus = "1" if vcpus == LEAST_VCPUS else f"1-{vcpus - 1}"
    # Without rcu_nocbs, RCU callbacks would restart the tick.
    return (f"nohz_full={cpus}", f"rcu_nocbs={cpus}")


def require_tickless(wanted: bool, image: GuestImage, vcpus: int) -> None:
    """Require at least two CPUs and a kernel that is built with support for stopping its tick.

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
        # The image's notes say why the kernel could not be unpacked.
        unread = f" ({' '.join(image.notes)})" if packed else ""
        raise InputError(
            f"the kernel {image.kernel_version} is not known to be built with CONFIG_NO_HZ_FULL"
            f"{unread}",
            "name one that is, by `kernel:`, or remove `nohz-full`",
        )


def built_for_it(kernel: Path) -> bool:
    """Check whether an uncompressed kernel can stop the tick of a CPU that is not idle."""
    return _BUILT in kernel.read_bytes()
