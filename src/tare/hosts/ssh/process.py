"""A process on a host that is reached over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any, Self

from tare.errors import MachineFault
from tare.hosts.contract import Process
from tare.hosts.ssh.session import Session
from tare.hosts.ssh.wire import Ended

KILLED_S = 60.0
"""Seconds that the kernel may take to end a process that was killed, and to free its memory."""


class SshProcess(Process):
    """A process on a host reached over SSH; it ends when Tare does.

    Args:
        session: What holds it.
        number: The id of the request that started it.
    """

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._number = number
        self._ended = session.exit_of(number)
        self._incoming = session.incoming(2 * number)
        self._outgoing = session.outgoing(2 * number, whole=False)
        self._pid = 0

    async def begun(self, answer: asyncio.Future[dict[str, Any]]) -> Self:
        """Wait until it runs; raises OSError where the host's kernel refuses."""
        self._pid = int((await self._session.answered("start", answer))["pid"])
        return self

    @property
    def pid(self) -> int:
        """The process id on its host."""
        return self._pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if not self._ended.done():
            return None
        return -signal.SIGKILL if self._ended.exception() else self._ended.result()

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """The stream that the process reads."""
        return self._outgoing.writer

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The stream that the process writes."""
        return self._incoming.reader

    async def wait(self) -> int:
        """Return the exit status once the process has ended.

        Raises:
            MachineFault: The host was lost.
        """
        return await asyncio.shield(self._ended)

    async def terminate(self) -> None:
        """Ask the process to end; nothing happens if it already has."""
        await self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """End the process at once and reap it; nothing happens if it already ended.

        Raises:
            MachineFault: The host is lost, and the process may still run there for a while; or it
                does not end, as where a disk does not answer it.
        """
        await self._signal(signal.SIGKILL)
        with contextlib.suppress(Ended):
            if not await self._session.heard(self._ended, KILLED_S):
                raise MachineFault(
                    f"process {self._pid} on {self._session.name} was killed and did not end "
                    f"within {KILLED_S:g} s",
                    f"look there what it waits for: cat /proc/{self._pid}/stack",
                )
            await self.wait()

    async def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(Ended):
                await self._session.request("signal", process=self._number, signal=int(number))
