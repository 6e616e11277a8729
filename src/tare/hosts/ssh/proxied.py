"""Connections through the user's ``ProxyCommand`` of ssh_config(5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
from subprocess import PIPE, Popen

KEPT = 4096
"""Bytes of the program's error output, whose last lines show what is wrong."""
LINES = 3
GRACE_S = 2.0


class Proxy:
    """A program that connects its standard input and output to a host.

    It ends with its connection, but may outlive the event loop, so threads handle it.

    Args:
        process: The program.
        ours: The connection's end here.
    """

    def __init__(self, process: Popen[bytes], ours: socket.socket) -> None:
        self.socket = ours
        self._process = process
        self._errors = bytearray()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @classmethod
    def start(cls, command: str) -> Proxy:
        """Start a program as OpenSSH does: through the shell, which is replaced by it.

        Raises:
            OSError: There is no shell, or the process limit is reached.
        """
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            # In a session of its own: Ctrl-C is for Tare, and must not end a connection.
            process = Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        return cls(process, ours)

    async def last_words(self) -> str:
        """Return the last lines of its error output, to end a sentence; empty if there are none."""
        await asyncio.to_thread(self._listening.join, GRACE_S)
        lines = bytes(self._errors).decode(errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()][-LINES:]
        return f"; its ProxyCommand reported: {' / '.join(words)}" if words else ""

    def close(self) -> None:
        """End it; it may have ended with the connection already."""
        self.socket.close()
        self._process.terminate()
        threading.Thread(target=self._require_end, daemon=True).start()

    async def wait_closed(self) -> None:
        """Wait until it has ended."""
        await asyncio.to_thread(self._process.wait)

    def _require_end(self) -> None:
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors, contextlib.suppress(OSError):
            while piece := os.read(errors.fileno(), KEPT):
                self._errors += piece
                del self._errors[:-KEPT]
        self._process.wait()
