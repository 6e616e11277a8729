"""Terminals of this computer as streams."""

from __future__ import annotations

import asyncio
import errno
import os
import tty
from pathlib import Path

from tare.hosts.contract import STREAM_LIMIT


class _TerminalProtocol(asyncio.StreamReaderProtocol):
    """Takes EIO for what it means on Linux: the other side of the terminal was closed."""

    def connection_lost(self, exc: Exception | None) -> None:
        ended = isinstance(exc, OSError) and exc.errno == errno.EIO
        super().connection_lost(None if ended else exc)


class _Output(_TerminalProtocol):
    """Closes the reading side together with the writing one."""

    def __init__(self, reading: asyncio.BaseTransport) -> None:
        super().__init__(asyncio.StreamReader())
        self._reading = reading

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.close()
        super().connection_lost(exc)


async def open_terminal(
    path: str | Path,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a terminal for all byte values; closing the writer closes it.

    Raises:
        OSError: It cannot be opened.
    """
    loop = asyncio.get_running_loop()
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.isatty(fd):
            tty.setraw(fd)
        output = os.fdopen(os.dup(fd), "wb", buffering=0)
    except BaseException:
        os.close(fd)
        raise
    reader = asyncio.StreamReader(limit=STREAM_LIMIT)
    reading, _ = await loop.connect_read_pipe(
        lambda: _TerminalProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(lambda: _Output(reading), output)
    return reader, asyncio.StreamWriter(writing, protocol, None, loop)
