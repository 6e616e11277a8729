from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import (
    Completed,
    FileSetting,
    Host,
    Ledger,
    LocalHost,
    changed,
    clean,
    clean_all,
    ledger_path,
)
from tare.hosts.control_groups import remove_cgroup
from tare.hosts.processes import find_by_token, start_time
from tare.platforms.oci.runtime import undo_container


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        yield ledger


async def test_a_setting_is_restored_after_a_kill(
    host: Host, tmp_path: Path, ledger: Ledger
) -> None:
    setting = tmp_path / "setting"
    setting.write_text("7\n")
    ledger.record("setting", path=str(setting), before="950000", value="7")
    assert await clean(host, ledger, {}) == [f"{setting} is 950000 again; Tare had set 7."]
    assert setting.read_text() == "950000\n"
    assert await clean(host, ledger, {}) == []


async def test_a_setting_that_someone_else_set_is_left(
    host: Host, tmp_path: Path, ledger: Ledger
) -> None:
    setting = tmp_path / "setting"
    setting.write_text("3\n")
    ledger.record("setting", path=str(setting), before="1", value="2")
    (message,) = await clean(host, ledger, {})
    assert "left" in message
    assert setting.read_text() == "3\n"
    assert ledger.open_entries() == ()


async def test_a_setting_is_shared_by_neighbours(
    host: Host, tmp_path: Path, ledger: Ledger
) -> None:
    setting = tmp_path / "setting"
    setting.write_text("1\n")
    async with changed(ledger, FileSetting(host, setting), "2") as before:
        assert before == "1"
        async with changed(ledger, FileSetting(host, setting), "2") as before:
            assert before == "1"
        assert setting.read_text() == "2\n"
    assert setting.read_text() == "1\n"
    assert ledger.open_entries() == ()


async def test_a_setting_that_cannot_be_written_leaves_no_note(host: Host, ledger: Ledger) -> None:
    with pytest.raises(OSError, match=r"[Pp]ermitted|[Pp]ermission|Invalid"):
        async with changed(ledger, FileSetting(host, "/proc/sys/kernel/random/boot_id"), "x"):
            pass
    assert ledger.open_entries() == ()


async def test_the_process_of_an_entry_is_killed(host: Host, ledger: Ledger) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", env={"TARE_TOKEN": "by-token"})
    other = await asyncio.create_subprocess_exec("sleep", "60")
    started = await start_time(host, other.pid)
    # As when Tare was killed before it could note the id, and after it.
    ledger.record("process", token="by-token", command="sleep")
    ledger.record("process", token="none", command="sleep", pid=other.pid, starttime=started)
    messages = await clean(host, ledger, {})
    assert await process.wait() == -9
    assert await other.wait() == -9
    assert [
        f"(process {pid})" in text
        for pid, text in zip((other.pid, process.pid), messages, strict=True)
    ] == [
        True,
        True,
    ]
    assert await clean(host, ledger, {}) == []


BREEDER = "read _; sleep 300 & read _"


async def test_processes_started_while_their_parent_is_killed_are_killed_too(
    host: Host, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, pipe = f"breeding-{os.getpid()}", asyncio.subprocess.PIPE
    marked = {**os.environ, "TARE_TOKEN": token}
    parent = await asyncio.create_subprocess_exec("sh", "-c", BREEDER, stdin=pipe, env=marked)
    assert parent.stdin is not None
    ledger.record("process", token=token, command="sh")
    run, born = host.run, set[int]()

    async def run_late(argv: Sequence[str], **how: Any) -> Completed:
        if argv[-1] == f"kill -9 {parent.pid}" and not born:
            # The processes to kill were looked up already; now there is one more.
            assert parent.stdin is not None
            parent.stdin.write(b"go\n")
            async with asyncio.timeout(30):
                while not born:
                    born.update({*await find_by_token(host, token)} - {parent.pid})
        return await run(argv, **how)

    monkeypatch.setattr(host, "run", run_late)
    try:
        (message,) = await clean(host, ledger, {})
        assert await parent.wait() == -9
        assert await find_by_token(host, token) == ()
        (child,) = born
        assert str(child) in message and str(parent.pid) in message
        assert ledger.open_entries() == ()
    finally:
        for pid in await find_by_token(host, token):
            os.kill(pid, signal.SIGKILL)


async def test_a_process_that_only_has_the_same_id_is_spared(host: Host, ledger: Ledger) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    started = await start_time(host, process.pid)
    assert started is not None
    ledger.record("process", token="none", command="x", pid=process.pid, starttime=started - 1)
    assert await clean(host, ledger, {}) == []
    assert process.returncode is None
    process.kill()
    await process.wait()


async def test_a_process_of_an_earlier_boot_is_spared(host: Host, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    started = await start_time(host, process.pid)
    path = tmp_path / "old.jsonl"
    path.write_text(
        '{"ledger":1}\n{"entry":0,"kind":"process","boot":"another","details":'
        f'{{"token":"none","pid":{process.pid},"starttime":{started}}}}}\n'
    )
    with Ledger(path) as ledger:
        assert await clean(host, ledger, {}) == []
        assert ledger.open_entries() == ()
    assert process.returncode is None
    process.kill()
    await process.wait()


async def test_tokens_are_matched_whole(host: Host) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", env={"TARE_TOKEN": "abc123"})
    try:
        assert await find_by_token(host, "abc123") == (process.pid,)
        assert await find_by_token(host, "abc12") == ()
        assert await find_by_token(host, "abc.23") == ()
    finally:
        process.kill()
        await process.wait()


async def test_only_what_is_named_as_tare_names_it_is_removed(
    host: Host, tmp_path: Path, ledger: Ledger
) -> None:
    mine, foreign = tmp_path / "tare-r1-1-subject", tmp_path / "precious"
    for folder in (mine, foreign):
        folder.mkdir()
        (folder / "file").write_text("content")
    ledger.record("directory", path=str(mine))
    ledger.record("directory", path=str(foreign))
    ledger.record("directory", path=f"{mine}/../precious")
    ledger.record("cgroup", path=str(mine))
    ledger.record("container", runtime="runc", root=str(foreign), id="precious")
    messages = await clean(host, ledger, {"container": undo_container})
    assert not mine.exists()
    assert (foreign / "file").exists()
    assert sum(text.startswith("Left ") for text in messages) == 4
    assert f"Removed {mine}." in messages


async def test_a_link_is_removed_and_not_followed(
    host: Host, tmp_path: Path, ledger: Ledger
) -> None:
    foreign = tmp_path / "precious"
    foreign.mkdir()
    link = tmp_path / "tare-link"
    link.symlink_to(foreign)
    ledger.record("directory", path=str(link))
    await clean(host, ledger, {})
    assert not link.exists()
    assert foreign.is_dir()


async def test_resources_of_platforms_that_are_not_installed_stay(
    host: Host, ledger: Ledger
) -> None:
    ledger.record("jail", id="tare-r1-1-subject")
    (message,) = await clean(host, ledger, {})
    assert message.startswith("Could not undo jail tare-r1-1-subject: the extension that made it")
    assert len(ledger.open_entries()) == 1


async def test_resources_that_cannot_be_removed_stay_in_the_ledger(
    host: Host, ledger: Ledger
) -> None:
    ledger.record("setting", path="/proc/sys/kernel/ostype", before="Minix", value="Linux")
    (message,) = await clean(host, ledger, {})
    assert message.startswith("Could not undo setting /proc/sys/kernel/ostype")
    assert len(ledger.open_entries()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="making a cgroup needs root")
async def test_a_cgroup_is_removed_with_its_processes(host: Host) -> None:
    base = next(
        path
        for path in map(Path, ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"))
        if (path / "cgroup.procs").exists()
    )
    group = base / f"tare-test-{os.getpid()}"
    (group / "inner").mkdir(parents=True)
    process = await asyncio.create_subprocess_exec("sleep", "60")
    (group / "inner" / "cgroup.procs").write_text(str(process.pid))
    assert await remove_cgroup(host, str(group))
    assert await process.wait() == -9
    assert not group.exists()
    assert not await remove_cgroup(host, str(group))


async def test_every_ledger_is_cleaned_but_that_of_a_live_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dead, live = tmp_path / "tare-dead", tmp_path / "tare-live"
    dead.mkdir()
    live.mkdir()
    with Ledger(ledger_path("dead")) as ledger:
        ledger.record("directory", path=str(dead))
    with Ledger(ledger_path("far"), host="root@far") as ledger:
        ledger.record("directory", path=str(live))
    with Ledger(ledger_path("live")) as ledger:
        ledger.record("directory", path=str(live))
        messages = await clean_all(LocalHost(), dict)
        # A run of two hosts that are one computer meets its own, which nobody left behind.
        of_a_run = await clean_all(LocalHost(), dict, report_running=False)
    assert [each for each in of_a_run if not each.startswith("far: ")] == []
    assert not dead.exists()
    assert live.exists()
    assert messages[0] == f"dead: Removed {dead}."
    assert messages[1] == "far: left alone: it lists what was made on root@far."
    assert messages[2].startswith("live: left alone")
    assert not ledger_path("dead").exists()
    assert ledger_path("live").exists()
