"""HTTP over a host's UNIX socket: a hypervisor's API, and connections to a guest's vsock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.agent.channel import StreamChannel
from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.plaintext import plain_line
from tare.platforms.linux.sockets import Streams

_ANSWER_S = 120.0
"""Seconds to wait: on an emulated host, the hypervisor loads a kernel for many seconds first."""
_LONGEST_BODY = 1 << 22
_LONGEST_REASON = 400
_FIRST_RETRY_S = 0.004
_LAST_RETRY_S = 0.064


class Refusal(MachineFault):
    """The hypervisor answered a request with an error; the message quotes it."""


class VmmApi:
    """The REST API of one hypervisor process.

    Args:
        product: The hypervisor's name, for messages.
        machine: The machine's name, for messages.
        streams: The open connection to its socket.
    """

    def __init__(self, product: str, machine: str, streams: Streams) -> None:
        self._product = product
        self._machine = machine
        self._reader, self._writer = streams

    async def put(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Send a PUT request; raises the errors of :meth:`request`."""
        await self.request("PUT", path, body)

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the decoded answer; None if it has no body.

        Raises:
            Refusal: The hypervisor refused it.
            MachineFault: There was no answer, or it is not HTTP.
        """
        content = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: application/json"]
        if content:
            head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        self._writer.write("\r\n".join([*head, "", ""]).encode() + content)
        what = f"{self._machine}: {self._product} {method} {path}"
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._writer.drain()
                status, answer = await self._answer()
        except TimeoutError as error:
            raise MachineFault(f"{what}: no answer within {_ANSWER_S:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            reason = str(error) or "the connection ended"
            raise MachineFault(f"{what}: no HTTP answer: {reason}") from error
        if status >= 300:
            raise Refusal(f"{what} was refused ({status}): {_reason(answer)}")
        try:
            return json.loads(answer) if answer else None
        except ValueError as error:
            raise MachineFault(f"{what}: the answer is not JSON: {error}") from error

    async def _answer(self) -> tuple[int, bytes]:
        """Return status and body of the next answer; raises ValueError if it is not HTTP."""
        words = (await self._line()).split(maxsplit=2)
        if len(words) < 2 or not words[0].startswith("HTTP/"):
            raise ValueError(f"it begins with {' '.join(words)!r}")
        length = 0
        while line := await self._line():
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if not 0 <= length <= _LONGEST_BODY:
            raise ValueError(f"its length is {length}")
        return int(words[1]), await self._reader.readexactly(length)

    async def _line(self) -> str:
        line = await self._reader.readuntil(b"\n")
        return line.decode(errors="replace").strip()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def _reason(answer: bytes) -> str:
    """Return an error's text: Firecracker's ``fault_message``, a list of causes, or all of it."""
    text = answer.decode(errors="replace")
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = text
    if isinstance(decoded, dict):
        decoded = decoded.get("fault_message") or decoded.get("error") or text
    if isinstance(decoded, list):
        decoded = ": ".join(map(str, decoded))
    return plain_line(str(decoded), _LONGEST_REASON) or "no reason was given"


async def connect_vsock(
    host: Host, socket: Path, port: int, died: asyncio.Future[MachineFault]
) -> Streams:
    """Connect to a port of a guest's vsock as soon as its agent listens there.

    Both hypervisors accept ``CONNECT PORT`` on their UNIX socket and answer ``OK PORT`` once the
    guest has accepted. If nothing listens there, they close the connection.

    Args:
        host: The host of the hypervisor.
        socket: The hypervisor's socket.
        port: The guest's port.
        died: Set when the machine has ended.

    Raises:
        MachineFault: The machine ended first.
    """
    pause_s = _FIRST_RETRY_S
    while not died.done():
        try:
            reader, writer = await host.connect_unix(socket)
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        else:
            try:
                writer.write(f"CONNECT {port}\n".encode())
                await writer.drain()
                if (await reader.readline()).startswith(b"OK "):
                    return reader, writer
            except (OSError, ValueError):
                pass
            except asyncio.CancelledError:
                writer.close()
                raise
            writer.close()
        await asyncio.sleep(pause_s)
        pause_s = min(1.25 * pause_s, _LAST_RETRY_S)
    raise died.result()


class VsockChannel:
    """A channel to the agent over a connection that may still be in progress.

    Args:
        connecting: Makes the connection; cancelled when the channel is closed.
    """

    def __init__(self, connecting: asyncio.Task[Streams]) -> None:
        self._connecting = connecting
        self._made: StreamChannel | None = None

    async def _channel(self) -> StreamChannel:
        streams = await asyncio.shield(self._connecting)
        if self._made is None:
            self._made = StreamChannel(*streams)
        return self._made

    async def receive(self) -> bytes:
        """Return the received bytes; empty at the end, and if no connection could be made."""
        try:
            channel = await self._channel()
        except (OSError, MachineFault):
            return b""
        return await channel.receive()

    async def send(self, data: bytes) -> None:
        """Send all of ``data``; raises OSError if the other end is gone."""
        try:
            channel = await self._channel()
        except MachineFault as fault:
            raise ConnectionError(fault.message) from fault
        await channel.send(data)

    async def close(self) -> None:
        """Close both directions, or cancel the attempt to connect."""
        self._connecting.cancel()
        await asyncio.wait({self._connecting})
        if not self._connecting.cancelled() and self._connecting.exception() is None:
            await (await self._channel()).close()
