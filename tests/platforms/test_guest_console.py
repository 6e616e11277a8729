from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.linux.console import LINES, Console

PANIC = (
    b"[    1.1] \x1b[31mKernel panic - not syncing: No working init found.\x1b[0m\r\n"
    b"[    1.2] ---[ end Kernel panic - not syncing: No working init found. ]---\r\n"
)


def fed(*pieces: bytes) -> Console:
    console = Console()
    for piece in pieces:
        console.feed(piece)
    return console


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_where_the_bytes_are_cut_does_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = (data[start:end] for start, end in itertools.pairwise(edges))
    assert fed(*pieces).tail() == fed(data).tail()


@pytest.mark.fuzz
@given(st.binary(max_size=2000))
def test_any_bytes_become_printable_lines(data: bytes) -> None:
    tail = fed(data).tail()
    assert len(tail) <= LINES + 1
    assert all(line.strip() and "\n" not in line and "\x1b" not in line for line in tail)


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_a_panic_is_seen_through_noise(noise: bytes) -> None:
    console = fed(noise + b"\n", PANIC, noise)
    assert console.panic == "No working init found."
    assert console.panicked.is_set()


def test_an_exception_before_the_kernel_can_panic_is_one_too() -> None:
    console = fed(b"[ 1.6] ACPI: INT_SRC_OVR (buPANIC: early exception 0x0d IP 10:ff error 0\n")
    assert console.panic == "early exception 0x0d IP 10:ff error 0"


def test_noise_without_end_is_bounded() -> None:
    console = fed(*[b"\xff\x00garbage" * 1000] * 50)
    assert sum(map(len, console.tail())) < 100_000


def test_a_console_without_a_panic_reports_none() -> None:
    console = fed(b"all is well\n")
    assert console.panic == ""
    assert not console.panicked.is_set()
    assert console.tail() == ("all is well",)


async def test_a_stream_is_followed_to_its_end() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"one\ntw")
    reader.feed_data(b"o\n" + PANIC)
    reader.feed_eof()
    console = Console()
    await console.follow(reader)
    assert console.tail()[:2] == ("one", "two")
    assert console.panic


def test_a_process_killed_by_the_kernel_for_lack_of_memory_is_named() -> None:
    line = b"[ 5.6] Out of memory: Killed process 97 (init) total-vm:563756kB, anon-rss:35236kB\r\n"
    assert fed(line).killed == "init"
    assert fed(b"Memory cgroup out of memory\n", PANIC).killed == ""
