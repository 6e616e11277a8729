"""The series ``host-stacks`` and ``guest-stacks``: kernel stacks of tasks on the measured CPUs.

Columns, with one row for each event in order of time:

======= === ===================================================================================
time_ns u64 the CLOCK_MONOTONIC_RAW of the kernel that recorded it, in steps of a microsecond
cpu     u16 its CPU
thread  u32 the thread that ran
sight   u32 a place in the list ``sights`` of the same side's facts (:class:`Sight`)
======= === ===================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PROBE = "stacks"
"""The key of the facts within ``probes``."""
HOST_SERIES, GUEST_SERIES = "host-stacks", "guest-stacks"
SAME_KERNEL = "the machine has no kernel of its own"
"""Why there are no stacks of a container's or a bare machine's kernel: they are the host's."""
_ENTRY = re.compile(
    r"(?:asm_|__)?(?:sysvec_|common_interrupt|exc_|irqentry_|irq_exit|handle_softirqs|do_softirq|"
    r"call_on_irq_stack|run_ksoftirqd|flush_smp_call_function|flush_softirq)|"
    r"_*handle_(?:irq|edge_irq|fasteoi)|generic_handle_|gic_handle|el[01][ht]?_|ret_from_"
)
"""Functions that enter an interrupt or run softirqs, by the beginnings of their names."""
_SWITCH = re.compile(r"_*schedule(?:\.|$)|preempt_schedule")


@dataclass(frozen=True)
class Sight:
    """One thing that was seen on a CPU.

    Args:
        what: The event, with its interrupt, softirq or next thread by name.
        comm: The name of the thread that ran.
        frames: Its kernel functions, the innermost first, without those of the tracer itself.
    """

    what: str
    comm: str
    frames: tuple[str, ...] = ()

    @property
    def own_frames(self) -> tuple[str, ...]:
        """The functions that the thread itself executed, without those that interrupted it.

        Empty if the thread was not in the kernel.
        """
        frames = self.frames
        for place, frame in enumerate(frames):
            if not _ENTRY.match(frame) and not _SWITCH.match(frame):
                return frames[place:]
        return ()
