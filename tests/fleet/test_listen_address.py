"""A scheduler and its workers listen at the given address, and nowhere else."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import subprocess
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from distributed import Queue

from tare.cli import fleet
from tare.cli.fleet_checks import listening_place, warn_if_open
from tare.errors import InputError
from tare.fleet import connections
from tare.fleet.connections import ListenAddress
from tare.fleet.servers import MOST_DESCRIPTORS, WorkersHost, allow_many


@pytest.mark.parametrize("address", ["tcp://:8786", "tls://:8786", "tcp://[]:8786"])
def test_no_name_would_be_every_address_and_is_refused(address: str) -> None:
    for command in (fleet.scheduler, fleet.worker):
        with pytest.raises(InputError, match="has no host name") as refused:
            command(address)
        assert address.split(":")[0] + "://127.0.0.1:8786" in refused.value.hint


@pytest.mark.parametrize(
    "address", ["8786", "10.0.0.1:8786", "tcp://a", "tcp://a:65536", "udp://a:1"]
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="is not a scheduler's address"):
        fleet.scheduler(address)


@pytest.mark.parametrize("place", [":8787", "8787", "127.0.0.1", "127.0.0.1:", "a:99999"])
def test_dasks_page_is_shown_at_a_named_host_alone(place: str) -> None:
    with pytest.raises(InputError, match="lacks a host name or a port"):
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
    ("text", "place"),
    [
        ("10.0.0.2", ListenAddress("10.0.0.2")),
        ("10.0.0.2:9000", ListenAddress("10.0.0.2", 9000)),
        ("xen1:0", ListenAddress("xen1")),
        ("[fd00::2]", ListenAddress("fd00::2")),
        ("[fd00::2]:9000", ListenAddress("fd00::2", 9000)),
        ("", None),
    ],
)
def test_where_a_worker_listens_is_an_address_with_or_without_a_port(
    text: str, place: ListenAddress | None
) -> None:
    assert listening_place(text) == place


@pytest.mark.parametrize(
    "text", [":9000", "[]:9000", "fd00::2", "tcp://a:1", "a:b", "a:65536", "a:"]
)
def test_invalid_address_of_a_worker_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an address to listen at"):
        fleet.worker("tcp://127.0.0.1:8786", listen=text)


async def test_worker_listens_at_the_given_address() -> None:
    async with connections.scheduler("tcp://127.0.0.1:0") as serving:
        words = ("worker", "--name", "h1", "--listen", "127.0.0.2", serving.address)
        program = Path(sys.executable).with_name("tare")
        process = await create_subprocess_exec(program, *words, stdout=PIPE)
        assert process.stdout is not None
        try:
            output = (await process.stdout.readline()).decode()
            assert "listens at tcp://127.0.0.2:" in output
            (worker,) = serving.workers
            assert worker == output.split()[-1]
        finally:
            process.terminate()
            await process.wait()


async def test_unusable_address_is_reported_without_blaming_the_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with connections.scheduler("tcp://127.0.0.1:0") as serving:
            for place in (ListenAddress("127.0.0.1", port), ListenAddress("192.0.2.1")):
                standing = connections.worker(serving.address, "h1", WorkersHost(), listen=place)
                with pytest.raises(InputError, match=f"cannot listen at {place.name}"):
                    async with standing:
                        pass


async def test_a_scheduler_that_says_nothing_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(InputError, match="accepts connections but does not answer"):
            async with asyncio.timeout(30), connections.connected(address, None):
                pass


async def test_idle_worker_hardly_wakes_up() -> None:
    async with (
        connections.scheduler("tcp://127.0.0.1:0") as serving,
        connections.worker(serving.address, "h1", WorkersHost()) as standing,
    ):
        callbacks = standing.periodic_callbacks
        assert "heartbeat" in callbacks and "profile" not in callbacks
        assert {name for name, each in callbacks.items() if each.callback_time < 500} == set()
        assert standing.memory_manager.memory_limit is None
        # Dask does not restart lost work.
        assert serving.allowed_failures == 0


async def test_a_scheduler_and_its_workers_meet_over_ipv6_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this computer has no IPv6")
    async with connections.scheduler("tcp://[::1]:0") as serving:
        assert serving.address.startswith("tcp://[::1]:")
        standing = connections.worker(serving.address, "h1", WorkersHost())
        async with standing as worker, connections.connected(serving.address, None) as known:
            assert worker.address.startswith("tcp://[::1]:")
            assert await known.hosts() == {"h1": worker.address}


async def test_a_worker_does_not_guess_where_it_listens_if_there_is_no_way_to_the_scheduler() -> (
    None
):
    with pytest.raises(
        InputError, match=r"there is no route to the scheduler at tcp://no\.invalid:1"
    ):
        async with connections.worker("tcp://no.invalid:1", "h1", WorkersHost()):
            pass


async def test_a_controller_waits_for_more_hosts_than_dask_has_requests_by_itself() -> None:
    allow_many()
    async with (
        connections.scheduler("tcp://127.0.0.1:0") as serving,
        connections.connected(serving.address, None) as known,
    ):
        names = [f"host-{number}" for number in range(520)]
        queues = await asyncio.gather(*(Queue(name, client=known._client) for name in names))
        waiting = [asyncio.ensure_future(queue.get()) for queue in queues]
        await asyncio.sleep(1)
        # Silent connections do not block questions to others and messages for them.
        assert await asyncio.wait_for(known.hosts(), 30) == {}
        await asyncio.wait_for(queues[-1].put("word"), 30)
        assert await asyncio.wait_for(waiting[-1], 30) == "word"
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_a_process_that_hosts_meet_at_may_have_as_many_connections_as_the_system_lets_it() -> None:
    say = (
        "import resource as r; from tare.fleet.servers import allow_many;"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1])); allow_many();"
        "print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    output = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True)
    soft, hard = map(int, output.stdout.split())
    assert soft == (hard if hard >= 0 else MOST_DESCRIPTORS)


async def test_a_worker_whose_scheduler_is_gone_says_so_and_ends_with_a_fault() -> None:
    async with connections.scheduler("tcp://127.0.0.1:0") as serving:
        words = ("worker", "--name", "h1", serving.address)
        program = Path(sys.executable).with_name("tare")
        process = await create_subprocess_exec(program, *words, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        assert b"offers h1" in await process.stdout.readline()
    _, output = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert f"the scheduler at {serving.address} has ended" in output.decode()


@pytest.mark.parametrize(
    ("address", "is_reported"),
    [
        ("tcp://10.0.0.1:8786", True),
        ("tcp://0.0.0.0:8786", True),
        ("tcp://[fd00::2]:8786", True),
        ("tcp://xen1:8786", True),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("tls://10.0.0.1:8786", False),
    ],
)
def test_open_address_without_certificates_is_warned_of(
    address: str, is_reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_if_open(address)
    text = capsys.readouterr().err
    assert (f"anyone who can connect to {address} can run programs here" in text) == is_reported
    assert ("tls://" in text) == is_reported
