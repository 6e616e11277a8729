"""A host's threads for the tests of spikes, and the causes that they can be of."""

from __future__ import annotations

from tare.analysis.topics.host_track import Cause, ThreadNames

SUBJECT, HOG, QEMU = 100, 200, 101
CPU = 3
START_NS = 5_000_000_000
NAMES = ThreadNames(
    {
        SUBJECT: {"comm": "tare-tick", "role": "subject"},
        QEMU: {"comm": "qemu-system-x86", "role": "subject"},
        HOG: {"comm": "cpu-load", "role": "neighbour-1"},
    },
    {36: "virtio1-req.0"},
)
PREEMPTED = Cause("preempted", "neighbour-1 (cpu-load)")
TIMER = Cause("timer interrupt")
DEVICE = Cause("other interrupt", "virtio1-req.0")
WAITED = Cause("platform")
STOPPED = Cause("stopped")
IDLE = Cause("idle though ready")
THROTTLED = Cause("host throttling")
Row = tuple[int, int, int, int, int, int]
