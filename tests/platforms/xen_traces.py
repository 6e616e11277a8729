"""What Xen's scheduler may do, and the file in which xentrace would have it: for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tare.platforms.xen.trace.records import IDLE_DOMAIN, Runstate, RunstateChange

HZ = 1_000_000_000


def record(event: int, data: Sequence[int], ticks: int | None = None) -> bytes:
    """Return one record as Xen writes it (xen/include/public/trace.h, struct t_rec)."""
    word = event | len(data) << 28 | (0 if ticks is None else 1 << 31)
    stamp = b"" if ticks is None else struct.pack("<Q", ticks)
    return struct.pack("<I", word) + stamp + struct.pack(f"<{len(data)}I", *data)


def window(cpu: int, content: bytes) -> bytes:
    """Return what xentrace writes of one CPU at a time."""
    return record(0x0001F003, [cpu, len(content)]) + content


def of_change(change: RunstateChange) -> bytes:
    """Return the record of a change."""
    who = change.domain << 16 | change.vcpu
    if change.was == change.now == Runstate.RUNNING:
        return record(0x00021002, [who], change.ticks)
    return record(0x00021001 | change.was << 8 | change.now << 4, [who], change.ticks)


@dataclass(frozen=True)
class Stay:
    """A vCPU had a CPU for some time: whose, for how long in ns, and how it left."""

    domain: int
    ns: int
    left: Runstate


LEFT = st.sampled_from([Runstate.RUNNABLE, Runstate.BLOCKED, Runstate.OFFLINE])
STAYS = st.lists(
    st.builds(Stay, st.sampled_from([0, 1, 2, IDLE_DOMAIN]), st.integers(1_000, 50_000_000), LEFT),
    min_size=3,
    max_size=40,
)


def changes(stays: Sequence[Stay], cpu: int = 1, switch_ns: int = 0) -> list[RunstateChange]:
    """Return what Xen notes where these have one CPU in turn; each switch takes so long."""
    records: list[RunstateChange] = []
    now = 1_000
    doing: dict[int, Runstate] = {}
    for stay, after in zip(stays, [*stays[1:], None], strict=True):
        was = doing.get(stay.domain, Runstate.RUNNABLE)
        records.append(RunstateChange(now, cpu, stay.domain, 0, was, Runstate.RUNNING))
        now += stay.ns
        if after is None or after.domain == stay.domain:
            # Xen lets the same one run on, and says so.
            if after is not None:
                records.append(
                    RunstateChange(now, cpu, stay.domain, 0, Runstate.RUNNING, Runstate.RUNNING)
                )
                doing[stay.domain] = Runstate.RUNNING
            continue
        records.append(RunstateChange(now, cpu, stay.domain, 0, Runstate.RUNNING, stay.left))
        doing[stay.domain] = stay.left
        now += switch_ns
    return records
