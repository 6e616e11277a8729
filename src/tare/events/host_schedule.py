"""The series ``host-sched``: events of the host's kernel on the subject's CPUs.

Columns, with one row for each event in order of time:

========= ===== ==============================================================================
time_ns   u64   the host's CLOCK_MONOTONIC_RAW
cpu       u16   the host CPU
kind      u8    a :class:`HostEvent`
who       u32   SWITCH: the thread that runs from now on; WAKEUP: the thread; IRQ_*: the
                interrupt's number; SOFTIRQ_*: its vector; VECTOR_*: a :class:`Vector`;
                QUOTA_PERIOD: a mark of the control group whose quota is renewed;
                RUNS_ON: the thread that runs, and continues
other     u32   SWITCH: the thread that ran until now; WAKEUP: the CPU it is to run on; all
                others: the thread that runs on the CPU at that moment
runnable  u8    SWITCH: how the thread that ran until now left (:class:`SwitchReason`); 0 otherwise
========= ===== ==============================================================================

Thread 0 is the CPU's idle task. Names of threads and interrupts are in the cell's facts. On Xen the
threads are vCPUs (:func:`tare.platforms.xen.trace.schedule.vcpu_id`), and times are those of the
host's cycle counter since the recording began.
"""

from __future__ import annotations

from enum import IntEnum

SERIES = "host-sched"
FACTS = "host_trace"
"""The key of the recorder's facts in ``CellFinished.facts``."""

IDLE = 0


class SwitchReason(IntEnum):
    """How a thread left its CPU. Older runs have WAITING instead of STOPPED."""

    WAITING = 0
    """It waits for something."""
    READY = 1
    """It still wants to run."""
    STOPPED = 2
    """A signal or a debugger stopped it."""


class HostEvent(IntEnum):
    """The kind of an event."""

    SWITCH = 0
    WAKEUP = 1
    IRQ_ENTRY = 2
    IRQ_EXIT = 3
    SOFTIRQ_ENTRY = 4
    SOFTIRQ_EXIT = 5
    VECTOR_ENTRY = 6
    VECTOR_EXIT = 7
    QUOTA_PERIOD = 8
    RUNS_ON = 9
    """Xen's scheduler ran, and let the current vCPU continue."""


class Vector(IntEnum):
    """An interrupt that belongs to no device."""

    LOCAL_TIMER = 1
    RESCHEDULE = 2
    CALL_FUNCTION = 3
    CALL_FUNCTION_SINGLE = 4
    IRQ_WORK = 5
    X86_PLATFORM_IPI = 6
    THERMAL_APIC = 7
    ERROR_APIC = 8
    SPURIOUS_APIC = 9
