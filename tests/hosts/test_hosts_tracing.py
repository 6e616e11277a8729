"""The recorder sees what happens on the host, and leaves nothing of itself behind."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events.host_schedule import HostEvent, SwitchReason
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.contract import Host
from tare.hosts.trace.pages import page_events, parse_data_offset, parse_format
from tare.hosts.trace.recorder import (
    HostRecorder,
    as_columns,
    cpu_mask,
    host_recorder,
    switch_reason,
)
from tare.hosts.trace.threads import allowed_cpus, quota_files, run_delay, threads_of, throttled
from tare.hosts.trace.tracefs import NoTracing, mounted_at, traced
from tare.run.probes.host_clock import (
    alternating_readings,
    bounded_readings,
    counter_offset,
    host_agent,
    kept_busy,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


# Pages


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.binary(min_size=4, max_size=60))))
def test_a_page_gives_back_its_events_and_times(events: list[tuple[int, bytes]]) -> None:
    body, now, wanted = b"", 1_000_000_000_000, []
    for delta, payload in events:
        padded = payload + bytes(-len(payload) % 4)
        if delta >= 1 << 27:
            body += struct.pack("<II", 30 | (delta & (1 << 27) - 1) << 5, delta >> 27)
            now, delta = now + delta, 0
        now += delta
        wanted.append((now, padded))
        body += struct.pack("<I", (len(padded) // 4) | delta << 5) + padded
    page = struct.pack("<QQ", 1_000_000_000_000, len(body)) + body
    found = [(time, page[start : start + size]) for time, start, size in page_events(page)]
    assert found == wanted


def test_long_events_time_stamps_and_padding_are_followed() -> None:
    long = bytes(range(200))
    body = struct.pack("<II", 0 | 7 << 5, 204) + long
    body += struct.pack("<II", 31 | 5 << 5, 3)
    body += struct.pack("<II4s", 29 | 1 << 5, 4, b"gone")[:8]
    body += struct.pack("<I4s", 1 | 2 << 5, b"last")
    page = struct.pack("<QQ", 100, len(body)) + body
    found = [(time, page[start : start + size]) for time, start, size in page_events(page)]
    assert found == [(107, long), ((3 << 27) + 5 + 1 + 2, b"last")]


@pytest.mark.fuzz
@given(st.binary(max_size=400))
def test_no_page_is_read_beyond_its_end(page: bytes) -> None:
    for _, start, size in page_events(page):
        assert 0 <= start <= start + size <= len(page)


def test_formats_give_the_place_of_each_field() -> None:
    layout = parse_format(
        "name: sched_switch\nID: 372\nformat:\n"
        "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
        "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
        "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
        "\tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:0;\n"
    )
    assert (layout.name, layout.id) == ("sched_switch", 372)
    data = bytes(8) + b"tare-tick\0......" + struct.pack("<iI", -7, 32 | 6 << 16) + b"eth0\0x"
    assert layout.fields["prev_comm"].text(data, 0) == "tare-tick"
    assert layout.fields["prev_pid"].number(data, 0) == -7
    assert layout.fields["name"].located_text(data, 0) == "eth0"
    with pytest.raises(ValueError, match="not an event format"):
        parse_format("nothing")
    with pytest.raises(ValueError, match="pages without"):
        parse_data_offset("nothing")


@pytest.mark.parametrize(
    ("cpus", "mask"), [((0,), "00000001"), ((1, 3), "0000000a"), ((0, 33), "00000002,00000001")]
)
def test_masks_are_written_as_the_kernel_reads_them(cpus: tuple[int, ...], mask: str) -> None:
    assert cpu_mask(cpus) == mask


@pytest.mark.parametrize(
    ("prev_state", "left"),
    [
        # As the event's own print format names them: R, R+, S, D, T, t, X, I.
        *((bits, SwitchReason.READY) for bits in (0x000, 0x100)),
        *((bits, SwitchReason.WAITING) for bits in (0x01, 0x02, 0x10, 0x80)),
        *((bits, SwitchReason.STOPPED) for bits in (0x04, 0x08)),
    ],
)
def test_state_shows_how_a_thread_left(prev_state: int, left: SwitchReason) -> None:
    assert switch_reason(prev_state) == left


def test_rows_become_columns_in_order_of_time() -> None:
    columns = as_columns([(5, 1, 0, 7, 8, 1), (2, 0, 1, 9, 0, 0)])
    assert columns["time_ns"].tolist() == [2, 5]
    assert columns["who"].tolist() == [9, 7]
    assert columns["time_ns"].dtype == np.uint64
    assert all(column.size == 0 for column in as_columns([]).values())


def test_a_tracefs_mounted_by_tare_is_not_used_by_others() -> None:
    mounts = "tracefs /tmp/tare-1a2b tracefs rw,nosuid 0 0\nproc /proc proc rw 0 0\n"
    assert mounted_at(mounts, "tracefs") is None
    elsewhere = mounts + "tracefs /sys/kernel/tracing tracefs rw 0 0\n"
    assert mounted_at(elsewhere, "tracefs") == Path("/sys/kernel/tracing")


# The real kernel


@needs_root
async def test_the_recorder_sees_a_thread_go_and_come_and_leaves_nothing(
    host: Host, ledger: Ledger
) -> None:
    cpus = host.topology().online
    try:
        async with host_recorder(host, ledger) as recorder:
            instance = Path(str(ledger.open_entries()[-1].details["path"]))
            for _ in range(2):
                await recorder.begin(cpus, [os.getpid()])
                # Several, since some kernels of virtual machines do not record every switch.
                sleepers = [await asyncio.create_subprocess_exec("sleep", "0.05") for _ in range(5)]
                await asyncio.gather(*(sleeper.wait() for sleeper in sleepers))
                taken = await recorder.end()
                kinds = taken.columns["kind"]
                switches = kinds == HostEvent.SWITCH
                seen = {each.pid for each in sleepers} & set(
                    taken.columns["who"][switches].tolist()
                )
                assert seen
                assert all(taken.comms[pid] for pid in seen)
                woken = taken.columns["who"][kinds == HostEvent.WAKEUP].tolist()
                assert set(woken) <= {os.getpid()}
                times = taken.columns["time_ns"]
                assert taken.began_ns <= int(times[0]) <= int(times[-1]) <= taken.ended_ns
                assert (np.diff(times.astype(np.int64)) >= 0).all()
                assert taken.lost == 0
            await recorder.begin(cpus, [])
            await recorder.abandon()
    except NoTracing as why:
        pytest.skip(str(why))
    assert not instance.exists()
    assert ledger.open_entries() == ()


@needs_root
@pytest.mark.parametrize("looks", [True, False])
async def test_a_host_whose_time_is_not_its_own_is_left_alone_while_it_is_recorded(
    host: Host, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    asked: list[str] = []

    async def stat(self: HostRecorder, instance: Path, cpu: int, name: str) -> int:
        asked.append(name)
        return 0

    monkeypatch.setattr("tare.hosts.trace.recorder.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(HostRecorder, "_stat", stat)
    try:
        async with host_recorder(host, ledger, looks=looks) as recorder:
            await recorder.begin(host.topology().online, [])
            await asyncio.sleep(0.2)
            looked = list(asked)
            await recorder.end()
    except NoTracing as why:
        pytest.skip(str(why))
    assert set(looked) == ({"bytes"} if looks else set())
    # Lost events are reported either way.
    assert "dropped events" in asked


@needs_root
async def test_data_being_read_at_the_end_of_a_recording_is_kept(
    host: Host, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, finished = asyncio.Event(), asyncio.Event(), []

    async def empty(self: HostRecorder) -> None:
        begun.set()
        await ended.wait()
        finished.append("read")

    monkeypatch.setattr("tare.hosts.trace.recorder.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(HostRecorder, "_empty_full", empty)
    try:
        async with host_recorder(host, ledger) as recorder:
            await recorder.begin(host.topology().online, [])
            await begun.wait()
            asyncio.get_running_loop().call_later(0.2, ended.set)
            await recorder.end()
    except NoTracing as why:
        pytest.skip(str(why))
    assert finished == ["read"]


IN_A_CONTAINER = """
import asyncio, sys
from pathlib import Path
from tare.hosts import Ledger, LocalHost
from tare.hosts.trace.tracefs import NoTracing, traced

async def main(ledger: Ledger) -> None:
    try:
        async with traced(LocalHost(), ledger):
            print("traced")
    except NoTracing as why:
        print(why)

with Ledger(Path(sys.argv[1])) as ledger:
    asyncio.run(main(ledger))
"""


@needs_root
def test_threads_with_other_numbers_than_the_kernels_are_not_looked_for_in_its_trace(
    tmp_path: Path,
) -> None:
    apart = ("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child")
    ledger = tmp_path / "apart.jsonl"
    words = [*apart, sys.executable, "-c", IN_A_CONTAINER, str(ledger)]
    output = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "whose thread ids differ" in output
    assert "--pid=host" in output
    assert not ledger.exists() or "trace" not in ledger.read_text()


@needs_root
async def test_clean_removes_what_a_killed_recorder_left(ledger: Ledger) -> None:
    host = LocalHost()
    held = traced(host, ledger)
    try:
        instance = await held.__aenter__()
    except NoTracing as why:
        pytest.skip(str(why))
    (instance / "events/sched/sched_switch/enable").write_text("1")
    messages = await clean(host, ledger, {})
    assert any(instance.name in sentence for sentence in messages)
    assert not instance.exists()
    assert ledger.open_entries() == ()
    assert await clean(host, ledger, {}) == []


async def test_clean_leaves_what_does_not_look_like_tares(ledger: Ledger) -> None:
    ledger.record("trace", path="/sys/kernel/tracing/instances/somebody")
    ledger.record("mount", path="/mnt", type="tracefs")
    messages = await clean(LocalHost(), ledger, {})
    assert all(sentence.startswith("Left") for sentence in messages)
    assert len(messages) == 2


# Threads


async def test_threads_are_listed_with_names_cpus_and_run_delay() -> None:
    host = LocalHost()
    threads = await threads_of(host, [os.getpid(), 999_999_999])
    assert os.getpid() in threads
    assert set(await allowed_cpus(host, os.getpid())) >= set(host.topology().online)
    assert await allowed_cpus(host, 999_999_999) == ()
    ran, waited = await run_delay(host, tuple(threads))
    assert ran > 0
    assert waited >= 0


async def test_this_computer_is_read_as_any_other_is(tmp_path: Path) -> None:
    (tmp_path / "a1").write_text("one\ntwo\n")
    (tmp_path / "a2").write_text("last")
    (tmp_path / "a3").write_text("")
    (tmp_path / "a4").write_text("\nbelow\n")
    (tmp_path / "b").write_bytes(b"a:b \xff\n")
    patterns = [f"{tmp_path}/a*", f"{tmp_path}/b", f"{tmp_path}/gone*", f"{tmp_path}/gone"]
    lines = await LocalHost().first_lines(patterns)
    assert {Path(path).name: line for path, line in lines.items()} == {
        "a1": "one",
        "a2": "last",
        "a4": "",
        "b": "a:b \ufffd",
    }
    assert await Host.first_lines(LocalHost(), patterns) == lines


async def test_threads_of_this_computer_are_listed_without_starting_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
    assert os.getpid() in await threads_of(LocalHost(), [os.getpid()])


async def test_quota_counters_are_found_in_the_group_that_lost_most(tmp_path: Path) -> None:
    host = LocalHost()
    near, far = tmp_path / "a.stat", tmp_path / "b.stat"
    near.write_text("nr_periods 9\nnr_throttled 2\nthrottled_time 5000000\n")
    far.write_text("usage_usec 7\nnr_throttled 4\nthrottled_usec 90000\n")
    most = await throttled(host, [near, far, tmp_path / "none"])
    assert most.times == 4
    assert most.seconds == pytest.approx(0.09)
    assert await quota_files(host, os.getpid(), None) == ()


async def test_agent_on_a_host_reports_its_clock(
    host: Host, ledger: Ledger, agent_program: Path
) -> None:
    async with host_agent(host, ledger, host.agent or agent_program) as agent:
        assert [entry.kind for entry in ledger.open_entries()] == ["process"]
        own, its = await alternating_readings(agent, agent)
        async with kept_busy(host, ledger):
            assert len(ledger.open_entries()) == 2
    counters = counter_offset(own, its)
    # It is one clock, and one counter.
    for each in bounded_readings(own, its):
        assert each.host_before_ns <= each.guest_ns <= each.host_after_ns
    assert counters.low <= 0 <= counters.high
    assert ledger.open_entries() == ()
