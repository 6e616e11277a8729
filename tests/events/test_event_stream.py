"""The stream survives crashes, full disks and edits, or reports the exact place of the damage."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events import (
    STREAM_VERSION,
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Decided,
    Event,
    EventLog,
    Fold,
    Observed,
    Record,
    RunResumed,
    RunStarted,
    UnreadableStream,
    read_events,
)
from tare.events.chain import Sealer, seal_path
from tare.events.observations import Seen
from tare.events.results import Observation
from tare.events.stream import read_entries
from tare.plaintext import plain_json

names = st.text(min_size=1, max_size=20)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(BlockStarted, block=st.integers(1, 99), order=st.tuples(names, names)),
    st.builds(
        Observed,
        cell=names,
        metric=names,
        unit=st.sampled_from(["s", "B/s"]),
        better=st.sampled_from(["higher", "lower"]),
        value=st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.builds(CellFinished, cell=names, status=st.sampled_from(["ok", "failed"]), reason=names),
    st.builds(Decided, block=st.integers(1, 9), go_on=st.booleans(), reason=names),
)


def shown(event: Any) -> Any:
    """The event with its texts as they may be shown."""
    return type(event).model_validate(plain_json(event.model_dump()))


def write(path: Path, happened: list[Event]) -> None:
    with EventLog(path) as log:
        for event in happened:
            log.append(event)


@given(st.lists(events, min_size=1, max_size=8))
def test_appended_events_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Event]
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    write(path, happened)
    assert [record.event for record in read_events(path)] == [shown(each) for each in happened]


@given(st.lists(events, min_size=2, max_size=6), st.floats(0, 1))
def test_a_torn_tail_costs_only_what_was_torn(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Event], share: float
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    write(path, happened)
    content = path.read_bytes()
    first_line = content.index(b"\n") + 1
    cut = first_line + int(share * (len(content) - first_line))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    left = [shown(event) for event in happened[:whole]]
    assert [record.event for record in read_events(path)] == left
    # As after a crash: it names no event that was not on the disk.
    seal_path(path).unlink()
    with EventLog(path) as log:
        log.append(BlockFinished(block=7))
    assert [record.event for record in read_events(path)] == [
        *left,
        BlockFinished(block=7),
    ]


@given(st.lists(events, min_size=3, max_size=6), st.data())
def test_damage_before_the_last_line_names_the_line(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    write(path, happened)
    lines = path.read_bytes().split(b"\n")
    broken = data.draw(st.integers(0, len(happened) - 1))
    lines[broken] = lines[broken][: len(lines[broken]) // 2]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UnreadableStream, match=f"line {broken + 1}:"):
        read_events(path)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableStream):
        read_events(path)


def test_a_lost_line_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, [BlockStarted(block=n, order=()) for n in range(1, 4)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(UnreadableStream, match="line 2: event 2 where 1 belongs"):
        read_events(path)


def test_a_seal_is_as_long_for_the_last_number_as_for_the_first(tmp_path: Path) -> None:
    """Else a longer one would leave its end behind a shorter one that is written over it."""
    stream = tmp_path / "events.jsonl"
    sealer = Sealer(stream)
    for number in (10**18, 0):
        sealer.keep(number, "ab" * 32)
        assert seal_path(stream).read_text() == f"{number} {'ab' * 32}".ljust(84) + "\n"
    sealer.close()


def test_a_newer_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    begun = RunStarted(
        version=STREAM_VERSION + 1,
        run="r",
        study={},
        study_path="s.yaml",
        study_sha256="",
        seed=1,
        host={},
        versions={},
    )
    write(path, [begun])
    with pytest.raises(UnreadableStream, match="use a newer Tare"):
        read_events(path)


def test_a_full_disk_leaves_no_half_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append(BlockFinished(block=1))
        real_write = log._file.write

        def nearly_full(data: bytes) -> int:
            if len(data) > 10:
                return real_write(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        class FullFile:
            def __getattr__(self, name: str) -> Any:
                return nearly_full if name == "write" else getattr(real_file, name)

        real_file = log._file
        monkeypatch.setattr(log, "_file", FullFile())
        with pytest.raises(OSError, match="No space left"):
            log.append(
                CellStarted(
                    cell="c", block=1, arm="a", scenario="s", workload="tick", parameters={}
                )
            )
        monkeypatch.undo()
    assert [record.event for record in read_events(path)] == [BlockFinished(block=1)]


odd = st.text(max_size=8) | st.sampled_from(['"', "\\", "\x00", "\ud7ff", "é", '","value":1}}'])
observed = st.builds(
    Observed,
    cell=odd,
    role=odd,
    metric=odd,
    unit=odd,
    better=st.sampled_from(["higher", "lower", "neither"]),
    kind=st.sampled_from(["typical", "tail", "maximum"]),
    headline=st.booleans(),
    value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
)


@given(st.lists(observed, min_size=1, max_size=8))
def test_observations_are_read_fast_as_the_model_reads_them(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Observed]
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    write(path, list(happened))
    assert [seen_of(entry) for entry in read_entries(path)] == [
        (event.cell, Observation(event.role, event.described, event.value))
        for event in map(shown, happened)
    ]


def seen_of(entry: Record | Seen) -> tuple[str, Observation]:
    if isinstance(entry, Seen):
        return entry.cell, entry.observation
    assert isinstance(entry.event, Observed)
    event = entry.event
    return event.cell, Observation(event.role, event.described, event.value)


PLAIN = (
    b'{"seq":0,"time":1.5,"event":{"type":"observation","cell":"c","role":"subject","metric":"m",'
    b'"unit":"s","better":"lower","kind":"typical","headline":true,"value":1.25}}'
)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"value":1.25', b'"value":1e999'),
        (b'"value":1.25', b'"value":NaN'),
        (b'"value":1.25', b'"value":01'),
        (b'"better":"lower"', b'"better":"less"'),
        (b'"metric":"m"', b'"metric":"\xff"'),
        (b'"cell":"c"', b'"cell":"\xff"'),
        (b'"seq":0', b'"seq":1'),
        (b"}}", b"}}}"),
        (b'"headline":true', b'"headline":true,"more":1'),
    ],
)
def test_a_damaged_observation_is_refused_as_the_model_refuses_it(
    tmp_path: Path, good: bytes, bad: bytes
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(PLAIN + b"\n")
    assert isinstance(next(read_entries(path)), Seen)
    path.write_bytes(PLAIN.replace(good, bad) + b"\n")
    with pytest.raises(UnreadableStream) as strict:
        read_events(path)
    with pytest.raises(UnreadableStream) as fast:
        list(read_entries(path))
    assert str(fast.value) == str(strict.value)


signs = st.sampled_from(["", "-"])
digits = st.text("0123456789", min_size=1, max_size=30)
beyond = st.one_of(
    st.builds("{}{}".format, signs, st.integers(1 << 64, 10**400)),
    st.builds("{}{}.{}".format, signs, st.integers(10**310, 10**400), digits),
    st.builds(
        "{}{}.{}{}{}".format,
        signs,
        st.integers(1, 10**30),
        digits,
        st.sampled_from(["e", "E", "e+", "E+"]),
        st.integers(310, 10**6),
    ),
    st.sampled_from(["NaN", "Infinity", "-Infinity"]),
)
places = st.sampled_from(["{}", "[{}]", "[0,{}]", "[0 ,\t{}]", '{{"a":{}}}', '{{"a" : \r{} }}'])


@given(beyond, places)
def test_a_number_out_of_bounds_is_found_at_any_depth(number: str, place: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        write(path, [CellFinished(cell="c", status="ok", facts={"x": 12345})])
        odd = place.format(number).encode()
        path.write_bytes(path.read_bytes().replace(b"12345", odd, 1))
        with pytest.raises(UnreadableStream, match="line 1: a number beyond all bounds"):
            read_events(path)


def test_a_hash_is_not_taken_for_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    write(path, [BlockStarted(block=1, order=("bare",)) for _ in range(100)])

    def slow(_: object) -> None:
        raise AssertionError("a usual line is checked as if a stranger had written it")

    monkeypatch.setattr("tare.events.stream.plain_json", slow)
    assert len(read_events(path)) == 100


def test_a_block_that_a_killed_process_left_is_under_way_no_more() -> None:
    fold = Fold()
    happened: list[Event] = [BlockStarted(block=1, order=()), RunResumed(run="ab12", versions={})]
    for number, event in enumerate(happened):
        fold.take(Record(seq=number, time=float(number), event=event))
        assert fold.block.under_way is isinstance(event, BlockStarted)
    assert fold.block.took_s == [] and fold.block.number == 1
