"""Agents dial back: over TLS to a host that they know, each with a key of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from tare.agent.client import AgentClient
from tare.errors import InputError
from tare.platforms.vendors.callback import (
    GREETING,
    CallbackListener,
    CallbackListeners,
    ExpectedAgent,
)
from tare.platforms.vendors.configuration import configuration_image
from tare.platforms.vendors.options import CallbackAddress
from tare.platforms.vendors.tls import own_certificate
from tare.run.lifecycle.session import agent_path
from tare.testing.simulated_guest import LocalGuest

ANYWHERE = CallbackAddress("127.0.0.1", 0)


async def test_an_agent_dials_back_and_measures() -> None:
    guest, doors = LocalGuest(agent_path()), CallbackListeners()
    async with doors.open(ANYWHERE) as door:
        with door.expect("tare-1-subject") as caller:
            client = AgentClient(caller.channel, name="subject")
            try:
                await guest.boot([bytes(1 << 16), configuration_image(caller.configuration)])
                hello = await client.hello(60)
                assert hello.role == "process"
                done = await client.run("numeric-sort", {"seconds": 0.1}, deadline_s=60)
                assert done.value["iterations_per_s"] > 0
                await client.shutdown()
                # It ends by itself: its channel is all it lives for.
                await asyncio.wait_for(guest.wait(), 60)
                assert caller.channel.ended.is_set()
            finally:
                await client.close()
                await guest.end()


async def test_an_agent_leaves_another_host_alone() -> None:
    """A server at the address without the host's certificate is refused."""
    door, other = CallbackListener(own_certificate()), CallbackListener(own_certificate())
    await door.open(ANYWHERE)
    await other.open(ANYWHERE)
    guest = LocalGuest(agent_path())
    try:
        with door.expect("subject") as caller:
            strayed = {**caller.configuration, "callback": str(other.address)}
            await guest.boot([configuration_image(strayed)])
            await asyncio.wait_for(guest.wait(), 60)
            assert not caller.channel.dialled
    finally:
        await guest.end()
        await door.close()
        await other.close()


async def knock(place: CallbackAddress, greeting: bytes) -> bytes:
    """Return the whole answer to a caller that begins with a greeting."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(place.address, place.port, ssl=context)
    writer.write(greeting)
    try:
        with contextlib.suppress(OSError):
            return await asyncio.wait_for(reader.read(), 30)
        return b""
    finally:
        writer.close()


def key_of(caller: ExpectedAgent) -> str:
    return str(caller.configuration["key"])


async def test_a_key_opens_one_channel_once() -> None:
    async with CallbackListeners().open(ANYWHERE) as door:
        with door.expect("one") as one, door.expect("two") as two:
            assert key_of(one) != key_of(two)
            for wrong in (b"hello\n", GREETING.encode() + b"0" * 64 + b"\n", bytes(1 << 17)):
                assert await knock(door.address, wrong) == b""
            assert not one.channel.dialled and not two.channel.dialled
            right = f"{GREETING}{key_of(one)}\n".encode()
            first = asyncio.ensure_future(knock(door.address, right))
            async with asyncio.timeout(30):
                while not one.channel.dialled:
                    await asyncio.sleep(0.01)
            # A second caller with the same key comes too late.
            assert await knock(door.address, right) == b""
            assert not two.channel.dialled
            await one.channel.close()
            assert await first == b""
        after = f"{GREETING}{key_of(two)}\n".encode()
        assert await knock(door.address, after) == b""
        assert not two.channel.dialled


async def test_machines_of_one_place_share_a_door_and_the_last_closes_it() -> None:
    doors = CallbackListeners()
    async with doors.open(ANYWHERE) as one:
        async with doors.open(ANYWHERE) as two:
            assert one is two
        assert await knock(one.address, b"\n") == b""
    with pytest.raises(OSError):
        await knock(one.address, b"\n")


async def test_an_address_of_another_computer_is_reported() -> None:
    with pytest.raises(InputError, match=r"cannot dial back to 192\.0\.2\.1:1"):
        async with CallbackListeners().open(CallbackAddress("192.0.2.1", 1)):
            pass


async def test_a_channel_without_a_caller_ends_when_it_is_closed() -> None:
    async with CallbackListeners().open(ANYWHERE) as door:
        with door.expect("one") as caller:
            hearing = asyncio.ensure_future(caller.channel.receive())
            await asyncio.sleep(0)
            await caller.channel.close()
            assert await hearing == b""
            with pytest.raises(OSError):
                await caller.channel.send(b"x")


async def test_the_key_is_in_no_argument_and_no_readable_file(tmp_path: Path) -> None:
    async with CallbackListeners().open(ANYWHERE) as door:
        with door.expect("one") as caller:
            guest = LocalGuest(agent_path())
            await guest.boot([configuration_image(caller.configuration)])
            try:
                async with asyncio.timeout(60):
                    while not caller.channel.dialled:
                        await asyncio.sleep(0.01)
                line, variables, file = seen_of(guest)
                for seen in (line, variables, repr(caller)):
                    assert key_of(caller) not in seen
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
                assert json.loads(file.read_text())["key"] == key_of(caller)
            finally:
                await guest.end()
                await caller.channel.close()


def seen_of(guest: LocalGuest) -> tuple[str, str, Path]:
    """Return a guest's arguments and environment as others see them, and its file."""
    process: Any = guest._process
    place = Path("/proc") / str(process.pid)
    words = (place / "cmdline").read_bytes().decode().split("\0")
    return " ".join(words), (place / "environ").read_bytes().decode(), Path(words[2])
