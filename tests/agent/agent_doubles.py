"""Channels that behave badly, and an agent that does as a test says."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

from tare.agent.channel import Channel
from tare.agent.framing import Decoder, FrameKind, encode


class ScriptedAgent:
    """The other end of a channel: hands each request to a function, and sends what it returns.

    It is a channel itself, as the client sees it.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = answer
        self._decoder = Decoder()
        self._seq = 0
        self._out: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> bytes:
        return await self._out.get()

    async def send(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            request = json.loads(frame.payload)
            self.requests.append(request)
            for message in self._answer(request):
                self.say(message)

    async def close(self) -> None:
        self.end()

    def frame(self, message: dict[str, Any], seq: int | None = None) -> bytes:
        """Number a message, and return its frame."""
        return self._encode(FrameKind.MESSAGE, json.dumps(message).encode(), seq)

    def series_frame(self, header: dict[str, Any], data: bytes) -> bytes:
        """Number a series chunk, and return its frame."""
        return self._encode(FrameKind.SERIES, json.dumps(header).encode() + b"\n" + data, None)

    def _encode(self, kind: FrameKind, payload: bytes, seq: int | None) -> bytes:
        if seq is None:
            seq = self._seq
            self._seq += 1
        return encode(kind, seq, payload)

    def say(self, message: dict[str, Any]) -> None:
        self.put(self.frame(message))

    def put(self, data: bytes) -> None:
        self._out.put_nowait(data)

    def end(self) -> None:
        self._out.put_nowait(b"")

    def asked(self, op: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["op"] == op]


class NoisyChannel:
    """A channel with console text between the pieces, and now and then a damaged byte."""

    def __init__(self, channel: Channel, seed: int, damage: float) -> None:
        self._channel = channel
        self._random = random.Random(seed)
        self._damage = damage

    async def receive(self) -> bytes:
        # A short piece may become empty, and empty bytes mean the end of the channel.
        while data := await self._channel.receive():
            if spoiled := self._text() + self._spoil(data):
                return spoiled
        return b""

    async def send(self, data: bytes) -> None:
        await self._channel.send(self._text() + self._spoil(data))

    async def close(self) -> None:
        await self._channel.close()

    def _text(self) -> bytes:
        return b"[    1.0] noise \xf5T\r\n" if self._random.random() < 0.5 else b""

    def _spoil(self, data: bytes) -> bytes:
        if self._random.random() >= self._damage:
            return data
        spoiled = bytearray(data)
        at = self._random.randrange(len(spoiled))
        what = self._random.randrange(3)
        if what == 0:
            spoiled[at] ^= 1 << self._random.randrange(8)
        elif what == 1:
            del spoiled[at : at + self._random.randrange(1, 50)]
        else:
            spoiled[at:at] = b"\xf5TAR\x01\x00"
        return bytes(spoiled)
