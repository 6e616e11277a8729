"""A link of a stated speed between the machines and what is outside of them.

A pair of interfaces stands for the cable, and each end sends no faster than the link: so both
directions have all of it, as on Ethernet. What hosts leave to their cards has to be undone for
that: a packet that is still to be cut counts as one, and carries many. So the queue cuts packets to
what a cable carries before it counts them, and counts with each what Ethernet sends around it.
"""

from __future__ import annotations

from typing import Any

from tare.platforms.linux.network.parts import Parts

AROUND_FRAME = 24
"""Bytes on the wire in addition to those that a kernel counts: preamble and start of frame 8, check
sequence 4, gap between frames 12 (IEEE 802.3, clauses 3.1.1 and 4.4.2)."""
HEADER = 14
"""Bytes of the header of Ethernet, which the kernel counts."""
QUEUE_S = 0.05
"""So long a packet may wait at an end of the link; what would wait longer is lost."""
_FILLED_S = 0.001
_PEAK = "1tbit"
"""No limit: with it goes the longest packet that is counted as one (tc-tbf(8), ``mtu``)."""


def queue(rate: float, mtu: int) -> tuple[str, ...]:
    """Return what ``tc qdisc add`` takes for one end of a link.

    Args:
        rate: Bits per second.
        mtu: The longest packet in bytes, without Ethernet's header.
    """
    longest = mtu + HEADER + AROUND_FRAME
    # So much may leave at once after a rest; a kernel that wakes late loses nothing by it.
    burst = max(round(rate / 8 * _FILLED_S), 2 * longest)
    return (
        *("tbf", "rate", f"{rate:.0f}bit", "burst", str(burst)),
        *("latency", f"{QUEUE_S * 1e3:.0f}ms", "overhead", str(AROUND_FRAME)),
        *("peakrate", _PEAK, "mtu", str(longest)),
    )


async def shape(parts: Parts, interface: str, rate: float, mtu: int) -> None:
    """Let an interface send no faster than a link; raises MachineFault."""
    where = ("-n", parts.within) if parts.within else ()
    await parts.run("tc", *where, "qdisc", "add", "dev", interface, "root", *queue(rate, mtu))


def link_facts(rate: float) -> dict[str, Any]:
    """Return what a run's record says of a link."""
    return {"bits_per_s": rate, "by": "tbf", "around_frame": AROUND_FRAME, "queue_s": QUEUE_S}
