"""Channels: byte streams to an agent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

_READ = 1 << 18


class Channel(Protocol):
    """Any byte stream to an agent: pipes, a socket, a serial console."""

    async def receive(self) -> bytes:
        """Wait for at least one byte, and return what has arrived; empty at the end."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of ``data``.

        Raises:
            OSError: The other end is gone.
        """
        ...

    async def close(self) -> None:
        """Close the stream; may be called again."""
        ...


class StreamChannel:
    """A channel over a pair of asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def receive(self) -> bytes:
        """Return what has arrived; empty at the end, and after an error."""
        try:
            return await self._reader.read(_READ)
        except OSError:
            return b""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``; raises OSError when the other end is gone."""
        async with self._sending:
            self._writer.write(data)
            await self._writer.drain()

    async def close(self) -> None:
        """Close both directions."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
