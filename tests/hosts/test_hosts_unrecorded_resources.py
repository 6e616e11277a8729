"""What is in no ledger is found by Tare's names, and what a running Tare holds never is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run.run_driving import tare
from tare.errors import MachineFault
from tare.hosts import Host, Ledger, LocalHost, clean, clean_all, ledger_path
from tare.hosts.ledger.cleanup import Leftover, undo_unlisted
from tare.hosts.ledger.finding import FileSystemRoot, unlisted, words_of
from tare.hosts.ledger.ledger import Entry


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A computer's files, with one leftover of each kind and things of others."""
    root = tmp_path / "root"
    for folder in (
        "sys/class/net/tare-br0", "sys/class/net/eth0", "run/netns/tare-ns", "run/netns/other",
        "sys/fs/cgroup/tare-box-1/inner", "sys/fs/cgroup/cpu/tare-box-1", "sys/fs/cgroup/system",
        "sys/kernel/tracing/instances/tare-t1", "tmp/tare-box-1/bundle", "tmp/mine",
        "tmp/tare-test-state-0", "sys/block/loop3/loop", "proc/self", "proc/4711/fd",
    ):  # fmt: skip
        (root / folder).mkdir(parents=True)
    (root / "tmp/tare-host.lock").touch()
    (root / "sys/block/loop3/loop/backing_file").write_text("/x/tare-box-1/disk\n")
    (root / "proc/self/mountinfo").write_text(
        "36 35 0:50 / /x/tare-box-1/disk rw - ext4 /dev/loop3 rw\n"
        "37 35 8:1 / /home rw - ext4 /dev/sda1 rw\n"
    )
    (root / "proc/4711/environ").write_bytes(b"PATH=/bin\0TARE_TOKEN=abc123\0")
    (root / "proc/4711/cmdline").write_bytes(b"/usr/bin/qemu-system-x86_64\0-name\0")
    return root


def found(root: Path) -> list[str]:
    return [words_of(entry).replace(str(root), "") for entry in unlisted(FileSystemRoot(root))]


ALL = [
    "process 4711 (qemu-system-x86_64)",
    "mount /x/tare-box-1/disk",
    "loop device of /x/tare-box-1/disk",
    "tracing instance /sys/kernel/tracing/instances/tare-t1",
    "network interface tare-br0",
    "network namespace tare-ns",
    "control group /sys/fs/cgroup/tare-box-1",
    "control group /sys/fs/cgroup/cpu/tare-box-1",
    "directory /tmp/tare-box-1",
]


def test_each_kind_is_found_by_its_name_and_nothing_else(root: Path) -> None:
    assert found(root) == ALL


def test_resources_in_a_ledger_of_this_user_are_not_listed(root: Path) -> None:
    with Ledger(ledger_path("dead")) as ledger:
        ledger.record("link", name="tare-br0")
        ledger.record("process", token="abc123", command="qemu")
    assert found(root) == [
        each for each in ALL if "br0" not in each and not each.startswith("process")
    ]


def test_resources_of_a_running_tare_with_another_state_folder_are_not_listed(
    root: Path, tmp_path: Path
) -> None:
    other = tmp_path / "others" / "tare" / "ledgers" / "run.jsonl"
    other.parent.mkdir(parents=True)
    with Ledger(other) as ledger:
        ledger.record("directory", path="/tmp/tare-box-1")
        ledger.record("netns", name="tare-ns")
        assert len(found(root)) == len(ALL)
        (root / "proc/4711/fd/9").symlink_to(other)
        left = found(root)
    assert "network namespace tare-ns" not in left and not [e for e in left if "tare-box-1" in e]
    assert "network interface tare-br0" in left


async def test_resources_that_cannot_be_removed_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "tare-stuck"
    for name in ("tare-a", "tare-b"):
        (tmp_path / name).mkdir()
    with Ledger(ledger_path("dead")) as ledger:
        ledger.record("directory", path=str(stuck))
        ledger.record("directory", path=str(tmp_path / "tare-a"))
        ledger.record("unheard-of", path="x")
        ledger.record("directory", path="/etc")
    remove = LocalHost.remove

    async def failing(self: LocalHost, path: str | Path) -> None:
        if Path(path) == stuck:
            raise MachineFault("it is busy")
        await remove(self, path)

    stuck.mkdir()
    monkeypatch.setattr(LocalHost, "remove", failing)
    done = await clean_all(LocalHost(), dict)
    assert len(done) == 4 and sum(isinstance(each, Leftover) for each in done) == 3


def test_the_command_says_how_many_are_left_and_ends_so(tmp_path: Path) -> None:
    (tmp_path / "tare-a").mkdir()
    with Ledger(ledger_path("dead")) as ledger:
        ledger.record("directory", path=str(tmp_path / "tare-a"))
        for number in range(3):
            ledger.record("unheard-of", path=f"x{number}")
    done = tare("clean")
    assert done.returncode == 1 and "1 removed, 3 left" in done.stdout, done
    again = tare("clean")
    assert again.returncode == 1 and "0 removed, 3 left" in again.stdout
    ledger_path("dead").unlink()
    assert tare("clean").stdout == "clean\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
async def test_an_interface_and_a_process_are_removed_and_a_second_time_gone(
    host: Host, agent_program: Path
) -> None:
    name = f"tare-f{os.getpid() % 100000}"
    made = await host.run(["ip", "link", "add", name, "type", "dummy"])
    if not made.ok:
        pytest.skip("this container may not make interfaces")
    process = await asyncio.create_subprocess_exec("sleep", "60", env={"TARE_TOKEN": name})
    entries = [entry for entry in unlisted() if name in str(entry.details)]
    assert {entry.kind for entry in entries} == {"link", "process"}
    done = await undo_unlisted(LocalHost(agent_program), entries)
    assert not Path(f"/sys/class/net/{name}").exists() and await process.wait() == -9
    assert not [each for each in done if isinstance(each, Leftover)]
    assert not [entry for entry in unlisted() if name in str(entry.details)]


def test_nothing_is_removed_without_being_asked_for(tmp_path: Path) -> None:
    name = f"/tmp/tare-unlisted-{os.getpid()}"
    Path(name).mkdir()
    try:
        listed = subprocess.run(
            [Path(sys.executable).parent / "tare", "clean", "--find"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert listed.returncode == 1 and f"directory {name}" in listed.stdout
        assert "add --yes" in listed.stdout and Path(name).is_dir()
    finally:
        Path(name).rmdir()


async def test_a_refusal_is_left_too(host: Host) -> None:
    (left,) = await undo_unlisted(host, [Entry(0, "link", "", {"name": "eth0"})])
    assert isinstance(left, Leftover)
    with Ledger(ledger_path("x")) as ledger:
        ledger.record("link", name="eth0")
        (left,) = await clean(host, ledger, {})
    assert isinstance(left, Leftover)
