"""Sockets, terminals, growing files and large streams, on either kind of host."""

from __future__ import annotations

import asyncio
import os
import tty
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd
from tare.errors import InputError
from tare.hosts import Host, LocalHost
from tare.hosts.ssh.host import SshHost

MANY = os.urandom(1 << 20) * 5


async def test_a_socket_carries_much_both_ways(host: Host, tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    path = tmp_path / "socket"
    async with await asyncio.start_unix_server(echo, path):
        reader, writer = await host.connect_unix(path)

        async def send() -> None:
            for start in range(0, len(MANY), 1 << 18):
                writer.write(MANY[start : start + (1 << 18)])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        assert await reader.read() == MANY
        await sending
        writer.close()
        await writer.wait_closed()


async def test_written_data_can_be_drained_to_the_last_byte(host: Host, tmp_path: Path) -> None:
    reads = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        await reader.readexactly(len(MANY))
        writer.close()

    path = tmp_path / "socket"
    async with await asyncio.start_unix_server(serve, path):
        _, writer = await host.connect_unix(path)
        writer.write(MANY)
        # As QEMU's own client for its monitor does before it lets go.
        writer.transport.set_write_buffer_limits(0)
        assert writer.transport.get_write_buffer_limits() == (0, 0)
        drained = asyncio.create_task(writer.drain())
        await asyncio.sleep(0.05)
        assert not drained.done()
        reads.set()
        async with asyncio.timeout(20):
            await drained
        assert writer.transport.get_write_buffer_size() == 0
        with pytest.raises(ValueError, match="high"):
            writer.transport.set_write_buffer_limits(1, 2)
        assert writer.transport.get_write_buffer_limits() == (0, 0)
        writer.close()


async def test_closing_a_socket_is_seen_at_the_other_end(host: Host, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"last"
        ended.set()
        writer.close()

    path = tmp_path / "socket"
    async with await asyncio.start_unix_server(serve, path):
        reader, writer = await host.connect_unix(path)
        writer.write(b"last")
        writer.close()
        async with asyncio.timeout(20):
            await ended.wait()
            assert await reader.read() == b""


async def test_a_socket_that_is_not_there(host: Host, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await host.connect_unix(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(ConnectionRefusedError):
        await host.connect_unix(tmp_path / "file")


async def test_a_terminal_carries_all_bytes_and_ends(host: Host) -> None:
    near, far = os.openpty()
    tty.setraw(near)
    reader, writer = await host.open_terminal(os.ttyname(far))
    os.close(far)
    every = bytes(range(256))
    os.write(near, every)
    assert await reader.readexactly(256) == every
    writer.write(every[::-1])
    await writer.drain()
    got = b""
    while len(got) < 256:
        got += await asyncio.to_thread(os.read, near, 256)
    assert got == every[::-1]
    os.close(near)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()


async def test_a_closed_terminal_takes_nothing_more(host: Host) -> None:
    near, far = os.openpty()
    name = os.ttyname(far)
    _, first = await host.open_terminal(name)
    first.close()
    await first.wait_closed()
    reader, second = await host.open_terminal(name)
    await asyncio.sleep(0.1)
    os.write(near, b"for the second")
    async with asyncio.timeout(20):
        assert await reader.readexactly(14) == b"for the second"
    second.close()
    await second.wait_closed()
    os.close(near)
    os.close(far)


async def test_settings_and_refusals_are_those_of_the_kernel(host: Host, tmp_path: Path) -> None:
    assert (await host.read("/proc/sys/kernel/ostype")) == b"Linux\n"
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        await host.read(tmp_path / "no-such-file")
    with pytest.raises(IsADirectoryError):
        await host.read(tmp_path)
    with pytest.raises(OSError, match=r"[Pp]ermi"):
        await host.write("/proc/sys/kernel/ostype", b"Minix\n")
    with pytest.raises(FileNotFoundError):
        await host.write(tmp_path / "no" / "file", b"x")
    await host.write(tmp_path / "large", MANY)
    assert await host.read(tmp_path / "large") == MANY
    await host.write(tmp_path / "large", b"")
    assert await host.read(tmp_path / "large") == b""


async def test_large_output_waits_for_its_reader(host: Host) -> None:
    process = await host.start(["head", "-c", "20000000", "/dev/zero"])
    assert await process.stdout.readexactly(1) == b"\0"
    await asyncio.sleep(0.1)
    assert process.returncode is None
    assert len(await process.stdout.read()) == 19_999_999
    assert await process.wait() == 0


async def test_a_process_that_does_not_read_ends_all_the_same(host: Host) -> None:
    process = await host.start(["true"])
    assert await process.wait() == 0
    with pytest.raises(ConnectionError):
        for _ in range(100):
            process.stdin.write(bytes(1 << 20))
            await process.stdin.drain()
    done = await host.run(["true"], input=MANY)
    assert done.returncode == 0


async def test_both_kinds_see_the_same_computer(shared_sshd: Sshd, agent_program: Path) -> None:
    local = LocalHost(agent_program)
    async with SshHost(shared_sshd.options(), agent_program) as far:
        assert far.topology() == local.topology()
        assert far.boot_id() == local.boot_id()


async def test_a_file_is_copied_whole_with_its_mode(
    shared_sshd: Sshd, agent_program: Path, tmp_path: Path
) -> None:
    (tmp_path / "from").write_bytes(MANY)
    async with SshHost(shared_sshd.options(), agent_program) as far:
        await far.put(tmp_path / "from", tmp_path / "to", mode=0o750)
        assert (tmp_path / "to").read_bytes() == MANY
        assert (tmp_path / "to").stat().st_mode & 0o777 == 0o750
        assert not (tmp_path / "to.part").exists()
        with pytest.raises(InputError, match="cannot be executed"):
            await far.run([str(tmp_path)])
