"""A client of QEMU's monitor (QMP) over a host's streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from qemu.qmp import EventListener, QMPClient, QMPError
from qemu.qmp.protocol import Runstate

from tare.errors import MachineFault
from tare.platforms.linux.sockets import Streams

_ANSWER_S = 60.0
"""Seconds to wait. If QEMU itself runs on emulated CPUs that are all busy, an answer may take more
than 10 s. If QEMU ends, this is noticed at once, because its stream ends."""

_EVENTS = ("SHUTDOWN", "GUEST_PANICKED", "BLOCK_IO_ERROR", "STOP", "RESUME")


class _StreamClient(QMPClient):
    """A client over a stream that is already open, as a remote host's streams are."""

    def __init__(self, name: str, streams: Streams) -> None:
        super().__init__(name)
        self._streams = streams

    async def _do_connect(self, address: Any, ssl: Any = None) -> None:
        self._set_state(Runstate.CONNECTING)
        await asyncio.sleep(0)
        self._reader, self._writer = self._streams


class Monitor:
    """The monitor of one running QEMU."""

    def __init__(self, name: str, streams: Streams) -> None:
        self._client = _StreamClient(name, streams)
        self._listener = EventListener(names=_EVENTS)
        self._client.register_listener(self._listener)
        self.ended_by = ""
        """Why the guest ended, as QEMU's keyword (``guest-reset``, ``guest-shutdown``, …)."""
        self.no_space = asyncio.Event()
        """Set as soon as the host had no room for something that the guest wrote to its disk."""
        self.paused = False
        """Whether the guest is paused at present, by a user or by an I/O error, while QEMU's
        process keeps running."""
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Greet QEMU and agree on capabilities.

        Raises:
            MachineFault: QEMU's answer is not a monitor's, or QEMU has ended.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._client.connect("")
        except (QMPError, TimeoutError) as error:
            raise MachineFault(f"QEMU's monitor does not answer: {error}") from error
        self._watch = asyncio.create_task(self._follow())

    async def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its result.

        Raises:
            MachineFault: QEMU refused, did not answer, or has ended.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._client.execute(command, arguments or None)
        except (QMPError, TimeoutError) as error:
            raise MachineFault(f"QEMU did not run {command}: {error}") from error

    async def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, in the order of their numbers."""
        vcpus = await self.execute("query-cpus-fast")
        return tuple(
            int(vcpu["thread-id"]) for vcpu in sorted(vcpus, key=lambda each: each["cpu-index"])
        )

    async def close(self) -> None:
        """Close the connection to the monitor, even if QEMU has ended already."""
        if self._watch is not None:
            self._watch.cancel()
        # The client reports the end of the stream as an error, which is expected here.
        with contextlib.suppress(QMPError, OSError, EOFError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._client.disconnect()

    async def _follow(self) -> None:
        events: AsyncIterator[Any] = aiter(self._listener)
        async for event in events:
            if event["event"] == "BLOCK_IO_ERROR":
                if event["data"].get("nospace"):
                    self.no_space.set()
            elif event["event"] in ("STOP", "RESUME"):
                self.paused = event["event"] == "STOP"
            elif event["event"] == "SHUTDOWN":
                self.ended_by = str(event["data"].get("reason", ""))
            else:
                self.ended_by = "guest-panic"
