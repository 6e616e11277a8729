"""Time that counts instructions, so that the same work takes the same time on every computer."""

QEMU = (
    *("-accel", "tcg,thread=single"),
    *("-icount", "shift=0,sleep=off,align=off"),
    *("-rtc", "base=2026-01-01T00:00:00,clock=vm"),
    *("-seed", "1"),
)
"""One nanosecond for each instruction, and nothing of the outside world: clock or chance."""

_WORK = ("norandmaps", "tare.align=600000000000")
# When a request arrives depends on the outside all the same, so work begins at the next ten full
# minutes, which the periods of the kernel's own housekeeping divide: some are longer than one.

_CLOCK = ("tsc_early_khz=1000000", "hpet=disable", "pmtmr=0")
# One cycle a nanosecond too. Left to itself Linux measures that against its other timers, and finds
# up to 131 ppm more or less from boot to boot; without those it has nothing to measure it against.
# Source: Linux, arch/x86/kernel/tsc.c (tsc_refine_calibration_work).

LINUX = (*_WORK, *_CLOCK)
"""The kernel arguments of Linux in such a machine."""

BEGUN_S = 300.0
"""Seconds of this computer within which a guest of such a host begins: ten minutes of the host's
clock and the guest's boot, next to other work."""
