"""The link on its own: whatever breaks, everything arrives once and in order."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts.ssh.link import CONTROL, DATA, Decoder, Frame, Gap, LinkState, encode, split_data

FRAMES = st.builds(Frame, st.integers(0, 2), st.integers(0, 2**64 - 1), st.binary(max_size=40))


@given(frames=st.lists(FRAMES, max_size=6), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_frames_are_read_back_from_any_pieces(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(encode, frames))
    decoder = Decoder()
    read: list[Frame] = []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        read += decoder.feed(data[start:end])
    assert read == frames


@pytest.mark.fuzz
@given(data=st.binary(max_size=200))
def test_noise_is_refused_or_awaits_more(data: bytes) -> None:
    try:
        Decoder().feed(data)
    except ValueError as error:
        assert "bytes" in str(error)


def test_text_printed_at_login_is_not_a_frame() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Decoder().feed(b"Welcome to the machine!\n")


class End:
    """One end of a link, its connection, and what it took."""

    def __init__(self) -> None:
        self.link = LinkState()
        self.wire: list[bytes] = []
        self.taken: list[Any] = []

    def receive(self, count: int, other: End) -> None:
        data, other.wire[:count] = b"".join(other.wire[:count]), []
        for frame in Decoder().feed(data):
            if frame.kind == CONTROL:
                self.link.arrived(json.loads(frame.payload)["received"])
            elif self.link.is_new(frame):
                taken = split_data(frame.payload)[1] if frame.kind == DATA else frame.payload
                self.taken.append(taken)

    def reconnect(self, other: End) -> None:
        greeting = Decoder().feed(other.link.greeting())[0]
        self.wire.clear()
        self.link.resume(self.wire.append, json.loads(greeting.payload)["received"])


@given(steps=st.lists(st.tuples(st.sampled_from("abABx?"), st.integers(0, 4)), max_size=60))
def test_everything_arrives_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    ends = {"a": End(), "b": End()}
    sent: dict[str, list[bytes]] = {"a": [], "b": []}

    def reconnect() -> None:
        for end in ends.values():
            end.link.cut()
        # Both learn what the other has before either continues.
        ends["a"].reconnect(ends["b"])
        ends["b"].reconnect(ends["a"])

    reconnect()
    for what, count in steps:
        if what in "ab":
            data = f"{what}{len(sent[what])}".encode()
            sent[what].append(data)
            ends[what].link.data(1, data)
        elif what in "AB":
            ends[what.lower()].receive(count, ends["b" if what == "A" else "a"])
        elif what == "x":
            reconnect()
        else:
            ends["ab"[count % 2]].link.ask()
    reconnect()
    ends["a"].receive(1000, ends["b"])
    ends["b"].receive(1000, ends["a"])
    assert ends["b"].taken == sent["a"]
    assert ends["a"].taken == sent["b"]


def test_frames_after_a_gap_are_refused_with_an_error() -> None:
    link = LinkState()
    assert link.is_new(Frame(DATA, 1, b""))
    with pytest.raises(Gap, match="frame 3 came instead of 2"):
        link.is_new(Frame(DATA, 3, b""))
    assert link.is_new(Frame(DATA, 2, b""))
    assert not link.is_new(Frame(DATA, 1, b""))
