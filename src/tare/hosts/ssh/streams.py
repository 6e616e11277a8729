"""The ends of streams that travel over a session, as asyncio's own readers and writers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Protocol

from tare.hosts.contract import STREAM_LIMIT

WINDOW = 1 << 20
"""Bytes of one stream, in one direction, that may be in flight; the keeper has the same limit."""

_CHUNK = 64 << 10
_HIGH, _LOW = 256 << 10, 64 << 10


class Sender(Protocol):
    """The part of a session that streams use."""

    def message(self, value: dict[str, Any]) -> None:
        """Send a message."""

    def data(self, stream: int, data: bytes) -> None:
        """Send a piece of a stream."""

    def over(self, stream: int) -> None:
        """Record that nothing more is sent over a stream."""


class Incoming(asyncio.ReadTransport):
    """A stream from the host, read through ``reader``, with flow control."""

    def __init__(self, sender: Sender, stream: int, *, ends_with_error: bool = False) -> None:
        super().__init__()
        self.reader = asyncio.StreamReader(limit=STREAM_LIMIT)
        self.reader.set_transport(self)
        self._sender = sender
        self._stream = stream
        self._ends_with_error = ends_with_error
        self._paused = False
        self._owed = 0

    def take(self, data: bytes) -> None:
        """Take received bytes."""
        self._owed += len(data)
        self.reader.feed_data(data)
        self._pay()

    def end(self, errno: int) -> None:
        """Take the end of the stream, with an error number if reading failed."""
        if errno and self._ends_with_error:
            self.reader.set_exception(OSError(errno, os.strerror(errno)))
        else:
            self.reader.feed_eof()

    def fail(self, error: Exception) -> None:
        """Report an error to the reader."""
        if not self.reader.at_eof():
            self.reader.set_exception(error)

    def pause_reading(self) -> None:
        """Make the other end wait once it has used up its credit."""
        self._paused = True

    def resume_reading(self) -> None:
        """Continue to accept data."""
        self._paused = False
        self._pay()

    def is_reading(self) -> bool:
        """Return whether more data is accepted."""
        return not self._paused

    def _pay(self) -> None:
        # Grant credit in large steps, because each costs a message.
        if not self._paused and self._owed >= WINDOW // 4:
            self._sender.message({"op": "credit", "stream": self._stream, "bytes": self._owed})
            self._owed = 0


class _Writer(asyncio.StreamWriter):
    """A writer that its event loop closes if no other code has closed it.

    The garbage collector may find it in any thread, while other data is being sent. If it were
    closed there, as asyncio does, its last frame would be sent out of order, and the keeper would
    accept no more frames.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        protocol: asyncio.BaseProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, None, loop)
        self._soon = loop.call_soon_threadsafe

    def __del__(self) -> None:
        if not self.transport.is_closing():
            # A closed loop sends nothing more.
            with contextlib.suppress(RuntimeError):
                self._soon(self.transport.close)


class _Protocol(asyncio.StreamReaderProtocol):
    """A writer's protocol whose error need not be awaited.

    asyncio retrieves the error when the protocol is collected. The garbage collector may find its
    future first, and would report the error as never retrieved, with a traceback.
    """

    def connection_lost(self, exc: Exception | None) -> None:
        """End the stream, and retrieve its error."""
        super().connection_lost(exc)
        closed = self._get_close_waiter(self)  # type: ignore[attr-defined]
        if closed.done() and not closed.cancelled():
            closed.exception()


class Outgoing(asyncio.WriteTransport):
    """A stream to the host, written through ``writer``, with flow control.

    Args:
        sender: The session that sends the stream.
        stream: The stream's number in the session.
        whole: Whether closing it also ends the other direction, as for a socket.
    """

    def __init__(self, sender: Sender, stream: int, *, whole: bool) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._sender = sender
        self._stream = stream
        self._whole = whole
        self._buffer = bytearray()
        self._credit = WINDOW
        self._low, self._high = _LOW, _HIGH
        self._paused = self._ending = self._ended = self._closing = self._over = False
        self._loop = loop
        self._protocol = _Protocol(asyncio.StreamReader())
        self._protocol.connection_made(self)
        self.writer: asyncio.StreamWriter = _Writer(self, self._protocol, loop)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send as many bytes as the other end accepts, and keep the rest for later."""
        if not self._closing and not self._ending:
            self._buffer += data
            self._flush()

    def grant(self, count: int) -> None:
        """Record that the other end accepts more bytes."""
        self._credit += count
        self._flush()

    def stop(self, error: Exception | None = None) -> None:
        """Discard all further data, because the other end is no longer read."""
        self._closing = True
        self._buffer.clear()
        self._finish(error)

    def write_eof(self) -> None:
        """End the stream after the data that was written."""
        self._ending = True
        self._flush()

    def can_write_eof(self) -> bool:
        """Return that a stream can be ended."""
        return True

    def close(self) -> None:
        """End the stream after the written data; a socket or terminal is closed with it."""
        self._closing = True
        self._flush()

    def abort(self) -> None:
        """Close the stream without sending the rest."""
        self._buffer.clear()
        self.close()

    def is_closing(self) -> bool:
        """Return whether the stream was closed."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait here."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the buffer sizes below which a writer continues and above which it waits."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the buffer limits like asyncio's transports: a missing one is derived from the other.

        Raises:
            ValueError: A limit is negative, or the low one is above the high one.
        """
        high = (_HIGH if low is None else 4 * low) if high is None else high
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) has to be at least low ({low}), and that 0")
        self._low, self._high = low, high
        self._flush()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return ``default``: there is no information."""
        return default

    def _flush(self) -> None:
        while self._buffer and self._credit:
            piece = bytes(self._buffer[: min(_CHUNK, self._credit)])
            del self._buffer[: len(piece)]
            self._credit -= len(piece)
            self._sender.data(self._stream, piece)
        if len(self._buffer) > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()
        elif len(self._buffer) <= self._low and self._paused:
            self._paused = False
            self._protocol.resume_writing()
        if self._buffer or self._over:
            return
        if self._closing and self._whole:
            self._send_op("drop")
        elif (self._closing or self._ending) and not self._ended:
            self._send_op("end")
            self._ended = True
        if self._closing:
            self._finish(None)

    def _send_op(self, what: str) -> None:
        self._sender.message({"op": what, "stream": self._stream})

    def _finish(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        if self._paused:
            self._paused = False
            self._protocol.resume_writing()
        self._sender.over(self._stream)
        self._loop.call_soon(self._protocol.connection_lost, error)
