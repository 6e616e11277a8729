"""Read what ``xentrace`` writes: the records of Xen's trace buffers, CPU by CPU.

A record is a 32-bit word (28 bits of event, 3 bits that count its data words, 1 bit for a time
stamp), then the time stamp where there is one (the CPU's cycle counter, 64 bits, the lower half
first), then its data, in words of 32 bits; all little-endian. xentrace puts a record of its own in
front of what it takes from a CPU's buffer: whose it is, and how many bytes follow.

Source: Xen's xen/include/public/trace.h (``struct t_rec``, ``TRC_*``), xen/common/trace.c (lost
records), xen/common/sched/core.c (``trace_runstate_change``, ``trace_continue_running``), and
tools/xentrace/xentrace.c (``struct cpu_change_record``); alike in Xen 4.11 to 4.20.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

SCHED_MIN = 0x00021000
"""The class of events to record: changes of what a vCPU does, and nothing else (TRC_SCHED_MIN)."""
_LOST = 0x0001F001
_CPU_CHANGE = 0x0001F003
_RUNSTATE = 0x00021001
_CONTINUE = 0x00021002
_RUNSTATE_BITS = 0x330
_EVENT_BITS = 0x0FFFFFFF
_STAMPED = 1 << 31
_WORD = struct.Struct("<I")
_STAMP = struct.Struct("<Q")
IDLE_DOMAIN = 0x7FFF
"""The domain of Xen's own idle vCPUs (DOMID_IDLE, xen/include/public/xen.h)."""


class Runstate(IntEnum):
    """What a vCPU does (RUNSTATE_*, xen/include/public/vcpu.h)."""

    RUNNING = 0
    RUNNABLE = 1
    BLOCKED = 2
    OFFLINE = 3


@dataclass(frozen=True)
class Change:
    """A vCPU began to do something else; or runs on, where ``was`` and ``now`` are RUNNING.

    Args:
        ticks: The CPU's cycle counter then.
        cpu: The CPU on which Xen noted it.
        domain: The vCPU's domain.
        vcpu: Its number there.
        was: What it did until then.
        now: What it does from then on.
    """

    ticks: int
    cpu: int
    domain: int
    vcpu: int
    was: Runstate
    now: Runstate


@dataclass(frozen=True)
class Lost:
    """Records that found a CPU's buffer full.

    Args:
        cpu: The CPU.
        records: How many.
    """

    cpu: int
    records: int


def records(data: bytes) -> Iterator[Change | Lost]:
    """Yield what a file of xentrace's tells of vCPUs, in the file's order.

    Each CPU's records are in order of time; CPUs alternate. Records of other kinds are passed
    over. A last record that is cut off, as by the tool's end, ends the reading.

    Raises:
        ValueError: It is no such file, or a record reaches beyond its CPU's part.
    """
    at, end = 0, 0
    cpu: int | None = None
    while at + 4 <= len(data):
        (word,) = _WORD.unpack_from(data, at)
        event, stamped = word & _EVENT_BITS, bool(word & _STAMPED)
        words = word >> 28 & 7
        begin = at + (12 if stamped else 4)
        after = begin + 4 * words
        if event == _CPU_CHANGE:
            if cpu is not None and at < end:
                raise ValueError(f"a CPU's part ends at byte {end}, and another begins at {at}")
            if words < 2:
                raise ValueError(f"the record at byte {at} does not say whose the next ones are")
            if after > len(data):
                return
            cpu, length = _pair(data, begin)
            at, end = after, after + length
            continue
        if cpu is None or at >= end:
            raise ValueError(f"at byte {at} there is no record that says whose the next ones are")
        if after > end:
            raise ValueError(f"the record at byte {at} reaches beyond its CPU's part, up to {end}")
        if after > len(data):
            return
        if event == _LOST and words:
            yield Lost(cpu, _WORD.unpack_from(data, begin)[0])
        elif stamped and words and (change := _change(data, at, begin, event, cpu)) is not None:
            yield change
        at = after


def _change(data: bytes, at: int, begin: int, event: int, cpu: int) -> Change | None:
    if event == _CONTINUE:
        was = now = Runstate.RUNNING
    elif event & ~_RUNSTATE_BITS == _RUNSTATE:
        was, now = Runstate(event >> 8 & 3), Runstate(event >> 4 & 3)
    else:
        return None
    (ticks,) = _STAMP.unpack_from(data, at + 4)
    (who,) = _WORD.unpack_from(data, begin)
    return Change(ticks, cpu, who >> 16, who & 0xFFFF, was, now)


def _pair(data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from("<II", data, at)
    return int(first), int(second)
