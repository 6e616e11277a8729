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
HVM_ENTRY_EXIT, PV_ENTRY = 0x00081000, 0x00201000
"""The classes of crossings of HVM and PVH guests, and of PV guests (TRC_*)."""
_VMENTRY, _VMEXIT = HVM_ENTRY_EXIT + 1, HVM_ENTRY_EXIT + 2
_PV_HYPERCALL = PV_ENTRY + 13
_64_BIT = 0x100
"""Set in an event whose addresses have 64 bits."""
_HYPERCALL_BITS = 0xFFFFF
PV_EVENTS = range(3, 13)
"""What a PV guest does in addition to hypercalls: traps, page faults, emulated instructions."""
PV_OTHER = 0x1000
"""Added to the number of such an event, to distinguish it from a hypercall's."""
_WORD = struct.Struct("<I")
_STAMP = struct.Struct("<Q")
IDLE_DOMAIN = 0x7FFF
"""The domain of Xen's own idle vCPUs (DOMID_IDLE, xen/include/public/xen.h)."""


class Runstate(IntEnum):
    """The state of a vCPU (RUNSTATE_*, xen/include/public/vcpu.h)."""

    RUNNING = 0
    RUNNABLE = 1
    BLOCKED = 2
    OFFLINE = 3


class Way(IntEnum):
    """The way in which a guest enters Xen, or returns; Xen records no return of PV guests."""

    EXIT = 0
    ENTRY = 1
    PV = 2


@dataclass(frozen=True)
class RunstateChange:
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
class LostRecords:
    """Records that found a CPU's buffer full.

    Args:
        cpu: The CPU.
        records: How many.
    """

    cpu: int
    records: int


@dataclass(frozen=True)
class Crossing:
    """A guest called Xen or was interrupted for it, or began to run again.

    Args:
        ticks: The CPU's cycle counter then.
        cpu: The CPU; its last :class:`RunstateChange` says whose vCPU it is.
        kind: How it crossed.
        code: The processor's reason of an exit, or what a PV guest did; 0 for an entry.
    """

    ticks: int
    cpu: int
    kind: Way
    code: int = 0


@dataclass(frozen=True)
class _Raw:
    """A record of any event: its time where it has one, and the words of its data."""

    cpu: int
    ticks: int | None
    event: int
    data: tuple[int, ...]


def records(data: bytes) -> Iterator[RunstateChange | LostRecords]:
    """Yield the changes of vCPUs in a file of xentrace's, in the file's order.

    Each CPU's records are in order of time; CPUs alternate. Records of other kinds are passed
    over. A last record that is cut off, as by the tool's end, ends the reading.

    Raises:
        ValueError: It is not such a file, or a record reaches beyond its CPU's part.
    """
    for raw in _all_records(data):
        if (one := _change_or_loss(raw)) is not None:
            yield one


def crossings(data: bytes) -> Iterator[RunstateChange | LostRecords | Crossing]:
    """Yield what :func:`records` yields, and how guests crossed into Xen, in the file's order.

    Raises:
        ValueError: As for :func:`records`.
    """
    for raw in _all_records(data):
        one = _change_or_loss(raw) or _crossing(raw)
        if one is not None:
            yield one


def _all_records(data: bytes) -> Iterator[_Raw]:
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
        ticks = _STAMP.unpack_from(data, at + 4)[0] if stamped else None
        yield _Raw(cpu, ticks, event, struct.unpack_from(f"<{words}I", data, begin))
        at = after


def _change_or_loss(raw: _Raw) -> RunstateChange | LostRecords | None:
    event = raw.event
    if not raw.data:
        return None
    if event == _LOST:
        return LostRecords(raw.cpu, raw.data[0])
    if raw.ticks is None:
        return None
    if event == _CONTINUE:
        was = now = Runstate.RUNNING
    elif event & ~_RUNSTATE_BITS == _RUNSTATE:
        was, now = Runstate(event >> 8 & 3), Runstate(event >> 4 & 3)
    else:
        return None
    who = raw.data[0]
    return RunstateChange(raw.ticks, raw.cpu, who >> 16, who & 0xFFFF, was, now)


def _crossing(raw: _Raw) -> Crossing | None:
    if raw.ticks is None:
        return None
    event = raw.event & ~_64_BIT
    if event == _VMENTRY:
        return Crossing(raw.ticks, raw.cpu, Way.ENTRY)
    if event == _VMEXIT and raw.data:
        return Crossing(raw.ticks, raw.cpu, Way.EXIT, raw.data[0])
    if event == _PV_HYPERCALL and raw.data:
        return Crossing(raw.ticks, raw.cpu, Way.PV, raw.data[0] & _HYPERCALL_BITS)
    number = event - PV_ENTRY
    if number in PV_EVENTS:
        return Crossing(raw.ticks, raw.cpu, Way.PV, PV_OTHER + number)
    return None


def _pair(data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from("<II", data, at)
    return int(first), int(second)
