"""Exits are read from the kernel's histograms and counters, whatever the text, and added up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.trace.exits import (
    ARM_OTHER,
    Bucket,
    ExitCount,
    Exits,
    _Layout,
    _layout_of,
    exit_counters,
    exit_recorder,
    parse_histogram,
    parse_types,
    runs_on_kvm,
)
from tare.hosts.trace.tracefs import EVENTS, NoTracing, synthetic_event, tracing_root

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root")
HISTOGRAM = """\
now ts: 74.688359
# event histogram
#
# trigger info: hist:keys=thread,isa,exit_reason:vals=hitcount,ns:sort=hitcount:size=4096 [active]
#

{ thread:   317, isa:   2, exit_reason:   100 } hitcount:   34  ns:   972400
{ thread:   317, isa:   2, exit_reason:   114 } hitcount:   5000  ns:   143550491

Totals:
    Hits: 5034
    Entries: 2
    Dropped: 0
"""
FORMAT = """\
name: kvm_exit
ID: 1555
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;

print fmt: "vcpu %u reason %s", REC->vcpu_id
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


def test_a_histogram_of_the_kernel_is_read() -> None:
    found = parse_histogram(HISTOGRAM)
    assert found.dropped == 0
    assert found.buckets[1] == Bucket(
        {"thread": 317, "isa": 2, "exit_reason": 114}, {"hitcount": 5000, "ns": 143550491}
    )


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("Hits: 5034", "Hits: 5035", "5034 events of 5035"),
        ("    Hits: 5034\n", "", "not a histogram"),
        ("hitcount:   5000", "hitcoun:   5000", "without a count"),
    ],
)
def test_a_histogram_that_is_cut_or_inconsistent_is_refused(
    before: str, after: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        parse_histogram(HISTOGRAM.replace(before, after))


def test_events_that_found_no_room_are_counted() -> None:
    full = HISTOGRAM.replace("Hits: 5034", "Hits: 5040").replace("Dropped: 0", "Dropped: 6")
    assert parse_histogram(full).dropped == 6


BUCKETS = st.dictionaries(
    st.tuples(st.integers(1, 1 << 22), st.sampled_from([1, 2]), st.integers(0, (1 << 32) - 1)),
    st.tuples(st.integers(1, 1 << 40), st.integers(0, (1 << 63) - 1)),
    max_size=6,
)


@given(BUCKETS, st.integers(0, 9))
def test_the_kernels_output_is_parsed(
    counts: dict[tuple[int, int, int], tuple[int, int]], dropped: int
) -> None:
    lines = [
        f"{{ thread: {thread:10}, isa: {isa:10}, exit_reason: {reason:10} }} "
        f"hitcount: {count:10}  ns: {ns:10}"
        for (thread, isa, reason), (count, ns) in counts.items()
    ]
    hits = sum(count for count, _ in counts.values()) + dropped
    text = "\n".join(lines) + f"\n\nTotals:\n    Hits: {hits}\n    Dropped: {dropped}\n"
    found = parse_histogram(text)
    assert found.dropped == dropped
    assert {
        (each.keys["thread"], each.keys["isa"], each.keys["exit_reason"]): (
            each.sums["hitcount"],
            each.sums["ns"],
        )
        for each in found.buckets
    } == counts


@pytest.mark.fuzz
@given(st.text(max_size=200) | st.builds(lambda at, by: HISTOGRAM[:at] + by + HISTOGRAM[at + 3 :],
       st.integers(0, len(HISTOGRAM)), st.text(max_size=5)))  # fmt: skip
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    parse_types(text)
    try:
        found = parse_histogram(text)
    except ValueError:
        return
    assert all(bucket.sums["hitcount"] >= 0 for bucket in found.buckets)


def test_types_of_fields_are_those_of_the_events_format() -> None:
    types = parse_types(FORMAT)
    assert types["common_pid"] == "int"
    assert types["exit_reason"] == "unsigned int"
    assert _layout_of(types) == _Layout(("isa", "exit_reason"))
    with pytest.raises(NoTracing, match="no reason"):
        _layout_of({"common_pid": "int"})


def test_arm64_exit_reasons_other_than_traps_follow_its_classes() -> None:
    layout = _layout_of({"ret": "int", "esr_ec": "unsigned int"})
    assert layout.isa_of({}) == "arm64"
    assert layout.reason_of({"ret": 2, "esr_ec": 0x24}) == 0x24
    assert layout.reason_of({"ret": 0, "esr_ec": 0}) == ARM_OTHER


def test_recordings_are_added_up() -> None:
    one = Exits((ExitCount(7, "svm", 114, 10, 0.5),), 1.0, 1)
    two = Exits((ExitCount(7, "svm", 114, 5, 0.25), ExitCount(7, "svm", 96, 1, 0.5)), 2.0)
    both = one + two
    assert both.total == 16
    assert (both.seconds, both.dropped) == (3.0, 1)
    assert both.counts[1] == ExitCount(7, "svm", 114, 15, 0.75)


@needs_root
async def test_a_host_that_cannot_record_exits_says_why_and_keeps_nothing(ledger: Ledger) -> None:
    host = LocalHost()
    try:
        async with exit_recorder(host, ledger) as recorder:
            await recorder.begin([os.getpid()])
            assert (await recorder.end()).total == 0
    except NoTracing as why:
        assert "CONFIG" in str(why) or "KVM" in str(why) or "cannot be" in str(why)
    assert not ledger.open_entries()


@needs_root
async def test_a_process_without_vcpus_has_no_counters(ledger: Ledger) -> None:
    host = LocalHost()
    assert not await runs_on_kvm(host, os.getpid())
    try:
        async with exit_counters(host, ledger, os.getpid()) as counters:
            assert counters is None
    except NoTracing as why:
        assert "debugfs" in str(why)
    assert not ledger.open_entries()


@needs_root
async def test_clean_removes_an_event_that_a_killed_recorder_left(ledger: Ledger) -> None:
    host = LocalHost()
    try:
        async with tracing_root(host, ledger) as root:
            name = await synthetic_event(host, ledger, root, "u64 ns").__aenter__()
            messages = await clean(host, ledger, {})
            assert any(name in sentence for sentence in messages)
            assert name not in (root / EVENTS).read_text()
    except NoTracing as why:
        pytest.skip(str(why))


async def test_clean_leaves_events_that_are_not_tares(ledger: Ledger) -> None:
    ledger.record("trace-event", path=f"/sys/kernel/tracing/{EVENTS}", name="wakeup_latency")
    ledger.record("trace-event", path="/etc/passwd", name="tare_x")
    messages = await clean(LocalHost(), ledger, {})
    assert len(messages) == 2
    assert all(sentence.startswith("Left") for sentence in messages)
