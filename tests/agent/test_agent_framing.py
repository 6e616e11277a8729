"""Whatever a channel does to the bytes, whole frames come out whole, and nothing fails."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.agent.framing import MAX_PAYLOAD, Decoder, Frame, FrameKind, ReorderBuffer, encode

FRAMES = st.lists(
    st.builds(
        Frame,
        kind=st.sampled_from(FrameKind),
        seq=st.integers(0, 2**32 - 1),
        payload=st.binary(max_size=300),
    ),
    max_size=8,
)
CUTS = st.lists(st.integers(1, 97), min_size=1, max_size=8)


def bytes_of(frames: list[Frame]) -> list[bytes]:
    return [encode(frame.kind, frame.seq, frame.payload) for frame in frames]


def decode(data: bytes, cuts: list[int]) -> tuple[list[Frame], Decoder]:
    decoder = Decoder()
    found: list[Frame] = []
    at = 0
    for cut in cycle(cuts):
        if at >= len(data):
            return found, decoder
        found += decoder.feed(data[at : at + cut])
        at += cut
    return found, decoder


@given(FRAMES, CUTS)
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    found, decoder = decode(b"".join(bytes_of(frames)), cuts)
    assert found == frames
    assert (decoder.noise, decoder.damaged, decoder.partial) == (0, 0, False)


@given(FRAMES, CUTS, st.text(st.characters(codec="ascii"), max_size=200))
def test_console_text_between_frames_is_kept_apart(
    frames: list[Frame], cuts: list[int], text: str
) -> None:
    noise = text.encode()
    found, decoder = decode(noise + b"".join(one + noise for one in bytes_of(frames)), cuts)
    assert found == frames
    assert decoder.noise == len(noise) * (len(frames) + 1)
    assert decoder.damaged == 0


@given(FRAMES, CUTS, st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1))
def test_damage_costs_only_the_frames_it_touches(
    frames: list[Frame], cuts: list[int], hits: list[tuple[int, int]]
) -> None:
    pieces = bytes_of(frames)
    data = bytearray(b"".join(pieces))
    touched = set()
    for at, change in hits if data else []:
        data[at % len(data)] ^= change
        end = 0
        for index, piece in enumerate(pieces):
            end += len(piece)
            if at % len(data) < end:
                touched.add(index)
                break
    last = Frame(FrameKind.MESSAGE, 7, bytes(500))
    found, _ = decode(bytes(data) + encode(last.kind, last.seq, last.payload), cuts)
    remaining = iter(found)
    for index, frame in enumerate(frames):
        assert index in touched or frame in remaining
    assert last in found


@given(st.binary(max_size=3000), CUTS)
def test_no_bytes_make_the_decoder_fail(data: bytes, cuts: list[int]) -> None:
    found, decoder = decode(data, cuts)
    while decoder.partial:
        found += decoder.abandon()
    assert decoder.noise + sum(22 + len(frame.payload) for frame in found) == len(data)


@given(FRAMES, st.integers(0), st.binary(max_size=64))
def test_a_cut_stream_recovers(frames: list[Frame], cut: int, junk: bytes) -> None:
    data = b"".join(bytes_of(frames))
    decoder = Decoder()
    decoder.feed(data[: cut % (len(data) + 1)] + junk)
    while decoder.partial:
        decoder.abandon()
    assert decoder.feed(encode(FrameKind.MESSAGE, 1, b"{}")) == [Frame(FrameKind.MESSAGE, 1, b"{}")]


def test_the_layout_is_as_documented() -> None:
    frame = encode(FrameKind.SERIES, 0x04030201, b"ab")
    assert frame[:14] == b"\xf5TAR\x01\x01\x01\x02\x03\x04\x02\x00\x00\x00"
    assert frame[-4:] == (0x9E83486D).to_bytes(4, "little")
    assert len(frame) == 18 + 2 + 4


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode(FrameKind.MESSAGE, 0, bytes(MAX_PAYLOAD + 1))


def test_noise_reads_as_lines_of_text() -> None:
    decoder = Decoder()
    decoder.feed(b"[1.0] one\r\n" + encode(FrameKind.MESSAGE, 0, b"{}") + b"[2.0] \xff two\r\n\r\n")
    assert decoder.noise_lines() == ("[1.0] one", "[2.0] \N{REPLACEMENT CHARACTER} two")


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_frames_come_out_in_order_and_once(arrival: list[int], twice: set[int]) -> None:
    order = ReorderBuffer()
    out = order.put(Frame(FrameKind.MESSAGE, 100, b""))
    for seq in [*arrival, *twice]:
        frame = Frame(FrameKind.MESSAGE, 101 + seq, b"")
        out += order.put(frame)
        if seq in twice:
            out += order.put(frame)
        assert all(seq not in {frame.seq for frame in out} for seq in order.missing())
    assert [frame.seq for frame in out] == list(range(100, 113))
    assert (order.missing(), order.held, order.arrived) == ([], 0, 112)


def test_a_gap_names_what_is_missing() -> None:
    order = ReorderBuffer()
    assert order.arrived is None
    for seq in (0, 3, 5):
        order.put(Frame(FrameKind.MESSAGE, seq, b""))
    assert order.missing() == [1, 2, 4]
    assert order.arrived is None or order.arrived == 0
