"""A guest's console: its last lines, and detection of a kernel panic."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import deque

from tare.plaintext import plain

LINES = 40
_LONGEST_LINE = 400
_OUT_OF_MEMORY = re.compile(r"Out of memory: Kill(?:ed)? process \d+ \(([^)]*)\)")
_PANIC = re.compile(r"Kernel panic - not syncing: (.*)|PANIC: (early exception .*)")
# Escape sequences as firmware sends them, and other control characters.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b.|[\x00-\x09\x0b-\x1f\x7f]")


class Console:
    """Follows the bytes of a console, which may contain anything.

    Args:
        lines: How many lines to keep.
    """

    def __init__(self, lines: int = LINES) -> None:
        self._lines: deque[str] = deque(maxlen=lines)
        self._open = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.panic = ""
        """The kernel's panic message; empty as long as it has not panicked."""
        self.killed = ""
        """The last program that the kernel killed because memory ran out; empty if none."""
        self.panicked = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Process some bytes; lines may be split anywhere between calls."""
        text = self._open + self._decoder.decode(data)
        *whole, self._open = re.split(r"[\r\n]+", text)
        # A guest may send noise without ever ending a line.
        self._open = self._open[-_LONGEST_LINE:]
        for line in whole:
            self._take(line)

    def tail(self) -> tuple[str, ...]:
        """Return the last non-empty lines, oldest first."""
        last = _clean(self._open)
        return (*self._lines, last) if last else tuple(self._lines)

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Process a stream until it ends."""
        try:
            while data := await reader.read(1 << 16):
                self.feed(data)
        except OSError:
            return

    def _take(self, line: str) -> None:
        line = _clean(line)
        if not line:
            return
        self._lines.append(line)
        if found := _OUT_OF_MEMORY.search(line):
            self.killed = found[1]
        if not self.panic and (found := _PANIC.search(line)):
            self.panic = (found[1] or found[2]).removesuffix("]---").strip()
            self.panicked.set()


def _clean(line: str) -> str:
    return plain(_CONTROL.sub("", line))[:_LONGEST_LINE].rstrip()
