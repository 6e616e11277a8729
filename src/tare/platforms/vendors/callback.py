"""The way back: a place where agents dial in over TLS, each with a key that is its machine's alone.

What comes first on a connection is one line, ``tare-callback 1 KEY``; then the agent speaks as on
any other channel. A key opens one channel, once. Whoever has none is told nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tare.agent.channel import StreamChannel
from tare.errors import InputError
from tare.hosts.address_pair import UNKNOWN, AddressPair, of_transport
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.options import Place
from tare.platforms.vendors.tls import OwnCertificate, own_certificate

GREETING = "tare-callback 1 "
VERSION = 1
KEY_BYTES = 32
GREETING_S = 20.0
"""Seconds that a caller has for TLS and its line."""
MOST_CALLERS = 64
"""Of those who have not shown a key yet."""


class DialledChannel:
    """A channel that is there once its agent has dialled in; sending and receiving wait for it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """Set once the agent is gone, or the channel was closed."""
        self.addresses = UNKNOWN
        """Those of the agent's connection, as they are seen here."""
        self._there: asyncio.Future[StreamChannel] = asyncio.get_running_loop().create_future()

    @property
    def dialled(self) -> bool:
        """Whether the agent has dialled in."""
        return self._there.done() and not self._there.cancelled()

    def connect(self, channel: StreamChannel, addresses: AddressPair = UNKNOWN) -> None:
        """Take the agent's connection, and note between which addresses it is."""
        self.addresses = addresses
        self._there.set_result(channel)

    async def receive(self) -> bytes:
        """Return what has arrived; empty at the end."""
        try:
            data = await (await asyncio.shield(self._there)).receive()
        except asyncio.CancelledError:
            if not self._there.cancelled():
                raise
            data = b""
        if not data:
            self.ended.set()
        return data

    async def send(self, data: bytes) -> None:
        """Send all of ``data``; raises OSError when the agent is gone."""
        try:
            await (await asyncio.shield(self._there)).send(data)
        except asyncio.CancelledError:
            if not self._there.cancelled():
                raise
            raise ConnectionResetError("the channel was closed") from None

    async def close(self) -> None:
        """Close it; may be called again."""
        self.ended.set()
        if self.dialled:
            await self._there.result().close()
        else:
            self._there.cancel()


@dataclass(frozen=True)
class Caller:
    """A machine that is expected to dial in.

    Args:
        channel: Leads to its agent, once that has dialled in.
        key: Its key, for messages to be scrubbed of.
        configuration: What its agent must be given, secret as a whole.
    """

    channel: DialledChannel
    key: Secret
    configuration: dict[str, Any] = field(repr=False)


class Door:
    """Listens where agents dial in.

    Args:
        certificate: What is shown to them.
    """

    def __init__(self, certificate: OwnCertificate) -> None:
        self.place = Place("", 0)
        """Where it listens, once it does."""
        self._certificate = certificate
        self._expected: dict[str, DialledChannel] = {}
        self._callers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, place: Place) -> None:
        """Listen.

        Raises:
            InputError: The address is none of this computer's, or the port is taken.
        """
        try:
            self._server = await asyncio.start_server(
                self._answer,
                place.address,
                place.port,
                ssl=self._certificate.context,
                ssl_handshake_timeout=GREETING_S,
            )
        except OSError as error:
            raise InputError(
                f"agents cannot dial back to {place}: {error.strerror or error}",
                "name an address of this computer and a free port by `callback`",
            ) from None
        address, port = self._server.sockets[0].getsockname()[:2]
        self.place = Place(address, port)

    async def close(self) -> None:
        """Listen no more; channels that are open stay so."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._callers):
            task.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    @contextmanager
    def expected(self, name: str, kept: Secret | None = None) -> Iterator[Caller]:
        """Expect one machine's agent until the end of the block.

        Args:
            name: The machine's name.
            kept: The key of a machine that keeps its own; a fresh one otherwise.
        """
        key = secrets.token_hex(KEY_BYTES) if kept is None else kept.reveal()
        channel = DialledChannel()
        self._expected[key] = channel
        configuration = {
            "version": VERSION,
            "name": name,
            "callback": str(self.place),
            "certificate": self._certificate.digest,
            "key": key,
        }
        try:
            yield Caller(channel, Secret(key), configuration)
        finally:
            self._expected.pop(key, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._callers) >= MOST_CALLERS:
            writer.close()
            return
        self._callers.add(task)
        kept = False
        try:
            async with asyncio.timeout(GREETING_S):
                line = await reader.readuntil(b"\n")
            channel = self._claimed(line)
            if channel is not None:
                addresses = of_transport(writer.get_extra_info)
                channel.connect(StreamChannel(reader, writer), addresses)
                kept = True
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._callers.discard(task)
            if not kept:
                writer.close()

    def _claimed(self, line: bytes) -> DialledChannel | None:
        greeting, key = line[: len(GREETING)], line[len(GREETING) :].strip()
        if greeting != GREETING.encode():
            return None
        # Every key is compared, and each in constant time.
        found = [known for known in self._expected if hmac.compare_digest(known.encode(), key)]
        if not found:
            return None
        channel = self._expected.pop(found[0])
        return None if channel.ended.is_set() else channel


class Doors:
    """The doors of one platform: machines that are to dial back to one place share one."""

    def __init__(self) -> None:
        self._open: dict[tuple[Place, int], tuple[Door, int]] = {}
        self._one: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def open(self, place: Place) -> AsyncIterator[Door]:
        """Hold a door open as long as any machine needs it.

        Raises:
            InputError: Nothing can listen there.
        """
        loop = id(asyncio.get_running_loop())
        # A port that is free every time is another one every time.
        key = (place, loop)
        async with self._one.setdefault(loop, asyncio.Lock()):
            door, holders = self._open.get(key, (None, 0))
            if door is None:
                door = Door(own_certificate())
                await door.open(place)
            self._open[key] = (door, holders + 1)
        try:
            yield door
        finally:
            door, holders = self._open[key]
            if holders > 1:
                self._open[key] = (door, holders - 1)
            else:
                del self._open[key]
                with contextlib.suppress(OSError):
                    await door.close()
