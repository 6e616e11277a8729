"""Requests that nobody answers over a connection that lives: sent again, or reported in time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd, gone
from tare.errors import MachineFault
from tare.hosts.ssh import host as ssh_host
from tare.hosts.ssh import session
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.link import STUCK, LinkState
from tare.hosts.ssh.session import HostSession


def test_link_without_new_acknowledgements_is_stuck() -> None:
    link, wire = LinkState(), list[bytes]()
    link.resume(wire.append, 0)
    for number in range(1, 4):
        link.message({"op": "end", "stream": number})
    for _ in range(STUCK - 1):
        link.arrived(0)
    assert not link.stuck
    link.arrived(1)
    for _ in range(STUCK - 1):
        link.arrived(1)
    assert not link.stuck
    link.arrived(1)
    assert link.stuck
    wire.clear()
    link.resume(wire.append, 1)
    assert not link.stuck
    assert len(wire) == 2


def test_a_link_over_which_nothing_is_under_way_is_not_stuck() -> None:
    link = LinkState()
    link.resume(list[bytes]().append, 0)
    link.message({"op": "end", "stream": 1})
    for _ in range(2 * STUCK):
        link.arrived(1)
    assert not link.stuck


async def test_a_frame_that_is_lost_is_sent_again(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    options = sshd.options(silence_s=1.0)
    async with SshHost(options, agent_program, tell=notices.append) as host:
        process = await host.start(["cat"])
        with monkeypatch.context() as once:
            once.setattr(LinkState, "_send", _lost)
            signalling = asyncio.create_task(process.terminate())
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await signalling
            assert await process.wait() == -15
    assert "broke (it accepts nothing)" in notices[0]
    assert "connected again" in notices[1]


async def test_a_keeper_that_misses_a_frame_ends_the_connection_at_once(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    # So patient that nothing but the keeper can notice.
    options = sshd.options(silence_s=300.0)
    async with SshHost(options, agent_program, tell=notices.append) as host:
        process = await host.start(["cat"])
        with monkeypatch.context() as once:
            once.setattr(LinkState, "_send", _lost)
            signalling = asyncio.create_task(process.terminate())
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await host.read("/proc/version")
            await signalling
            assert await process.wait() == -15
    assert "broke (it was closed)" in notices[0]
    assert "connected again" in notices[1]


_SEND = LinkState._send


def _lost(link: LinkState, kind: int, payload: bytes) -> None:
    write, link._write = link._write, None
    _SEND(link, kind, payload)
    link._write = write


def silent_on(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one kind of request never answered."""
    begin, take = HostSession.begin, HostSession._take_message
    waited: set[int] = set()

    def beginning(self: HostSession, asked: str, **fields: Any) -> Any:
        begun = begin(self, asked, **fields)
        if asked == op:
            waited.add(begun[0])
        return begun

    def taking(self: HostSession, message: dict[str, Any]) -> None:
        if message.get("done") not in waited:
            take(self, message)

    monkeypatch.setattr(HostSession, "begin", beginning)
    monkeypatch.setattr(HostSession, "_take_message", taking)
    monkeypatch.setattr(session, "ANSWER_S", 1.0)


async def test_a_keeper_that_ends_nothing_is_replaced(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        first = await host.start(["sleep", "300"])
        with monkeypatch.context() as silent:
            silent_on("signal", silent)
            with pytest.raises(MachineFault, match="did not answer `signal` within 1 s") as caught:
                async with asyncio.timeout(20):
                    await first.kill()
        assert "tare clean" in caught.value.hint
        # Whatever is asked next has a new one begin, and ends the old one with all it started.
        assert await host.read("/proc/version")
        await gone(first.pid)


async def test_one_request_that_hangs_leaves_the_others(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        running = await host.start(["cat"])
        with monkeypatch.context() as silent:
            silent_on("exists", silent)
            with pytest.raises(MachineFault, match="did not answer `exists` within 1 s"):
                async with asyncio.timeout(20):
                    await host.exists("/tmp")
        running.stdin.write(b"still here\n")
        assert await running.stdout.readline() == b"still here\n"
        await running.kill()


async def test_process_that_survives_kill_is_reported(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SshHost(sshd.options(), agent_program) as host:
        monkeypatch.setattr(ssh_host, "KILLED_S", 0.5)
        running = await host.start(["sleep", "300"])
        with monkeypatch.context() as silent:
            silent.setattr(HostSession, "_take_exit", lambda *_: None)
            with pytest.raises(MachineFault, match=f"process {running.pid} .* did not end within"):
                async with asyncio.timeout(20):
                    await running.kill()


async def test_time_without_a_connection_does_not_count_as_waiting_for_an_answer(
    sshd: Sshd, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ANSWER_S", 1.0)
    options = sshd.options(silence_s=1.0, patience_s=60)
    async with SshHost(options, agent_program) as host:
        running = await host.start(["sleep", "300"])
        sshd.freeze()
        killing = asyncio.create_task(running.kill())
        await asyncio.sleep(4)
        assert not killing.done()
        sshd.thaw()
        async with asyncio.timeout(60):
            await killing
        assert running.returncode == -9
