"""Put frames back into the order in which the agent sent them, and know which are missing."""

from __future__ import annotations

from tare.agent.framing import Frame

_MOST_ASKED = 64


class Order:
    """Delivers frames once each, in order; holds back what came after a gap."""

    def __init__(self) -> None:
        self._expected: int | None = None
        self._early: dict[int, Frame] = {}
        self._held_bytes = 0
        self._farthest = 0

    def put(self, frame: Frame) -> list[Frame]:
        """Take a frame, and return those whose turn has come."""
        if self._expected is None:
            self._expected = frame.seq
        if frame.seq < self._expected:
            return []
        if frame.seq not in self._early:
            self._early[frame.seq] = frame
            self._held_bytes += len(frame.payload)
            self._farthest = max(self._farthest, frame.seq)
        due = []
        while (following := self._early.pop(self._expected, None)) is not None:
            due.append(following)
            self._held_bytes -= len(following.payload)
            self._expected += 1
        return due

    @property
    def arrived(self) -> int | None:
        """The last sequence number up to which nothing is missing; None before the first."""
        return self._expected - 1 if self._expected else None

    @property
    def next(self) -> int | None:
        """The sequence number that is to come; None before the first."""
        return self._expected

    @property
    def held(self) -> int:
        """How many frames wait for an earlier one."""
        return len(self._early)

    @property
    def held_bytes(self) -> int:
        """How many bytes the payloads of these have."""
        return self._held_bytes

    def missing(self) -> list[int]:
        """Return the first sequence numbers that later frames have shown to be missing."""
        if not self._early or self._expected is None:
            return []
        gap = range(self._expected, self._farthest)
        absent = (seq for seq in gap if seq not in self._early)
        return [seq for seq, _ in zip(absent, range(_MOST_ASKED), strict=False)]
