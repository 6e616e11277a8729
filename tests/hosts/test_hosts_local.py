from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts import Host, Ledger, LocalHost, clean, host_lock, start_owned
from tare.hosts.granted_cpus import granted_cpus
from tare.hosts.processes import find_by_token, start_time

HOST = LocalHost()


async def test_run_returns_the_commands_output(host: Host) -> None:
    done = await host.run(["sh", "-c", "cat; echo no >&2; exit 3"], input=b"yes")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"yes", b"no\n")
    assert not done.ok
    assert done.words() == "no"


async def test_run_reads_nothing_without_input_and_adds_to_the_environment(host: Host) -> None:
    done = await host.run(["sh", "-c", "cat; echo $TARE_X $HOME"], env={"TARE_X": "x"})
    assert done.stdout.decode().split() == ["x", os.environ["HOME"]]


@pytest.mark.parametrize("most", [1, 3, 100])
async def test_ends_of_files_are_read_but_not_links_and_pipes(tmp_path: Path, most: int) -> None:
    (tmp_path / "b.log").write_bytes(b"long words")
    (tmp_path / "a b.log").write_bytes(b"\xff\n")
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"no")
    (tmp_path / "link.log").symlink_to("/etc/hostname")
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    ends = await HOST.ends(tmp_path, "*.log", most)
    assert {path.name: end for path, end in ends.items()} == {
        "a b.log": b"\xff\n"[-most:],
        "b.log": b"long words"[-most:],
        "empty.log": b"",
    }
    # This computer needs no programs for it, and gives the same as any other host.
    assert await Host.ends(HOST, tmp_path, "*.log", most) == ends
    assert await HOST.ends(tmp_path / "gone", "*.log", most) == {}


async def test_run_kills_what_takes_too_long(host: Host) -> None:
    with pytest.raises(MachineFault, match=r"did not end within 0\.2 s"):
        await host.run(["sleep", "61.7"], timeout_s=0.2)


async def test_a_missing_command_is_named(host: Host) -> None:
    with pytest.raises(InputError, match="no command tare-no-such-command"):
        await host.run(["tare-no-such-command"])


async def test_files(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not await host.exists(path)
    await host.write(path, b"content")
    assert await host.read(path) == b"content"
    await host.remove(path)
    await host.remove(path)
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    await host.remove(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


async def test_topology_names_the_allowed_cpus(host: Host) -> None:
    cpus = host.topology()
    assert set(cpus.online) <= os.sched_getaffinity(0)
    assert all(cpu in cpus.siblings[cpu] for cpu in cpus.online)
    assert set(cpus.nodes) == set(cpus.online)


async def test_a_started_process_is_pinned_logged_and_noted(host: Host, tmp_path: Path) -> None:
    cpu = host.topology().online[-1]
    with Ledger(tmp_path / "l") as ledger:
        process = await start_owned(
            host,
            ledger,
            ["sh", "-c", "echo ready; read line; echo got $line; echo oops >&2; exit 4"],
            log=tmp_path / "log",
            cpus=[cpu],
        )
        (entry,) = ledger.open_entries()
        assert entry.details["pid"] == process.pid
        assert entry.details["cpus"] == [cpu]
        assert await process.stdout.readline() == b"ready\n"
        assert os.sched_getaffinity(process.pid) == {cpu}
        process.stdin.write(b"it\n")
        assert await process.stdout.read() == b"got it\n"
        assert await process.wait() == 4
        assert ledger.open_entries() == ()
    assert (tmp_path / "log").read_text() == "oops\n"


async def test_ending_asks_before_it_kills(host: Host, tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        polite = await start_owned(host, ledger, ["sleep", "60"])
        assert await polite.end(0.5) == -signal.SIGTERM
        deaf = await start_owned(host, ledger, ["sh", "-c", "trap '' TERM; echo; exec sleep 60"])
        await deaf.stdout.readline()
        assert await deaf.end(0.5) == -signal.SIGKILL
        assert ledger.open_entries() == ()


PARENT = """
import asyncio, sys, os
from pathlib import Path
from tare.hosts import Ledger, LocalHost, start_owned
async def main():
    host = LocalHost(Path(sys.argv[1]))
    ledger = Ledger(Path(sys.argv[2]))
    folder = Path(sys.argv[3]); ledger.record("directory", path=str(folder)); folder.mkdir()
    process = await start_owned(host, ledger, ["sleep", "300"])
    print(process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""


async def test_no_process_outlives_a_killed_tare(tmp_path: Path, agent_program: Path) -> None:
    folder = tmp_path / "tare-killed"
    arguments = [str(agent_program), str(tmp_path / "l"), str(folder)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert await start_time(HOST, child) is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while await start_time(HOST, child) is not None:
        assert time.monotonic() < deadline, "the child outlived its killed parent"
        await asyncio.sleep(0.01)
    with Ledger(tmp_path / "l") as ledger:
        kinds = [entry.kind for entry in ledger.open_entries()]
        token = ledger.open_entries()[1].details["token"]
        assert kinds == ["directory", "process"]
        assert await clean(HOST, ledger, {}) == [f"Removed {folder}."]
    assert await find_by_token(HOST, token) == ()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = (
        "import sys; from pathlib import Path; from tare.hosts import host_lock\n"
        "with host_lock('first', Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"another run \\(process {holder.pid}, ") as caught:  # noqa: SIM117
        with host_lock("second", lock):
            pass
    assert caught.value.hint.endswith(f"kill -INT {holder.pid}")
    holder.kill()
    holder.communicate()
    with host_lock("third", lock):
        pass


def test_granted_cpus_spread(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        assert granted_cpus((0, 1, 2, 3), ledger, (3, 2, 1), 2) == (2, 3)
        assert granted_cpus((0, 1), ledger, (), 1) == (0,)
        first = ledger.record("process", cpus=[0])
        assert granted_cpus((0, 1), ledger, (), 1) == (1,)
        ledger.record("container", cpus=[1])
        assert granted_cpus((0, 1), ledger, (), 1) == (0,)
        ledger.record("process", cpus=[0])
        ledger.record("directory", path="/x")
        assert granted_cpus((0, 1), ledger, (), 1) == (1,)
        ledger.done(first)
        assert granted_cpus((0, 1), ledger, (), 2) == (0, 1)
