"""What a guest can make the host hold and do is bounded, whatever it sends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.agent_doubles import ScriptedAgent
from agent.test_agent_client import HELLO, done, silent
from tare.agent import AgentClient
from tare.agent.framing import (
    MAX_PAYLOAD,
    Decoder,
    Frame,
    FrameKind,
    ReorderBuffer,
    TooMuchDamage,
    encode,
)
from tare.agent.message import (
    BURST_BYTES,
    BURST_MESSAGES,
    MESSAGES_PER_S,
    MOST_DEPTH,
    MOST_VALUES,
    InvalidMessage,
    RateLimiter,
    check_whole_number,
    column,
    name,
    number,
    read_json,
    read_message,
)
from tare.agent.series import HELD_BYTES, Assembler, read_chunk
from tare.errors import MachineFault


def header(length: int, kind: int = 0, seq: int = 0) -> bytes:
    head = struct.pack("<4sBBII", b"\xf5TAR", 1, kind, seq, length)
    return head + struct.pack("<I", zlib.crc32(head))


@pytest.mark.parametrize(
    "flood",
    [header(1 << 20), header(1 << 19), header(1000), header(0), b"\xf5TAR", b"\xf5TAR" + b"x" * 14],
)
def test_false_headers_within_each_other_are_given_up(flood: bytes) -> None:
    decoder = Decoder()
    began = time.process_time()
    with pytest.raises(TooMuchDamage):
        for _ in range(64):
            decoder.feed(flood * ((1 << 18) // len(flood)))
    # 2 MiB of them once took 17 s. CPU time does not grow when the computer is loaded.
    assert time.process_time() - began < 5


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_damage_of_every_other_frame_is_accepted(seed: int, frames: int) -> None:
    """However long it lasts: each arriving byte pays for the searches through it."""
    decoder, random = Decoder(), np.random.default_rng(seed)
    found = []
    for seq in range(frames):
        data = bytearray(encode(FrameKind.SERIES, seq, random.bytes(1 << 16)))
        if seq % 2:
            data[int(random.integers(len(data)))] ^= 0xFF
        found += decoder.feed(bytes(data))
    assert [frame.seq for frame in found if frame.seq % 2 == 0] == list(range(0, frames, 2))


async def test_frames_behind_a_gap_hold_little() -> None:
    agent = ScriptedAgent(silent)
    agent.say(HELLO)
    client = AgentClient(agent, name="vm-1", repeat_s=60)
    await client.hello(5)
    running = asyncio.ensure_future(client.run("w", {}, deadline_s=60))
    await asyncio.sleep(0)
    part = b"{}\n" + bytes(MAX_PAYLOAD - 3)
    for seq in range(2, 200):
        agent.put(encode(FrameKind.SERIES, seq, part))
        if running.done():
            break
        await asyncio.sleep(0)
    with pytest.raises(MachineFault, match="lost on the way"):
        await running
    assert seq * MAX_PAYLOAD < 64 << 20
    await client.close()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=60))
def test_bytes_held_for_reordering_are_counted(arrivals: list[tuple[int, int]]) -> None:
    order = ReorderBuffer()
    order.put(Frame(FrameKind.MESSAGE, 0, b""))
    for seq, size in arrivals:
        order.put(Frame(FrameKind.MESSAGE, seq, bytes(size)))
        assert order.held_bytes == sum(len(frame.payload) for frame in order._early.values())
        wanted = range(order.next or 0, max(order._early, default=0))
        assert order.missing() == [each for each in wanted if each not in order._early][:64]


def chunk(data: bytes, offset: int, total: int, name: str = "s") -> Any:
    header = {"id": 1, "name": name, "rows": total, "columns": [["v", "u8"]], "offset": offset}
    return read_chunk(json.dumps({**header, "total": total}).encode() + b"\n" + data)


def test_a_long_series_waits_in_a_file() -> None:
    total, part = 16 * HELD_BYTES, bytes(range(256)) * 256
    tracemalloc.start()
    assembler = Assembler()
    for offset in range(0, total, len(part)):
        assembler.add(chunk(part, offset, total))
    (series,) = assembler.finish()
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assembler.close()
    assert held < 3 * HELD_BYTES
    column = series.columns["v"]
    assert len(column) == total
    np.testing.assert_array_equal(column[-len(part) :], np.frombuffer(part, "u1"))


def test_all_series_together_have_a_budget() -> None:
    assembler = Assembler(most_bytes=100)
    assembler.add(chunk(b"", 0, 60, "a"))
    with pytest.raises(ValueError, match="more than"):
        assembler.add(chunk(b"", 0, 60, "b"))
    many = Assembler()
    with pytest.raises(ValueError, match="more than 64"):
        for number in range(100):
            many.add(chunk(b"", 0, 1, f"s{number}"))


def test_an_agent_that_talks_too_much_is_stopped_and_one_that_reports_is_not() -> None:
    now = [0.0]
    talk = RateLimiter(lambda: now[0])
    for _ in range(3 * BURST_MESSAGES):
        now[0] += 2 / MESSAGES_PER_S
        talk.account(500)
    with pytest.raises(InvalidMessage, match="so many messages"):
        for _ in range(BURST_MESSAGES + 1):
            talk.account(0)
    with pytest.raises(InvalidMessage, match="so many messages"):
        RateLimiter(lambda: 0.0).account(BURST_BYTES + 1)


async def test_a_flood_of_messages_costs_the_machine() -> None:
    agent = ScriptedAgent(silent)
    agent.say(HELLO)
    client = AgentClient(agent, name="vm-1")
    await client.hello(5)
    running = asyncio.ensure_future(client.run("w", {}, deadline_s=60))
    await asyncio.sleep(0)
    long = {"type": "progress", "id": 2, "done": 0.5, "more": "x" * 1_000_000}
    for _ in range(40):
        agent.say(long)
    with pytest.raises(MachineFault, match="so many messages"):
        await running
    await client.close()


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * MAX_PAYLOAD,
        b'{"a":' * (MAX_PAYLOAD // 5),
        b"[" + b"0," * (MAX_PAYLOAD // 2 - 1) + b"0]",
        b"[" + b"{}," * (MAX_PAYLOAD // 3 - 1) + b"{}]",
        b'"' + b"\xc3\xa4" * (MAX_PAYLOAD // 2 - 1) + b'"',
        b"9" * MAX_PAYLOAD,
        b"1e" + b"9" * (MAX_PAYLOAD - 2),
    ],
)
def test_the_worst_message_is_read_in_a_moment(payload: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(InvalidMessage):
        read_json(payload)
    assert time.process_time() - began < 2


def test_messages_at_the_limits_are_accepted_and_beyond_refused() -> None:
    def nested(depth: int) -> bytes:
        return b"[" * depth + b"]" * depth

    assert read_json(nested(MOST_DEPTH)) is not None
    with pytest.raises(InvalidMessage, match="levels deep"):
        read_json(nested(MOST_DEPTH + 1))
    assert len(read_json(json.dumps([0] * (MOST_VALUES - 1)).encode())) == MOST_VALUES - 1
    with pytest.raises(InvalidMessage, match="more than"):
        read_json(json.dumps([0] * MOST_VALUES).encode())


@pytest.mark.fuzz
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_no_bytes_make_a_message_fail_otherwise(data: bytes) -> None:
    for payload in (data, b'{"type":"result","id":1,"value":' + data + b"}"):
        try:
            message = read_message(payload)
        except InvalidMessage as error:
            assert str(error).isprintable()
        else:
            assert message is None or isinstance(message["type"], str)


@pytest.mark.parametrize(
    ("value", "is_name", "is_column"),
    [
        ("a", True, True), ("a" * 128, True, True), ("a" * 129, False, False),
        ("", False, False), ("LLC misses", False, True), ("a/b", False, True),
        ("_a", False, True), ("a\n", False, False), (5, False, False), (None, False, False),
    ],
)  # fmt: skip
def test_names_are_of_their_alphabets_and_no_longer_than_they_may_be(
    value: object, is_name: bool, is_column: bool
) -> None:
    for read, fits in ((name, is_name), (column, is_column)):
        if fits:
            assert read(value, "it") == value
        else:
            with pytest.raises(InvalidMessage, match=r"it is .*, no name"):
                read(value, "it")


@pytest.mark.parametrize("length", [256, 257])
def test_keys_and_words_are_as_long_as_they_may_be(length: int) -> None:
    key = json.dumps({"k" * length: 1}).encode()
    word = json.dumps({"type": "hello", "agent": "w" * length}).encode()
    if length <= 256:
        assert read_json(key) and read_message(word)
        return
    with pytest.raises(InvalidMessage, match="with the key"):
        read_json(key)
    with pytest.raises(InvalidMessage, match="hello: agent is"):
        read_message(word)


@pytest.mark.parametrize("value", [5, "two\nlines", "\x1b[1m"])
def test_a_word_is_text_that_can_be_shown(value: object) -> None:
    with pytest.raises(InvalidMessage, match="hello: agent is"):
        read_message(json.dumps({"type": "hello", "agent": value}).encode())


def test_no_number_of_a_message_is_beyond_64_bits() -> None:
    for number_of_64_bits in (2**64 - 1, 1 - 2**64):
        assert read_json(str(number_of_64_bits).encode()) == number_of_64_bits
    for more in (2**64, -(2**64)):
        with pytest.raises(InvalidMessage, match="of more than 64 bits"):
            read_json(str(more).encode())


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1])
def test_whole_numbers_of_64_bits_are_taken(value: int) -> None:
    assert check_whole_number(value, "it") == value and number(value, "it") == float(value)


@pytest.mark.parametrize("value", [-1, 2**64, True, 1.0, "1", None])
def test_other_values_than_64_bit_integers_are_refused(value: object) -> None:
    with pytest.raises(InvalidMessage, match=r"it is .*, no whole number of 64 bits"):
        check_whole_number(value, "it")


@pytest.mark.parametrize("value", [False, "1", None])
def test_other_values_than_numbers_are_refused(value: object) -> None:
    with pytest.raises(InvalidMessage, match=r"it is .*, no number"):
        number(value, "it")


@pytest.mark.parametrize("reply", [{"found": True}, {}])
async def test_a_clock_that_answers_something_else_is_a_fault(reply: dict[str, Any]) -> None:
    agent = ScriptedAgent(lambda request: [done(request, **reply)])
    client = AgentClient(agent, name="vm-1")
    with pytest.raises(MachineFault, match="invalid message: its clock"):
        await client.clock()
    await client.close()
