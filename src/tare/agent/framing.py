"""Frames on a noisy byte stream, and their order; ``tare help protocol`` describes them.

This module does in Python what the agent's ``frame.rs`` does. It was written from the description
alone, so that each implementation checks the other.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"\xf5TAR"
VERSION = 1
MAX_PAYLOAD = 1 << 20
"""Bytes; longer data travels in several frames."""
OUT_OF_BAND = 0xFFFFFFFF
"""The sequence number of frames outside the order: a failing agent's last message."""

DAMAGE_FREE = 4 << 20
DAMAGE_PER_BYTE = 4
"""Limits of the bytes examined because of false frames: ``DAMAGE_FREE`` bytes at first, and
``DAMAGE_PER_BYTE`` more for each byte that arrives. On a line that damages every frame, each byte
is examined twice."""
_PLACE_COST = 256
"""The cost of a header, in bytes of a payload."""

_HEADER = struct.Struct("<4sBBIII")
_CHECK = struct.Struct("<I")
_KEPT_NOISE = 16_384
_MOST_MISSING = 64
"""Sequence numbers in one request for missing frames."""


class TooMuchDamage(ValueError):
    """Received data looks like frames so often that searching it would take too long."""


class FrameKind(IntEnum):
    """The kind of a frame's payload."""

    MESSAGE = 0
    SERIES = 1


@dataclass(frozen=True)
class Frame:
    """One frame that arrived whole."""

    kind: FrameKind
    seq: int
    payload: bytes


def encode(kind: FrameKind, seq: int, payload: bytes) -> bytes:
    """Return the bytes of one frame.

    Raises:
        ValueError: The payload is longer than ``MAX_PAYLOAD``.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload of {len(payload)} bytes is too long for a frame")
    head = _HEADER.pack(MAGIC, VERSION, kind, seq, len(payload), 0)[: -_CHECK.size]
    return b"".join(
        (head, _CHECK.pack(zlib.crc32(head)), payload, _CHECK.pack(zlib.crc32(payload)))
    )


@dataclass(frozen=True)
class _Head:
    """The fields of a frame's header."""

    kind: FrameKind
    seq: int
    length: int


class Decoder:
    """Finds frames in received data, which arrives in pieces of any size.

    Args:
        on_noise: Called with bytes that belong to no frame, as they are found.

    Attributes:
        noise: Bytes so far that belonged to no frame.
        damaged: Places so far that looked like a frame and had a wrong checksum.

    Raises:
        TooMuchDamage: By :meth:`feed` and :meth:`abandon`; the decoder is of no use after that.
    """

    def __init__(self, on_noise: Callable[[bytes], None] | None = None) -> None:
        self._on_noise = on_noise
        self.noise = 0
        self.damaged = 0
        self._buffer, self._start = bytearray(), 0
        self._kept = bytearray()
        self._allowed = DAMAGE_FREE

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes, and return the frames that are complete now."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data
        self._allowed += DAMAGE_PER_BYTE * len(data)
        return self._frames()

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended; its rest may never come."""
        return self._start < len(self._buffer)

    @property
    def due(self) -> int | None:
        """The sequence number of the frame that has begun; None if its header is not whole."""
        header = self._header()
        return header.seq if header is not None else None

    def abandon(self) -> list[Frame]:
        """Give up on the incomplete frame, and return the frames found after its first byte."""
        if not self.partial:
            return []
        self._give_up(0)
        return self._frames()

    def noise_lines(self) -> tuple[str, ...]:
        """Return the last lines of the noise; on a serial line, they are the console's text."""
        text = self._kept.decode("utf-8", errors="replace")
        lines = (line.rstrip() for line in text.replace("\r", "\n").split("\n"))
        return tuple(line for line in lines if line)

    def _frames(self) -> list[Frame]:
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        while True:
            self._seek()
            if len(self._buffer) - self._start < _HEADER.size:
                return None
            header = self._header()
            if header is not None:
                at, end = self._start + _HEADER.size, self._start + _HEADER.size + header.length
                if len(self._buffer) < end + _CHECK.size:
                    return None
                payload = bytes(self._buffer[at:end])
                if zlib.crc32(payload) == _CHECK.unpack_from(self._buffer, end)[0]:
                    self._start = end + _CHECK.size
                    return Frame(header.kind, header.seq, payload)
            self._give_up(header.length if header is not None else 0)

    def _header(self) -> _Head | None:
        """Return the header that the buffer begins with, if it is whole and undamaged."""
        if len(self._buffer) - self._start < _HEADER.size:
            return None
        magic, version, kind, seq, length, check = _HEADER.unpack_from(self._buffer, self._start)
        at = self._start + _HEADER.size
        good = (
            magic == MAGIC
            and version == VERSION
            and kind in (FrameKind.MESSAGE, FrameKind.SERIES)
            and length <= MAX_PAYLOAD
            and zlib.crc32(self._buffer[self._start : at - _CHECK.size]) == check
        )
        return _Head(FrameKind(kind), seq, length) if good else None

    def _give_up(self, looked_at: int) -> None:
        """Count the current position as damage, after examining ``looked_at`` bytes in vain."""
        self.damaged += 1
        self._allowed -= _PLACE_COST + looked_at
        if self._allowed < 0:
            raise TooMuchDamage(
                f"{self.damaged} places look like frames and are none; finding the next is too much"
            )
        self._skip(1)

    def _seek(self) -> None:
        """Skip the bytes before the next magic; keep last bytes that may be its beginning."""
        at = self._buffer.find(MAGIC, self._start)
        if at < 0:
            at = len(self._buffer)
            for length in range(min(len(MAGIC) - 1, at - self._start), 0, -1):
                if self._buffer.endswith(MAGIC[:length]):
                    at -= length
                    break
        self._skip(at - self._start)

    def _skip(self, count: int) -> None:
        if not count:
            return
        self.noise += count
        skipped = self._buffer[self._start : self._start + count]
        self._kept += skipped
        if self._on_noise is not None:
            self._on_noise(bytes(skipped))
        if len(self._kept) > 2 * _KEPT_NOISE:
            del self._kept[:-_KEPT_NOISE]
        self._start += count


class ReorderBuffer:
    """Delivers each frame once, in order; holds back frames that come after a gap."""

    def __init__(self) -> None:
        self._expected: int | None = None
        self._early: dict[int, Frame] = {}
        self._held_bytes = 0
        self._farthest = 0

    def put(self, frame: Frame) -> list[Frame]:
        """Add a frame, and return the frames that are next in order."""
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
        """The next sequence number in order; None before the first."""
        return self._expected

    @property
    def held(self) -> int:
        """The number of frames that wait for an earlier frame."""
        return len(self._early)

    @property
    def held_bytes(self) -> int:
        """The size of the waiting frames' payloads, in bytes."""
        return self._held_bytes

    def missing(self) -> list[int]:
        """Return the first 64 sequence numbers that are missing before frames that arrived."""
        if not self._early or self._expected is None:
            return []
        gap = range(self._expected, self._farthest)
        absent = (seq for seq in gap if seq not in self._early)
        return [seq for seq, _ in zip(absent, range(_MOST_MISSING), strict=False)]
