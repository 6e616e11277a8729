"""Tare's end of a stream of frames that survives broken connections.

Each message and each piece of a stream has a number. It is kept until the other end confirms it,
and sent again over the next connection; duplicates are dropped. The code of the other end is
``agent/src/tools/keep/link.rs``, which also describes the layout of a frame.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

CONTROL, MESSAGE, DATA = range(3)
LONGEST = 4 << 20
CONFIRM_AFTER = 256 << 10
STUCK = 8
"""Number of confirmations without progress on the oldest frame after which it counts as lost.

A confirmation is requested four times within the silence that a connection survives. So up to four
confirmations that were sent before a new frame arrived may be in flight; this is twice that number.
"""
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<BQ")
_STREAM = struct.Struct("<I")


class Frame(NamedTuple):
    """One frame: its kind, its number (0 for control frames), and its payload."""

    kind: int
    number: int
    payload: bytes


def encode(frame: Frame) -> bytes:
    """Encode a frame: length of the rest (u32 LE), kind, number (u64 LE), payload."""
    head = _HEAD.pack(frame.kind, frame.number)
    return _LENGTH.pack(len(head) + len(frame.payload)) + head + frame.payload


class Gap(Exception):
    """A frame is missing; it is sent again over the next connection."""


class Decoder:
    """Splits bytes, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now.

        Raises:
            ValueError: The bytes are not frames, for example because a login prints text.
        """
        self._bytes += data
        frames: list[Frame] = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if not _HEAD.size <= length <= LONGEST:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            kind, number = _HEAD.unpack_from(self._bytes, _LENGTH.size)
            payload = bytes(self._bytes[_LENGTH.size + _HEAD.size : end])
            frames.append(Frame(kind, number, payload))
            del self._bytes[:end]
        return frames


class LinkState:
    """The state of sent and received frames, over all connections."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, bytes]] = deque()
        self._sent = 0
        self._received = 0
        self._unconfirmed = 0
        self._unmoved = 0
        self._write: Callable[[bytes], None] | None = None

    def greeting(self) -> bytes:
        """Return the first frame of a new connection."""
        return self._control(hello=True)

    def resume(self, write: Callable[[bytes], None], theirs: int) -> None:
        """Continue over a connection whose other end has received the frames up to ``theirs``."""
        self.arrived(theirs)
        self._unmoved = 0
        self._write = write
        for _, data in self._kept:
            write(data)

    def cut(self) -> None:
        """Record that the connection is gone; further frames wait for the next one."""
        self._write = None

    @property
    def connected(self) -> bool:
        """Whether frames are sent at once."""
        return self._write is not None

    def message(self, value: Mapping[str, Any]) -> None:
        """Send a JSON object."""
        self._send(MESSAGE, json.dumps(value, separators=(",", ":")).encode())

    def data(self, stream: int, data: bytes) -> None:
        """Send a piece of a stream."""
        self._send(DATA, _STREAM.pack(stream) + data)

    def ask(self) -> None:
        """Confirm the frames that arrived here, and request a confirmation."""
        if self._write is not None:
            self._write(self._control(asks=True))

    def arrived(self, theirs: int) -> None:
        """Forget the frames that the other end has received."""
        self._unmoved = self._unmoved + 1 if self._kept else 0
        while self._kept and self._kept[0][0] <= theirs:
            self._kept.popleft()
            self._unmoved = 0

    @property
    def stuck(self) -> bool:
        """Whether the other end answers but accepts nothing, because a frame was lost.

        Requests follow the frames, so each answer should confirm one more.
        """
        return self._unmoved >= STUCK

    def is_new(self, frame: Frame) -> bool:
        """Return whether a frame is the next one (it then counts as received), not a duplicate.

        Raises:
            Gap: A frame before it is missing.
        """
        due = self._received + 1
        if frame.number > due:
            raise Gap(f"frame {frame.number} came instead of {due}")
        if frame.number < due:
            return False
        self._received = frame.number
        self._unconfirmed += len(frame.payload)
        if self._unconfirmed >= CONFIRM_AFTER and self._write is not None:
            self._write(self._control())
        return True

    def _send(self, kind: int, payload: bytes) -> None:
        self._sent += 1
        data = encode(Frame(kind, self._sent, payload))
        self._kept.append((self._sent, data))
        if self._write is not None:
            self._write(data)

    def _control(self, **flags: bool) -> bytes:
        self._unconfirmed = 0
        payload = json.dumps({"received": self._received, **flags}).encode()
        return encode(Frame(CONTROL, 0, payload))


def split_data(payload: bytes) -> tuple[int, bytes]:
    """Return the stream of a data frame, and its piece."""
    (stream,) = _STREAM.unpack_from(payload)
    return int(stream), payload[_STREAM.size :]
