"""What xentrace wrote is read record by record, and nothing that it is not is taken for it."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platforms.xen_traces import of_change, record, window
from tare.platforms.xen.trace.records import LostRecords, Runstate, RunstateChange, records

CHANGES = st.builds(
    RunstateChange,
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 4095),
    st.integers(0, 0x7FFF),
    st.integers(0, 0xFFFF),
    st.sampled_from(Runstate),
    st.sampled_from(Runstate),
)
OTHER = st.builds(
    record,
    st.sampled_from([0x00028001, 0x00082010, 0x0010F001, 0x00801001, 0x0001F002]),
    st.lists(st.integers(0, (1 << 32) - 1), max_size=7),
    st.none() | st.integers(0, (1 << 64) - 1),
)


@given(st.lists(st.tuples(CHANGES, st.lists(OTHER, max_size=3)), max_size=30))
def test_every_change_is_read_back_between_records_of_other_kinds(
    changed: list[tuple[RunstateChange, list[bytes]]],
) -> None:
    data = b"".join(window(one.cpu, b"".join(others) + of_change(one)) for one, others in changed)
    assert list(records(data)) == [one for one, _ in changed]


@given(st.lists(CHANGES, min_size=1, max_size=10), st.integers(0, 200))
def test_a_file_that_was_cut_off_gives_what_it_holds_whole(
    changed: list[RunstateChange], cut: int
) -> None:
    whole = b"".join(window(one.cpu, of_change(one)) for one in changed)
    kept = whole[: max(0, len(whole) - cut)]
    assert list(records(kept)) == changed[: len(kept) // len(window(0, of_change(changed[0])))]


def test_lost_records_are_counted() -> None:
    # xen/common/trace.c, insert_lost_records: how many, whose vCPU, and since when.
    lost = record(0x0001F001, [42, 0x00010000, 7, 8], 99)
    assert list(records(window(3, lost))) == [LostRecords(3, 42)]


def test_a_record_of_real_bytes() -> None:
    # Domain 5's vCPU 2 on CPU 1 goes from running to runnable.
    data = window(1, struct.pack("<IQI", 0x90021011, 0x1122334455667788, 0x00050002))
    change = RunstateChange(0x1122334455667788, 1, 5, 2, Runstate.RUNNING, Runstate.RUNNABLE)
    assert list(records(data)) == [change]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (record(0x00028001, [1], 5), "no record that says whose"),
        (record(0x0001F003, [1]), "does not say whose"),
        (window(0, record(0x00021002, [1], 5)[:8]) + bytes(64), "reaches beyond"),
        (record(0x0001F003, [1, 400]) + window(1, b""), "another begins at"),
        (window(0, b"") + record(0x00021002, [1], 5), "no record that says whose"),
    ],
)
def test_impossible_values_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(records(data))


@pytest.mark.fuzz
@given(st.binary(max_size=400))
@example(struct.pack("<I", 0x2001F003))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        for one in records(data):
            assert isinstance(one, RunstateChange | LostRecords)


@pytest.mark.fuzz
@given(st.lists(CHANGES, min_size=1, max_size=6), st.data())
def test_a_damaged_file_is_read_or_refused(
    changed: list[RunstateChange], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(window(one.cpu, of_change(one)) for one in changed))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        # No record is shorter than 4 bytes: whatever the damage, it ends.
        assert len(list(records(bytes(whole)))) <= len(whole) // 4
