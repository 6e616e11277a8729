"""Frames on a byte stream that may carry noise; ``docs/protocol.md`` describes them.

The same code as the agent's ``frame.rs``, in Python. Written from the description alone, so that
each checks the other.
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
"""The sequence number of frames outside the order: last words of a dying agent."""

DAMAGE_FREE = 4 << 20
DAMAGE_PER_BYTE = 4
"""What looks like a frame and is none may cost so many looks at a byte, and so many more for each
byte that arrived. On a line that damages every frame, each byte is looked at twice."""
_PLACE_COST = 256
"""A header costs as much as so many bytes of a payload."""

_HEADER = struct.Struct("<4sBBIII")
_CHECK = struct.Struct("<I")
_KEPT_NOISE = 16_384


class TooMuchDamage(ValueError):
    """What arrives looks like frames so often that finding none would take all the time."""


class Kind(IntEnum):
    """What a frame's payload is."""

    MESSAGE = 0
    SERIES = 1


@dataclass(frozen=True)
class Frame:
    """One frame that arrived whole."""

    kind: Kind
    seq: int
    payload: bytes


def encode(kind: Kind, seq: int, payload: bytes) -> bytes:
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
    """What a frame's header says."""

    kind: Kind
    seq: int
    length: int


class Decoder:
    """Finds frames in whatever arrives, in pieces of any size.

    Args:
        on_noise: Told of bytes that belong to no frame, as they are found.

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
        """Add what was read, and return the frames that are whole now."""
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
        """Give up on the frame that has begun, and return those found behind its first byte."""
        if not self.partial:
            return []
        self._give_up(0)
        return self._frames()

    def noise_lines(self) -> tuple[str, ...]:
        """Return the noise as lines of text, the last ones: on a serial line, the console."""
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
            and kind in (Kind.MESSAGE, Kind.SERIES)
            and length <= MAX_PAYLOAD
            and zlib.crc32(self._buffer[self._start : at - _CHECK.size]) == check
        )
        return _Head(Kind(kind), seq, length) if good else None

    def _give_up(self, looked_at: int) -> None:
        """Take a place for damage, of which ``looked_at`` bytes were looked at in vain."""
        self.damaged += 1
        self._allowed -= _PLACE_COST + looked_at
        if self._allowed < 0:
            raise TooMuchDamage(
                f"{self.damaged} places look like frames and are none; finding the next is too much"
            )
        self._skip(1)

    def _seek(self) -> None:
        """Skip what is before the next magic, or before what may be its beginning at the end."""
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
