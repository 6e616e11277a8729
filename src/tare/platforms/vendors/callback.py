"""The callback: Tare listens over TLS for the agents of machines; each has its own key.

A connection begins with one line, ``tare-callback 1 KEY``; then the agent speaks as on any other
channel. A key opens one channel, once. A caller without a key gets no answer.
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
from tare.platforms.vendors.options import CallbackAddress
from tare.platforms.vendors.tls import OwnCertificate, own_certificate

GREETING = "tare-callback 1 "
VERSION = 1
KEY_BYTES = 32
GREETING_S = 20.0
"""Seconds that a caller has for TLS and its first line."""
MOST_CALLERS = 64
"""The limit of callers that have not shown a key yet."""


class DialledChannel:
    """A channel that opens when its agent dials in; sending and receiving wait for that."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """Set when the agent is gone or the channel was closed."""
        self.addresses = UNKNOWN
        """The addresses of the agent's connection, as seen here."""
        self._there: asyncio.Future[StreamChannel] = asyncio.get_running_loop().create_future()

    @property
    def dialled(self) -> bool:
        """Whether the agent has dialled in."""
        return self._there.done() and not self._there.cancelled()

    def connect(self, channel: StreamChannel, addresses: AddressPair = UNKNOWN) -> None:
        """Take the agent's connection, and keep its addresses."""
        self.addresses = addresses
        self._there.set_result(channel)

    async def receive(self) -> bytes:
        """Return the data that has arrived; empty at the end."""
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
class ExpectedAgent:
    """An agent that is expected to dial in.

    Args:
        channel: The channel to the agent; it opens when the agent dials in.
        key: Its key, which no message may contain.
        configuration: The configuration to give to the agent; all of it is secret.
    """

    channel: DialledChannel
    key: Secret
    configuration: dict[str, Any] = field(repr=False)


class CallbackListener:
    """Listens for agents that dial in.

    Args:
        certificate: The certificate that the listener shows to agents.
    """

    def __init__(self, certificate: OwnCertificate) -> None:
        self.address = CallbackAddress("", 0)
        """The address that it listens at, once it is open."""
        self._certificate = certificate
        self._expected: dict[str, DialledChannel] = {}
        self._callers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, address: CallbackAddress) -> None:
        """Listen.

        Raises:
            InputError: The address is not one of this computer, or the port is in use.
        """
        try:
            self._server = await asyncio.start_server(
                self._answer,
                address.address,
                address.port,
                ssl=self._certificate.context,
                ssl_handshake_timeout=GREETING_S,
            )
        except OSError as error:
            raise InputError(
                f"agents cannot dial back to {address}: {error.strerror or error}",
                "name an address of this computer and a free port by `callback`",
            ) from None
        self.address = CallbackAddress(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Stop listening; open channels stay open."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._callers):
            task.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    @contextmanager
    def expect(self, name: str, key: Secret | None = None) -> Iterator[ExpectedAgent]:
        """Expect one machine's agent until the end of the block.

        Args:
            name: The machine's name.
            key: The key of a machine that keeps its own; None: create a new key.
        """
        revealed = secrets.token_hex(KEY_BYTES) if key is None else key.reveal()
        channel = DialledChannel()
        self._expected[revealed] = channel
        configuration = {
            "version": VERSION,
            "name": name,
            "callback": str(self.address),
            "certificate": self._certificate.digest,
            "key": revealed,
        }
        try:
            yield ExpectedAgent(channel, Secret(revealed), configuration)
        finally:
            self._expected.pop(revealed, None)

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
        # Compare every key, each in constant time.
        found = [known for known in self._expected if hmac.compare_digest(known.encode(), key)]
        if not found:
            return None
        channel = self._expected.pop(found[0])
        return None if channel.ended.is_set() else channel


class CallbackListeners:
    """The listeners of one platform: machines that dial back to the same address share one."""

    def __init__(self) -> None:
        self._open: dict[tuple[CallbackAddress, int], tuple[CallbackListener, int]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def open(self, address: CallbackAddress) -> AsyncIterator[CallbackListener]:
        """Listen at an address as long as any machine needs it.

        Raises:
            InputError: Tare cannot listen there.
        """
        loop = id(asyncio.get_running_loop())
        # Port 0 means a free port, so each event loop listens at its own.
        key = (address, loop)
        async with self._locks.setdefault(loop, asyncio.Lock()):
            listener, holders = self._open.get(key, (None, 0))
            if listener is None:
                listener = CallbackListener(own_certificate())
                await listener.open(address)
            self._open[key] = (listener, holders + 1)
        try:
            yield listener
        finally:
            listener, holders = self._open[key]
            if holders > 1:
                self._open[key] = (listener, holders - 1)
            else:
                del self._open[key]
                with contextlib.suppress(OSError):
                    await listener.close()
