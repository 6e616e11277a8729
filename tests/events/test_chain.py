"""The hashes of a stream's lines: the signs of each kind of change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events import CellFinished
from tare.events.chain import NO_SEAL, Chain, Seal
from tare.events.metric import Metric
from tare.events.observations import possible
from tare.events.results import IMPOSSIBLE, Observation


def written(count: int) -> tuple[list[bytes], list[str]]:
    """Return as many lines as a run writes them, and the hash of each."""
    chain, lines, digests = Chain(), [], []
    for number in range(count):
        line, digest = chain.chaining(b'{"seq":%d}' % number)
        chain.add(digest)
        lines.append(line)
        digests.append(chain.digest)
    return lines, digests


def read(lines: list[bytes], seal: Seal | None) -> Chain:
    chain = Chain(seal)
    for line in lines:
        chain.follow(line)
    return chain


@given(st.integers(1, 9), st.integers(0, 8))
def test_a_stream_as_it_was_written_raises_no_doubt(count: int, kept: int) -> None:
    lines, digests = written(count)
    kept = min(kept, count - 1)
    chain = read(lines, Seal(kept, digests[kept]))
    assert (chain.doubts(), chain.digest, chain.plain) == ([], digests[-1], 0)


@pytest.mark.parametrize(("left", "lost"), [(4, 1), (3, 2), (0, 5)])
def test_a_truncated_stream_is_reported_with_the_number_of_lost_lines(left: int, lost: int) -> None:
    lines, digests = written(5)
    assert read(lines[:left], Seal(4, digests[4])).doubts() == [
        f"it was shortened: the last {lost} of 5 events miss"
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_changed_line_is_reported_by_its_number(number: int) -> None:
    lines, digests = written(4)
    lines[number] = lines[number].replace(b'"seq":', b'"seq": ')
    doubts = read(lines, Seal(3, digests[3])).doubts()
    assert doubts == [f"line {number + 1} was changed, or one before it was removed"]


def test_a_missing_line_is_reported_at_the_next_one() -> None:
    lines, digests = written(4)
    del lines[1]
    doubts = read(lines, Seal(2, digests[3])).doubts()
    assert doubts == [
        "line 2 was changed, or one before it was removed",
    ]


def test_a_rewritten_end_does_not_match_the_kept_seal() -> None:
    lines, _ = written(3)
    chain = read(lines, Seal(2, "0" * 64))
    assert chain.doubts() == ["event 2 does not have the hash that was kept next to it"]


def test_hashes_that_were_taken_out_are_missed() -> None:
    lines, digests = written(3)
    plain = [line[: line.index(b',"chain"')] + b"}" for line in lines]
    assert read(plain, Seal(2, digests[2])).doubts() == ["its hashes were removed"]
    # Where nothing was kept, they may never have been there.
    assert read(plain, None).doubts() == []
    assert (read(plain, None).plain, read(plain, None).chained) == (3, False)


def test_a_stream_that_began_without_hashes_continues_with_them() -> None:
    chain = Chain()
    chain.follow(b'{"seq":0}')
    line, digest = chain.chaining(b'{"seq":1}')
    chain.add(digest)
    again = read([b'{"seq":0}', line], Seal(1, chain.digest))
    assert (again.plain, again.chained, again.doubts()) == (1, True, [])
    assert read([b'{"seq":0}', line], None).doubts() == [NO_SEAL]
    # After the first hash a line without one was changed.
    late = read([b'{"seq":0}', line, b'{"seq":2}'], None)
    assert (late.plain, late.broken) == (1, [3])


def test_no_more_than_the_first_twenty_lines_are_named() -> None:
    lines, digests = written(30)
    wrong = [line.replace(b'"seq":', b'"seq": ') for line in lines]
    assert read(wrong, Seal(29, digests[29])).broken == list(range(1, 21))


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (IMPOSSIBLE, "withheld"),
        (-IMPOSSIBLE, "withheld"),
        (float("nan"), "withheld"),
        (IMPOSSIBLE / 2, "ok"),
    ],
)
def test_impossible_values_are_withheld(value: float, status: str) -> None:
    done = CellFinished(cell="b001/bare/alone/tick", status="ok")
    metric = Metric("rate", "1/s", "higher", headline=True)
    found, reason = possible(done, [Observation("subject", metric, each) for each in (1.0, value)])
    assert found == status
    assert ("no machine can have had" in reason) == (status == "withheld")
    failed = CellFinished(cell=done.cell, status="failed", reason="it died")
    assert possible(failed, [Observation("subject", metric, value)]) == ("failed", "it died")
