"""Waiting for another build into the image cache: its process is named, and the host is free."""

from __future__ import annotations

import asyncio
import getpass
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tare.errors import InputError
from tare.hosts import Ledger, LocalHost, host_lock
from tare.hosts.lock import HostHeld
from tare.images.cache import exclusive, while_waiting
from tare.run.hosts.ssh import remote_lock
from tare.run.preflight.cache_wait import announced, builder_of, releasing_while_waiting
from tare.run.preflight.checking import PATIENCE_S, _BuildNote

BUILD = (
    "import asyncio, sys\n"
    "from pathlib import Path\n"
    "from tare.images.cache import exclusive\n"
    "async def build():\n"
    "    async with exclusive(Path(sys.argv[1])):\n"
    "        print('built', flush=True); sys.stdin.read()\n"
    "asyncio.run(build())"
)
FALSE_OWNER = '{"run": "me", "pid": 1}'


@contextmanager
def builder(cache: Path) -> Iterator[subprocess.Popen[str]]:
    """Have another process build into a cache until its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "built\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_the_building_process_is_found_through_the_kernel(tmp_path: Path) -> None:
    with builder(tmp_path) as other:
        (tmp_path / "lock").write_text(FALSE_OWNER)
        who = builder_of(tmp_path / "lock")
    assert f"process {other.pid}" in who
    assert sys.executable in who
    assert f"(user {getpass.getuser()}, started at " in who
    assert str(tmp_path) in who
    assert "process 1," not in who


def test_an_unknown_builder_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(FALSE_OWNER)
    for lock in (tmp_path / "lock", tmp_path / "none"):
        assert builder_of(lock) == f"another process, which builds into {tmp_path}"


async def test_the_host_is_free_while_waiting_and_held_again_after(tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", tmp_path / "host.lock"
    messages: list[str] = []

    async def wait() -> None:
        async with exclusive(cache):
            pass

    with (
        builder(cache) as other,
        host_lock("mine", path) as lock,
        releasing_while_waiting([lock], messages.append),
    ):
        # Two arms wait at once: one message is shown, and the host is held again once.
        waiting = [asyncio.ensure_future(wait()) for _ in range(2)]
        await asyncio.sleep(0.2)
        assert [sentence.split(",")[0] for sentence in messages] == [
            f"waiting for process {other.pid}"
        ]
        assert "other runs may use the host" in messages[0]
        with host_lock("theirs", path):
            pass
        end(other)
        await asyncio.gather(*waiting)
        with pytest.raises(HostHeld), host_lock("theirs", path):
            pass
    with host_lock("theirs", path):
        pass


async def test_a_host_that_another_run_took_meanwhile_is_theirs(tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", tmp_path / "host.lock"

    async def wait() -> None:
        async with exclusive(cache):
            pass

    with (
        builder(cache) as other,
        host_lock("mine", path) as lock,
        releasing_while_waiting([lock], print),
    ):
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0.2)
        with host_lock("theirs", path):
            end(other)
            with pytest.raises(InputError, match="another run is in progress"):
                await waiting


async def test_a_wait_that_is_cancelled_leaves_the_host_free(tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", tmp_path / "host.lock"

    async def wait() -> None:
        async with exclusive(cache):
            pass

    with builder(cache), host_lock("mine", path) as lock, releasing_while_waiting([lock], print):
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with host_lock("theirs", path):
            pass


async def test_no_build_is_reported_while_another_process_builds(tmp_path: Path) -> None:
    messages: list[str] = []
    note = _BuildNote(messages.append)
    with builder(tmp_path) as other, while_waiting(note.paused):
        asyncio.get_running_loop().call_later(PATIENCE_S + 0.5, end, other)
        async with exclusive(tmp_path):
            assert messages == []
            await asyncio.sleep(PATIENCE_S + 0.2)
            assert len(messages) == 1
            assert "building the image that the guests boot" in messages[0]
    note.end()


async def test_a_command_that_holds_no_host_says_so_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with builder(tmp_path) as other, announced():
        asyncio.get_running_loop().call_later(0.2, end, other)
        async with exclusive(tmp_path):
            pass
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"tare: waiting for process {other.pid}")
    assert "other runs" not in shown.err


async def test_a_lock_over_ssh_is_released_and_taken_again(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    host = LocalHost(agent_program)
    with Ledger(tmp_path / "ledger") as ledger:
        async with remote_lock(host, ledger, "mine") as lock:
            with pytest.raises(HostHeld), host_lock("theirs"):
                pass
            await lock.release()
            with host_lock("theirs"), pytest.raises(HostHeld):
                await lock.take()
            await lock.take()
            with pytest.raises(HostHeld), host_lock("theirs"):
                pass
        with host_lock("theirs"):
            pass
        assert not ledger.open_entries()
