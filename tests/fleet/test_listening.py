"""A scheduler and its workers listen where they are told to, and nowhere else."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tare.cli import fleet
from tare.errors import InputError
from tare.fleet import connecting
from tare.fleet.connecting import Place
from tare.fleet.servers import WorkersHost


@pytest.mark.parametrize("address", ["tcp://:8786", "tls://:8786", "tcp://[]:8786"])
def test_no_name_would_be_every_address_and_is_refused(address: str) -> None:
    for command in (fleet.scheduler, fleet.worker):
        with pytest.raises(InputError, match="names no host") as refused:
            command(address)
        assert address.split(":")[0] + "://127.0.0.1:8786" in refused.value.hint


@pytest.mark.parametrize(
    "address", ["8786", "10.0.0.1:8786", "tcp://a", "tcp://a:65536", "udp://a:1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="is no address of a scheduler"):
        fleet.scheduler(address)


@pytest.mark.parametrize("place", [":8787", "8787", "127.0.0.1", "127.0.0.1:", "a:99999"])
def test_dasks_page_is_shown_at_a_named_host_alone(place: str) -> None:
    with pytest.raises(InputError, match="names no host and port"):
        fleet.scheduler("tcp://127.0.0.1:8786", place)


def test_dasks_page_needs_what_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "bokeh" else known(name)
    )
    with pytest.raises(InputError, match="Bokeh") as refused:
        fleet.scheduler("tcp://127.0.0.1:8786", "127.0.0.1:8787")
    assert refused.value.hint == "pip install bokeh"


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("10.0.0.2", Place("10.0.0.2")),
        ("10.0.0.2:9000", Place("10.0.0.2", 9000)),
        ("xen1:0", Place("xen1")),
        ("[fd00::2]", Place("fd00::2")),
        ("[fd00::2]:9000", Place("fd00::2", 9000)),
        ("", None),
    ],
)
def test_where_a_worker_listens_is_an_address_with_or_without_a_port(
    said: str, place: Place | None
) -> None:
    assert fleet._listening_place(said) == place


@pytest.mark.parametrize(
    "said", [":9000", "[]:9000", "fd00::2", "tcp://a:1", "a:b", "a:65536", "a:"]
)
def test_a_worker_is_told_where_it_cannot_listen(said: str) -> None:
    with pytest.raises(InputError, match="is no address to listen at"):
        fleet.worker("tcp://127.0.0.1:8786", listen=said)


async def test_a_worker_listens_where_it_is_told_to() -> None:
    async with connecting.scheduler("tcp://127.0.0.1:0") as serving:
        words = ("worker", "--name", "h1", "--listen", "127.0.0.2", serving.address)
        program = Path(sys.executable).with_name("tare")
        process = await create_subprocess_exec(program, *words, stdout=PIPE)
        assert process.stdout is not None
        try:
            told = (await process.stdout.readline()).decode()
            assert "listens at tcp://127.0.0.2:" in told
            (worker,) = serving.workers
            assert worker == told.split()[-1]
        finally:
            process.terminate()
            await process.wait()


async def test_a_place_that_cannot_be_listened_at_is_told_and_not_the_scheduler_blamed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with connecting.scheduler("tcp://127.0.0.1:0") as serving:
            for place in (Place("127.0.0.1", port), Place("192.0.2.1")):
                standing = connecting.worker(serving.address, "h1", WorkersHost(), listen=place)
                with pytest.raises(InputError, match=f"cannot listen at {place.name}"):
                    async with standing:
                        pass


async def test_a_scheduler_that_says_nothing_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(InputError, match="takes connections and says nothing"):
            async with asyncio.timeout(30), connecting.connected(address, None):
                pass
