"""Streams that nobody closed: the collector, which runs anywhere, sends nothing by itself."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.streams import Outgoing


class Heard:
    """A record of senders and what they sent."""

    def __init__(self) -> None:
        self.said: list[tuple[dict[str, Any], int]] = []

    def message(self, value: dict[str, Any]) -> None:
        self.said.append((value, threading.get_ident()))

    def data(self, stream: int, data: bytes) -> None:
        raise AssertionError(f"{data!r} was sent over {stream}")

    def over(self, stream: int) -> None:
        del stream


@pytest.mark.parametrize("whole", [pytest.param(False, id="pipe"), pytest.param(True, id="socket")])
async def test_an_unclosed_stream_is_ended_by_its_loop_and_not_by_the_collecting_thread(
    whole: bool,
) -> None:
    heard = Heard()
    Outgoing(heard, 6, whole=whole)
    # Joined without a pause: the loop has no time meanwhile.
    collecting = threading.Thread(target=gc.collect)
    collecting.start()
    collecting.join()
    assert not heard.said, "sent in the midst of something else"
    await asyncio.sleep(0)
    assert heard.said == [({"op": "drop" if whole else "end", "stream": 6}, threading.get_ident())]


async def test_an_unawaited_error_is_not_reported_as_never_retrieved() -> None:
    """Also if the collector finds the future of the error before its protocol."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    stream = Outgoing(Heard(), 6, whole=False)
    stream.stop(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
    await asyncio.sleep(0)
    stream._protocol._closed = None  # type: ignore[attr-defined]
    gc.collect()
    assert not reports
    # asyncio's own retrieval, when the protocol is collected, needs a future.
    stream._protocol._closed = asyncio.get_running_loop().create_future()  # type: ignore[attr-defined]


def test_a_stream_that_outlives_its_loop_is_forgotten_in_silence(
    recwarn: pytest.WarningsRecorder,
) -> None:
    kept: list[Outgoing] = []

    async def forget() -> None:
        kept.append(Outgoing(Heard(), 6, whole=False))

    asyncio.run(forget())
    kept.clear()
    gc.collect()
    assert not [
        each for each in recwarn if each.category is pytest.PytestUnraisableExceptionWarning
    ]


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect all the time, from another thread, as a pool's thread may at any moment."""
    over = threading.Event()

    def collect() -> None:
        while not over.is_set():
            gc.collect()
            time.sleep(0.0005)

    # Collections skip existing objects, so that they follow each other closely.
    gc.freeze()
    thread = threading.Thread(target=collect)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.usefixtures("collected")
async def test_frames_keep_their_order_in_any_collecting_thread(
    sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    notices: list[str] = []
    async with SshHost(sshd.options(), agent_program, tell=notices.append) as host:
        for _ in range(5):
            async with asyncio.timeout(30):
                writing = (host.write(tmp_path / str(number), b"x") for number in range(12))
                await asyncio.gather(*writing)
    assert not notices
