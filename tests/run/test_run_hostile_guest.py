"""A wrong message of a guest fails only its own cell, never the run or other cells."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from run.run_hostile import Message, Says, Twist, raw, run_twisted
from tare.analysis import compare_runs, load_run
from tare.analysis.data.verify import verify_run
from tare.report import build_report
from tare.run.cells import liveness

NAN = math.nan
DEEP = "[" * 900 + "]" * 900
PROVING = '{"type":"hello","protocol":1,"proof":HERE}'
COLUMNS = [["thread", "u64"], ["time_ns", "u64"], ["iteration_ns", "f64"]]
SERIES = {"name": "iterations", "rows": 1, "columns": COLUMNS, "offset": 0, "total": 24}
"""As the work that the tests measure sends it."""


def when(is_it: Callable[[Message], bool], then: Callable[[Message], list[Says]]) -> Twist:
    return lambda message: then(message) if is_it(message) else [message]


def is_hello(message: Message) -> bool:
    return bool(message["type"] == "hello")


def is_clock(message: Message) -> bool:
    return message["type"] == "result" and "tsc" in message["value"]


def is_outcome(message: Message) -> bool:
    return message["type"] == "result" and "timing" in message


def is_progress(message: Message) -> bool:
    return bool(message["type"] == "progress")


def hello(**changes: Any) -> Twist:
    return when(is_hello, lambda message: [{**message, **changes}])


def clock(text: str) -> Twist:
    value = '{"type":"result","id":ID,"value":{"monotonic_raw_ns":HERE,"tsc":1}}'
    return when(is_clock, raw(value.replace("HERE", text)))


def outcome(**changes: Any) -> Twist:
    return when(is_outcome, lambda message: [{**message, **changes}])


def value(**changes: Any) -> Twist:
    return outcome(value={"iterations_per_s": 1.0, **changes})


def raw_value(text: str) -> Twist:
    return when(is_outcome, raw('{"type":"result","id":ID,"value":HERE}'.replace("HERE", text)))


def row(thread: int = 0, time_ns: int = 1, iteration_ns: float = 2.5) -> bytes:
    return struct.pack("<QQd", thread, time_ns, iteration_ns)


def series(data: bytes = row(), **changes: Any) -> Twist:
    def first(message: Message) -> list[Says]:
        return [({**SERIES, "id": message["id"], **changes}, data), message]

    return when(is_outcome, first)


def columns_of(name: str, kinds: str, **columns: Any) -> Twist:
    """A series of one row under a name of its own; ``kinds`` as :mod:`struct` takes them."""
    types = {"Q": "u64", "d": "f64", "I": "u32", "q": "i64"}
    typed = [[column, types[kind]] for column, kind in zip(columns, kinds, strict=True)]
    data = struct.pack(f"<{kinds}", *columns.values())
    return series(data, name=name, columns=typed, total=len(data))


FATAL: dict[str, Twist] = {
    "hello: a result instead": when(is_hello, lambda m: [{"type": "result", "id": 1, "value": {}}]),
    "hello: an error instead": when(
        is_hello, lambda m: [{"type": "error", "id": 1, "reason": "no"}]
    ),
    "hello: proof a list": hello(proof=[1]),
    "hello: proof 900 deep": when(is_hello, raw(PROVING.replace("HERE", DEEP))),
    "hello: proof 20000 deep": when(is_hello, raw(PROVING.replace("HERE", "[" * 20000))),
    "hello: proof of 10^400": hello(proof={"cpu": {"model": 10**400}}),
    "hello: proof of 10^5000": when(
        is_hello, raw(PROVING.replace("HERE", '{"a":1' + "0" * 5000 + "}"))
    ),
    "hello: proof of half a character": hello(proof={"kernel": {"release": "\ud800"}}),
    "hello: key of half a character": hello(proof={"\udfff": 1}),
    "hello: key with an escape": hello(proof={"\x1b]0;x\x07": 1}),
    "hello: too many values": hello(proof={"a": [0] * 100_000}),
    "hello: workloads a number": hello(workloads=5),
    "hello: workloads of lists": hello(workloads=[[1]]),
    "hello: boot of words": hello(boot={"hello_ns": "late"}),
    "hello: protocol a list": hello(protocol=[1]),
    "hello: a number": when(is_hello, raw("5")),
    "hello: no JSON": when(is_hello, raw("{")),
    "hello: no UTF-8": when(is_hello, lambda m: [b'{"type":"\xff"}']),
    "hello: in UTF-16": when(is_hello, lambda m: [json.dumps(m).encode("utf-16")]),
    "hello: type a list": hello(type=["hello"]),
    "clock: 1e999": clock("1e999"),
    "clock: NaN": clock("NaN"),
    "clock: -Infinity": clock("-Infinity"),
    "clock: words": clock('"now"'),
    "clock: true": clock("true"),
    "clock: 10^400": clock("1" + "0" * 400),
    "clock: negative": clock("-1"),
    "clock: missing": when(is_clock, lambda m: [{**m, "value": {}}]),
    "clock: value null": when(is_clock, lambda m: [{**m, "value": None}]),
    "result: value a list": outcome(value=[1]),
    "result: value null": outcome(value=None),
    "result: timing a number": outcome(timing=5),
    "result: timing of words": outcome(timing={"started_ns": "x"}),
    "result: timing 10^400": outcome(timing={"started_ns": 10**400}),
    "result: an id that is none": outcome(id=[1]),
    "result: hello instead": outcome(type="hello"),
    "result: warnings a number": value(warnings=5),
    "result: warnings of numbers": value(warnings=[5]),
    "result: warnings of half a character": value(warnings=["\ud800"]),
    "result: phases a word": value(phases="abc"),
    "result: phases of nothing": value(phases=[{}]),
    "result: 1e999": raw_value('{"iterations_per_s":1e999}'),
    "result: NaN": raw_value('{"iterations_per_s":NaN}'),
    "result: 10^400": value(iterations_per_s=10**400),
    "result: 1e308": value(iterations_per_s=1e308),
    "result: words": value(iterations_per_s="many"),
    "result: a list": value(iterations_per_s=[1]),
    "result: nothing": outcome(value={}),
    "result: 900 deep": raw_value('{"iterations_per_s":1,"x":HERE}'.replace("HERE", DEEP)),
    "error: reason a list": outcome(type="error", reason=["x"]),
    "fatal: reason a number": outcome(type="fatal", reason=5),
    "gone: no list": outcome(type="gone", seqs=5),
    "progress: done a word": when(is_progress, lambda m: [{**m, "done": "half"}]),
    "progress: done 10^400": when(is_progress, lambda m: [{**m, "done": 10**400}]),
    "series: name with a slash": series(name="a/b"),
    "series: name of dots": series(name="../../../../tmp/x"),
    "series: name with NUL": series(name="a\0b"),
    "series: name of 400 characters": series(name="a" * 400),
    "series: name empty": series(name=""),
    "series: name a list": series(name=[1]),
    "series: name of half a character": series(name="\ud800"),
    "series: column with a NUL": series(columns=[["\0", "u8"]]),
    "series: column named twice": series(columns=[["v", "u8"]] * 2, total=2, data=b"12"),
    "series: one that this work has not": series(name="gaps"),
    "series: as Tare's own are called": columns_of("counters", "QQ", time_ns=1, x=2),
    "series: as the host's are called": columns_of("host-sched", "Q", time_ns=1),
    "series: two columns of durations": columns_of(
        "iterations", "dd", iteration_ns=1.0, duration_ns=1.0
    ),
    "series: responses of a load that is none": columns_of(
        "responses",
        "dddddddd",
        time_ns=0.0,
        completed=NAN,
        failed=1.0,
        mean_ns=1.0,
        median_ns=1.0,
        p99_ns=1.0,
        max_ns=1.0,
        due=1.0,
    ),
    "series: a histogram of nobody": columns_of(
        "histogram", "ddQ", low_ns=1.0, width_ns=1.0, count=1 << 63
    ),
    "series: columns in another order": series(columns=[*COLUMNS[1:], COLUMNS[0]]),
    "series: columns of other types": series(columns=[[name, "u64"] for name, _ in COLUMNS]),
    "series: NaN": series(row(iteration_ns=NAN)),
    "series: infinite": series(row(iteration_ns=math.inf)),
    "series: below zero": series(row(iteration_ns=-1.0)),
    "series: beyond 63 bits": series(row(time_ns=1 << 63)),
    "series: more than such work sends": series(rows=1 << 25, total=24 << 25),
    "series: no columns": series(columns=[], rows=0, total=0, data=b""),
    "series: column of 10,000 characters": series(columns=[["v" * 10_000, "u8"]]),
    "series: half of it": series(rows=2, total=48),
    "series: twice": when(is_outcome, lambda m: [*[({**SERIES, "id": m["id"]}, row())] * 2, m]),
    "series: 8 GiB": series(rows=1 << 30, total=24 << 30),
    "series: rows 10^400": series(rows=10**400),
    "series: rows a fraction": series(rows=1.5),
    "series: an id that is none": series(id="x"),
}
HARMLESS: dict[str, Twist] = {
    "hello: proof empty": hello(proof={}),
    "hello: proof of other kinds": hello(
        proof={"kernel": 5, "cpu": [1, [2]], "hypervisor": "x", "network": [], "scratch": True}
    ),
    "hello: twice": when(is_hello, lambda m: [m, m]),
    "hello: escapes in the proof": hello(proof={"kernel": {"release": "\x1b[2J\u202e6.1"}}),
    "result: more than asked": value(more={"x": [1, None, {"y": 1}]}),
    "result: escapes in warnings": value(warnings=["\x1b]0;owned\x07\x1b[2Jhello\u202e"]),
    "result: warnings null": value(warnings=None),
    "progress: done 1e308": when(is_progress, lambda m: [{**m, "done": 1e308, "rate": 1e308}]),
    "progress: escapes": when(is_progress, lambda m: [{**m, "rate": 1, "unit": "\x1b[2J"}]),
    "series: as it is honest": series(),
    "series: of a run that is none": series(id=999),
    "a message of an unknown type": when(is_progress, lambda m: [{"type": "zzz", "x": 1}, m]),
}


@pytest.fixture(autouse=True)
def doubles_have_no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "LAST_WORDS_S", 0.01)


@pytest.mark.parametrize("twist", FATAL.values(), ids=FATAL.keys())
async def test_a_hostile_guest_costs_a_cell(
    twist: Twist, tmp_path: Path, agent_program: Path
) -> None:
    fold = await run_twisted(twist, tmp_path / "run", agent_program)
    cells = {result.arm: result for result in fold.cell_results()}
    assert cells["good"].status == "ok", cells["good"].reason
    assert cells["bad"].status == "failed"
    assert cells["bad"].reason.isprintable() and len(cells["bad"].reason) < 600
    assert_written(tmp_path / "run")


@pytest.mark.parametrize("twist", HARMLESS.values(), ids=HARMLESS.keys())
async def test_odd_but_harmless_messages_cost_nothing(
    twist: Twist, tmp_path: Path, agent_program: Path
) -> None:
    fold = await run_twisted(twist, tmp_path / "run", agent_program)
    assert {result.status for result in fold.cell_results()} == {"ok"}
    assert_written(tmp_path / "run")
    data = load_run(tmp_path / "run")
    page = build_report([data], compare_runs([data]), tmp_path / "run", [], ())
    assert "\x1b" not in page.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "series: as Tare's own are called",
        "series: two columns of durations",
        "series: responses of a load that is none",
        "series: a histogram of nobody",
        "series: NaN",
        "series: beyond 63 bits",
        "series: twice",
    ],
)
async def test_a_run_whose_guest_sent_odd_series_reports(
    text: str, tmp_path: Path, agent_program: Path
) -> None:
    folder = tmp_path / "run"
    await run_twisted(FATAL[text], folder, agent_program)
    data = load_run(folder)
    build_report([data], compare_runs([data]), folder, [], ())
    assert verify_run(folder).damage == ("study.yaml: No such file or directory",)


def assert_written(folder: Path) -> None:
    """Nothing outside the folder's own places, and nothing that a terminal would obey."""
    assert {path.name for path in folder.iterdir()} <= {
        "events.jsonl",
        "events.last",
        "series",
        "machines",
    }
    text = (folder / "events.jsonl").read_text()
    for line in text.splitlines():
        json.loads(line)
    for control in ("\x1b", "\\u001b", "\u202e", "\\u202e"):
        assert control not in text


EXAMPLES = 2500 if os.environ.get("TARE_FUZZ") else 25
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
PLACES = st.sampled_from(
    ["hello", "accepted", "ready", "progress", "result", "value", "proof", "timing", "series"]
)


@pytest.mark.fuzz
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=EXAMPLES)
@given(
    place=PLACES,
    key=st.sampled_from(
        ["type", "id", "value", "proof", "timing", "warnings", "phases", "witness", "name", "rows",
         "iterations_per_s", "protocol", "workloads", "boot", "done", "reason", "columns", "disk",
         "hypervisor", "kernel", "tsc", "monotonic_raw_ns"]
    ),
    instead=JSON,
)  # fmt: skip
async def test_no_word_of_a_guest_ends_a_run(
    place: str, key: str, instead: Any, tmp_path_factory: pytest.TempPathFactory,
    agent_program: Path,
) -> None:  # fmt: skip
    def twist(message: Message) -> list[Says]:
        if place == "series" and is_outcome(message):
            return [({**SERIES, "id": message["id"], key: instead}, row()), message]
        if place in ("value", "proof", "timing") and isinstance(message.get(place), dict):
            return [{**message, place: {**message[place], key: instead}}]
        return [{**message, key: instead}] if message["type"] == place else [message]

    folder = tmp_path_factory.mktemp("fuzz") / "run"
    fold = await run_twisted(twist, folder, agent_program, 0.2)
    cells = {result.arm: result for result in fold.cell_results()}
    assert cells["good"].status == "ok", cells["good"].reason
    assert_written(folder)
    load_run(folder)
