"""Whether the scheduler of a host can be recorded, so that spikes find their culprits."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from tare.errors import TareError
from tare.hosts.trace.recorder import host_recorder
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.contract import Context

_HINTS = (
    ("needs root", "run Tare as root, for example: sudo .venv/bin/tare doctor"),
    (
        "built without tracefs",
        "boot a kernel with CONFIG_FTRACE, such as a distribution's: grep TRAC /boot/config-*",
    ),
    (
        "cannot be mounted",
        "mount -t tracefs tracefs /sys/kernel/tracing (in a container: give it CAP_SYS_ADMIN, or "
        "the host's /sys/kernel/tracing)",
    ),
    ("there is no event", "boot a kernel with CONFIG_SCHED_TRACER and CONFIG_EVENT_TRACING"),
    ("no instance can be made", "mount -o remount,rw /sys/kernel/tracing"),
    ("cannot be set up", "dmesg | tail; a kernel that is locked down refuses it"),
)
"""Words of the reason, and what to do about it."""


class TracingFinding(BaseModel):
    """Whether a host's scheduler can be recorded.

    Args:
        usable: Whether it was recorded for a moment.
        reason: What was found, in one sentence.
        hint: What to do; empty if nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    usable: bool
    reason: str
    hint: str = ""


async def examine_tracing(context: Context) -> TracingFinding:
    """Record the host's scheduler for a moment; whatever is mounted or made for it is removed."""
    cpu = context.host.topology().online[0]
    try:
        async with host_recorder(context.host, context.ledger) as recorder:
            await recorder.begin([cpu], [])
            recording = await recorder.end()
    except (NoTracing, TareError, OSError) as error:
        reason = error.message if isinstance(error, TareError) else str(error)
        hint = next((hint for words, hint in _HINTS if words in reason), "dmesg | tail")
        return TracingFinding(usable=False, reason=reason, hint=hint)
    return TracingFinding(
        usable=True,
        reason=f"the kernel's tracer records scheduling and interrupts (CPU {cpu} tried, "
        f"{len(recording.columns['time_ns'])} events)",
    )
