"""Time that counts instructions, so that the same work takes the same time on every computer."""

QEMU = (
    *("-accel", "tcg,thread=single"),
    *("-icount", "shift=0,sleep=off,align=off"),
    *("-rtc", "base=2026-01-01T00:00:00,clock=vm"),
    *("-seed", "1"),
)
"""One nanosecond per instruction, and no outside influence: neither the real clock nor chance."""

_WORK = ("norandmaps", "tare.align=600000000000")
# The arrival time of a request still depends on the outside, so work begins at the next full ten
# minutes. The periods of the kernel's own housekeeping, some longer than one minute, divide that.

_CLOCK = ("tsc_early_khz=1000000", "hpet=disable", "pmtmr=0")
# Set one TSC cycle per nanosecond, too. By default Linux measures the TSC against its other timers,
# and finds up to 131 ppm more or less from boot to boot. Without those timers it cannot measure.
# Source: Linux, arch/x86/kernel/tsc.c (tsc_refine_calibration_work).

LINUX = (*_WORK, *_CLOCK)
"""The kernel arguments of Linux in such a machine."""

BEGUN_S = 300.0
"""Seconds of this computer's time within which a guest of such a host begins. They cover ten
minutes of the host's clock and the guest's boot, while other work runs."""
