"""Time that counts instructions, so that the same work takes the same time on every computer."""

QEMU = (
    *("-accel", "tcg,thread=single"),
    *("-icount", "shift=0,sleep=off,align=off"),
    *("-rtc", "base=2026-01-01T00:00:00,clock=vm"),
    *("-seed", "1"),
)
"""One nanosecond for each instruction, and nothing of the outside world: clock or chance."""

LINUX = ("norandmaps", "tare.align=60000000000")
"""When a request arrives depends on the outside all the same, so work begins at the next minute,
which all periods of the kernel's own housekeeping divide."""
